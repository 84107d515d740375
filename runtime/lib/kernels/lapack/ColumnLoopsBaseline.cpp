//===- ColumnLoopsBaseline.cpp - loops over columns for every processor ---===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#define MEMOPT_ISA baseline
#define MEMOPT_VECTOR_BYTES 16
#include "ColumnLoops.inc"
