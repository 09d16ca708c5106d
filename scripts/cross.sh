#!/usr/bin/env bash
# Builds the library and the commands for every platform that Ebb supports but linux/amd64, which the
# tests build, and vets them with their tests for each system, each kind of processor and 32 bits once:
# what only the tests import takes longer to compile for a platform than all of Ebb. The benchmark, the
# adapters and the linearizability checker stay out: what they compare with or adapt to would take most
# of the time. What is built is thrown away, and takes half as long if it is not optimised.
set -euo pipefail
cd "$(dirname "$0")/.."
flags=(-gcflags=all='-N -l')
for target in linux/arm64 linux/386 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64 freebsd/amd64; do
	export GOOS=${target%/*} GOARCH=${target#*/} CGO_ENABLED=0
	case $target in
	linux/386 | darwin/arm64 | windows/amd64 | freebsd/amd64) what="build vet" ;; # make vet looks at the platform that we are on
	*) what=build ;;
	esac
	echo "$target: $what"
	for dir in $(go list -m -f '{{.Dir}}'); do
		case ${dir##*/} in bench | adapters | histories) continue ;; esac
		(cd "$dir" && go build "${flags[@]}" -o /dev/null ./...)
		[ "$what" = build ] || (cd "$dir" && go vet "${flags[@]}" ./...)
	done
done
