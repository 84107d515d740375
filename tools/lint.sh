#!/usr/bin/env bash
# Holds the sources against .clang-format and, on the runtime's side, a few checks of clang-tidy that find mistakes.
#   tools/lint.sh [--fix | --analyze]     --fix: formats the files instead of naming them
#                                         --analyze: with clang's static analyzer, three times as long
# Needs tools/install.sh lint. Exits 1 when something is off.
set -uo pipefail
case ${1:-} in -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
cd "$(dirname "$0")/.."
mapfile -t sources < <(git ls-files '*.cpp' '*.h' '*.c' '*.inc' '*.def')
if [ "${1:-}" = --fix ]; then
  exec clang-format-22 -i "${sources[@]}"
fi
status=0
echo "== clang-format"
clang-format-22 --dry-run --Werror "${sources[@]}" 2>&1 | grep -E 'error:' | cut -d: -f1 | sort | uniq -c
((PIPESTATUS[0] == 0)) || status=1

echo "== clang-tidy"
[ -f build/lint/build.ninja ] || { echo "no build/lint: run tools/install.sh lint first"; exit 1; }
# A file that is new is in no commands of an older configuration.
ninja -C build/lint build.ninja > build/lint-configure.log || { cat build/lint-configure.log; exit 1; }
# The compiler's side takes an hour with the same checks: MLIR's headers are parsed for each file.
checks=(
  '-*' 'bugprone-*' 'misc-unused-*' 'performance-*move*' 'performance-*copy*'
  # A matter of taste, or meant so where it is found.
  -bugprone-easily-swappable-parameters -bugprone-narrowing-conversions -bugprone-signal-handler -bugprone-macro-parentheses
  -bugprone-unchecked-optional-access -bugprone-reserved-identifier -bugprone-throwing-static-initialization
  -bugprone-unchecked-string-to-number-conversion -bugprone-integer-division -misc-unused-parameters
)
[ "${1:-}" != --analyze ] || checks+=('clang-analyzer-core.*' 'clang-analyzer-unix.*')
runtime=()
for source in $(git ls-files 'runtime/lib/*.cpp' 'tools/memopt-run/*.cpp'); do
  # A plugin is built where its library is; without that its headers are missing, too.
  if grep -qF "/$source\"" build/lint/compile_commands.json; then runtime+=("$source")
  else echo "not built here: $source"; fi
done
printf '%s\n' "${runtime[@]}" | xargs -P 2 -n 4 clang-tidy-22 --quiet -p build/lint --checks="$(IFS=,; echo "${checks[*]}")" \
  --warnings-as-errors='*' 2>/dev/null | grep -E '(error|warning):' | sort -u
((PIPESTATUS[1] == 0)) || status=1
exit "$status"
