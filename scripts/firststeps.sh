#!/usr/bin/env bash
# Carries out the quick start of README.md as a new user would, in an empty folder: the commands of its `sh` block, with
# the program of its `go` block saved as main.go where the comment says so. The clone is of this repository, at HEAD;
# dependencies come from the module proxy. The output must be the program's.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# block LANGUAGE prints the first block of that language in README.md.
block() { awk -v fence="\`\`\`$1" '$0 == fence && !done { on = 1; next } /^```$/ && on { on = 0; done = 1 } on' README.md; }

block go >"$dir/program.go"
block sh >"$dir/steps"
grep -q '^# save ' "$dir/steps" || { echo "README.md: the quick start does not say where main.go is saved"; exit 1; }
sed -i.orig 's|^# save .*|cp "$PROGRAM" main.go|' "$dir/steps"

# git takes the clone from here instead of from the network.
export GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0="url.$root.insteadOf" GIT_CONFIG_VALUE_0=https://github.com/ebbkv/ebb
export GIT_CONFIG_KEY_1=safe.directory GIT_CONFIG_VALUE_1='*'
cd "$dir"
out=$(GOWORK='' GOFLAGS='' PROGRAM="$dir/program.go" bash -euo pipefail steps)
want=$(sed -n 's|^[[:space:]]*// Output: ||p' program.go)
if [ -z "$want" ] || [ "$out" != "$want" ]; then
	printf 'the quick start of README.md printed\n%s\nand not\n%s\n' "$out" "$want"
	exit 1
fi
echo "the quick start of README.md works in an empty folder: $out"
