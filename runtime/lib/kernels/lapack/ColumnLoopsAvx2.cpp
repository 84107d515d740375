//===- ColumnLoopsAvx2.cpp - loops over columns for AVX2 and FMA ----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#define MEMOPT_ISA avx2
#define MEMOPT_VECTOR_BYTES 32
#include "ColumnLoops.inc"
