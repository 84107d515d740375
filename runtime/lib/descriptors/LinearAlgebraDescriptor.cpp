//===- LinearAlgebraDescriptor.cpp - what is computed of matrices -----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/descriptors/LinearAlgebraDescriptor.h"
#include "memopt-runtime/descriptors/MatmulDescriptor.h"

using namespace memopt;
using namespace memopt::libraries;

static constexpr const char *linearAlgebraNames[] = {
    "cholesky", "eigenvectors", "singular_vectors", "reflections",       "reflection_product",
    "lu",       "lu_solve",     "triangular_solve", "triangular_product"};

/// LAPACK counts in 32 bits, workspaces of a few squares of the smaller extent among them.
static constexpr int64_t mostExtent = int64_t(1) << 24, mostSquare = int64_t(1) << 14;

std::optional<LinearAlgebraKind> libraries::findLinearAlgebra(const std::string &name) {
  const auto *found = std::find(std::begin(linearAlgebraNames), std::end(linearAlgebraNames), name);
  if (found == std::end(linearAlgebraNames))
    return std::nullopt;
  return static_cast<LinearAlgebraKind>(found - std::begin(linearAlgebraNames));
}

StatusOr<LinearAlgebraDescriptor> LinearAlgebraDescriptor::parse(const nlohmann::json &json,
                                                                 LinearAlgebraKind kind) {
  DescriptorReader reader(json, std::string("library call '") +
                                    linearAlgebraNames[static_cast<int>(kind)] + "'");
  LinearAlgebraDescriptor d;
  d.kind = kind;
  bool isTriangular = d.isOfTriangle(),
       isSolve = isTriangular || kind == LinearAlgebraKind::LuSolve,
       isProduct = kind == LinearAlgebraKind::ReflectionProduct;
  d.type = readElementType(reader);
  d.reference = reader.boolean("reference", false);
  d.batch = reader.integer("batch", 1);
  d.rows = reader.integer("rows", 1);
  d.columns = reader.integer("columns", 1);
  d.width = isSolve || isProduct ? reader.integer("width", 1) : reader.integer("width", 0, 0);
  d.upper = reader.boolean("upper", false);
  d.unit = reader.boolean("unit", false);
  d.transposed = reader.boolean("transposed", false);
  d.right = reader.boolean("right", false);
  d.pairs = reader.boolean("pairs", false);
  reader.require(d.type == ElementType::F32 || d.type == ElementType::F64,
                 "'dtype' must be f32 or f64");
  reader.require(isSolve || isProduct || d.width == 0,
                 "'width' is of solves and products of triangles and reflections");
  reader.require(isTriangular || !(d.upper || d.unit || d.right),
                 "'upper', 'unit' and 'right' are of triangles");
  reader.require(isSolve || !d.transposed, "'transposed' is of solves and triangles");
  bool isSquare =
      isSolve || kind == LinearAlgebraKind::Cholesky || kind == LinearAlgebraKind::Eigenvectors;
  reader.require(!isSquare || d.rows == d.columns, "'rows' and 'columns' must be equal");
  reader.require(!isProduct || (d.rows >= d.columns && d.columns >= d.width),
                 "'columns' must not be more than 'rows', nor 'width' more than 'columns'");
  reader.require(d.least() <= mostSquare && std::max({d.rows, d.columns, d.width}) <= mostExtent,
                 "matrices have at most 2^14 rows and 2^24 columns, or the other way");
  int64_t parts = d.pairs ? 2 : 1;
  reader.requireProduct("the matrices", {d.batch, d.rows, d.columns, parts});
  reader.requireProduct("the second operand", {d.batch, d.rows, d.width, parts});
  MEMOPT_RETURN_IF_ERROR(reader.takeStatus());
  return d;
}

std::vector<BufferUse> LinearAlgebraDescriptor::getBuffers() const {
  int64_t size = type == ElementType::F64 ? 8 : 4;
  auto real = [&](int64_t elements) { return batch * elements * size; };
  auto bytes = [&](int64_t elements) { return real(elements) * (pairs ? 2 : 1); };
  int64_t whole = bytes(rows * columns);
  switch (kind) {
  case LinearAlgebraKind::Cholesky:
    return {{whole, false}, {whole, true}};
  case LinearAlgebraKind::Eigenvectors:
    return {{whole, false}, {real(rows), true}, {whole, true}};
  case LinearAlgebraKind::SingularVectors:
    return {{whole, false},
            {bytes(rows * least()), true},
            {real(least()), true},
            {bytes(least() * columns), true}};
  case LinearAlgebraKind::Reflections:
    return {{whole, false}, {whole, true}, {bytes(least()), true}};
  case LinearAlgebraKind::ReflectionProduct:
    return {{whole, false}, {bytes(width), false}, {whole, true}};
  case LinearAlgebraKind::Lu:
    return {{whole, false}, {whole, true}, {batch * least() * 8, true}, {batch * rows * 8, true}};
  case LinearAlgebraKind::LuSolve:
    return {{whole, false},
            {batch * rows * 8, false},
            {bytes(rows * width), false},
            {bytes(rows * width), true}};
  case LinearAlgebraKind::TriangularSolve:
  case LinearAlgebraKind::TriangularProduct:
    break;
  }
  return {{whole, false}, {bytes(rows * width), false}, {bytes(rows * width), true}};
}
