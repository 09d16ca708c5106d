#!/usr/bin/env bash
# Builds for every platform that Ebb supports but linux/amd64, which the tests build, and vets with their
# tests: the engine for each system, each kind of processor and 32 bits once, the commands for Windows
# once, whose tests import clients that take longer to compile than all of Ebb. Of the pairs whose system
# and processor both come in others, only the library is built. The benchmark, the adapters and the
# linearizability checker stay out: what they compare with or adapt to would take most of the time.
# What is built is thrown away, and takes half as long if it is not optimised.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
flags=(-gcflags=all='-N -l')
for target in linux/arm64 linux/386 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64 freebsd/amd64; do
	export GOOS=${target%/*} GOARCH=${target#*/} CGO_ENABLED=0
	case $target in
	darwin/amd64 | windows/arm64)
		echo "$target: build of the library"
		go build "${flags[@]}" ./kv/...
		continue
		;;
	esac
	for dir in $(go list -m -f '{{.Dir}}'); do
		case ${dir##*/} in bench | adapters | histories) continue ;; esac
		what=build
		case $target,$dir in # make vet looks at the platform that we are on
		windows/amd64,* | linux/386,"$root" | darwin/arm64,"$root" | freebsd/amd64,"$root") what="build vet" ;;
		esac
		echo "$target: $what ${dir#"$root"/}"
		(cd "$dir" && go build "${flags[@]}" -o /dev/null ./...)
		[ "$what" = build ] || (cd "$dir" && go vet "${flags[@]}" ./...)
	done
done
