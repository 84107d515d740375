//===- Rows.h - rows of which some count ------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_ROWS_H
#define MEMOPT_DIALECT_ROWS_H

#include "memopt/Dialect/Memopt.h"

#define GET_OP_CLASSES
#include "memopt/Dialect/RowOps.h.inc"

#endif // MEMOPT_DIALECT_ROWS_H
