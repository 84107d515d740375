//===- GradientsIndexing.cpp - gradients of gathers, scatters and scans -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GradientBuilder.h"

#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::memopt;
using arith::CmpFPredicate;

using Values = ArrayRef<Value>;
using Gradients = MutableArrayRef<Value>;

//===----------------------------------------------------------------------===//
// GatherOp
//===----------------------------------------------------------------------===//

namespace {
/// A gather by known indices along one dimension that names no element twice, turned around.
struct InverseGather {
  int64_t dimension; ///< of the source, which is indexed
  int64_t along;     ///< of the result, in which the indices vary
  /// For each element of the source's dimension where the result has it, or -1.
  SmallVector<int64_t> places;
};
} // namespace

/// The dimension of size other than 1, if there is exactly one.
static std::optional<int64_t> findOnlyDimension(ArrayRef<int64_t> shape) {
  std::optional<int64_t> found;
  for (auto [dim, size] : llvm::enumerate(shape)) {
    if (size == 1)
      continue;
    if (found)
      return std::nullopt;
    found = dim;
  }
  return found;
}

static std::optional<InverseGather> invert(GatherOp op) {
  DenseIntElementsAttr known;
  if (op.getIndexed().size() != 1 || !matchPattern(op.getIndices()[0], m_Constant(&known)))
    return std::nullopt;
  std::optional<int64_t> along = findOnlyDimension(known.getType().getShape());
  if (!along || llvm::is_contained(op.getPositions(), *along) ||
      tensorType(op.getResult()).getRank() != tensorType(op.getSource()).getRank())
    return std::nullopt;
  RankedTensorType source = tensorType(op.getSource());
  InverseGather inverse{op.getIndexed()[0], *along, {}};
  inverse.places.assign(source.getDimSize(inverse.dimension), -1);
  for (auto [place, index] : llvm::enumerate(known.getValues<APInt>())) {
    int64_t at = index.getSExtValue();
    if (at < 0 || at >= static_cast<int64_t>(inverse.places.size()) || inverse.places[at] >= 0)
      return std::nullopt;
    inverse.places[at] = place;
  }
  // A result that is shorter along a position has no element for the rest.
  int64_t next = 0;
  for (int64_t dim = 0; dim < source.getRank(); ++dim)
    if (dim != inverse.dimension &&
        tensorType(op.getResult()).getDimSize(op.getPositions()[next++]) != source.getDimSize(dim))
      return std::nullopt;
  return inverse;
}

static Value createConstant(GradientBuilder &b, RankedTensorType type, DenseElementsAttr values) {
  return b.create<arith::ConstantOp>(cast<TypedAttr>(static_cast<Attribute>(values.reshape(type))));
}

/// The gradient read where the result has each element, zero where it has none.
static Value gatherGradient(GradientBuilder &b, GatherOp op, const InverseGather &inverse,
                            Value gradient) {
  RankedTensorType source = tensorType(op.getSource());
  SmallVector<int64_t> shape(source.getRank(), 1);
  shape[inverse.dimension] = source.getDimSize(inverse.dimension);
  auto flat = RankedTensorType::get(shape, b.getBuilder().getI64Type());
  SmallVector<int64_t> places(inverse.places);
  SmallVector<bool> present = llvm::map_to_vector(places, [](int64_t place) { return place >= 0; });
  for (int64_t &place : places)
    place = std::max<int64_t>(place, 0);
  Value index = createConstant(
      b, flat,
      DenseElementsAttr::get(RankedTensorType::get({flat.getNumElements()}, flat.getElementType()),
                             ArrayRef<int64_t>(places)));
  // The source's other dimensions lie where the result has them.
  SmallVector<int64_t> positions(source.getRank() - 1);
  const int64_t *next = op.getPositions().begin();
  for (int64_t dim = 0; dim < source.getRank(); ++dim)
    if (dim != inverse.dimension) {
      int64_t place = *next++;
      positions[place - (place > inverse.along)] = dim;
    }
  Value picked =
      b.create<GatherOp>(source, gradient, index, ArrayRef<int64_t>{inverse.along}, positions);
  if (!llvm::is_contained(present, false))
    return picked;
  auto bits = RankedTensorType::get(shape, b.getBuilder().getI1Type());
  Value mask = createConstant(
      b, bits,
      DenseElementsAttr::get(RankedTensorType::get({bits.getNumElements()}, bits.getElementType()),
                             ArrayRef<bool>(present)));
  Value spread =
      b.create<BroadcastOp>(RankedTensorType::get(source.getShape(), bits.getElementType()), mask,
                            dimensionRange(0, source.getRank()));
  return select(spread, b(picked), 0.0);
}

