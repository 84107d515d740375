//===- TensorView.h - a tensor of the caller's ------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A tensor as arrays of other libraries have it: in any order of its dimensions, with gaps. It is
// copied into an arena in one pass, whatever its strides.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_NUMBERS_TENSORVIEW_H
#define MEMOPT_RUNTIME_NUMBERS_TENSORVIEW_H

#include "memopt-runtime/numbers/DType.h"

namespace memopt {

struct TensorView {
  const char *data; ///< not owned; where element [0, 0, ...] lies
  DType dtype;
  Shape shape;
  std::vector<int64_t> strides; ///< in elements, one for each dimension; may be negative or 0

  /// Elements [begin, begin + size) along a dimension.
  TensorView slice(size_t dim, int64_t begin, int64_t size) const;

  /// Writes the elements in row-major order, as `type`, by the rules of convertElements.
  Status copyTo(DType type, char *target) const;
};

/// The strides of a tensor without gaps, its last dimension the fastest.
std::vector<int64_t> getRowMajorStrides(const Shape &shape);

} // namespace memopt

#endif // MEMOPT_RUNTIME_NUMBERS_TENSORVIEW_H
