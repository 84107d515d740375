//===- Scatters.cpp - elements put where index tensors say -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/Formula.h"
#include "memopt/Import/Ops/Indexing/Indexing.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/StringSwitch.h"

#include <limits>

using namespace llvm;
using namespace memopt::pt2;
using mlir::Value;
using mlir::ValueRange;
using mlir::memopt::ScatterKind;
using Builder = mlir::ImplicitLocOpBuilder;
namespace arith = mlir::arith;

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

namespace {
/// What the operators of this file have in common, tensors without dimensions made vectors.
struct Target {
  Tensor self;
  int64_t dim = 0;
  Places places; ///< of the updates
};
} // namespace

static Tensor filled(OpContext &op, DType type, ArrayRef<int64_t> sizes, const Scalar &value) {
  return op.wrap(type, sizes, splat(op.b, op.tensorType(type, sizes), value));
}
static Tensor filled(OpContext &op, DType type, ArrayRef<int64_t> sizes, double value) {
  Scalar scalar;
  scalar.isFloat = true;
  scalar.real = value;
  return filled(op, type, sizes, scalar);
}

/// scatter and its like: each element of the index tensor is a place along `dim`.
static Expected<Target> getElementwiseTarget(OpContext &op) {
  Target target;
  ASSIGN_OR_RETURN(target.self, withDimension(op, op.tensor("self")));
  ASSIGN_OR_RETURN(Tensor index, withDimension(op, op.tensor("index")));
  ASSIGN_OR_RETURN(target.dim, op.dimension("dim", target.self.rank()));
  bool fits = index.rank() == target.self.rank() && index.getNumElements() != 0;
  for (int64_t dim = 0; fits && dim != index.rank(); ++dim)
    fits = dim == target.dim || index.sizes[dim] <= target.self.sizes[dim];
  if (!fits)
    return op.error("indices of shape " + toString(index.sizes) + " do not fit " +
                    toString(target.self.sizes));
  target.places = Places::identity(index.sizes);
  ASSIGN_OR_RETURN(target.places.indices[target.dim],
                   prepareIndex(op, index, target.self.sizes[target.dim], false));
  return target;
}

/// index_add and its like: indices of rank 1 pick slices along `dim`, of the shape `sizes`
/// together.
static Expected<Target> getSliceTarget(OpContext &op, std::optional<Shape> sizes,
                                       bool mayBeNegative = false) {
  Target target;
  ASSIGN_OR_RETURN(target.self, withDimension(op, op.tensor("self")));
  Tensor index = op.tensor("index");
  ASSIGN_OR_RETURN(target.dim, op.dimension("dim", target.self.rank()));
  if (index.rank() > 1)
    return op.error("expected indices of rank 1, found " + toString(index.sizes));
  ASSIGN_OR_RETURN(index, withDimension(op, index));
  Shape expected(target.self.sizes);
  expected[target.dim] = index.sizes[0];
  if (sizes && *sizes != expected && !(sizes->empty() && expected == Shape{1}))
    return op.error("expected a source of shape " + toString(expected) + ", found " +
                    toString(*sizes));
  target.places = Places::identity(expected);
  ASSIGN_OR_RETURN(Tensor prepared,
                   prepareIndex(op, index, target.self.sizes[target.dim], mayBeNegative));
  ASSIGN_OR_RETURN(target.places.indices[target.dim],
                   placeAt(op, prepared, target.self.rank(), target.dim));
  return target;
}

/// The part of `source` that has an index.
static Expected<Tensor> getUpdates(OpContext &op, const Target &target, Tensor source) {
  ASSIGN_OR_RETURN(source, withDimension(op, source));
  if (source.rank() != target.self.rank())
    return op.error("expected a source of the tensor's rank, found " + toString(source.sizes));
  for (auto [dim, size] : enumerate(target.places.sizes)) {
    if (size > source.sizes[dim])
      return op.error("expected a source of at least " + toString(target.places.sizes) +
                      ", found " + toString(source.sizes));
    ASSIGN_OR_RETURN(source, slice(op, source, dim, 0, 1, size));
  }
  return castTo(op, source, target.self.dtype);
}

