#!/usr/bin/env bash
# Builds the library for every platform that Ebb supports but linux/amd64, which the tests build, all of
# the root module for macOS as well, and for Windows also the commands, vetted with their tests. The
# benchmark, the adapters and the linearizability checker stay out: what they compare with or adapt to
# would take most of the time. What is built is thrown away, and takes half as long if it is not
# optimised.
set -euo pipefail
cd "$(dirname "$0")/.."
flags=(-gcflags=all='-N -l')
for target in linux/arm64 linux/386 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64 freebsd/amd64; do
	export GOOS=${target%/*} GOARCH=${target#*/} CGO_ENABLED=0
	echo "$target: build of the library"
	go build "${flags[@]}" ./kv/...
	case $target in
	darwin/arm64)
		echo "$target: build of the module"
		go build "${flags[@]}" -o /dev/null ./...
		;;
	windows/amd64)
		for dir in . cmd/ebb cmd/ebbd; do
			echo "$target: build and vet of $dir"
			(cd "$dir" && go build "${flags[@]}" -o /dev/null ./... && go vet "${flags[@]}" ./...)
		done
		;;
	esac
done
