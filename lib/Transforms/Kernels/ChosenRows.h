//===- ChosenRows.h - masks of which few hold at a place --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which rows an expert takes follows from a table of choices: rows t with table[t, j] = 5 for some j. Masks
// of other numbers choose other pairs (t, j), so together they have as many rows as the table has
// elements, at most.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_KERNELS_CHOSENROWS_H
#define MEMOPT_LIB_TRANSFORMS_KERNELS_CHOSENROWS_H

#include "mlir/IR/AffineMap.h"
#include "mlir/IR/Value.h"

#include <optional>

namespace mlir::memopt {

/// A mask of rows t that holds at most where `table` is `number` at (t, j) for some j < choices.
struct ChosenRows {
  Value table;
  AffineMap access; ///< from (t, j) to the table's indices, each of which is t, j or a constant
  int64_t choices;
  int64_t number;
};

/// Nothing where it does not follow from the ops that make the mask.
std::optional<ChosenRows> findChosenRows(Value mask);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_KERNELS_CHOSENROWS_H
