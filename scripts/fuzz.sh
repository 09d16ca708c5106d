#!/usr/bin/env bash
# Fuzzes every fuzz target of the workspace for a while, one after the other.
#   scripts/fuzz.sh [time for each target, default 10s]
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}

# run PACKAGE TARGET fuzzes one target. The go command now and then reports its own time limit as a failure ("context
# deadline exceeded") without a failing input: that is not a finding, and the target is run once more.
run() {
	local out
	for _ in 1 2; do
		if out=$(go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" "$1" 2>&1); then
			tail -n 3 <<<"$out"
			return 0
		fi
		if grep -q 'Failing input written' <<<"$out" || ! grep -q 'context deadline exceeded' <<<"$out"; then
			break
		fi
	done
	echo "$out"
	return 1
}

targets=0
for dir in $(go list -m -f '{{.Dir}}'); do
	# One "package target" line for each target. Packages without tests say nothing.
	found=$(cd "$dir" && go test -json -list '^Fuzz' ./... |
		sed -n 's/.*"Package":"\([^"]*\)","Output":"\(Fuzz[A-Za-z0-9_]*\)\\n".*/\1 \2/p')
	while read -r package target; do
		[ -n "$package" ] || continue
		echo "fuzz $package $target for $time"
		(cd "$dir" && run "$package" "$target")
		targets=$((targets + 1))
	done <<<"$found"
done
echo "$targets fuzz targets, nothing found"
