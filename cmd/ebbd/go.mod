module github.com/ebbkv/ebb/cmd/ebbd

go 1.25.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/ebbkv/ebb v0.0.0
	github.com/gomodule/redigo v1.9.2
	github.com/redis/go-redis/v9 v9.17.3
	github.com/redis/rueidis v1.0.69
	github.com/spf13/pflag v1.0.9
	github.com/stretchr/testify v1.11.1
	github.com/yuin/gopher-lua v1.1.2
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	golang.org/x/sys v0.38.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)

replace github.com/ebbkv/ebb => ../..
