#!/usr/bin/env bash
# Fuzzes every fuzz target of the workspace for a while, one after the other. The last line counts targets and executions.
#   scripts/fuzz.sh [time for each target, default 10s] [fewest targets] [fewest executions of each]
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s} fewest_targets=${2:-0} fewest_executions=${3:-0}

# run PACKAGE TARGET fuzzes one target, and leaves its executions in $executions. The go command now and then reports its
# own time limit as a failure ("context deadline exceeded") without a failing input: that is not a finding, and the
# target is run once more.
run() {
	local out
	for _ in 1 2; do
		# By default the go command spends up to a minute on making one interesting input smaller, and executes little
		# else in that time: some targets had ten executions in four seconds, and have forty thousand without.
		if out=$(go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" -fuzzminimizetime 10x "$1" 2>&1); then
			# In a short run with many known inputs there is time for nothing but these: they are executions too.
			executions=$(sed -n -e 's/.* gathering baseline coverage: \([0-9]*\).*/\1/p' -e 's/.* execs: \([0-9]*\).*/\1/p' <<<"$out" | tail -n 1)
			executions=${executions:-0}
			echo "$executions executions"
			return 0
		fi
		if grep -q 'Failing input written' <<<"$out" || ! grep -q 'context deadline exceeded' <<<"$out"; then
			break
		fi
	done
	echo "$out"
	return 1
}

targets=0 total=0
for dir in $(go list -m -f '{{.Dir}}'); do
	# One "package target" line for each target, from the files that a test of the package is built of; nothing is built for that.
	found=$(cd "$dir" && go list -f '{{$p := .}}{{range .TestGoFiles}}{{$p.ImportPath}} {{$p.Dir}}/{{.}}
{{end}}{{range .XTestGoFiles}}{{$p.ImportPath}} {{$p.Dir}}/{{.}}
{{end}}' ./... | while read -r package file; do
		[ -n "$package" ] || continue
		sed -n "s|^func \\(Fuzz[A-Za-z0-9_]*\\)(.*|$package \\1|p" "$file"
	done)
	while read -r package target; do
		[ -n "$package" ] || continue
		echo "fuzz $package $target for $time"
		cd "$dir"
		run "$package" "$target"
		if [ "$executions" -lt "$fewest_executions" ]; then
			echo "$target: want at least $fewest_executions executions"
			exit 1
		fi
		targets=$((targets + 1)) total=$((total + executions))
	done <<<"$found"
done
echo "$targets fuzz targets, $total executions, nothing found"
if [ "$targets" -lt "$fewest_targets" ]; then
	echo "want at least $fewest_targets targets"
	exit 1
fi