LogicalResult GatherOp::differentiate(OpBuilder &builder, Values resultGradients,
                                      ArrayRef<bool> needed, Gradients gradients) {
  if (!needed[0])
    return success();
  GradientBuilder b(builder, getLoc());
  if (std::optional<InverseGather> inverse = invert(*this))
    gradients[0] = gatherGradient(b, *this, *inverse, resultGradients[0]);
  else
    gradients[0] = b.create<ScatterOp>(
        tensorType(getSource()), b.splat(tensorType(getSource()), 0.0), resultGradients[0],
        getIndices(), ScatterKind::Add, getIndexed(), getPositions());
  return success();
}

//===----------------------------------------------------------------------===//
// ScatterOp
//===----------------------------------------------------------------------===//

namespace {
/// Gathers and scatters at the places of one scatter.
class Places {
public:
  Places(GradientBuilder &b, ScatterOp op) : b(b), op(op) {}

  Term gather(Value source) {
    auto type = tensorType(op.getUpdates()).clone(tensorType(source).getElementType());
    return b(b.create<GatherOp>(cast<RankedTensorType>(type), source, op.getIndices(),
                                op.getIndexed(), op.getPositions()));
  }
  Term scatter(ScatterKind kind, Value input, Value updates) {
    return b(b.create<ScatterOp>(tensorType(input), input, updates, op.getIndices(), kind,
                                 op.getIndexed(), op.getPositions()));
  }
  Term zeros(Value like) { return b.splat(tensorType(like), 0.0); }
  Term ones(Value like) { return b.splat(tensorType(like), 1.0); }

private:
  GradientBuilder &b;
  ScatterOp op;
};
} // namespace

/// All elements that equal the extreme share its gradient, the input's and those of updates.
static void differentiateExtreme(GradientBuilder &b, ScatterOp op, Value gradient,
                                 ArrayRef<bool> needed, Gradients gradients) {
  Places places(b, op);
  Term input = b(op.getInput()), updates = b(op.getUpdates()), result = b(op.getResult());
  Value inputWins = compare(CmpFPredicate::OEQ, input, result);
  Value updateWins = compare(CmpFPredicate::OEQ, updates, places.gather(result));
  Term winners = places.scatter(ScatterKind::Add, select(inputWins, places.ones(input), 0.0),
                                select(updateWins, places.ones(updates), 0.0));
  Term share = b(gradient) / winners;
  if (needed[0])
    gradients[0] = select(inputWins, share, 0.0);
  if (needed[1])
    gradients[1] = select(updateWins, places.gather(share), 0.0);
}

/// A factor's gradient is the product of all others: the result divided by it, where it is not
/// zero. Where just one factor is zero, it is the product of the rest.
static void differentiateProduct(GradientBuilder &b, ScatterOp op, Value gradient,
                                 ArrayRef<bool> needed, Gradients gradients) {
  Places places(b, op);
  Term g = b(gradient), input = b(op.getInput()), updates = b(op.getUpdates());
  if (needed[0]) {
    Value isZero = compare(CmpFPredicate::OEQ, input, 0.0);
    Term filled = select(isZero, 1.0, input);
    gradients[0] = g * places.scatter(ScatterKind::Mul, filled, updates) / filled;
  }
  if (!needed[1])
    return;
  Value isZero = compare(CmpFPredicate::OEQ, updates, 0.0);
  Term zeros = places.gather(places.scatter(ScatterKind::Add, places.zeros(input),
                                            select(isZero, places.ones(updates), 0.0)));
  Value isOnlyZero = b.create<arith::AndIOp>(isZero, compare(CmpFPredicate::OEQ, zeros, 1.0));
  Term withoutZero = places.scatter(ScatterKind::Mul, input, select(isOnlyZero, 1.0, updates));
  gradients[1] = select(isOnlyZero, places.gather(g * withoutZero),
                        places.gather(g * b(op.getResult())) / select(isZero, 1.0, updates));
}

