#!/usr/bin/env bash
# Everything that tries to break the store, for an evening: each step prints its progress and leaves its result, one JSON
# object, in run/torture, and beside it the commit and the command that it is of. Interrupted, it goes on with the first step
# that has no result of this commit; `make clean` forgets them.
#   scripts/torture.sh [time of a step, default 10m] [rounds of the steps that take a seed, default 12]
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10m} rounds=${2:-12}
results=run/torture
commit=$(git describe --always --abbrev=40 --dirty 2>/dev/null || echo "no commit")
mkdir -p "$results" bin
echo "commit: $commit"
for result in "$results"/*.json; do # What another commit did says nothing of this one.
	[ "$(head -n 1 "${result%.json}.of" 2>/dev/null)" = "$commit" ] || rm -f "$result"
done
go build -o bin/crashtest ./cmd/crashtest

# step NAME COMMAND... runs one step, unless it has a result. A step that fails keeps what it said under NAME.failed.
step() {
	local name=$1
	shift
	if [ -s "$results/$name.json" ]; then
		echo "$name: done before: $(tail -n 1 "$results/$name.of")"
		return
	fi
	printf '%s\n' "$commit" "$*" >"$results/$name.of"
	echo "$name: $*"
	if ! "$@" >"$results/$name.part"; then
		mv "$results/$name.part" "$results/$name.failed"
		echo "$name FAILED: see $results/$name.failed"
		exit 1
	fi
	mv "$results/$name.part" "$results/$name.json"
}

# sum STEP FIELD adds a number up over the results of the steps of that name.
sum() { cat "$results/$1"*.json 2>/dev/null | grep -o "\"$2\":[0-9]*" | awk -F: '{ n += $2 } END { print n + 0 }'; }

# least STEP FIELD NUMBER WHAT tells how many there were of what.
short=0
least() {
	local n
	n=$(sum "$1" "$2")
	echo "$n $4, an evening has $3"
	[ "$n" -ge "$3" ] || short=1
}

# fuzz TIME fuzzes every target for a while.
fuzz() { scripts/fuzz.sh "$1" | tee /dev/stderr | sed -n 's/.* fuzz targets, \([0-9]*\) executions.*/{"executions":\1,"failures":[]}/p'; }

step everycall env EBB_EXHAUSTIVE=1 go test -count=1 -timeout 2h ./kv # each call of a session fails, not a sample
step syncs bin/crashtest syncs -len 2 -json
step interleave bin/crashtest interleave -json
step bitflip bin/crashtest bitflip -bits 8 -json
for round in $(seq "$rounds"); do
	# All sequences of three operations take hours: each round goes on where the one before ended.
	step "enumerate-$round" bin/crashtest enumerate -len 3 -depth 3 -skip "$(sum enumerate workloads)" -budget "$time" -json
	step "faults-$round" bin/crashtest faults -seed "$round" -len 2 -budget "$time" -min 100 -json
	step "fsyncgate-$round" bin/crashtest fsyncgate -seed "$round" -len 2 -budget "$time" -min 10 -json
	step "history-$round" bin/crashtest history -seed "$round" -n 2000 -json
	step "kill-$round" bin/crashtest kill -seed "$round" -n 200 -min 2000 -json
	step "loopfs-$round" bin/crashtest loopfs -seed "$round" -n 420 -min 2000 -json
done
step powercut bin/crashtest powercut -seed 1 -n 100 -min 1000 -json
step fuzz fuzz "$time"

# What an evening is. Less is said, and is a failure.
least enumerate images_distinct 5000000 "distinct crash images"
least enumerate recoveries_crashed 500000 "crashes in recoveries"
least history histories 20000 "histories"
least kill kills 2000 "killed processes"
# Where nothing can be mounted, every round says so.
if grep -qsv '"skipped":true' "$results"/loopfs*.json; then
	least loopfs images 5000 "images of a real ext4"
else
	echo "SKIPPED: images of a real ext4: $(sed -n 's/.*"reason":"\([^"]*\)".*/\1/p;q' "$results"/loopfs*.json)"
fi
# 100 images of each file system that can be mounted here.
if grep -qs '"skipped":true' "$results"/powercut.json; then
	echo "SKIPPED: power cuts: $(sed -n 's/.*"reason":"\([^"]*\)".*/\1/p;q' "$results"/powercut.json)"
else
	least powercut images 100 "images of power cuts below real file systems"
fi
least fuzz executions 20000000 "fuzz executions"
exit "$short"
