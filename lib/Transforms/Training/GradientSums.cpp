//===- GradientSums.cpp - what several uses contribute ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GradientSums.h"

#include "memopt/Dialect/Memopt.h"
#include "memopt/Transforms/Utils/GenericBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Sums of contributions
//===----------------------------------------------------------------------===//

bool mlir::memopt::holdsRealNumbers(Value value) {
  return isa<FloatType>(getElementTypeOrSelf(value.getType()));
}

bool mlir::memopt::isZeroGradient(Value value) { return matchPattern(value, m_AnyZeroFloat()); }

namespace {
/// A contribution that is zero but for one box, and spans all other dimensions.
struct PaddedPart {
  PadOp pad;
  int64_t dimension, begin, end;
};
} // namespace

/// The part that `value` is, when it is padded along exactly one dimension.
static std::optional<PaddedPart> getPaddedPart(Value value) {
  auto pad = value.getDefiningOp<PadOp>();
  if (!pad)
    return std::nullopt;
  std::optional<PaddedPart> part;
  auto input = cast<RankedTensorType>(pad.getInput().getType());
  for (int64_t dimension = 0; dimension < input.getRank(); ++dimension) {
    int64_t low = pad.getLow()[dimension];
    if (!low && !pad.getHigh()[dimension])
      continue;
    if (part)
      return std::nullopt;
    part = PaddedPart{pad, dimension, low, low + input.getDimSize(dimension)};
  }
  return part;
}

/// Gradients of slices that together make up a whole tensor are put side by side instead of being
/// added up with their zeros around them. Returns null when `parts` leave a gap or overlap.
static Value concatenate(OpBuilder &builder, Location loc, Type type,
                         MutableArrayRef<PaddedPart> parts) {
  llvm::sort(parts, [](const PaddedPart &a, const PaddedPart &b) { return a.begin < b.begin; });
  int64_t dimension = parts.front().dimension, position = 0;
  SmallVector<Value> inputs;
  for (PaddedPart &part : parts) {
    if (part.dimension != dimension || part.begin != position)
      return {};
    position = part.end;
    inputs.push_back(part.pad.getInput());
  }
  if (position != cast<RankedTensorType>(type).getDimSize(dimension))
    return {};
  return tensor::ConcatOp::create(builder, loc, type, dimension, inputs);
}

/// Fewer products than this are added up as they are, by one kernel.
static constexpr size_t kFewProducts = 4;

/// A product of so many rows multiplies for longer than its pass over the matrix takes.
static constexpr int64_t kThinRows = 64;
/// Joined products have about so many rows. More gain nothing, and have to be there at a time.
static constexpr int64_t kRowsOfJoined = 256;

/// `value` if it is a^T b of two matrices with few rows, as the gradient of a weight may be.
static MatmulOp getThinProduct(Value value) {
  auto product = value.getDefiningOp<MatmulOp>();
  if (!product || !product.getTransposeA() || product.getTransposeB())
    return {};
  auto type = cast<RankedTensorType>(product.getType());
  auto rows = cast<RankedTensorType>(product.getA().getType());
  bool isThin =
      type.getRank() == 2 &&
      rows.getDimSize(0) <= std::min(kThinRows, std::max(type.getDimSize(0), type.getDimSize(1)));
  return isThin ? product : MatmulOp();
}

/// a^T b of the rows of all `products`.
static Value joinRows(OpBuilder &builder, Location loc, ArrayRef<MatmulOp> products) {
  MatmulOp first = products.front();
  if (products.size() == 1)
    return first;
  SmallVector<Value> left, right;
  for (MatmulOp product : products) {
    left.push_back(product.getA());
    right.push_back(product.getB());
  }
  Value a = tensor::ConcatOp::create(builder, loc, 0, left);
  Value b = tensor::ConcatOp::create(builder, loc, 0, right);
  return MatmulOp::create(builder, loc, first.getType(), a, b, /*transpose_a=*/true,
                          /*transpose_b=*/false);
}

