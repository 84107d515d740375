#!/usr/bin/env bash
# Installs memopt on a machine that has nothing but Debian and Python, and trains there.
#   test/bare.sh [SUITE]     bookworm by default; jammy is Ubuntu 22.04, with an older C library (needs the keyring of Ubuntu's archive)
# Makes a root with debootstrap in build/bare, and runs test/bare/drill.py in copies of it: with the wheels, and with the Debian
# package of build/dist (tools/wheels.sh). Needs to be root, debootstrap and a network. The last line counts.
set -uo pipefail
cd "$(dirname "$0")/.."
suite=${1:-bookworm}
case $suite in
  jammy | noble) source=(--components=main,universe --keyring=/usr/share/keyrings/ubuntu-archive-keyring.gpg)
    mirror=http://archive.ubuntu.com/ubuntu ;;
  *) source=() mirror=http://deb.debian.org/debian ;;
esac
base=$PWD/build/bare dist=$PWD/build/dist
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' tools/python/memopt/__init__.py)
passed=0 failed=0
if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
  echo "this needs to be root, and debootstrap" >&2
  exit 3
fi
mkdir -p "$base"
if [ ! -e "$base/$suite.done" ]; then
  echo "== making a root of $suite"
  rm -rf "${base:?}/$suite"
  debootstrap --variant=minbase "${source[@]}" --include=python3-venv,ca-certificates "$suite" "$base/$suite" "$mirror" \
    >"$base/$suite.log" 2>&1 || { tail "$base/$suite.log" >&2; exit 3; }
  touch "$base/$suite.done"
fi

# in_root NAME COMMAND: runs a command of a shell in a fresh copy of the root, which has the wheels, the package and the models.
in_root() {
  local root=$base/$1
  rm -rf --one-file-system "$root"
  cp -a --reflink=auto "$base/$suite" "$root"
  mkdir -p "$root/dist" "$root/drill"
  cp "$dist"/*"$version"* test/bare/drill.py tools/export/models/mlp.train.pt2 "$root/dist"
  cp test/bare/drill.py tools/export/models/mlp.train.pt2 "$root/drill"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  unshare --mount bash -c 'mount --make-rprivate / && mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount -t tmpfs tmpfs "$0/dev/shm" &&
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
      chroot "$0" bash -euc "$1"' "$root" "$2"
}

# drill NAME COMMAND
drill() {
  echo "== $1"
  if in_root "$1" "$2"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  rm -rf --one-file-system "${base:?}/$1"
}

drill wheels "
  python3 -m venv /env
  started=\$(date +%s.%N)
  /env/bin/pip install -q --no-index --find-links /dist 'memopt[compiler]'
  PATH=/env/bin:\$PATH python3 /drill/drill.py /drill $version \$started"
drill debian-package "
  apt-get -qq update >/dev/null
  started=\$(date +%s.%N)
  apt-get -qq install -y --no-install-recommends /dist/memopt_*.deb >/dev/null
  python3 /drill/drill.py /drill $version \$started"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
