//===- ColumnLoops.h - loops over columns, by instruction set -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What LAPACK does between its products of matrices: a matrix by a vector. Matrices lie column by
// column, `stride` elements apart; vectors lie together. Compiled once for each instruction set, as
// the runtime's other loops are.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_KERNELS_LAPACK_COLUMNLOOPS_H
#define MEMOPT_RUNTIME_LIB_KERNELS_LAPACK_COLUMNLOOPS_H

#include <cstdint>

namespace memopt::libraries {

template <typename T> struct ColumnLoops {
  /// y[i] += the sum over j of a[i, j] x[j], j in [0, columns).
  void (*addColumns)(int64_t rows, int64_t columns, const T *a, int64_t stride, const T *x, T *y);
  /// y[j] += the sum over i of a[i, j] x[i].
  void (*addDots)(int64_t rows, int64_t columns, const T *a, int64_t stride, const T *x, T *y);
};

/// For the processor at hand.
template <typename T> const ColumnLoops<T> &columnLoops();

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_LIB_KERNELS_LAPACK_COLUMNLOOPS_H
