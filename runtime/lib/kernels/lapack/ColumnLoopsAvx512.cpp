//===- ColumnLoopsAvx512.cpp - loops over columns for AVX-512 -------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#define MEMOPT_ISA avx512
#define MEMOPT_VECTOR_BYTES 64
#include "ColumnLoops.inc"