static Error finish(OpContext &op, Expected<Tensor> result) {
  if (!result)
    return result.takeError();
  return setResult(op, reshape(op, *result, op.resultMeta(0).sizes));
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

namespace {
struct ScatterReduction {
  ScatterKind kind = ScatterKind::Add;
  bool isMean = false;
  bool includesSelf = true;
};
} // namespace

static Expected<ScatterReduction> getReduction(OpContext &op, bool includesSelf) {
  StringRef name = op.text("reduce");
  ScatterReduction result;
  result.includesSelf = includesSelf;
  result.isMean = name == "mean";
  auto kind = StringSwitch<std::optional<ScatterKind>>(name)
                  .Cases({"sum", "add", "mean"}, ScatterKind::Add)
                  .Cases({"prod", "multiply"}, ScatterKind::Mul)
                  .Case("amax", ScatterKind::Max)
                  .Case("amin", ScatterKind::Min)
                  .Default(std::nullopt);
  if (!kind)
    return op.error("argument 'reduce': expected sum, prod, mean, amax or amin, found '" + name +
                    "'");
  result.kind = *kind;
  return result;
}

/// What leaves other elements alone.
static Tensor getNeutral(OpContext &op, ScatterKind kind, DType type) {
  if (kind == ScatterKind::Add || kind == ScatterKind::Mul)
    return filled(op, type, Shape(), kind == ScatterKind::Add ? 0.0 : 1.0);
  bool isMax = kind == ScatterKind::Max;
  if (isFloat(type))
    return filled(op, type, Shape(), std::numeric_limits<double>::infinity() * (isMax ? -1 : 1));
  unsigned bits = getByteWidth(type) * 8;
  Scalar extreme;
  APInt value = isMax ? APInt::getSignedMinValue(bits) : APInt::getSignedMaxValue(bits);
  extreme.integer = value.getSExtValue();
  return filled(op, type, Shape(), extreme);
}

static Expected<Tensor> choose(OpContext &op, const Tensor &condition, const Tensor &a,
                               const Tensor &b) {
  return elementwise(op, {condition, a, b}, {DType::Bool, a.dtype, b.dtype}, b.dtype,
                     [](Builder &b, ValueRange v) -> Value {
                       return arith::SelectOp::create(b, v[0], v[1], v[2]);
                     });
}

/// Without its own elements, the tensor begins neutral where updates go.
static Expected<Tensor> reduceInto(OpContext &op, const Target &target, const Tensor &updates,
                                   const ScatterReduction &reduction) {
  // Extremes and quotients of unsigned bytes need the sign of a wider type; sums wrap around.
  DType type = target.self.dtype;
  bool isSum = reduction.kind == ScatterKind::Add || reduction.kind == ScatterKind::Mul;
  DType wide = isSum ? type : getArithmeticType(type);
  Tensor start = castTo(op, target.self, wide);
  if (!reduction.includesSelf) {
    ASSIGN_OR_RETURN(Tensor touched,
                     scatter(op, ScatterKind::Set, filled(op, DType::Bool, start.sizes, 0.0),
                             filled(op, DType::Bool, updates.sizes, 1.0), target.places));
    ASSIGN_OR_RETURN(start, choose(op, touched, getNeutral(op, reduction.kind, wide), start));
  }
  ASSIGN_OR_RETURN(Tensor result,
                   scatter(op, reduction.kind, start, castTo(op, updates, wide), target.places));
  result = castTo(op, result, type);
  if (!reduction.isMean)
    return result;
  ASSIGN_OR_RETURN(Tensor count,
                   scatter(op, ScatterKind::Add,
                           filled(op, type, start.sizes, reduction.includesSelf ? 1.0 : 0.0),
                           filled(op, type, updates.sizes, 1.0), target.places));
  // Elements that nothing was added to are divided by one.
  DType compute = getArithmeticType(type);
  ASSIGN_OR_RETURN(
      Tensor mean,
      elementwise(op, {result, count}, compute, compute, [&](Builder &b, ValueRange v) -> Value {
        Value one = splat(b, v[1].getType(), 1.0);
        if (isFloat(type))
          return arith::DivFOp::create(b, v[0], arith::MaximumFOp::create(b, v[1], one));
        return arith::FloorDivSIOp::create(b, v[0], arith::MaxSIOp::create(b, v[1], one));
      }));
  return castTo(op, mean, type);
}

//===----------------------------------------------------------------------===//
// scatter
//===----------------------------------------------------------------------===//

template <ScatterKind kind> static Error lowerScatterSource(OpContext &op) {
  ASSIGN_OR_RETURN(Target target, getElementwiseTarget(op));
  ASSIGN_OR_RETURN(Tensor updates, getUpdates(op, target, op.tensor("src")));
  return finish(op, scatter(op, kind, target.self, updates, target.places));
}

static Error lowerScatterValue(OpContext &op) {
  ASSIGN_OR_RETURN(Target target, getElementwiseTarget(op));
  Tensor updates = filled(op, target.self.dtype, target.places.sizes, op.scalar("value"));
  return finish(op, scatter(op, ScatterKind::Set, target.self, updates, target.places));
}

static Error lowerScatterValueReduce(OpContext &op) {
  ASSIGN_OR_RETURN(Target target, getElementwiseTarget(op));
  ASSIGN_OR_RETURN(ScatterReduction reduction, getReduction(op, true));
  Tensor updates = filled(op, target.self.dtype, target.places.sizes, op.scalar("value"));
  return finish(op, reduceInto(op, target, updates, reduction));
}

static Error lowerScatterReduce(OpContext &op) {
  ASSIGN_OR_RETURN(Target target, getElementwiseTarget(op));
  ASSIGN_OR_RETURN(ScatterReduction reduction, getReduction(op, op.flag("include_self")));
  ASSIGN_OR_RETURN(Tensor updates, getUpdates(op, target, op.tensor("src")));
  return finish(op, reduceInto(op, target, updates, reduction));
}

//===----------------------------------------------------------------------===//
// index_add, index_copy, index_fill, index_reduce, put
//===----------------------------------------------------------------------===//

static Error lowerIndexAdd(OpContext &op) {
  Tensor source = op.tensor("source");
  ASSIGN_OR_RETURN(Target target, getSliceTarget(op, source.sizes));
  ASSIGN_OR_RETURN(Tensor updates, getUpdates(op, target, source));
  Scalar alpha = op.scalar("alpha");
  if (alpha.asDouble() != 1) {
    bool isReal = isFloat(updates.dtype);
    ASSIGN_OR_RETURN(updates,
                     elementwise(op, {updates, alpha}, updates.dtype, updates.dtype,
                                 [&](Builder &b, ValueRange v) -> Value {
                                   return isReal ? arith::MulFOp::create(b, v[0], v[1]).getResult()
                                                 : arith::MulIOp::create(b, v[0], v[1]).getResult();
                                 }));
  }
  return finish(op, scatter(op, ScatterKind::Add, target.self, updates, target.places));
}

static Error lowerIndexCopy(OpContext &op) {
  Tensor source = op.tensor("source");
  ASSIGN_OR_RETURN(Target target, getSliceTarget(op, source.sizes));
  ASSIGN_OR_RETURN(Tensor updates, getUpdates(op, target, source));
  return finish(op, scatter(op, ScatterKind::Set, target.self, updates, target.places));
}

static Error lowerIndexFillScalar(OpContext &op) {
  ASSIGN_OR_RETURN(Target target, getSliceTarget(op, std::nullopt, /*mayBeNegative=*/true));
  Tensor updates = filled(op, target.self.dtype, target.places.sizes, op.scalar("value"));
  return finish(op, scatter(op, ScatterKind::Set, target.self, updates, target.places));
}

/// A mask is filled and chooses: places that are named twice give the value's gradient once.
static Error lowerIndexFill(OpContext &op) {
  ASSIGN_OR_RETURN(Target target, getSliceTarget(op, std::nullopt, /*mayBeNegative=*/true));
  Tensor self = target.self, value = castTo(op, op.tensor("value"), self.dtype);
  ASSIGN_OR_RETURN(value, reshape(op, value, Shape()));
  ASSIGN_OR_RETURN(value, expand(op, value, self.sizes));
  Tensor clear = filled(op, DType::Bool, self.sizes, 0.0),
         set = filled(op, DType::Bool, target.places.sizes, 1.0);
  ASSIGN_OR_RETURN(Tensor mask, scatter(op, ScatterKind::Set, clear, set, target.places));
  Value chosen = arith::SelectOp::create(op.b, op.get(mask), op.get(value), op.get(self));
  return finish(op, op.wrap(self.dtype, chosen));
}

static Error lowerIndexReduce(OpContext &op) {
  Tensor source = op.tensor("source");
  ASSIGN_OR_RETURN(Target target, getSliceTarget(op, source.sizes));
  ASSIGN_OR_RETURN(ScatterReduction reduction, getReduction(op, op.flag("include_self")));
  ASSIGN_OR_RETURN(Tensor updates, getUpdates(op, target, source));
  return finish(op, reduceInto(op, target, updates, reduction));
}

/// Elements of the tensor laid flat.
static Error lowerPut(OpContext &op) {
  Tensor self = op.tensor("self"), index = op.tensor("index");
  Tensor source = castTo(op, op.tensor("source"), self.dtype);
  if (source.getNumElements() != index.getNumElements())
    return op.error("expected as many values as indices, found " + toString(source.sizes) +
                    " and " + toString(index.sizes));
  ASSIGN_OR_RETURN(Tensor flat, reshape(op, self, self.getNumElements()));
  ASSIGN_OR_RETURN(source, reshape(op, source, index.sizes));
  Places places;
  places.sizes = index.sizes;
  places.positions.push_back(0);
  ASSIGN_OR_RETURN(Tensor prepared, prepareIndex(op, index, self.getNumElements(), true));
  places.indices.push_back(prepared);
  bool accumulates = op.flag("accumulate");
  return finish(
      op, scatter(op, accumulates ? ScatterKind::Add : ScatterKind::Set, flat, source, places));
}

//===----------------------------------------------------------------------===//
// masked_scatter
//===----------------------------------------------------------------------===//

/// Element n of the source goes to the n-th true element of the mask: a running count says which.
static Error lowerMaskedScatter(OpContext &op) {
  Tensor self = op.tensor("self"), source = castTo(op, op.tensor("source"), self.dtype);
  ASSIGN_OR_RETURN(Shape sizes, broadcastShapes(op, self.sizes, op.tensor("mask").sizes));
  ASSIGN_OR_RETURN(Tensor mask, expand(op, op.tensor("mask"), sizes));
  ASSIGN_OR_RETURN(self, expand(op, self, sizes));
  ASSIGN_OR_RETURN(int64_t count, countElements(op, sizes));
  if (count == 0 || source.getNumElements() == 0)
    return op.error("tensors without elements are not supported");
  ASSIGN_OR_RETURN(Tensor flat, reshape(op, mask, count));
  Value marks = op.get(castTo(op, flat, DType::I64));
  Value ones = splat(op.b, marks.getType(), 1.0);
  Value counted = mlir::memopt::LinearScanOp::create(op.b, ones, marks, 0, false, APFloat(0.0));
  Value place = arith::MaxSIOp::create(op.b, arith::SubIOp::create(op.b, counted, ones),
                                       splat(op.b, marks.getType(), 0.0));
  Value last = splat(op.b, marks.getType(), double(source.getNumElements() - 1));
  Tensor index = op.wrap(DType::I64, arith::MinSIOp::create(op.b, place, last));
  ASSIGN_OR_RETURN(source, reshape(op, source, source.getNumElements()));
  ASSIGN_OR_RETURN(Tensor picked, gatherAlong(op, source, index, 0));
  ASSIGN_OR_RETURN(picked, reshape(op, picked, sizes));
  return setResult(op, choose(op, mask, picked, self));
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerScatters(OpTable &table) {
  table.add("aten.scatter.src", "Tensor self, int dim, Tensor index, Tensor src",
            lowerScatterSource<ScatterKind::Set>);
  table.add("aten.scatter.value", "Tensor self, int dim, Tensor index, Scalar value",
            lowerScatterValue);
  table.add("aten.scatter.reduce",
            "Tensor self, int dim, Tensor index, Tensor src, str reduce, bool include_self=True",
            lowerScatterReduce);
  table.add("aten.scatter.value_reduce",
            "Tensor self, int dim, Tensor index, Scalar value, str reduce",
            lowerScatterValueReduce);
  table.add("aten.scatter_add.default", "Tensor self, int dim, Tensor index, Tensor src",
            lowerScatterSource<ScatterKind::Add>);
  table.add("aten.scatter_reduce.two",
            "Tensor self, int dim, Tensor index, Tensor src, str reduce, bool include_self=True",
            lowerScatterReduce);
  table.add("aten.index_add.default",
            "Tensor self, int dim, Tensor index, Tensor source, Scalar alpha=1", lowerIndexAdd);
  table.add("aten.index_copy.default", "Tensor self, int dim, Tensor index, Tensor source",
            lowerIndexCopy);
  table.add("aten.index_fill.int_Scalar", "Tensor self, int dim, Tensor index, Scalar value",
            lowerIndexFillScalar);
  table.add("aten.index_fill.int_Tensor", "Tensor self, int dim, Tensor index, Tensor value",
            lowerIndexFill);
  table.add("aten.index_reduce.default",
            "Tensor self, int dim, Tensor index, Tensor source, str reduce, bool include_self=True",
            lowerIndexReduce);
  table.add("aten.put.default", "Tensor self, Tensor index, Tensor source, bool accumulate=False",
            lowerPut);
  table.add("aten.masked_scatter.default", "Tensor self, Tensor mask, Tensor source",
            lowerMaskedScatter);
}
