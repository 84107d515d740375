//===- MatmulDescriptor.h - what a matmul call multiplies ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIBRARIES_MATMULDESCRIPTOR_H
#define MEMOPT_RUNTIME_LIBRARIES_MATMULDESCRIPTOR_H

#include "memopt-runtime/LibraryCalls.h"
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace memopt::libraries {

enum class ElementType { F32, F64 };

/// Strides of one operand, in elements.
struct MatrixStrides {
  std::vector<int64_t> batch; ///< 0: the same matrix for every index (operands only)
  int64_t row, column;
};

/// c[i..., m, n] = (accumulate ? c : 0) + bias[n] + sum over k of a[i..., m, k] * b[i..., k, n]
struct MatmulDescriptor {
  ElementType type;
  std::vector<int64_t> batch;
  int64_t m, n, k;
  MatrixStrides a, b, c;
  bool bias, accumulate, reference;

  static StatusOr<MatmulDescriptor> parse(const nlohmann::json &descriptor);

  /// Index of c in the list of buffers; the workspace follows it.
  int resultIndex() const { return bias ? 3 : 2; }
  int64_t batchCount() const;

  /// Merges batch dimensions that are one dimension in all three operands, and a batch that only
  /// stacks rows of a into the rows. Changes no address that is touched, nor any sum.
  void simplify();
};

/// Our own kernels: every element type, every stride.
std::unique_ptr<LibraryCall> createOwnMatmul(const MatmulDescriptor &descriptor, int threads);

/// oneDNN; null when it has no implementation that keeps the promises of LibraryCalls.h.
std::unique_ptr<LibraryCall> createDnnlMatmul(const MatmulDescriptor &descriptor, int threads);

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_LIBRARIES_MATMULDESCRIPTOR_H
