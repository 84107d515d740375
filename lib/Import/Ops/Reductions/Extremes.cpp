//===- Extremes.cpp - largest and smallest elements and where they are -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Operators that give an index send their gradient to that element; those that do not share it
// among equal ones. NaN counts as the extreme of what it stands among.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Ops/Reductions/Reductions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <limits>

using namespace llvm;
using namespace memopt::pt2;
using mlir::Value;
using mlir::memopt::ReduceKind;

//===----------------------------------------------------------------------===//
// Values alone
//===----------------------------------------------------------------------===//

/// The input of amax and amin: where the extreme is NaN the gradient is NaN everywhere.
static Value spoilByNaN(OpContext &op, const Reduction &reduction, ReduceKind kind) {
  Element x(op.b, reduction.value);
  if (!x.isReal())
    return x;
  Element extreme = spread(op, reduction, reduceKeeping(op, reduction, x, kind));
  Element slope = select(isNaN(extreme), extreme, 1.0);
  return withSlopes(x, {{x, slope}});
}

static Error lowerExtreme(OpContext &op, StringRef dimensions, ReduceKind kind) {
  DType type = op.resultMeta(0).dtype, compute = getArithmeticType(type);
  ASSIGN_OR_RETURN(Reduction reduction, getReduction(op, dimensions, compute));
  Value input = dimensions.empty() ? reduction.value : spoilByNaN(op, reduction, kind);
  Value result = reduce(op, reduction, input, kind);
  return setResult(op, op.wrap(type, convert(op.b, result, compute, type)));
}

template <ReduceKind kind> static Error lowerExtremeDim(OpContext &op) {
  return lowerExtreme(op, "dim", kind);
}
template <ReduceKind kind> static Error lowerExtremeAll(OpContext &op) {
  return lowerExtreme(op, "", kind);
}

