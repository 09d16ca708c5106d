#!/usr/bin/env bash
# Runs tests for processors other than this one, where this machine can: those of the engine for 386, which an amd64
# kernel runs by itself, and those of the packages that encode and decode bytes for s390x, whose bytes are in the
# other order, under qemu-user (Debian and Ubuntu: apt-get install qemu-user-static; installed here where root may).
# Short runs, without cgo; with QUICK=1 only the tests of formats, versions and limits, and the seeds of the fuzz
# targets. What cannot be run is said to be skipped. The last line counts.
#   scripts/foreign.sh [386] [s390x]
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0
[ $# -gt 0 ] || set -- 386 s390x
ran=() skipped=() tests=.
[ -z "${QUICK:-}" ] || tests='Format|Golden|Pinned|Version|Limit|Shutdown|Fuzz'

skip() {
	echo "SKIPPED: $1: $2"
	skipped+=("$1")
}

run_386() {
	local hello
	if [ "$(go env GOOS)" != linux ] || [ "$(go env GOHOSTARCH)" != amd64 ]; then
		skip 386 "not a linux/amd64 machine"
		return
	fi
	hello=$(mktemp -d)
	printf 'package main\nfunc main() {}\n' >"$hello/main.go"
	if ! GOARCH=386 go build -o "$hello/hello" "$hello/main.go" || ! "$hello/hello"; then
		rm -rf "$hello"
		skip 386 "the kernel does not run programs for it"
		return
	fi
	rm -rf "$hello"
	GOARCH=386 go test -count=1 -short -timeout 20m -run "$tests" ./btree ./cf ./internal/... ./kv/... ./pager ./ttl ./txn ./wal
	ran+=(386)
}

# Under emulation everything takes ten to thirty times as long: only packages in which the order of bytes can matter,
# and of their tests none that is about time or many rows.
run_s390x() {
	local qemu
	qemu=$(command -v qemu-s390x-static || command -v qemu-s390x || true)
	if [ -z "$qemu" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		{ apt-get update && apt-get install -y qemu-user-static; } >/dev/null 2>&1 || true
		qemu=$(command -v qemu-s390x-static || command -v qemu-s390x || true)
	fi
	if [ -z "$qemu" ]; then
		skip s390x "there is no qemu-s390x, and it could not be installed"
		return
	fi
	GOARCH=s390x go test -count=1 -short -timeout 20m -run "$tests" -exec "$qemu" ./btree ./wal ./pager ./ttl
	ran+=(s390x)
}

for processor in "$@"; do
	"run_$processor"
done
echo "tests ran for ${#ran[@]} processors (${ran[*]:-none}), ${#skipped[@]} skipped (${skipped[*]:-none})"
