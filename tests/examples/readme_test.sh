#!/usr/bin/env bash
# The README shows the program examples/quickstart.cc and what it prints: both as they are.
set -uo pipefail

readme=$1
source=$2
program=$3
printed=$TEST_TMPDIR/printed
failures=0

# Prints the first block of the README that starts with ```NAME.
block() { awk -v start="\`\`\`$1" '/^```/ && inside { exit } inside; $0 == start { inside = 1 }' "$readme"; }

# expect_shown NAME FILE: the README's first block of that name is the file, which is not empty.
expect_shown() {
  local difference
  difference=$(diff <(block "$1") "$2") && [[ -s $2 ]] && return
  printf 'FAILED: the block %s of the README is not %s (< is the README):\n%s\n' "$1" "$2" "$difference" >&2
  failures=$((failures + 1))
}

"$program" >"$printed" || failures=$((failures + 1))
expect_shown cpp "$source"
expect_shown text "$printed"
[[ $failures == 0 ]]
