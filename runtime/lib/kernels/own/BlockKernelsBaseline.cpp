//===- BlockKernelsBaseline.cpp - inner loops for any processor --------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#define MEMOPT_ISA baseline
#define MEMOPT_ISA_NAME "memopt:baseline"
#define MEMOPT_VECTOR_BYTES 16
#define MEMOPT_PANEL_ROWS 6
#include "BlockKernels.inc"
#include "GroupKernels.inc"
#include "RowKernels.inc"
#include "WinogradKernels.inc"