/// A weight that many steps share gets a sum of products a^T b. Thin ones are joined, one behind the
/// other: a product of few rows takes a pass over the matrix. One of all rows would need all of them
/// at a time, logits that a model computes in chunks for example. Steps come in their order in the
/// forward pass.
static void joinProducts(OpBuilder &builder, Location loc, SmallVectorImpl<Value> &terms) {
  SmallVector<MatmulOp> products;
  auto isJoined = [&](Value term) {
    MatmulOp product = getThinProduct(term);
    auto isAlike = [&](Value a, Value b) {
      return getElementTypeOrSelf(a) == getElementTypeOrSelf(b);
    };
    return product && (products.empty() || (isAlike(product.getA(), products.front().getA()) &&
                                            isAlike(product.getB(), products.front().getB())));
  };
  for (Value term : llvm::reverse(terms))
    if (isJoined(term))
      products.push_back(getThinProduct(term));
  if (products.size() < kFewProducts)
    return;
  llvm::erase_if(terms, isJoined);
  int64_t rows = 0;
  SmallVector<MatmulOp> group;
  for (MatmulOp product : products) {
    group.push_back(product);
    rows += tensorType(product.getA()).getDimSize(0);
    if (rows < kRowsOfJoined && product != products.back())
      continue;
    terms.push_back(joinRows(builder, loc, group));
    group.clear();
    rows = 0;
  }
}

//===----------------------------------------------------------------------===//
// Rounded contributions
//===----------------------------------------------------------------------===//

/// A product that a library stores rounded costs half the bytes; everything else is rounded for the
/// sake of its type alone.
static bool isProduct(Value value) {
  Operation *op = value.getDefiningOp();
  return op && op->hasTrait<OpTrait::ComputedByLibrary>();
}

/// `value` before it was rounded, products only where `stripsProducts`.
static Value widen(OpBuilder &builder, Location loc, Value value, RankedTensorType wide,
                   bool stripsProducts) {
  if (auto rounding = value.getDefiningOp<arith::TruncFOp>())
    if (rounding.getIn().getType() == wide && (stripsProducts || !isProduct(rounding.getIn())))
      return rounding.getIn();
  return arith::ExtFOp::create(builder, loc, wide, value);
}

/// Gradients of parameters are wide: a product that was rounded, for the type of its operand, and
/// widened again is taken as it was.
Value mlir::memopt::stripRounding(Value value) {
  auto wide = value.getDefiningOp<arith::ExtFOp>();
  auto rounding = wide ? wide.getIn().getDefiningOp<arith::TruncFOp>() : arith::TruncFOp();
  bool isRoundedForIt = rounding && rounding->hasOneUse() && rounding.getIn().hasOneUse() &&
                        rounding.getIn().getType() == value.getType();
  return isRoundedForIt ? rounding.getIn() : value;
}

/// A sum of narrow terms is taken in f32 and rounded once.
static Value addUpNarrow(OpBuilder &builder, Location loc, RankedTensorType type,
                         ArrayRef<Value> terms, bool isOfParameter) {
  RankedTensorType wide = type.clone(builder.getF32Type());
  SmallVector<Value> widened;
  for (Value term : terms)
    widened.push_back(widen(builder, loc, term, wide, /*stripsProducts=*/isOfParameter));
  return arith::TruncFOp::create(builder, loc, type, addUp(builder, loc, wide, widened));
}

/// The sum of `terms`. Many products are added where the sum lies, each when it is taken: one kernel
/// that adds them all would need all of them at a time.
static Value addInTurn(OpBuilder &builder, Location loc, ArrayRef<Value> terms) {
  bool areMany = llvm::count_if(terms, isProduct) >= static_cast<ptrdiff_t>(kFewProducts);
  Value sum = terms.front();
  for (Value term : terms.drop_front()) {
    auto add = arith::AddFOp::create(builder, loc, sum, term);
    if (areMany && isProduct(term))
      add->setDiscardableAttr(kSumOfPartsAttr, builder.getUnitAttr());
    sum = add;
  }
  return sum;
}

Value mlir::memopt::addUp(OpBuilder &builder, Location loc, Type type,
                          ArrayRef<Value> contributions, bool isOfParameter) {
  SmallVector<Value> terms;
  SmallVector<PaddedPart> parts;
  for (Value value : contributions) {
    if (isZeroGradient(value))
      continue;
    if (std::optional<PaddedPart> part = getPaddedPart(value))
      parts.push_back(*part);
    terms.push_back(value);
  }
  if (terms.empty())
    return contributions.empty() ? Value() : contributions.front();
  if (parts.size() > 1)
    if (Value whole = concatenate(builder, loc, type, parts)) {
      llvm::erase_if(terms, [](Value value) { return getPaddedPart(value).has_value(); });
      terms.insert(terms.begin(), whole);
    }
  auto tensor = cast<RankedTensorType>(type);
  if (terms.size() > 1 && tensor.getElementTypeBitWidth() < 32)
    return addUpNarrow(builder, loc, tensor, terms, isOfParameter);
  joinProducts(builder, loc, terms);
  return addInTurn(builder, loc, terms);
}
