//===- FilledRows.h - rows that a mask chooses, lowered ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_UTILS_FILLEDROWS_H
#define MEMOPT_TRANSFORMS_UTILS_FILLEDROWS_H

#include "mlir/Support/LLVM.h"

namespace mlir::memopt {

/// On the generic that memopt.fill_rows along dimension 0 was lowered to. It reads the mask and the number of the first row that
/// counts, which is that of rows where none does, and takes elements of the rows.
inline constexpr llvm::StringLiteral kFilledRowsAttr = "memopt.filled_rows";

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_UTILS_FILLEDROWS_H
