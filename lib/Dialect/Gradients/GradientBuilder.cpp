//===- GradientBuilder.cpp - formulas of gradient rules ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GradientBuilder.h"

#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;
using namespace mlir::memopt;

std::optional<double> mlir::memopt::getSplat(Value value) {
  SplatElementsAttr attribute;
  if (!matchPattern(value, m_Constant(&attribute)) || !isa<FloatType>(attribute.getElementType()))
    return std::nullopt;
  return attribute.getSplatValue<APFloat>().convertToDouble();
}

SmallVector<int64_t> mlir::memopt::dimensionRange(int64_t begin, int64_t end) {
  return llvm::to_vector(llvm::seq<int64_t>(begin, end));
}

SmallVector<int64_t> mlir::memopt::otherDimensions(int64_t rank, ArrayRef<int64_t> dimensions) {
  llvm::SmallBitVector named(rank);
  for (int64_t dimension : dimensions)
    named.set(dimension);
  SmallVector<int64_t> others;
  for (int64_t dimension = 0; dimension < rank; ++dimension)
    if (!named.test(dimension))
      others.push_back(dimension);
  return others;
}

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

static bool isSplat(Term term, double number) {
  std::optional<double> splat = getSplat(term);
  return splat && *splat == number;
}

Term mlir::memopt::operator+(Term a, Term b) {
  if (isSplat(a, 0.0))
    return b;
  if (isSplat(b, 0.0))
    return a;
  return a.getBuilder().fold<arith::AddFOp>(a, b);
}

Term mlir::memopt::operator-(Term a, Term b) {
  if (isSplat(b, 0.0))
    return a;
  if (isSplat(a, 0.0))
    return -b;
  return a.getBuilder().fold<arith::SubFOp>(a, b);
}

// A zero gradient stays zero whatever it is multiplied with: where no gradient flows, an infinite
// factor must not make one.
Term mlir::memopt::operator*(Term a, Term b) {
  if (isSplat(a, 0.0) || isSplat(b, 1.0))
    return a;
  if (isSplat(b, 0.0) || isSplat(a, 1.0))
    return b;
  return a.getBuilder().fold<arith::MulFOp>(a, b);
}

Term mlir::memopt::operator/(Term a, Term b) {
  if (isSplat(a, 0.0) || isSplat(b, 1.0))
    return a;
  return a.getBuilder().fold<arith::DivFOp>(a, b);
}

Term mlir::memopt::operator-(Term a) {
  if (isSplat(a, 0.0))
    return a;
  return a.getBuilder().fold<arith::NegFOp>(a);
}

static Term like(Term term, double number) {
  return term.getBuilder().splat(term.getType(), number);
}

Term mlir::memopt::operator+(Term a, double b) { return a + like(a, b); }
Term mlir::memopt::operator-(Term a, double b) { return a + like(a, -b); }
Term mlir::memopt::operator-(double a, Term b) { return like(b, a) - b; }
Term mlir::memopt::operator*(Term a, double b) { return a * like(a, b); }
Term mlir::memopt::operator*(double a, Term b) { return b * like(b, a); }
Term mlir::memopt::operator/(Term a, double b) { return a / like(a, b); }
Term mlir::memopt::operator/(double a, Term b) { return like(b, a) / b; }

Term mlir::memopt::select(Value condition, Term a, Term b) {
  return a.getBuilder().fold<arith::SelectOp>(condition, a, b);
}
Term mlir::memopt::select(Value condition, Term a, double b) {
  return select(condition, a, like(a, b));
}
Term mlir::memopt::select(Value condition, double a, Term b) {
  return select(condition, like(b, a), b);
}

Value mlir::memopt::compare(arith::CmpFPredicate predicate, Term a, Term b) {
  return a.getBuilder().fold<arith::CmpFOp>(predicate, a, b);
}
Value mlir::memopt::compare(arith::CmpFPredicate predicate, Term a, double b) {
  return compare(predicate, a, like(a, b));
}

Term mlir::memopt::exp(Term x) { return x.getBuilder().fold<math::ExpOp>(x); }
Term mlir::memopt::log(Term x) { return x.getBuilder().fold<math::LogOp>(x); }
Term mlir::memopt::sqrt(Term x) { return x.getBuilder().fold<math::SqrtOp>(x); }
Term mlir::memopt::rsqrt(Term x) { return x.getBuilder().fold<math::RsqrtOp>(x); }
Term mlir::memopt::sin(Term x) { return x.getBuilder().fold<math::SinOp>(x); }
Term mlir::memopt::cos(Term x) { return x.getBuilder().fold<math::CosOp>(x); }
Term mlir::memopt::sinh(Term x) { return x.getBuilder().fold<math::SinhOp>(x); }
Term mlir::memopt::cosh(Term x) { return x.getBuilder().fold<math::CoshOp>(x); }
Term mlir::memopt::trunc(Term x) { return x.getBuilder().fold<math::TruncOp>(x); }
Term mlir::memopt::sigmoid(Term x) { return x.getBuilder().fold<SigmoidOp>(x.getType(), x); }

