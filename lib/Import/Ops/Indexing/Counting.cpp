//===- Counting.cpp - modes, repetitions, histograms and segments -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Values that come most often, elements that come several times, numbers of values between edges, and reductions of segments. All
// compare each element with each edge (or each other), which takes no memory of that size: it is
// part of a reduction.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/Formula.h"
#include "memopt/Import/Ops/Indexing/Indexing.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::memopt::ReduceKind;

static Element numbersOf(Element like, int64_t dim) {
  auto type = cast<RankedTensorType>(like.getType()).clone(like.getBuilder().getI64Type());
  return {like.getBuilder(), mlir::memopt::IotaOp::create(like.getBuilder(), type, dim)};
}

/// The value with `size` more elements in a new dimension `dim`, all of them the same.
static Element repeatAt(Element value, int64_t dim, int64_t size) {
  Shape sizes(cast<RankedTensorType>(value.getType()).getShape());
  sizes.insert(sizes.begin() + dim, 1);
  Value thin = reshapeValue(value.getBuilder(), value, sizes);
  sizes[dim] = size;
  return {value.getBuilder(), broadcastValue(value.getBuilder(), thin, sizes)};
}

//===----------------------------------------------------------------------===//
// Modes
//===----------------------------------------------------------------------===//

/// The smallest of the values that come most often, at the last place that has it.
static Error lowerMode(OpContext &op) {
  ASSIGN_OR_RETURN(Tensor self, withDimension(op, op.tensor("self")));
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  if (self.getNumElements() == 0)
    return op.error("tensors without elements are not supported");
  int64_t size = self.sizes[dim];
  DType compute = getArithmeticType(self.dtype);
  Element x(op.b, op.get(castTo(op, self, compute)));
  auto reduce = [&](Element value, ReduceKind kind) {
    return Element(op.b, reduceValue(op.b, value, kind, dim, /*keep=*/true));
  };
  auto whole = [&](Element value) {
    return Element(op.b, broadcastValue(op.b, value, self.sizes));
  };
  Element own = repeatAt(x, dim + 1, size), other = repeatAt(x, dim, size);
  Element number = numbersOf(x, dim), one = numbersOf(own, dim).like(1);
  Element same = select(equals(own, other), one, one.like(0));
  Element count(op.b, reduceValue(op.b, same, ReduceKind::Add, dim + 1));
  Element isBest = equals(count, whole(reduce(count, ReduceKind::Max)));
  // The smallest of the best: no other of them is below it.
  Element isSmaller = less(other, own) & repeatAt(isBest, dim, size);
  Element smaller(op.b,
                  reduceValue(op.b, select(isSmaller, one, one.like(0)), ReduceKind::Add, dim + 1));
  Element isMode = isBest & equals(smaller, 0);
  Element place = reduce(select(isMode, number, 0.0), ReduceKind::Max);
  Tensor places = op.wrap(DType::I64, place);
  ASSIGN_OR_RETURN(Tensor values, gatherAlong(op, self, places, dim));
  if (op.getNumResults() != 2)
    return op.error("expected two results, found " + Twine(op.getNumResults()));
  for (auto [i, result] : {std::pair(0, values), std::pair(1, places)}) {
    ASSIGN_OR_RETURN(Tensor shaped, reshape(op, result, op.resultMeta(i).sizes));
    op.setResult(i, shaped);
  }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Repetitions
//===----------------------------------------------------------------------===//

/// Which of `count` elements stands at each of `length` places, where element i comes repeats[i]
/// times: as many sums of repeats are no larger than the place. All is `count`, no place, if the
/// repeats are not `length` together.
static Tensor listRepeated(OpContext &op, Value repeats, int64_t count, int64_t length) {
  Element given(op.b, repeats);
  Value sums = mlir::memopt::LinearScanOp::create(op.b, splat(op.b, repeats.getType(), 1.0),
                                                  repeats, 0, false, APFloat(0.0));
  Element before = repeatAt({op.b, sums}, 0, length), one = before.like(1);
  Element passed = select(lessOrEqual(before, numbersOf(before, 0)), one, one.like(0));
  Element place(op.b, reduceValue(op.b, passed, ReduceKind::Add, 1));
  Element total = repeatAt({op.b, reduceValue(op.b, given, ReduceKind::Add, 0)}, 0, length);
  return op.wrap(DType::I64, select(equals(total, double(length)), place, double(count)));
}

/// The elements themselves, or without a tensor their numbers. The result's size has to be known.
static Error lowerRepeatByTensor(OpContext &op) {
  Tensor repeats = op.tensor("repeats");
  if (repeats.rank() > 1 || isFloat(repeats.dtype) || repeats.dtype == DType::Bool)
    return op.error("expected integers of rank 1 as repeats, found " + getName(repeats.dtype) +
                    toString(repeats.sizes));
  std::optional<Tensor> self;
  int64_t dim = 0, count = repeats.getNumElements();
  if (op.hasParameter("self")) {
    ASSIGN_OR_RETURN(self, withDimension(op, op.tensor("self")));
    if (!op.has("dim")) {
      ASSIGN_OR_RETURN(self, reshape(op, *self, self->getNumElements()));
    } else {
      ASSIGN_OR_RETURN(dim, op.dimension("dim", self->rank()));
    }
    count = self->sizes[dim];
  }
  if (count == 0 || (repeats.getNumElements() != count && repeats.getNumElements() != 1))
    return op.error("expected a number of repeats for each of " + Twine(count) +
                    " elements, found " + Twine(repeats.getNumElements()));
  std::optional<int64_t> length = op.optionalInteger("output_size");
  if (!length || *length <= 0)
    return op.error("the size of its result depends on the data; give output_size, above zero");
  ASSIGN_OR_RETURN(repeats,
                   reshape(op, castTo(op, repeats, DType::I64), Shape{repeats.getNumElements()}));
  ASSIGN_OR_RETURN(repeats, expand(op, repeats, Shape{count}));
  RETURN_IF_ERROR(countElements(op, Shape{count, *length}).takeError());
  Tensor places = listRepeated(op, op.get(repeats), count, *length);
  if (!self)
    return setResult(op, castTo(op, places, op.resultMeta(0).dtype));
  ASSIGN_OR_RETURN(Tensor result, selectAlong(op, *self, places, dim));
  return setResult(op, result);
}

//===----------------------------------------------------------------------===//
// Histograms
//===----------------------------------------------------------------------===//

/// Of samples [n] the ones and zeros [n, bins] of the bin that each falls in; the last has its end,
/// too.
static Element findBins(Element samples, Element edges) {
  mlir::ImplicitLocOpBuilder &b = samples.getBuilder();
  int64_t n = cast<RankedTensorType>(samples.getType()).getDimSize(0);
  int64_t bins = cast<RankedTensorType>(edges.getType()).getDimSize(0) - 1;
  auto part = [&](int64_t first) {
    SmallVector<mlir::OpFoldResult> offset{b.getIndexAttr(first)}, count{b.getIndexAttr(bins)},
        step{b.getIndexAttr(1)};
    Value cut = mlir::tensor::ExtractSliceOp::create(b, edges, offset, count, step);
    return repeatAt({b, cut}, 0, n);
  };
  Element x = repeatAt(samples, 1, bins), low = part(0), high = part(1);
  Element isLast = equals(numbersOf(x, 1), double(bins - 1));
  Element isInside = lessOrEqual(low, x) & (less(x, high) | (isLast & equals(x, high)));
  return select(isInside, x.like(1), x.like(0));
}

/// Samples [n, columns], and edges of each column; sets the sums of weights, and the edges.
static Error setHistogram(OpContext &op, const Tensor &samples, ArrayRef<Tensor> edges) {
  int64_t n = samples.sizes[0];
  DType type = samples.dtype;
  RETURN_IF_ERROR(op.checkReal(type));
  if (samples.getNumElements() == 0 || op.getNumResults() != edges.size() + 1)
    return op.error("expected samples, and edges of each of their columns");
  std::optional<Element> inside; // [n, bins of all columns so far]
  Element volumes(op.b, splat(op.b, op.tensorType(type, {1}), 1.0));
  for (auto [column, edge] : enumerate(edges)) {
    if (edge.rank() != 1 || edge.sizes[0] < 2 || edge.dtype != type)
      return op.error("expected two edges of bins or more, of the type of the samples");
    ASSIGN_OR_RETURN(Tensor part, slice(op, samples, 1, column, 1, 1));
    Element x(op.b, reshapeValue(op.b, op.get(part), {n})), limits(op.b, op.get(edge));
    Element found = findBins(x, limits);
    int64_t bins = edge.sizes[0] - 1;
    ASSIGN_OR_RETURN(Tensor low, slice(op, edge, 0, 0, 1, bins));
    ASSIGN_OR_RETURN(Tensor high, slice(op, edge, 0, 1, 1, bins));
    Element width = Element(op.b, op.get(high)) - Element(op.b, op.get(low));
    int64_t before = cast<RankedTensorType>(volumes.getType()).getDimSize(0);
    ASSIGN_OR_RETURN(int64_t all, countElements(op, {n, before, bins}));
    volumes = repeatAt(volumes, 1, bins) * repeatAt(width, 0, before);
    volumes = {op.b, reshapeValue(op.b, volumes, {before * bins})};
    if (inside)
      found = {op.b, reshapeValue(op.b, repeatAt(*inside, 2, bins) * repeatAt(found, 1, before),
                                  {n, all / n})};
    inside = found;
    op.setResult(column + 1, op.copy(edge));
  }
  if (op.has("weight")) {
    Tensor weight = castTo(op, op.tensor("weight"), type);
    ASSIGN_OR_RETURN(weight, reshape(op, weight, {n}));
    int64_t all = cast<RankedTensorType>(inside->getType()).getDimSize(1);
    inside = *inside * repeatAt({op.b, op.get(weight)}, 1, all);
  }
  Element counts(op.b, reduceValue(op.b, *inside, ReduceKind::Add, 0));
  if (op.flag("density")) {
    Value sum = reduceValue(op.b, counts, ReduceKind::Add, 0);
    counts =
        counts /
        (volumes *
         Element(op.b, broadcastValue(op.b, sum,
                                      {cast<RankedTensorType>(counts.getType()).getDimSize(0)})));
  }
  Tensor total = op.wrap(type, withoutGradient(counts));
  ASSIGN_OR_RETURN(total, reshape(op, total, op.resultMeta(0).sizes));
  op.setResult(0, total);
  return Error::success();
}

static Error lowerHistogramOfEdges(OpContext &op) {
  Tensor self = op.tensor("self");
  ASSIGN_OR_RETURN(Tensor samples, reshape(op, self, {self.getNumElements(), 1}));
  return setHistogram(op, samples, op.tensor("bins"));
}

static Error lowerHistogramOfColumns(OpContext &op) {
  Tensor self = op.tensor("self");
  std::vector<Tensor> edges;
  for (const std::optional<Tensor> &edge : op.tensors("bins"))
    edges.push_back(*edge);
  if (self.rank() < 2 || self.sizes.back() != int64_t(edges.size()))
    return op.error("expected as many columns as edges of bins, found " + toString(self.sizes));
  ASSIGN_OR_RETURN(
      Tensor samples,
      reshape(op, self, {self.getNumElements() / self.sizes.back(), self.sizes.back()}));
  return setHistogram(op, samples, edges);
}

//===----------------------------------------------------------------------===//
// Segments
//===----------------------------------------------------------------------===//

static Expected<ReduceKind> getSegmentKind(OpContext &op) {
  constexpr std::pair<StringLiteral, ReduceKind> kinds[] = {{"sum", ReduceKind::Add},
                                                            {"mean", ReduceKind::Add},
                                                            {"prod", ReduceKind::Mul},
                                                            {"max", ReduceKind::Max},
                                                            {"min", ReduceKind::Min}};
  for (auto [name, kind] : kinds)
    if (op.text("reduce") == name)
      return kind;
  return op.error("argument 'reduce': expected sum, mean, prod, max or min, found '" +
                  op.text("reduce") + "'");
}

static double startOf(ReduceKind kind) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return kind == ReduceKind::Mul   ? 1
         : kind == ReduceKind::Max ? -infinity
         : kind == ReduceKind::Min ? infinity
                                   : 0;
}

