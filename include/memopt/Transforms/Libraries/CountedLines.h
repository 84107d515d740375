//===- CountedLines.h - matrices of which a mask counts lines -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rows of which some count, as those of a batch that one expert takes, have all their places, and
// zeros where they do not count. A product by them may leave those out, if what gives them is found
// behind the elementwise code that made the matrix.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_LIBRARIES_COUNTEDLINES_H
#define MEMOPT_TRANSFORMS_LIBRARIES_COUNTEDLINES_H

#include "mlir/IR/Value.h"

namespace mlir::memopt {

/// A mask with an element for each line of `matrix` along `dim`, such that lines that it does not
/// have are zeros; null where none is known.
Value findCountedLines(Value matrix, int64_t dim);

/// What `matrix` is in the lines along `dim` that `mask` has, where it is nothing but these.
Value getUncounted(Value matrix, int64_t dim, Value mask);

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_LIBRARIES_COUNTEDLINES_H
