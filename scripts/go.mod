module github.com/ebbkv/ebb/scripts

go 1.25.0
