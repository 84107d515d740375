#!/usr/bin/env bash
# Installs and builds memopt, then trains a shipped model on real data from Debian's packages.
#   tools/quickstart.sh [resnet|gpt|small] [options of memopt-run and memopt-compile]
#     resnet (default): a ResNet-18 on the 60,000 images of Fashion-MNIST inside 16 MiB, then its accuracy on the
#                       10,000 test images
#     gpt: a byte-level GPT on the book of Genesis inside 48 MiB, then its loss on the beginning of Exodus
#     small: the same inside 15 MiB, which only recomputation and micro-batches together meet; the compiler finds them
# An option that is given takes the place of the one here, such as --device-memory=14MiB or --epochs=1. Results lie in build/quickstart.
# MEMOPT_BIN names a folder with built tools; then nothing is installed or built.
set -euo pipefail
cd "$(dirname "$0")/.."

model=resnet
case ${1:-} in resnet | gpt | small) model=$1; shift ;; -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
[ -n "${MEMOPT_BIN:-}" ] || tools/install.sh --only-tools
run=${MEMOPT_BIN:-build/release/bin}/memopt-run
models=tools/export/models
out=build/quickstart
mkdir -p "$out"

# option NAME DEFAULT ARGUMENTS...: the default, unless the arguments give the option.
option() {
  local name=$1 value=$2
  shift 2
  for argument in "$@"; do [[ $argument == "$name"=* ]] && return; done
  echo "$name=$value"
}

train_resnet() {
  local data=/usr/share/datasets/fashion-mnist length=(--epochs=4)
  for argument in "$@"; do [[ $argument == --steps=* || $argument == --epochs=* ]] && length=(); done
  echo "== training a ResNet-18 on Fashion-MNIST"
  rm -rf "$out/resnet18"
  "$run" "$models/resnet18.train.pt2" -o "$out/resnet18.train.memopt" $(option --device-memory 16MiB "$@") \
    $(option --optimizer sgd "$@") $(option --momentum 0.9 "$@") $(option --weight-decay 5e-4 "$@") \
    $(option --lr-schedule cosine "$@") $(option --lr 0.05 "$@") $(option --init random "$@") \
    --data="idx:$data/train-images-idx3-ubyte.gz,$data/train-labels-idx1-ubyte.gz" ${length[@]+"${length[@]}"} \
    --check-memory $(option --save "$out/resnet18" "$@") $(option --report "$out/resnet18.train.json" "$@") \
    $(option --progress epoch "$@") "$@"
  echo "== evaluating it on the test images"
  "$run" "$models/resnet18.eval.pt2" -o "$out/resnet18.eval.memopt" --mode=eval --load="$out/resnet18" --check-memory \
    --data="idx:$data/t10k-images-idx3-ubyte.gz,$data/t10k-labels-idx1-ubyte.gz" \
    --report="$out/resnet18.eval.json" --quiet
}

train_gpt() {
  local length=(--steps=400)
  for argument in "$@"; do [[ $argument == --steps=* || $argument == --epochs=* ]] && length=(); done
  bible -f ge1:1-ge50:26 >"$out/genesis.txt"
  bible -f ex1:1-ex12:51 >"$out/exodus.txt"
  echo "== training a byte-level GPT on Genesis ($(wc -c <"$out/genesis.txt") bytes)"
  rm -rf "$out/bytegpt"
  "$run" "$models/bytegpt.train.pt2" -o "$out/bytegpt.train.memopt" $(option --device-memory 48MiB "$@") \
    $(option --optimizer adamw "$@") $(option --max-grad-norm 1 "$@") $(option --lr-schedule cosine "$@") \
    $(option --warmup-steps 20 "$@") $(option --lr 0.002 "$@") $(option --init random "$@") \
    --data="bytes:$out/genesis.txt" ${length[@]+"${length[@]}"} \
    --check-memory $(option --save "$out/bytegpt" "$@") $(option --report "$out/bytegpt.train.json" "$@") \
    $(option --progress epoch "$@") "$@"
  echo "== evaluating it on Exodus ($(wc -c <"$out/exodus.txt") bytes)"
  "$run" "$models/bytegpt.eval.pt2" -o "$out/bytegpt.eval.memopt" --mode=eval --load="$out/bytegpt" --check-memory \
    --data="bytes:$out/exodus.txt" --report="$out/bytegpt.eval.json" --quiet
}

train_small() { train_gpt $(option --device-memory 15MiB "$@") $(option --auto recompute,accumulate "$@") "$@"; }

"train_$model" "$@"
