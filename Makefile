# Everything that a contributor does, one word each. `make help` lists them.
# Nothing needs to be installed but Go, git, make and a C compiler (for the race detector).
SHELL := bash
.DEFAULT_GOAL := help

# Version of staticcheck: fetched and built by go run, so that nobody installs it by hand.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.7.0

# Modules of the workspace, read only by the targets that need them.
MODULES = $$(go list -m -f '{{.Dir}}')

# LMDB, and SQLite in C, take part in the benchmark where there is a C compiler. Its tests leave SQLite in C
# out, which takes long to compile and differs from SQLite in Go by its driver only.
BENCHTAGS ?= $(shell test "$$(go env CGO_ENABLED)" = 1 && command -v "$$(go env CC)" >/dev/null && echo lmdb,cgosqlite)

FUZZTIME ?= 10s
BENCH ?= .
BENCHTIME ?= 1s
TORTURETIME ?= 10m

.PHONY: help build test test-short bench-test race vet lint fuzz check bench bench-full microbench golden run clean torture cross foreign

help: ## List these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

build: bin/ebb ## Build bin/ebb, and bin/ebbd, the server for Redis clients
	go build -o bin/ebbd ./cmd/ebbd

bin/ebb: FORCE
	go build -o $@ ./cmd/ebb

.PHONY: FORCE
FORCE:

# No package of tests takes a tenth of its timeout on two quiet cores: a busy machine is no failure. The
# benchmark has its own target, so that `make test` compiles none of its peers.
test: ## Run the tests of all modules but the benchmark; the last line counts them
	@go run ./scripts/gotest -bars .ci/bars -except cmd/bench -- -timeout 30m

test-short: ## The same with samples of what takes long: under a minute
	@go run ./scripts/gotest -except cmd/bench -- -short -timeout 10m

bench-test: ## Build the benchmark's peers and run the benchmark's tests
	@go run ./scripts/gotest -bars .ci/bars -only cmd/bench -- -timeout 30m -tags '$(BENCHTAGS:,cgosqlite=)'

race: ## The tests under the race detector
	@go run ./scripts/gotest -except cmd/bench -- -race -timeout 60m

vet: ## gofmt and go vet, all modules
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt -w these:"; echo "$$unformatted"; exit 1; }
	@for dir in $(MODULES); do (cd "$$dir" && go vet ./...) || exit 1; done

lint: ## staticcheck, all modules
	@for dir in $(MODULES); do (cd "$$dir" && go run $(STATICCHECK) ./...) || exit 1; done

fuzz: ## Fuzz every target for FUZZTIME (10s)
	@scripts/fuzz.sh $(FUZZTIME)

check: vet lint test ## vet, lint and test: what to run before a commit

bench: build-bench ## Compare with other stores, small and large: bin/bench.json, bench.html
	bin/bench -n 10000,100000 -rounds 1 -json bin/bench.json -html bin/bench.html

bench-full: build-bench ## The same with a million rows and ten million: hours
	bin/bench -n 1000000 -rounds 3 -workloads all -json bin/bench-full.json -html bin/bench-full.html

bench-memory: build-bench ## Data up to four times as large as memory, in control groups, as root: an hour and more
	bin/bench -n 1000000 -rounds 1 -engines ebb,bbolt,lmdb,pebble -workloads 'memory-*' -json bin/bench-memory.json

.PHONY: build-bench bench-memory
build-bench:
	go build -tags '$(BENCHTAGS)' -o bin/bench ./cmd/bench

microbench: ## Run the Go benchmarks that match BENCH for BENCHTIME each
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem ./...

golden: ## Rewrite the golden files that pin the format; a change there is a format change
	@for dir in $$(grep -rl --include='*_test.go' 'ebb/internal/golden"' . | xargs -n 1 dirname | sort -u); do \
		(cd "$$dir" && go test . -update) || exit 1; done

run: bin/ebb ## Import the sources of the Go toolchain, kill the import half-way, recover, verify
	rm -rf run
	mkdir -p run
	bin/ebb demo run/gosrc.ebb "$$(go env GOROOT)/src"
	@echo; echo "Look at it: bin/ebb scan run/gosrc.ebb --keys-only --limit 5, bin/ebb ui run/gosrc.ebb"

torture: ## Everything that tries to break the store, an evening long; goes on where it was interrupted
	scripts/torture.sh $(TORTURETIME)

foreign: ## Run tests for 386 and, emulated, for s390x where this machine can
	@scripts/foreign.sh

cross: ## Build for every supported platform, and vet for each system and processor
	@scripts/cross.sh

clean: ## Remove what the other targets made
	rm -rf bin run
