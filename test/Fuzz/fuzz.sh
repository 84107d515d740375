#!/usr/bin/env bash
# Runs the fuzzers of build/fuzz, each for some time.
#   test/Fuzz/fuzz.sh [--seconds=N] [--runs=N] [--jobs=N] [--seed=N] [--longest=BYTES] [NAME...]     60 seconds each, one at a time, all by default
# Corpora lie in build/fuzz/corpus/NAME and grow, inputs that break something in build/fuzz/defects. A fuzzer that finds
# a defect goes on until its time is over. Inputs have at most 40000 bytes without
# --longest. Without a seed every run takes other ways. The last line counts fuzzers:
# "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/../.."
seconds=60 runs=-1 jobs=1 seed=0 longest=40000 names=()
for argument in "$@"; do
  case $argument in
    --seconds=*) seconds=${argument#*=} ;;
    --runs=*) runs=${argument#*=} ;; # executions, if they end before the time is over
    --jobs=*) jobs=${argument#*=} ;;
    --seed=*) seed=${argument#*=} ;;
    --longest=*) longest=${argument#*=} ;;
    -*) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 1 ;;
    *) names+=("$argument") ;;
  esac
done
build=build/fuzz
((${#names[@]})) || names=($(ls "$build/fuzzers" | grep -v '\.')) || exit 1
mkdir -p "$build/defects" "$build/logs"
build/venv/bin/python3 test/Fuzz/make_corpus.py "$build/corpus" >/dev/null || exit 1
# The libraries that we call are not instrumented: containers that cross the border look overrun, and what LLVM's
# allocators hand out there lies in memory that our side has poisoned.
export ASAN_OPTIONS=detect_container_overflow=0:detect_leaks=0:allow_user_poisoning=0 UBSAN_OPTIONS=print_stacktrace=1
export ASAN_SYMBOLIZER_PATH=$(command -v llvm-symbolizer-22 llvm-symbolizer | head -n 1)

# run NAME: fuzzes until the time is over; leaves "executions defects" in the log folder.
run() {
  local name=$1 end=$((SECONDS + seconds)) executions=0 defects=0 log=$build/logs/$1.txt
  : >"$log"
  while ((SECONDS < end)); do
    local begin=$SECONDS out
    out=$("$build/fuzzers/$name" "$build/corpus/$name" -seed="$seed" -runs="$runs" -max_total_time=$((end - SECONDS)) -timeout=60 \
      -rss_limit_mb=3000 -max_len="$longest" -len_control=0 -print_final_stats=1 -verbosity=0 \
      -artifact_prefix="$build/defects/$name-" 2>&1)
    local status=$?
    echo "$out" >>"$log"
    executions=$((executions + $(sed -n 's/^stat::number_of_executed_units: *//p' <<<"$out" | tail -n 1 | grep . || echo 0)))
    ((status == 0)) && break
    defects=$((defects + 1))
    ((SECONDS > begin)) || sleep 1
  done
  echo "$executions $defects" >"$build/logs/$name.result"
}

for name in "${names[@]}"; do
  while (($(jobs -rp | wc -l) >= jobs)); do wait -n; done
  run "$name" &
done
wait

passed=0 failed=0
for name in "${names[@]}"; do
  read -r executions defects <"$build/logs/$name.result"
  echo "$name: $executions executions, $defects times stopped by a defect"
  if [ "$defects" = 0 ] && [ "$executions" -gt 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done
((failed)) && ls "$build/defects" && tail -n 40 "$build"/logs/*.txt | grep -E "ERROR|SUMMARY|runtime error|Assertion" | sort | uniq -c
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
