//===- BlockKernelsAvx2.cpp - inner loops for AVX2 and FMA -------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#define MEMOPT_ISA avx2
#define MEMOPT_ISA_NAME "memopt:avx2"
#define MEMOPT_VECTOR_BYTES 32
#define MEMOPT_PANEL_ROWS 6
#include "BlockKernels.inc"
#include "GroupKernels.inc"
#include "RowKernels.inc"
#include "WinogradKernels.inc"
