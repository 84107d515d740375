#!/usr/bin/env bash
# Installs what is missing, builds memopt and checks it. The last line counts: "N passed, N failed".
#   test/run.sh [PART...]     check release readers lint by default: half an hour to an hour on two cores when nothing
#                             is built yet
#     quick     unit tests, and the lit tests of passes and messages: minutes, once release is built
#     check     unit tests and the lit suite, with asserts on
#     release   unit tests and the integration tests but for the longest, as users build
#     fuzz      unit tests of runtime and importer, and a minute or so of each fuzzer, with sanitizers
#     tsan      unit tests of threads and ranks, with ThreadSanitizer
#     lint      format and clang-tidy
#     readers   a part of fuzz that needs no compiler: the runtime, and what it and the planner read
#     mpi       tests over Open MPI, which is installed
#     torch     tests of the Python package beside PyTorch, which is installed: some gigabytes
#     bare      wheels and the Debian package, built and installed in a root with nothing but Debian: as root, with debootstrap
#   In front of the last line stands what was not run, and why: a processor without AVX-512, PyTorch or MPI that are not
#   there, and so on. Takes NVIDIA's assembler from PyPI unless MEMOPT_WITHOUT_CUDA=1 is set.
set -uo pipefail
cd "$(dirname "$0")/.."
passed=0 failed=0 defects=() skips=() retried=()
# No test takes half as long; one that hangs must not take the others with it.
test_seconds=900

# count NAME GOOD BAD [TEST...]: says and adds up what one suite found, and keeps the names of what failed for the end.
count() {
  echo "$1: $2 passed, $3 failed"
  passed=$((passed + $2)) failed=$((failed + $3))
  [ "$3" = 0 ] || defects+=("$1: $3 failed" "${@:4}")
}

