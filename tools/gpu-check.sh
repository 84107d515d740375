#!/usr/bin/env bash
# Finds out what memopt does on the GPU of this machine, and writes one report (docs/Cuda.md).
#   tools/gpu-check.sh [--report=FILE.md] [--device=FILE.json] [--steps=N] [--option=OPTION] [--pytorch=PYTHON] [FOLDER...]
#     FOLDER     model.pt2 and inputs.safetensors (step0.INPUT, ...); with reference.safetensors and fixture.json too,
#                numbers are judged against PyTorch's float64 (needs numpy). Default: those of the tests
#     --report   where the report goes; default: build/gpu-check.md
#     --device   where the measured description of the device goes; default: build/gpu-check.json
#     --steps    steps of each model, of which the first is not timed; default: 5
#     --option   of memopt-compile, for all models, such as --option=--precision=bf16; may be given several times, and
#                leaves out the judgement of numbers, which is for f32
#     --pytorch  a Python with PyTorch, to train the same models beside; default: none. With --pytorch-device=cpu it
#                does so on the processor
# MEMOPT_BIN names the folder with memopt's tools (default: build/release/bin, else build/develop/bin), beside which the
# tests may lie (../test/Unit); PYTHON the Python that writes the report (default: python3).
# Exit codes: 0 everything agreed, 1 something did not, 3 there is no GPU.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
case ${1:-} in -h | --help) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
bin=${MEMOPT_BIN:-}
for folder in "$source/build/release/bin" "$source/build/develop/bin"; do
  [ -n "$bin" ] || [ ! -x "$folder/memopt-run" ] || bin=$folder
done
[ -x "$bin/memopt-run" ] || { echo "gpu-check: error: no memopt-run in '${bin:-build/release/bin}'; build it, or name its folder in MEMOPT_BIN" >&2; exit 3; }

# Without a driver or a device this says so in one line, and nothing is begun.
described=$(mktemp --suffix=.json)
trap 'rm -f "$described"' EXIT
"$bin/memopt-run" --device=cuda "--describe-device=$described" || exit 3
exec "${PYTHON:-python3}" "$source/tools/gpu_check.py" --bin "$bin" --described "$described" "$@"
