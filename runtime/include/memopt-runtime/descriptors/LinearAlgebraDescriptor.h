//===- LinearAlgebraDescriptor.h - what is computed of matrices ---*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DESCRIPTORS_LINEARALGEBRADESCRIPTOR_H
#define MEMOPT_RUNTIME_DESCRIPTORS_LINEARALGEBRADESCRIPTOR_H

#include "memopt-runtime/descriptors/DescriptorReader.h"
#include "memopt-runtime/descriptors/ElementTypes.h"
#include "memopt-runtime/descriptors/LibraryCalls.h"
#include <algorithm>
#include <optional>

namespace memopt::libraries {

/// In the order of their names in `linearAlgebraNames`.
enum class LinearAlgebraKind {
  Cholesky,
  Eigenvectors,
  SingularVectors,
  Reflections,
  ReflectionProduct,
  Lu,
  LuSolve,
  TriangularSolve,
  TriangularProduct
};

/// The kind of call with this name, if it is one of linear algebra.
std::optional<LinearAlgebraKind> findLinearAlgebra(const std::string &name);

/// docs/LibraryCalls.md says what each kind computes. All buffers are packed and row-major.
struct LinearAlgebraDescriptor {
  LinearAlgebraKind kind;
  ElementType type; ///< f32 or f64
  bool reference;   ///< f32 is computed in f64
  int64_t batch, rows, columns;
  int64_t width; ///< right sides, or factors; else 0
  bool upper, unit, transposed, right;
  bool pairs; ///< matrices and factors are complex

  static StatusOr<LinearAlgebraDescriptor> parse(const nlohmann::json &descriptor,
                                                 LinearAlgebraKind kind);

  bool isOfTriangle() const {
    return kind == LinearAlgebraKind::TriangularSolve ||
           kind == LinearAlgebraKind::TriangularProduct;
  }
  int64_t least() const { return std::min(rows, columns); }
  std::vector<BufferUse> getBuffers() const;
};

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_DESCRIPTORS_LINEARALGEBRADESCRIPTOR_H