# skip NAME TEST...: keeps what one suite left out for the end.
skip() {
  local name=$1
  shift
  (($# == 0)) || skips+=("$name:" "$@")
}

# unit_tests BUILD [FILTER]: every unit test binary, whose own totals are read off its output. As with lit, what fails
# runs once more.
unit_tests() {
  local binary output status good bad names found=0
  for binary in "$1"/test/Unit/*Tests; do
    [ -x "$binary" ] || continue
    found=1
    output=$(timeout "$test_seconds" "$binary" --gtest_filter="${2:-*}" 2>&1); status=$?
    good=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' <<<"$output" | tail -n 1)
    bad=$(sed -n 's/^ *\([0-9]*\) FAILED TEST.*/\1/p' <<<"$output" | tail -n 1)
    [ "$status" = 0 ] || { grep -vE '^\[ (RUN|      OK) ' <<<"$output"; [ -n "$bad" ] || bad=1; }
    mapfile -t names < <(sed -n 's/^\[  FAILED  \] \([^ ]*\.[^ ]*\)$/  \1/p' <<<"$output")
    if ((${#names[@]} && ${#names[@]} == bad)) && timeout "$test_seconds" "$binary" --gtest_filter="$(tr -d ' ' <<<"$(IFS=:; echo "${names[*]}")")"; then
      retried+=("$1 $(basename "$binary"):" "${names[@]}")
      good=$((${good:-0} + ${#names[@]})) bad=0 names=()
    fi
    count "$1 $(basename "$binary")" "${good:-0}" "${bad:-0}" "${names[@]}"
    mapfile -t names < <(awk '/: Skipped$/ {getline reason} /^\[  SKIPPED \] .* \(/ {print "  " $4 " (" reason ")"}' <<<"$output")
    skip "$1 $(basename "$binary")" "${names[@]}"
  done
  ((found)) || count "$1 unit tests" 0 1
}

# total OUTPUT NAME...: the sum of the lines of lit's summary with these names.
total() {
  local output=$1 sum=0 name number
  shift
  for name; do
    number=$(sed -n "s/^ *$name *: *\([0-9]*\) (.*/\1/p" <<<"$output" | tail -n 1)
    sum=$((sum + ${number:-0}))
  done
  echo "$sum"
}

# requirements TEST: what the features are that a lit test asks for.
requirements() { sed -nE 's,^(// )?REQUIRES: ,,p' "test/$1" 2>/dev/null | paste -sd, ; }

# last_words TEST: the last lines that a failed test wrote, in what lit printed.
last_words() {
  sed -n "/^\*\** TEST 'memopt :: ${1//\//\\/}' FAILED/,/^\*\*\*\**\$/p" | grep -vE '^(\*|--$|# ?[.`]-+$|$)' | tail -n 4 | cut -c1-400 | sed 's/^/    /'
}

# lit_tests BUILD [OPTION...]: a test that fails runs once more, and what passes only then is named at the end.
lit_tests() {
  local build=$1 output status good bad names test
  shift
  output=$(build/venv/bin/lit "$build/test" -j2 -v --show-unsupported --no-progress-bar --timeout "$test_seconds" \
    --max-retries-per-test 1 "$@" 2>&1 | tee >(cat >&2)); status=$?
  good=$(total "$output" Passed 'Passed With Retry' 'Expectedly Failed')
  bad=$(total "$output" Failed 'Timed Out' Unresolved 'Unexpectedly Passed')
  # Whatever else stops lit is a failure too, above all when it runs no test.
  [ "$status" = 0 ] && [ "$good" -gt 0 ] || [ "$bad" -gt 0 ] || bad=1
  mapfile -t names < <(sed -nE 's/^(FAIL|TIMEOUT|UNRESOLVED|XPASS): memopt :: ([^ ]*) .*/\2/p' <<<"$output" |
    while read -r test; do echo "  $test"; last_words "$test" <<<"$output"; done)
  count "$build lit" "$good" "$bad" "${names[@]}"
  mapfile -t names < <(sed -nE 's/^FLAKYPASS: memopt :: ([^ ]*) .*/  \1/p' <<<"$output")
  ((${#names[@]} == 0)) || retried+=("$build lit:" "${names[@]}")
  names=()
  for test in $(sed -nE 's/^UNSUPPORTED: memopt :: ([^ ]*) .*/\1/p' <<<"$output"); do
    names+=("  $test (needs $(requirements "$test"))")
  done
  skip "$build lit" "${names[@]}"
}

quick() {
  unit_tests build/release
  lit_tests build/release --filter='^memopt :: (Dialect|Import|Planning|Transforms|Conversion)/'
}

check() {
  unit_tests build/check
  lit_tests build/check
}

# What takes half a minute or more runs with asserts alone: it compiles many variants of small models, or starts many
# processes, and is the same in both builds.
release() {
  local long='technique-pairs-.*|gradients|ranks|automatic|activation-dtype|precision|random-graphs|cuda-graph'
  long+='|two-levels.*|calibrate-ranks|matrix-attention|device-attention|disk|cuda-kit|cuda-emulated|cuda-plans'
  unit_tests build/release
  # What packages and wheels hold.
  if cmake --build build/release --target standalone; then count standalone 1 0; else count standalone 0 1; fi
  lit_tests build/release --filter='^memopt :: Integration/' --filter-out="Integration/[A-Za-z]*/($long)\.test"
}

# Libraries that are not instrumented leak and share containers by design: see test/Fuzz/fuzz.sh.
sanitized_tests() {
  ASAN_OPTIONS=detect_container_overflow=0:detect_leaks=0:allow_user_poisoning=0 unit_tests build/fuzz
}

# fuzzers EXECUTIONS NAME...: always the same ones, so that a failure comes from a change.
fuzzers() {
  local runs=$1 good bad last
  shift
  last=$(test/Fuzz/fuzz.sh --jobs=2 --seconds=300 --runs="$runs" --seed=1 "$@" | tee >(cat >&2) | tail -n 1)
  read -r good bad < <(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' <<<"$last")
  count "fuzzers" "${good:-0}" "${bad:-1}"
}

readers() {
  sanitized_tests
  fuzzers 50000 data manifest plan safetensors state words
}

fuzz() {
  readers
  fuzzers 50000 deepspeed device profile
  fuzzers 2000 import mlir
}

# What works without locks. Processes that fork with threads are beyond ThreadSanitizer.
tsan() {
  TSAN_OPTIONS=halt_on_error=0:exitcode=66:die_after_fork=0 \
    unit_tests build/tsan 'ThreadPool*:SharedRanks*:*CommunicatorConformance*:MessageRanks*:TwoLevelRanks*:Disk*:Data*:Session*:Loop*'
}

lint() {
  if tools/lint.sh; then count lint 1 0; else count lint 0 1; fi
}

mpi() { lit_tests build/release --filter='Integration/Ranks/(message-ranks|launchers).*\.test'; }

torch() {
  MEMOPT_PYTORCH=$PWD/build/pytorch/bin/python3 lit_tests build/release \
    --filter='Python/|Integration/(Ranks/launchers-torchrun|Cuda/cuda-kit-pytorch)\.test'
}

bare() {
  local good bad last
  last=$({ tools/wheels.sh --no-build && test/bare.sh; } | tee >(cat >&2) | tail -n 1)
  read -r good bad < <(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' <<<"$last")
  count "bare roots" "${good:-0}" "${bad:-1}"
}

(($#)) || set -- check release readers lint
cuda=(--with-cuda)
[ -z "${MEMOPT_WITHOUT_CUDA:-}" ] || cuda=()
for part; do
  case $part in
    quick) build=release ;;
    check | release | fuzz | tsan | lint | readers | mpi | torch | bare) build=$part ;;
    *) sed -n '2,18s/^# \{0,1\}//p' "$0" >&2; exit 1 ;;
  esac
  echo "== $part"
  begun=$SECONDS
  if tools/install.sh "${cuda[@]}" "$build"; then
    built=$SECONDS
    "$part"
    echo "== $part took $((SECONDS - begun)) s, $((built - begun)) of them to install and build"
  else
    count "build of $part" 0 1
  fi
done

((${#skips[@]} == 0)) || printf '%s\n' "== what was not run, and what it needs" "${skips[@]}"
((${#retried[@]} == 0)) || printf '%s\n' "== what failed once and passed when it ran again" "${retried[@]}"
[ "$failed" = 0 ] || printf '%s\n' "== what failed" "${defects[@]}"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