// The powers that derivatives of common ones lead to, without a logarithm.
Term mlir::memopt::pow(Term x, Term y) {
  std::optional<double> power = getSplat(y);
  if (power && *power == 0.0)
    return like(x, 1.0);
  if (power && *power == 1.0)
    return x;
  if (power && *power == 2.0)
    return x * x;
  if (power && *power == 0.5)
    return sqrt(x);
  if (power && *power == -0.5)
    return rsqrt(x);
  if (power && *power == -1.0)
    return 1.0 / x;
  return x.getBuilder().fold<math::PowFOp>(x, y);
}

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

Term GradientBuilder::splat(RankedTensorType type, double number) {
  FloatAttr value = builder.getFloatAttr(type.getElementType(), number);
  return (*this)(create<arith::ConstantOp>(
      cast<TypedAttr>(static_cast<Attribute>(DenseElementsAttr::get(type, value.getValue())))));
}

Term GradientBuilder::reshape(Value value, ArrayRef<int64_t> shape) {
  RankedTensorType from = tensorType(value);
  RankedTensorType to = from.clone(shape);
  if (from == to)
    return (*this)(value);
  if (std::optional<double> number = getSplat(value))
    return splat(to, *number);
  if (from.getRank() != to.getRank())
    if (auto reassociation = getReassociationIndicesForReshape(from, to)) {
      if (from.getRank() > to.getRank())
        return (*this)(create<tensor::CollapseShapeOp>(to, value, *reassociation));
      return (*this)(create<tensor::ExpandShapeOp>(to, value, *reassociation));
    }
  // Through one dimension, which every shape collapses to.
  ReassociationIndices all = dimensionRange(0, from.getRank());
  Value flat = value;
  if (from.getRank() > 1)
    flat = create<tensor::CollapseShapeOp>(from.clone({from.getNumElements()}), value,
                                           ArrayRef<ReassociationIndices>(all));
  all = dimensionRange(0, to.getRank());
  return (*this)(create<tensor::ExpandShapeOp>(to, flat, ArrayRef<ReassociationIndices>(all)));
}

Term GradientBuilder::broadcast(Value value, RankedTensorType type, ArrayRef<int64_t> dimensions) {
  if (std::optional<double> number = getSplat(value))
    return splat(type, *number);
  return fold<BroadcastOp>(type, value, dimensions);
}

Term GradientBuilder::transpose(Value value, ArrayRef<int64_t> permutation) {
  RankedTensorType type = tensorType(value);
  SmallVector<int64_t> shape;
  for (int64_t dimension : permutation)
    shape.push_back(type.getDimSize(dimension));
  if (std::optional<double> number = getSplat(value))
    return splat(type.clone(shape), *number);
  return fold<TransposeOp>(type.clone(shape), value, permutation);
}

Term GradientBuilder::reduce(ReduceKind kind, Value value, ArrayRef<int64_t> dimensions) {
  if (dimensions.empty())
    return (*this)(value);
  RankedTensorType type = tensorType(value);
  SmallVector<int64_t> shape;
  int64_t count = type.getNumElements();
  for (int64_t dimension : otherDimensions(type.getRank(), dimensions))
    shape.push_back(type.getDimSize(dimension));
  RankedTensorType to = type.clone(shape);
  std::optional<double> number = getSplat(value);
  if (number && kind == ReduceKind::Add && to.getNumElements())
    return splat(to, *number * (count / to.getNumElements()));
  // Dimensions of size one vanish without arithmetic.
  if (to.getNumElements() == count)
    return reshape(value, shape);
  return (*this)(create<ReduceOp>(to, value, kind, dimensions));
}

Term GradientBuilder::slice(Value value, ArrayRef<int64_t> offsets, ArrayRef<int64_t> sizes) {
  RankedTensorType type = tensorType(value);
  RankedTensorType to = type.clone(sizes);
  if (type == to)
    return (*this)(value);
  if (std::optional<double> number = getSplat(value))
    return splat(to, *number);
  SmallVector<OpFoldResult> strides(type.getRank(), builder.getIndexAttr(1));
  return (*this)(create<tensor::ExtractSliceOp>(
      to, value, getAsIndexOpFoldResult(builder.getContext(), offsets),
      getAsIndexOpFoldResult(builder.getContext(), sizes), strides));
}

Term GradientBuilder::pad(Value value, ArrayRef<int64_t> low, ArrayRef<int64_t> high) {
  RankedTensorType type = tensorType(value);
  SmallVector<int64_t> shape;
  for (auto [size, before, after] : llvm::zip(type.getShape(), low, high))
    shape.push_back(size + before + after);
  if (type.getShape() == ArrayRef<int64_t>(shape))
    return (*this)(value);
  return (*this)(create<PadOp>(type.clone(shape), value, low, high));
}

Term GradientBuilder::unreduce(Value value, RankedTensorType type, ArrayRef<int64_t> dimensions) {
  return broadcast(value, type, otherDimensions(type.getRank(), dimensions));
}

Term GradientBuilder::convert(Value value, Type elementType) {
  RankedTensorType from = tensorType(value),
                   to = RankedTensorType::get(from.getShape(), elementType);
  if (from == to)
    return (*this)(value);
  if (from.getElementTypeBitWidth() < to.getElementTypeBitWidth())
    return fold<arith::ExtFOp>(to, value);
  return fold<arith::TruncFOp>(to, value);
}