/// Segments lie one behind the other along the first dimension.
static Error lowerSegments(OpContext &op) {
  Tensor data = op.tensor("data");
  ASSIGN_OR_RETURN(ReduceKind kind, getSegmentKind(op));
  bool byOffsets = op.has("offsets");
  if (!byOffsets && !op.has("lengths"))
    return op.error("expected lengths or offsets");
  Tensor given = castTo(op, op.tensor(byOffsets ? "offsets" : "lengths"), DType::I64);
  if (op.integer("axis") != 0 || given.rank() != 1 || data.rank() < 1 || data.getNumElements() == 0)
    return op.error("segments along other dimensions than the first are not supported");
  int64_t n = data.sizes[0], count = given.sizes[0] - byOffsets, each = data.getNumElements() / n;
  if (count < 1)
    return op.error("expected a segment at least");
  Element numbers(op.b, op.get(given));
  Element ends = numbers, starts = numbers;
  if (byOffsets) {
    ASSIGN_OR_RETURN(Tensor first, slice(op, given, 0, 0, 1, count));
    ASSIGN_OR_RETURN(Tensor last, slice(op, given, 0, 1, 1, count));
    starts = {op.b, op.get(first)};
    ends = {op.b, op.get(last)};
  } else {
    ends = {op.b, mlir::memopt::LinearScanOp::create(op.b, splat(op.b, numbers.getType(), 1.0),
                                                     numbers, 0, false, APFloat(0.0))};
    starts = ends - numbers;
  }
  Element x(op.b, reshapeValue(op.b, op.get(data), {n, each}));
  Element all = repeatAt(x, 0, count), row = numbersOf(all, 1);
  auto spread = [&](Element ofSegments) { return repeatAt(repeatAt(ofSegments, 1, n), 2, each); };
  Element isInside = lessOrEqual(spread(starts), row) & less(row, spread(ends));
  Element start = all.like(startOf(kind));
  Element found(op.b, reduceValue(op.b, select(isInside, all, start), kind, 1));
  if (op.has("initial")) {
    Element initial = found.like(op.number("initial"));
    found = kind == ReduceKind::Add   ? found + initial
            : kind == ReduceKind::Mul ? found * initial
            : kind == ReduceKind::Max ? largerOf(found, initial)
                                      : smallerOf(found, initial);
  }
  if (op.text("reduce") == "mean") {
    Value sizes = convert(op.b, ends - starts, DType::I64, data.dtype);
    Element divisor = repeatAt({op.b, sizes}, 1, each), isEmpty = equals(divisor, 0);
    Element mean = found / select(isEmpty, 1.0, divisor);
    found =
        op.has("initial") ? mean : select(isEmpty, std::numeric_limits<double>::quiet_NaN(), mean);
  }
  return setResult(op, reshape(op, op.wrap(data.dtype, found), op.resultMeta(0).sizes));
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerCounting(OpTable &table) {
  table.add("aten.repeat_interleave.self_Tensor",
            "Tensor self, Tensor repeats, int? dim=None, int? output_size=None",
            lowerRepeatByTensor);
  table.add("aten.repeat_interleave.Tensor", "Tensor repeats, int? output_size=None",
            lowerRepeatByTensor);
  table.add("aten.mode.default", "Tensor self, int dim=-1, bool keepdim=False", lowerMode);
  table.add("aten.histogram.bins_tensor",
            "Tensor self, Tensor bins, Tensor? weight=None, bool density=False",
            lowerHistogramOfEdges);
  table.add("aten.histogramdd.TensorList_bins",
            "Tensor self, Tensor[] bins, ignored range, Tensor? weight=None, bool density=False",
            lowerHistogramOfColumns);
  table.add("aten.segment_reduce.default",
            "Tensor data, str reduce, Tensor? lengths=None, ignored indices, "
            "Tensor? offsets=None, int axis=0, ignored unsafe, Scalar? initial=None",
            lowerSegments);
}