static Error lowerBothExtremes(OpContext &op) {
  if (op.getNumResults() != 2)
    return op.error("expected two results, found " + Twine(op.getNumResults()));
  DType type = op.resultMeta(0).dtype, compute = getArithmeticType(type);
  ASSIGN_OR_RETURN(Reduction reduction, getReduction(op, op.has("dim") ? "dim" : "", compute));
  reduction.keep = op.flag("keepdim");
  for (auto [i, kind] : {std::pair(0, ReduceKind::Min), std::pair(1, ReduceKind::Max)}) {
    Value result = reduce(op, reduction, spoilByNaN(op, reduction, kind), kind);
    op.setResult(i, convert(op.b, result, compute, type));
  }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Indices
//===----------------------------------------------------------------------===//

static int64_t countElements(const Reduction &reduction) {
  int64_t count = 1;
  for (int64_t dim : reduction.dimensions)
    count *= reduction.sizes()[dim];
  return count;
}

/// Of numbers of elements: half of an index is enough.
static DType getNumberType(const Reduction &reduction) {
  return countElements(reduction) <= std::numeric_limits<int32_t>::max() ? DType::I32 : DType::I64;
}

/// The number of each element among those that fall together, row-major.
static Element numberElements(OpContext &op, const Reduction &reduction) {
  mlir::RankedTensorType type = op.tensorType(getNumberType(reduction), reduction.sizes());
  auto along = [&](int64_t dim) {
    return Element(op.b, mlir::memopt::IotaOp::create(op.b, type, dim));
  };
  Element number = along(reduction.dimensions.front());
  for (int64_t dim : ArrayRef(reduction.dimensions).drop_front())
    number = number * double(reduction.sizes()[dim]) + along(dim);
  return number;
}

/// As PyTorch gives it.
static Value toIndex(OpContext &op, const Reduction &reduction, Value number) {
  return convert(op.b, number, getNumberType(reduction), DType::I64);
}

/// The number of the first element that is the extreme, of size 1 where it is found.
static Element findExtreme(OpContext &op, const Reduction &reduction, ReduceKind kind) {
  Element x(op.b, reduction.value);
  Element hit = equals(x, spread(op, reduction, reduceKeeping(op, reduction, x, kind)));
  if (x.isReal())
    hit = hit | isNaN(x); // nothing equals NaN, and without one there is none here
  Element candidates =
      select(hit, numberElements(op, reduction), double(countElements(reduction) - 1));
  return {op.b, reduceKeeping(op, reduction, candidates, ReduceKind::Min)};
}

Extremes memopt::pt2::findExtremes(OpContext &op, const Reduction &reduction, ReduceKind kind) {
  Element x(op.b, reduction.value), number = findExtreme(op, reduction, kind);
  Value index = toIndex(op, reduction, number);
  if (!x.isReal())
    return {reduceKeeping(op, reduction, x, kind), index};
  Element isPicked = equals(numberElements(op, reduction), spread(op, reduction, number));
  return {reduceKeeping(op, reduction, select(isPicked, x, 0.0), ReduceKind::Add), index};
}

/// `self` along one dimension, in a type that has an order. Scalars pretend a dimension; without
/// one all elements are a row.
static Expected<Reduction> getRow(OpContext &op) {
  Tensor self = op.tensor("self");
  if (self.getNumElements() == 0)
    return op.error("tensors without elements are not supported");
  bool isFlat = !op.has("dim") || self.rank() == 0;
  Reduction row;
  row.keep = op.flag("keepdim");
  if (!isFlat) {
    ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
    row.dimensions = {dim};
  } else {
    ASSIGN_OR_RETURN(self, reshape(op, self, self.getNumElements()));
    row.dimensions = {0};
    row.keep = false;
  }
  row.value = op.get(castTo(op, self, getArithmeticType(self.dtype)));
  return row;
}

/// A result of one element for each row as the file wants it.
static Error setRowResult(OpContext &op, size_t i, const Reduction &row, Value kept, DType type) {
  ASSIGN_OR_RETURN(Tensor shaped,
                   reshape(op, op.wrap(type, dropKept(op, row, kept)), op.resultMeta(i).sizes));
  op.setResult(i, op.copy(shaped));
  return Error::success();
}

template <ReduceKind kind> static Error lowerArgExtreme(OpContext &op) {
  ASSIGN_OR_RETURN(Reduction row, getRow(op));
  return setRowResult(op, 0, row, toIndex(op, row, findExtreme(op, row, kind)), DType::I64);
}

template <ReduceKind kind> static Error lowerExtremeAndIndex(OpContext &op) {
  if (op.getNumResults() != 2)
    return op.error("expected two results, found " + Twine(op.getNumResults()));
  DType type = op.tensor("self").dtype, compute = getArithmeticType(type);
  ASSIGN_OR_RETURN(Reduction row, getRow(op));
  Extremes found = findExtremes(op, row, kind);
  RETURN_IF_ERROR(setRowResult(op, 0, row, convert(op.b, found.values, compute, type), type));
  return setRowResult(op, 1, row, found.numbers, DType::I64);
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerExtremes(OpTable &table) {
  table.add("aten.max.dim", "Tensor self, int dim, bool keepdim=False",
            lowerExtremeAndIndex<ReduceKind::Max>);
  table.add("aten.min.dim", "Tensor self, int dim, bool keepdim=False",
            lowerExtremeAndIndex<ReduceKind::Min>);
  table.add("aten.amax.default", "Tensor self, int[] dim=[], bool keepdim=False",
            lowerExtremeDim<ReduceKind::Max>);
  table.add("aten.amin.default", "Tensor self, int[] dim=[], bool keepdim=False",
            lowerExtremeDim<ReduceKind::Min>);
  table.add("aten.max.default", "Tensor self", lowerExtremeAll<ReduceKind::Max>);
  table.add("aten.min.default", "Tensor self", lowerExtremeAll<ReduceKind::Min>);
  table.add("aten.aminmax.default", "Tensor self, int? dim=None, bool keepdim=False",
            lowerBothExtremes);
  table.add("aten.argmax.default", "Tensor self, int? dim=None, bool keepdim=False",
            lowerArgExtreme<ReduceKind::Max>);
  table.add("aten.argmin.default", "Tensor self, int? dim=None, bool keepdim=False",
            lowerArgExtreme<ReduceKind::Min>);
}
