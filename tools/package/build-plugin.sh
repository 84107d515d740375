#!/bin/sh
# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Builds what ranks of several hosts need to reach each other: a library against the MPI or the UCX of this machine.
#   build.sh mpi|ucx [-o FILE]
#     FILE: by default libmemopt-mpi.so or libmemopt-ucx.so beside the runtime's library, where memopt finds it. Elsewhere
#       the environment variable MEMOPT_MPI_PLUGIN or MEMOPT_UCX_PLUGIN names it.
# MPICXX is the compiler of the MPI (default: mpicxx), CXX the one for UCX (default: c++). Ask for a C++17 compiler.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
usage() { sed -n '6,10s/^# \{0,1\}//p' "$0" >&2; exit 1; }
case ${1:-} in
  mpi) compiler=${MPICXX:-mpicxx} source=MpiMessages.cpp libraries= needed="an MPI's compiler (Debian: libopenmpi-dev or libmpich-dev)" ;;
  ucx) compiler=${CXX:-c++} source=UcxMessages.cpp libraries="-lucp -lucs -lcrypto" needed="a C++ compiler, UCX and OpenSSL (Debian: g++ libucx-dev libssl-dev)" ;;
  *) usage ;;
esac
out=$here/../../libmemopt-$1.so
if [ $# -gt 1 ]; then
  [ $# -eq 3 ] && [ "$2" = -o ] || usage
  out=$3
fi
command -v "$compiler" >/dev/null || { echo "build.sh: error: $compiler is not there; needed: $needed" >&2; exit 3; }
# Processes that run with the old file keep it.
rm -f "$out.new"
"$compiler" -std=c++17 -O2 -shared -fPIC -I "$here/include" "$here/$source" -o "$out.new" $libraries ||
  { rm -f "$out.new"; echo "build.sh: error: the plugin is not built; needed: $needed" >&2; exit 3; }
mv "$out.new" "$out"
echo "wrote $(cd "$(dirname "$out")" && pwd)/$(basename "$out")"