LogicalResult ScatterOp::differentiate(OpBuilder &builder, Values resultGradients,
                                       ArrayRef<bool> needed, Gradients gradients) {
  GradientBuilder b(builder, getLoc());
  Places places(b, *this);
  Value gradient = resultGradients[0];
  switch (getKind()) {
  case ScatterKind::Set:
    if (needed[0])
      gradients[0] = places.scatter(ScatterKind::Set, gradient, places.zeros(getUpdates()));
    if (needed[1])
      gradients[1] = places.gather(gradient);
    break;
  case ScatterKind::Add:
    if (needed[0])
      gradients[0] = gradient;
    if (needed[1])
      gradients[1] = places.gather(gradient);
    break;
  case ScatterKind::Mul:
    differentiateProduct(b, *this, gradient, needed, gradients);
    break;
  case ScatterKind::Max:
  case ScatterKind::Min:
    differentiateExtreme(b, *this, gradient, needed, gradients);
    break;
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Scans
//===----------------------------------------------------------------------===//

/// `value` moved by one along `axis`, towards the end or the beginning, `filler` where nothing was.
static Term shift(GradientBuilder &b, Value value, int64_t axis, bool towardsEnd, double filler) {
  RankedTensorType type = tensorType(value);
  SmallVector<int64_t> offsets(type.getRank(), 0), sizes(type.getShape()), edge(type.getShape());
  int64_t length = sizes[axis];
  edge[axis] = 1;
  Term border = b.splat(type.clone(edge), filler);
  if (length == 1)
    return border;
  offsets[axis] = towardsEnd ? 0 : 1;
  sizes[axis] = length - 1;
  Value kept = b.slice(value, offsets, sizes);
  SmallVector<Value> parts{border, kept};
  if (!towardsEnd)
    std::swap(parts[0], parts[1]);
  return b(b.create<tensor::ConcatOp>(type, axis, parts));
}

/// s[k] = g[k] + factors[k + 1] s[k + 1] is the gradient of terms[k]; that of factors[k] is
/// s[k] y[k - 1].
LogicalResult LinearScanOp::differentiate(OpBuilder &builder, Values resultGradients,
                                          ArrayRef<bool> needed, Gradients gradients) {
  if (!isa<FloatType>(tensorType(getResult()).getElementType()))
    return emitOpError("has no gradient for integers");
  GradientBuilder b(builder, getLoc());
  bool reversed = getReverse();
  Term next = getSplat(getFactors())
                  ? b(getFactors())
                  : shift(b, getFactors(), getAxis(), /*towardsEnd=*/reversed, 0);
  Term sums = b(b.create<LinearScanOp>(getResult().getType(), next, resultGradients[0],
                                       getAxisAttr(), reversed ? UnitAttr() : builder.getUnitAttr(),
                                       builder.getF64FloatAttr(0)));
  if (needed[1])
    gradients[1] = sums;
  if (needed[0])
    gradients[0] = sums * shift(b, getResult(), getAxis(), /*towardsEnd=*/!reversed,
                                getInitial().convertToDouble());
  return success();
}

/// dx[j] is the sum over i >= j of g[i] exp(x[j] - y[i]): a scan in the other direction of
/// log |g| - y, for positive and negative gradients apart, so that nothing overflows.
LogicalResult LogSumExpScanOp::differentiate(OpBuilder &builder, Values resultGradients,
                                             ArrayRef<bool> needed, Gradients gradients) {
  if (!needed[0])
    return success();
  GradientBuilder b(builder, getLoc());
  Term g = b(resultGradients[0]), x = b(getInput()), y = b(getResult());
  double never = -std::numeric_limits<double>::infinity();
  auto part = [&](Value isPart, Term magnitude) {
    Term weight = select(isPart, log(select(isPart, magnitude, 1.0)) - y, never);
    Term sums = b(b.create<LogSumExpScanOp>(weight.getType(), weight, getAxisAttr(),
                                            getReverse() ? UnitAttr() : builder.getUnitAttr()));
    return exp(sums + x);
  };
  gradients[0] =
      part(compare(CmpFPredicate::OGT, g, 0.0), g) - part(compare(CmpFPredicate::OLT, g, 0.0), -g);
  return success();
}

//===----------------------------------------------------------------------===//
// ReverseOp
//===----------------------------------------------------------------------===//

LogicalResult ReverseOp::differentiate(OpBuilder &builder, Values resultGradients,
                                       ArrayRef<bool> needed, Gradients gradients) {
  if (needed[0])
    gradients[0] =
        GradientBuilder(builder, getLoc())
            .create<ReverseOp>(getInput().getType(), resultGradients[0], getDimensions());
  return success();
}
