#!/usr/bin/env bash
# Installs what memopt needs on Debian and builds it. Idempotent.
#   tools/install.sh [PRESET]     PRESET: release (default), develop, asan
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}

packages=(g++ cmake ninja-build ccache python3-venv zlib1g-dev nlohmann-json3-dev libgtest-dev libbenchmark-dev
          libmlir-22-dev mlir-22-tools llvm-22-dev llvm-22-tools clang-22 lld-22
          dataset-fashion-mnist bible-kjv bible-kjv-text)
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

echo "== building preset $preset"
[ -e "build/$preset/build.ninja" ] || cmake --preset "$preset" >"build/$preset-configure.log" 2>&1 || {
  cat "build/$preset-configure.log"; exit 1; }
cmake --build --preset "$preset"
