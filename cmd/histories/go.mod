module github.com/ebbkv/ebb/cmd/histories

go 1.25.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/ebbkv/ebb v0.0.0
	github.com/stretchr/testify v1.11.1
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	golang.org/x/sys v0.38.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)

replace github.com/ebbkv/ebb => ../..
