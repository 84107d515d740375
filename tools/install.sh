#!/usr/bin/env bash
# Installs what memopt needs on Debian and builds it. Idempotent; says what it does.
#   tools/install.sh [--with-cuda] [--only-tools | --standalone] [PRESET...]
#     PRESET: release (default), develop, check (develop, built faster and rebuilt slower), asan, fuzz, tsan; readers is
#     the part of fuzz that needs no compiler, mpi and torch are release with Open MPI and UCX or beside PyTorch, bare is what
#     packages hold of it and what installs them in a bare root, and lint installs what checks the sources, but builds
#     nothing
#     --with-cuda: NVIDIA's assembler, device functions and cuDNN too, which --target=cuda writes packages with
#     --only-tools: of what is built memopt-compile and memopt-run alone, without tests and the other tools
#     --standalone: what packages and wheels hold alone: the compiler's tools with LLVM inside, and the runtime
set -euo pipefail
cd "$(dirname "$0")/.."
cuda= pytorch= wanted=all
while :; do
  case ${1:-} in
    --with-cuda) cuda=1 ;;
    --only-tools) wanted="memopt-compile memopt-run" ;;
    --standalone) wanted="standalone memopt-run memopt-cudnn memopt_runtime" ;;
    *) break ;;
  esac
  shift
done
(($#)) || set -- release

packages=(g++ cmake ninja-build ccache python3-venv zlib1g-dev libzstd-dev liburing-dev liblapack-dev libblas-dev nlohmann-json3-dev libgtest-dev libbenchmark-dev
          libmlir-22-dev liblld-22-dev mlir-22-tools llvm-22-dev llvm-22-tools clang-22 lld-22
          dataset-fashion-mnist bible-kjv bible-kjv-text)
for preset; do
  case $preset in
    release | develop | check) ;;
    asan | fuzz | readers | tsan) packages+=(libclang-rt-22-dev) ;;
    lint) packages+=(clang-format-22 clang-tidy-22) ;;
    mpi) packages+=(libopenmpi-dev openmpi-bin libucx-dev libssl-dev) ;;
    bare) packages+=(debootstrap dpkg-dev) ;;
    torch) pytorch=1 ;;
    *) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 1 ;;
  esac
done
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing+=("$package")
done
if ((${#missing[@]})); then
  echo "== installing ${missing[*]}"
  as_root=; [ "$(id -u)" = 0 ] || as_root=sudo
  $as_root apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if [ ! -e build/venv/lib/cmake/dnnl/dnnl-config.cmake ]; then
  echo "== installing oneDNN, lit and numpy into build/venv"
  python3 -m venv build/venv
  build/venv/bin/pip install -q onednn-devel-cpu-gomp==2023.2.0 lit numpy
fi
# lit ends tests that hang by it.
if ! build/venv/bin/python3 -c 'import psutil' 2>/dev/null; then
  echo "== installing psutil into build/venv"
  build/venv/bin/pip install -q psutil
fi
if [ -n "$pytorch" ] && ! build/pytorch/bin/python3 -c 'import torch, torchvision, transformers' 2>/dev/null; then
  echo "== installing PyTorch into build/pytorch, 3 GB to download and 6 GB there"
  python3 -m venv build/pytorch
  build/pytorch/bin/pip install -q torch torchvision transformers numpy safetensors
fi
# One release for both, for ptxas reads what libdevice becomes; the wheels alone, for nothing of the toolkit runs.
if [ -n "$cuda" ] && ! compgen -G "build/venv/lib/python3*/site-packages/nvidia/cu13/bin/ptxas" >/dev/null; then
  echo "== installing ptxas and libdevice into build/venv, 100 MB to download"
  build/venv/bin/pip install -q --no-deps nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88
fi
# Plans name the version that made them; the wheel alone, for it plans without a device.
if [ -n "$cuda" ] && ! compgen -G "build/venv/lib/python3*/site-packages/nvidia/cudnn/lib/libcudnn.so.9" >/dev/null; then
  echo "== installing cuDNN into build/venv, 520 MB to download and 850 MB there"
  build/venv/bin/pip install -q --no-deps nvidia-cudnn-cu13==9.26.0.51
fi

for preset; do
  build=$preset targets=($wanted)
  case $preset in
    fuzz) targets=(fuzzers RuntimeTests ImportTests) ;; # what reads outside files
    readers) build=fuzz targets=(reader-fuzzers RuntimeTests) ;;
    tsan) targets=(RuntimeTests) ;;                     # what several threads and ranks do together
    mpi | torch) build=release ;;
    bare) build=release targets=(standalone memopt-run memopt-cudnn memopt_runtime) ;;
    lint) targets=() ;;                                 # clang-tidy takes the commands that compile the sources
  esac
  # The plugins are built where MPI and UCX were there when the build was configured.
  [ "$preset" != mpi ] || [ -e build/release/lib/libmemopt-mpi.so -a -e build/release/lib/libmemopt-ucx.so ] ||
    rm -f build/release/build.ninja
  if [ ! -e "build/$build/build.ninja" ]; then
    echo "== configuring preset $build"
    cmake --preset "$build" >"build/$build-configure.log" 2>&1 || { cat "build/$build-configure.log"; exit 1; }
  fi
  ((${#targets[@]})) || continue
  echo "== building preset $preset"
  cmake --build --preset "$build" --target "${targets[@]}"
done
