#!/usr/bin/env bash
# Counts the statements of the log, the pager, transactions and expiry that the tests of their own
# packages and of those above run, and fails if it is a smaller part than asked for. The tests take
# samples (-short), and those that need minutes with counters in the code stay out. With faults, a
# minute and a half of the crash bed counts too.
#   scripts/cover.sh [fewest percent of each package, default 92] [faults]
set -euo pipefail
cd "$(dirname "$0")/.."
least=${1:-92} with=${2:-}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
packages=./wal,./pager,./txn,./ttl

go test -count=1 -short -skip '^TestModel' -coverpkg "$packages" -coverprofile "$dir/tests" ./wal ./pager ./txn ./ttl ./cf ./kv ./internal/salvage

profiles=("$dir/tests")

# crashtest runs a part of the crash bed with counters, and shows the last line of what it says, or all if it fails.
crashtest() {
	if ! GOCOVERDIR="$dir/counters" "$dir/crashtest" "$@" >"$dir/log" 2>&1; then
		cat "$dir/log"
		return 1
	fi
	echo "crashtest $*: $(tail -n 1 "$dir/log")"
}
if [ "$with" = faults ]; then
	mkdir "$dir/counters"
	# A program writes its counters when it ends, if its main package has some; those are not asked for below.
	go build -cover -coverpkg "$packages,./cmd/crashtest" -o "$dir/crashtest" ./cmd/crashtest
	crashtest enumerate -budget 20s
	crashtest faults -budget 30s
	crashtest fsyncgate -budget 15s
	crashtest bitflip -bits 1 -every 101
	crashtest interleave -sample 20
	crashtest history -n 50
	crashtest kill -n 5
	go tool covdata textfmt -i "$dir/counters" -o "$dir/faults"
	profiles+=("$dir/faults")
fi

# Each suite has a line of its own for a block: "file:from,to statements runs". What ran in one of them did run.
awk -v least="$least" '
	/^mode:/ || /\/cmd\// { next }
	{ size[$1] = $2; if ($3 > 0) ran[$1] = 1 }
	END {
		for (block in size) {
			package = block; sub(/\/[^\/]*$/, "", package); sub(/.*\//, "", package)
			all[package] += size[block]; if (block in ran) hit[package] += size[block]
		}
		for (package in all) {
			packages++
			percent = 100 * hit[package] / all[package]
			printf "%s: %.1f%% of %d statements\n", package, percent, all[package]
			if (percent < least) { printf "%s: want at least %s%%\n", package, least; low = 1 }
		}
		exit low || packages != 4
	}' "${profiles[@]}"
