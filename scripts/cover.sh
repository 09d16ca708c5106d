#!/usr/bin/env bash
# Counts the statements of the log, the pager, transactions and expiry that the tests of all rooms run, and fails if it is a
# smaller part than asked for. The tests take samples (-short), and those that need minutes with counters in the code stay out.
#   scripts/cover.sh [fewest percent of each room, default 92]
set -euo pipefail
cd "$(dirname "$0")/.."
profile=$(mktemp)
trap 'rm -f "$profile"' EXIT
go test -short -skip '^TestModel' -coverpkg ./wal,./pager,./txn,./ttl -coverprofile "$profile" \
	./wal ./pager ./txn ./ttl ./cf ./kv ./fuzz
# Each suite has a line of its own for a block: "file:from,to statements runs".
awk -v least="${1:-92}" '
	/^mode:/ { next }
	{ size[$1] = $2; if ($3 > 0) ran[$1] = 1 }
	END {
		for (block in size) {
			room = block; sub(/\/[^\/]*$/, "", room); sub(/.*\//, "", room)
			all[room] += size[block]; if (block in ran) hit[room] += size[block]
		}
		for (room in all) {
			rooms++
			percent = 100 * hit[room] / all[room]
			printf "%s: %.1f%% of %d statements\n", room, percent, all[room]
			if (percent < least) { printf "%s: want at least %s%%\n", room, least; low = 1 }
		}
		exit low || rooms != 4
	}' "$profile"
