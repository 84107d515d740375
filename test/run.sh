#!/usr/bin/env bash
# Builds memopt with asserts on and runs every test. The last line counts them: "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/.."
tools/install.sh develop || exit 1

passed=0 failed=0
# count NAME COMMAND...: runs one suite, whose own totals are read off its output.
summarize() { # passed failed
  passed=$((passed + $1)) failed=$((failed + $2))
}

echo "== unit tests"
for binary in build/develop/test/Unit/*Tests; do
  [ -x "$binary" ] || continue
  name=$(basename "$binary")
  output=$("$binary" --gtest_brief=1 2>&1); status=$?
  good=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' <<<"$output" | tail -n 1)
  bad=$(sed -n 's/^ *\([0-9]*\) FAILED TEST.*/\1/p' <<<"$output" | tail -n 1)
  [ "$status" = 0 ] || { echo "$output"; [ -n "$bad" ] || bad=1; }
  echo "$name: ${good:-0} passed, ${bad:-0} failed"
  summarize "${good:-0}" "${bad:-0}"
done

echo "== lit"
output=$(build/venv/bin/lit build/develop/test -j2 -v --show-unsupported --no-progress-bar 2>&1 | tee /dev/stderr); status=$?
# total NAME...: the sum of the lines of lit's summary with these names.
total() {
  local sum=0 name number
  for name; do
    number=$(sed -n "s/^ *$name *: *\([0-9]*\) (.*/\1/p" <<<"$output" | tail -n 1)
    sum=$((sum + ${number:-0}))
  done
  echo "$sum"
}
good=$(total Passed 'Passed With Retry' 'Expectedly Failed')
bad=$(total Failed 'Timed Out' Unresolved 'Unexpectedly Passed')
# Whatever else stops lit is a failure too, above all when it runs no test.
[ "$status" = 0 ] && [ "$good" -gt 0 ] || [ "$bad" -gt 0 ] || bad=1
echo "lit: $good passed, $bad failed"
summarize "$good" "$bad"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
