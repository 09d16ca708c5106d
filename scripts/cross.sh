#!/usr/bin/env bash
# Builds every module of the workspace, and vets the library with its tests, for every platform that Ebb supports.
set -euo pipefail
cd "$(dirname "$0")/.."
for target in linux/amd64 linux/arm64 linux/386 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64 freebsd/amd64; do
	export GOOS=${target%/*} GOARCH=${target#*/} CGO_ENABLED=0
	echo "build and vet $target"
	for dir in $(go list -m -f '{{.Dir}}'); do
		(cd "$dir" && go build -o /dev/null ./... && go vet ./...)
	done
done
