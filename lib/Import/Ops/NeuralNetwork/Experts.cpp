//===- Experts.cpp - products by groups of rows, and histograms -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What layers of experts are exported as: rows are sorted by their expert, a histogram counts them,
// and each group of rows is multiplied by its expert's matrix. How many rows a group has depends on
// the data, so every expert multiplies all rows and each row takes its own expert's result.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/Formula.h"
#include "memopt/Import/Graph/OpTable.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::memopt::ReduceKind;

//===----------------------------------------------------------------------===//
// Grouped products
//===----------------------------------------------------------------------===//

/// [experts, rows]: whether a row lies in an expert's group, from where the groups before it end to
/// where it ends.
static Expected<Element> getGroups(OpContext &op, const Tensor &ends, int64_t rows) {
  int64_t experts = ends.sizes[0];
  Tensor begins = padZeros(op, ends, 1, 0);
  ASSIGN_OR_RETURN(begins, slice(op, begins, 0, 0, 1, experts));
  Shape sizes{experts, rows};
  RankedTensorType type = op.tensorType(ends.dtype, sizes);
  Element row(op.b, mlir::memopt::IotaOp::create(op.b, type, 1));
  Element begin(op.b, broadcastAlong(op.b, op.get(begins), 0, sizes));
  Element end(op.b, broadcastAlong(op.b, op.get(ends), 0, sizes));
  return greaterOrEqual(row, begin) & less(row, end);
}

/// x [rows, K] times matrices [experts, K, N], of which a row takes that of its group; zeros where
/// a row is in none.
static Expected<Tensor> multiplyGroups(OpContext &op, const Tensor &x, const Tensor &matrices,
                                       const Tensor &ends) {
  if (x.rank() != 2 || matrices.rank() != 3 || ends.rank() != 1 || isFloat(ends.dtype) ||
      ends.sizes[0] != matrices.sizes[0])
    return op.error("expected rows [T, K], matrices [G, K, N] and the ends of G groups, found " +
                    toString(x.sizes) + ", " + toString(matrices.sizes) + " and " +
                    toString(ends.sizes));
  ASSIGN_OR_RETURN(Value products, matmulOf(op, x, matrices));
  ASSIGN_OR_RETURN(Element groups, getGroups(op, ends, x.sizes[0]));
  Shape sizes{matrices.sizes[0], x.sizes[0], matrices.sizes[2]};
  ASSIGN_OR_RETURN(Tensor isOwn,
                   reshape(op, op.wrap(DType::Bool, groups), {sizes[0], sizes[1], 1}));
  ASSIGN_OR_RETURN(isOwn, expand(op, isOwn, sizes));
  Element all(op.b, products), own = select({op.b, op.get(isOwn)}, all, all.like(0));
  return op.wrap(x.dtype, reduceValue(op.b, own, ReduceKind::Add, 0));
}

/// Of transformers, where PyTorch's own is not to be had.
static Error lowerGroupedFallback(OpContext &op) {
  return setResult(op,
                   multiplyGroups(op, op.tensor("input"), op.tensor("weight"), op.tensor("offs")));
}

static Error lowerGroupedProduct(OpContext &op) {
  Tensor self = op.tensor("self"), matrices = op.tensor("mat2");
  std::optional<Tensor> ends = op.optionalTensor("offs");
  DType type = op.dtype("out_dtype").value_or(self.dtype);
  if (op.has("bias"))
    return op.error("argument 'bias' is not supported; add it to the result");
  Tensor product;
  if (ends) {
    ASSIGN_OR_RETURN(product, multiplyGroups(op, self, matrices, *ends));
  } else {
    ASSIGN_OR_RETURN(Value all, matmulOf(op, self, matrices));
    product = op.wrap(self.dtype, all);
  }
  return setResult(op, castTo(op, product, type));
}

//===----------------------------------------------------------------------===//
// Histograms
//===----------------------------------------------------------------------===//

namespace {
struct HistogramRange {
  Element low, high;
};
} // namespace

/// For each of `count` elements: those given; where these are equal the least and the largest
/// element, and where those are, too, one on each side of it.
static HistogramRange getHistogramRange(OpContext &op, Element x, int64_t count, double min,
                                        double max) {
  if (min != max)
    return {x.like(min), x.like(max)};
  auto spread = [&](Element number) -> Element {
    return {op.b, broadcastValue(op.b, number, count)};
  };
  Element least(op.b, reduceValue(op.b, x, ReduceKind::Min, 0));
  Element largest(op.b, reduceValue(op.b, x, ReduceKind::Max, 0));
  Element isPoint = equals(least, largest);
  return {spread(select(isPoint, least - 1, least)), spread(select(isPoint, largest + 1, largest))};
}

/// How many elements fall into each of equal bins; the last one has its upper end, too. Elements
/// outside of all are not counted.
static Error lowerHistogram(OpContext &op) {
  Tensor self = op.tensor("self");
  int64_t bins = op.integer("bins"), count = self.getNumElements();
  double min = op.scalar("min").asDouble(), max = op.scalar("max").asDouble();
  if (!isFloat(self.dtype) || bins < 1 || !(min <= max) || count == 0)
    return op.error(
        "expected floating-point elements, at least one bin and bounds in order, found " +
        getName(self.dtype) + toString(self.sizes) + ", " + Twine(bins) + " bins from " +
        toString(min) + " to " + toString(max));
  ASSIGN_OR_RETURN(Tensor flat, reshape(op, self, count));
  Element x = withoutGradient({op.b, op.get(flat)});
  auto [low, high] = getHistogramRange(op, x, count, min, max);
  Element place = trunc((x - low) * double(bins) / (high - low));
  place = select(equals(x, high), double(bins - 1), smallerOf(place, place.like(double(bins - 1))));
  Element isInside = greaterOrEqual(x, low) & lessOrEqual(x, high);
  place = select(isInside, place, place.like(-1));
  Shape sizes{count, bins};
  RETURN_IF_ERROR(countElements(op, sizes).takeError());
  Element own(op.b, broadcastAlong(op.b, place, 0, sizes));
  Value numbers = mlir::memopt::IotaOp::create(op.b, op.tensorType(DType::I64, sizes), 1);
  Element bin(op.b, convert(op.b, numbers, DType::I64, self.dtype));
  Value hits = convert(op.b, equals(own, bin), DType::Bool, self.dtype);
  return setResult(op, op.wrap(self.dtype, reduceValue(op.b, hits, ReduceKind::Add, 0)));
}

void memopt::pt2::registerExperts(OpTable &table) {
  table.add("transformers.grouped_mm_fallback.default", "Tensor input, Tensor weight, Tensor offs",
            lowerGroupedFallback);
  table.add("aten._grouped_mm.default",
            "Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, "
            "dtype? out_dtype=None",
            lowerGroupedProduct);
  table.add("aten.histc.default", "Tensor self, int bins=100, Scalar min=0, Scalar max=0",
            lowerHistogram);
}
