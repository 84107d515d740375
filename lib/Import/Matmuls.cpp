//===- Matmuls.cpp - matrix products -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GraphImporter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/StringSwitch.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::ValueRange;
using Builder = mlir::ImplicitLocOpBuilder;
namespace arith = mlir::arith;
namespace math = mlir::math;

namespace {
/// A matrix operand and whether the product reads it transposed.
struct Matrix {
  Value value;
  bool transposed = false;

  ArrayRef<int64_t> sizes() const { return cast<RankedTensorType>(value.getType()).getShape(); }
  int64_t size(unsigned fromBack) const {
    unsigned index = transposed ? 1 - fromBack : fromBack;
    return sizes()[sizes().size() - 1 - index];
  }
  int64_t rows() const { return size(1); }
  int64_t columns() const { return size(0); }
};
} // namespace

/// Reads through a transpose of the last two dimensions: the product does it for free.
static Matrix getMatrix(Value value) {
  auto transpose = value.getDefiningOp<mlir::memopt::TransposeOp>();
  if (!transpose)
    return {value, false};
  auto expected = to_vector(seq<int64_t>(0, transpose.getPermutation().size()));
  if (expected.size() < 2)
    return {value, false};
  std::swap(expected[expected.size() - 1], expected[expected.size() - 2]);
  if (transpose.getPermutation() != ArrayRef(expected))
    return {value, false};
  return {transpose.getInput(), true};
}

static Expected<Value> multiply(OpContext &op, const Matrix &a, const Matrix &b) {
  Shape sizes(a.sizes().drop_back(2));
  if (ArrayRef(sizes) != b.sizes().drop_back(2) || a.columns() != b.rows())
    return op.error("cannot multiply " + toString(a.sizes()) +
                    (a.transposed ? " (transposed)" : "") + " by " + toString(b.sizes()) +
                    (b.transposed ? " (transposed)" : ""));
  mlir::Type element = mlir::getElementTypeOrSelf(a.value);
  if (!isa<mlir::FloatType>(element) || mlir::getElementTypeOrSelf(b.value) != element)
    return op.error("expected operands of one floating-point type");
  sizes.append({a.rows(), b.columns()});
  RETURN_IF_ERROR(countElements(op, sizes).takeError());
  return mlir::memopt::MatmulOp::create(op.b, RankedTensorType::get(sizes, element), a.value,
                                        b.value, a.transposed, b.transposed)
      .getResult();
}

/// x [.., K] times a matrix, plus a vector: all leading dimensions become rows.
static Expected<Value> multiplyRows(OpContext &op, Value x, const Matrix &matrix,
                                    Value bias = nullptr) {
  Shape sizes(cast<RankedTensorType>(x.getType()).getShape());
  int64_t rows = 1;
  for (int64_t size : ArrayRef(sizes).drop_back())
    rows *= size;
  ASSIGN_OR_RETURN(Value product,
                   multiply(op, {reshapeValue(op.b, x, {rows, sizes.back()})}, matrix));
  sizes.back() = matrix.columns();
  if (bias)
    product = arith::AddFOp::create(op.b, product,
                                    broadcastAlong(op.b, bias, 1, {rows, matrix.columns()}));
  return reshapeValue(op.b, product, sizes);
}

static Error lowerLinear(OpContext &op) {
  Tensor input = op.tensor("input"), weight = op.tensor("weight");
  if (input.rank() < 1 || weight.rank() != 2 || input.getNumElements() == 0)
    return op.error("expected an input with dimensions and a matrix, found " +
                    toString(input.sizes) + " and " + toString(weight.sizes));
  std::optional<Tensor> bias = op.optionalTensor("bias");
  if (bias &&
      (bias->rank() != 1 || bias->sizes[0] != weight.sizes[0] || bias->dtype != input.dtype))
    return op.error("expected a bias of " + getName(input.dtype) + "[" + Twine(weight.sizes[0]) +
                    "], found " + getName(bias->dtype) + toString(bias->sizes));
  if (bias)
    op.importer.suggestInitial(*bias, 0);
  ASSIGN_OR_RETURN(Value result, multiplyRows(op, op.get(input), {op.get(weight), true},
                                              bias ? op.get(*bias) : Value()));
  return setResult(op, op.wrap(input.dtype, result));
}

