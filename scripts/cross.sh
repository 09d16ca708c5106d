#!/usr/bin/env bash
# Builds the library and the commands, and vets them with their tests, for every platform that Ebb supports. The
# benchmark stays out: it runs where it is built, and its peers would take most of the time.
set -euo pipefail
cd "$(dirname "$0")/.."
for target in linux/amd64 linux/arm64 linux/386 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64 freebsd/amd64; do
	export GOOS=${target%/*} GOARCH=${target#*/} CGO_ENABLED=0
	echo "build and vet $target"
	for dir in $(go list -m -f '{{.Dir}}'); do
		[ "${dir##*/}" = bench ] && continue
		(cd "$dir" && go build -o /dev/null ./... && go vet ./...)
	done
done
