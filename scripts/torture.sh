#!/usr/bin/env bash
# Everything that tries to break the store, for an evening: each step prints its progress and leaves its result, one JSON
# object, in run/torture. Interrupted, it goes on with the first step that has no result; `make clean` forgets them.
#   scripts/torture.sh [time of a step, default 10m] [rounds of the steps that take a seed, default 12]
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10m} rounds=${2:-12}
results=run/torture
mkdir -p "$results" bin
go build -o bin/crashtest ./cmd/crashtest

# step NAME COMMAND... runs one step, unless it has a result. A step that fails keeps what it said under NAME.failed.
step() {
	local name=$1
	shift
	if [ -s "$results/$name.json" ]; then
		echo "$name: done before"
		return
	fi
	echo "$name: $*"
	if ! "$@" >"$results/$name.part"; then
		mv "$results/$name.part" "$results/$name.failed"
		echo "$name FAILED: see $results/$name.failed"
		exit 1
	fi
	mv "$results/$name.part" "$results/$name.json"
}

step syncs bin/crashtest syncs -len 2 -json
step interleave bin/crashtest interleave -json
step sequences bin/crashtest enumerate -len 2 -budget 2h -json
step bitflip bin/crashtest bitflip -bits 8 -json
for seed in $(seq "$rounds"); do
	step "enumerate-$seed" bin/crashtest enumerate -seed "$seed" -len 3 -depth 3 -budget "$time" -json
	step "faults-$seed" bin/crashtest faults -seed "$seed" -len 2 -budget "$time" -json
	step "fsyncgate-$seed" bin/crashtest fsyncgate -seed "$seed" -len 2 -budget "$time" -json
	step "history-$seed" bin/crashtest history -seed "$seed" -n 2000 -json
	step "kill-$seed" bin/crashtest kill -seed "$seed" -n 200 -json
	step "loopfs-$seed" bin/crashtest loopfs -seed "$seed" -n 420 -json
done
if [ ! -s "$results/fuzz.json" ]; then
	scripts/fuzz.sh "$time"
	echo '{"failures":[]}' >"$results/fuzz.json"
fi

# sum FIELD adds a number up over all results.
sum() { cat "$results"/*.json | grep -o "\"$1\":[0-9]*" | awk -F: '{ n += $2 } END { print n + 0 }'; }
echo "$(sum images_distinct) distinct crash images, $(sum recoveries_crashed) of them in recoveries; results in $results"