/// torch.matmul: vectors become matrices for the moment, batch dimensions broadcast.
static Error lowerMatmul(OpContext &op) {
  Tensor a = op.tensor("self");
  Tensor b = op.tensor(StringSwitch<StringRef>(op.node.target)
                           .Case("aten.matmul.default", "other")
                           .Case("aten.mv.default", "vec")
                           .Case("aten.dot.default", "tensor")
                           .Default("mat2"));
  if (a.rank() < 1 || b.rank() < 1 || a.getNumElements() == 0 || b.getNumElements() == 0)
    return op.error("expected operands with elements and dimensions, found " + toString(a.sizes) +
                    " and " + toString(b.sizes));
  Shape result(op.resultMeta(0).sizes);
  if (b.rank() == 1) {
    ASSIGN_OR_RETURN(b, reshape(op, b, {b.sizes[0], 1}));
  }
  Value product;
  if (b.rank() == 2) {
    ASSIGN_OR_RETURN(product, multiplyRows(op, op.get(a), getMatrix(op.get(b))));
  } else {
    if (a.rank() == 1) {
      ASSIGN_OR_RETURN(a, reshape(op, a, {1, a.sizes[0]}));
    }
    ASSIGN_OR_RETURN(Shape batch, broadcastShapes(op, ArrayRef(a.sizes).drop_back(2),
                                                  ArrayRef(b.sizes).drop_back(2)));
    auto withBatch = [&](const Tensor &tensor) {
      Shape sizes(batch);
      append_range(sizes, ArrayRef(tensor.sizes).take_back(2));
      return expand(op, tensor, sizes);
    };
    ASSIGN_OR_RETURN(a, withBatch(a));
    ASSIGN_OR_RETURN(b, withBatch(b));
    ASSIGN_OR_RETURN(product, multiply(op, getMatrix(op.get(a)), getMatrix(op.get(b))));
  }
  ASSIGN_OR_RETURN(Tensor shaped, reshape(op, op.wrap(op.resultMeta(0).dtype, product), result));
  return setResult(op, op.copy(shaped));
}

/// beta * self + alpha * (first x second).
static Error lowerAddProduct(OpContext &op, const Tensor &first, const Tensor &second,
                             int64_t rank) {
  if (first.rank() != rank || second.rank() != rank)
    return op.error("expected factors of rank " + Twine(rank) + ", found " + toString(first.sizes) +
                    " and " + toString(second.sizes));
  double alpha = op.number("alpha"), beta = op.number("beta");
  ASSIGN_OR_RETURN(Value product,
                   multiply(op, getMatrix(op.get(first)), getMatrix(op.get(second))));
  DType type = first.dtype;
  return setResult(op, elementwise(op, {op.tensor("self"), op.wrap(type, product)}, type, type,
                                   [&](Builder &b, ValueRange v) -> Value {
                                     auto scale = [&](Value value, double by) -> Value {
                                       if (by == 1)
                                         return value;
                                       return arith::MulFOp::create(b, value,
                                                                    splat(b, value.getType(), by));
                                     };
                                     Value scaled = scale(v[1], alpha);
                                     if (beta == 0) // PyTorch then ignores self, NaNs included
                                       return scaled;
                                     return arith::AddFOp::create(b, scaled, scale(v[0], beta));
                                   }));
}

static Error lowerAddmm(OpContext &op) {
  return lowerAddProduct(op, op.tensor("mat1"), op.tensor("mat2"), 2);
}
static Error lowerBaddbmm(OpContext &op) {
  return lowerAddProduct(op, op.tensor("batch1"), op.tensor("batch2"), 3);
}

/// Two vectors: every product of their elements.
static Error lowerOuter(OpContext &op) {
  Tensor x = op.tensor("self"), y = op.tensor("vec2");
  if (x.rank() != 1 || y.rank() != 1)
    return op.error("expected vectors, found " + toString(x.sizes) + " and " + toString(y.sizes));
  ASSIGN_OR_RETURN(x, reshape(op, x, {x.sizes[0], 1}));
  DType type = op.resultMeta(0).dtype;
  return setResult(
      op, elementwise(
              op, {x, y}, type, type,
              [&](Builder &b, ValueRange v) -> Value {
                if (isFloat(type))
                  return arith::MulFOp::create(b, v[0], v[1]);
                return arith::MulIOp::create(b, v[0], v[1]);
              },
              [](ArrayRef<int64_t> v) { return int64_t(uint64_t(v[0]) * uint64_t(v[1])); }));
}

void memopt::pt2::registerMatmuls(OpTable &table) {
  table.add("aten.linear.default", "Tensor input, Tensor weight, Tensor? bias=None", lowerLinear);
  table.add("aten.matmul.default", "Tensor self, Tensor other", lowerMatmul);
  table.add("aten.mm.default", "Tensor self, Tensor mat2", lowerMatmul);
  table.add("aten.bmm.default", "Tensor self, Tensor mat2", lowerMatmul);
  table.add("aten.mv.default", "Tensor self, Tensor vec", lowerMatmul);
  table.add("aten.dot.default", "Tensor self, Tensor tensor", lowerMatmul);
  table.add("aten.outer.default", "Tensor self, Tensor vec2", lowerOuter);
  table.add("aten.addmm.default",
            "Tensor self, Tensor mat1, Tensor mat2, Scalar beta=1, Scalar alpha=1", lowerAddmm);
  table.add("aten.baddbmm.default",
            "Tensor self, Tensor batch1, Tensor batch2, Scalar beta=1, Scalar alpha=1",
            lowerBaddbmm);
}
