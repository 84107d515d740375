//===- BlockKernelsAvx512.cpp - inner loops for AVX-512 ----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#define MEMOPT_ISA avx512
#define MEMOPT_ISA_NAME "memopt:avx512"
#define MEMOPT_VECTOR_BYTES 64
#define MEMOPT_PANEL_ROWS 12
#include "BlockKernels.inc"
#include "GroupKernels.inc"
#include "RowKernels.inc"
#include "WinogradKernels.inc"
