//===- LowerToLinalgBatchNorm.cpp - batch normalization --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Statistics in one pass over chunks: each chunk gives its mean and its sum of squared deviations
// from that mean while it is in cache, and the chunks are merged by the pairwise formula of Chan,
// Golub and LeVeque (Updating Formulae and a Pairwise Algorithm for Computing Sample Variances,
// 1979) for equal counts. Chunks follow from the shape, so the bits do not depend on threads.
//
//===----------------------------------------------------------------------===//

#include "LowerToLinalg.h"
#include "memopt/Dialect/Formula.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// The normalized tensor: its channels and everything else.
struct Channels {
  Value input;
  RankedTensorType type;
  Type compute;
  int64_t axis, count;
  SmallVector<int64_t> reduced;

  Channels(Value input, int64_t axis)
      : input(input), type(tensorType(input)), compute(getComputeType(type.getElementType())),
        axis(axis), count(type.getNumElements() / type.getDimSize(axis)) {
    for (int64_t dim = 0; dim < type.getRank(); ++dim)
      if (dim != axis)
        reduced.push_back(dim);
  }
  int64_t getSize() const { return type.getDimSize(axis); }
  Read perChannel(ImplicitLocOpBuilder &b, Value value) const {
    return readDims(b, value, type.getRank(), {axis});
  }
};

/// Means and sums of squared deviations over part of the data.
struct Moments {
  Value mean, squares;
};
} // namespace

static SmallVector<int64_t> getOtherDims(int64_t rank, ArrayRef<int64_t> dims) {
  SmallVector<int64_t> others;
  for (int64_t dim = 0; dim < rank; ++dim)
    if (!llvm::is_contained(dims, dim))
      others.push_back(dim);
  return others;
}

/// Mean and squared deviations of `read` over `reduced`, which has `count` points per result.
static Moments createMoments(ImplicitLocOpBuilder &b, ArrayRef<int64_t> domain,
                             ArrayRef<int64_t> reduced, Read read, int64_t count, Type compute) {
  Accumulator sum{ReduceKind::Add, compute};
  Value total = createPlainReduction(b, domain, reduced, {read}, {sum},
                                     [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                                       return SmallVector<Value>{convertTo(inner, x[0], compute)};
                                     })
                    .front();
  Value mean =
      createPointwise(b, tensorType(total).getShape(), {readAll(b, total)}, ArrayRef<Type>{compute},
                      [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                        Formula f{inner, compute};
                        return SmallVector<Value>{f.div(x[0], f.number(count))};
                      })
          .front();
  Read meanRead = readDims(b, mean, domain.size(), getOtherDims(domain.size(), reduced));
  Value squares =
      createPlainReduction(b, domain, reduced, {read, meanRead}, {sum},
                           [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                             Formula f{inner, compute};
                             return SmallVector<Value>{f.square(f.sub(f.wide(x[0]), x[1]))};
                           })
          .front();
  return {mean, squares};
}

static int64_t countAlong(ArrayRef<int64_t> shape, ArrayRef<int64_t> dims) {
  int64_t count = 1;
  for (int64_t dim : dims)
    count *= shape[dim];
  return count;
}

/// Merges moments of equally large chunks, which lie along `chunkDims`, in one stage.
static Moments mergeAtOnce(ImplicitLocOpBuilder &b, const Moments &parts,
                           ArrayRef<int64_t> chunkDims, int64_t countPerChunk, Type compute) {
  ArrayRef<int64_t> shape = tensorType(parts.mean).getShape();
  int64_t chunks = countAlong(shape, chunkDims);
  Moments between = createMoments(b, shape, chunkDims, readAll(b, parts.mean), chunks, compute);
  Value within =
      createPlainReduction(
          b, shape, chunkDims, {readAll(b, parts.squares)}, {{ReduceKind::Add, compute}},
          [](ImplicitLocOpBuilder &, ValueRange x) { return llvm::to_vector_of<Value>(x); })
          .front();
  Value squares =
      createPointwise(b, tensorType(within).getShape(),
                      {readAll(b, within), readAll(b, between.squares)}, ArrayRef<Type>{compute},
                      [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                        Formula f{inner, compute};
                        return SmallVector<Value>{f.add(x[0], f.scale(countPerChunk, x[1]))};
                      })
          .front();
  return {between.mean, squares};
}

/// The same, in stages where the machine asks for them.
static Moments mergeMoments(ImplicitLocOpBuilder &b, const Moments &parts,
                            ArrayRef<int64_t> chunkDims, int64_t countPerChunk, Type compute) {
  ArrayRef<int64_t> shape = tensorType(parts.mean).getShape();
  Chunks chunks = chooseLaterChunks(b, shape, chunkDims);
  if (chunks.empty())
    return mergeAtOnce(b, parts, chunkDims, countPerChunk, compute);
  SmallVector<Read> reads{readAll(b, parts.mean), readAll(b, parts.squares)};
  SmallVector<int64_t> inner(chunkDims), outer;
  SmallVector<int64_t> split = splitDomain(b, shape, chunks, reads, inner, outer);
  Moments merged = mergeAtOnce(b, {reads[0].value, reads[1].value}, inner, countPerChunk, compute);
  return mergeMoments(b, merged, withoutDims(outer, inner),
                      countPerChunk * countAlong(split, inner), compute);
}

static Moments createChannelMoments(ImplicitLocOpBuilder &b, const Channels &channels) {
  ArrayRef<int64_t> domain = channels.type.getShape();
  Read read = readAll(b, channels.input);
  Chunks chunks = chooseChunks(b, domain, channels.reduced);
  if (chunks.empty())
    return createMoments(b, domain, channels.reduced, read, channels.count, channels.compute);
  SmallVector<int64_t> inner(channels.reduced), chunkDims;
  SmallVector<int64_t> split = splitDomain(b, domain, chunks, {read}, inner, chunkDims);
  int64_t perChunk = countAlong(split, inner);
  Moments parts = createMoments(b, split, inner, read, perChunk, channels.compute);
  return mergeMoments(b, parts, withoutDims(chunkDims, inner), perChunk, channels.compute);
}

static Lowered lowerBatchNorm(BatchNormOp op, ImplicitLocOpBuilder &b) {
  Channels channels(op.getInput(), op.getAxisAttr().getInt());
  Type compute = channels.compute;
  double eps = op.getEpsAttr().getValueAsDouble();
  Moments moments = createChannelMoments(b, channels);
  // Everything that is the same for a channel, once per channel.
  SmallVector<Read> reads{readAll(b, moments.mean), readAll(b, moments.squares)};
  if (op.getScale())
    reads.push_back(readAll(b, op.getScale()));
  SmallVector<Type> types{tensorType(op.getMean()).getElementType(),
                          tensorType(op.getVariance()).getElementType(), compute};
  SmallVector<Value> perChannel = createPointwise(
      b, {channels.getSize()}, reads, types, [&](ImplicitLocOpBuilder &inner, ValueRange x) {
        Formula f{inner, compute};
        Value variance = f.div(x[1], f.number(channels.count));
        Value slope = f.inverseRoot(variance, eps);
        if (op.getScale())
          slope = f.mul(f.wide(x[2]), slope);
        return SmallVector<Value>{convertTo(inner, x[0], types[0]),
                                  convertTo(inner, variance, types[1]), slope};
      });
  reads = {readAll(b, op.getInput()), channels.perChannel(b, moments.mean),
           channels.perChannel(b, perChannel[2])};
  if (op.getOffset())
    reads.push_back(channels.perChannel(b, op.getOffset()));
  Type element = channels.type.getElementType();
  Value result = createPointwise(b, channels.type.getShape(), reads, {element},
                                 [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                                   Formula f{inner, compute};
                                   Value y = f.mul(f.sub(f.wide(x[0]), x[1]), x[2]);
                                   if (op.getOffset())
                                     y = f.add(y, f.wide(x[3]));
                                   return SmallVector<Value>{convertTo(inner, y, element)};
                                 })
                     .front();
  return SmallVector<Value>{result, perChannel[0], perChannel[1]};
}

/// With h = (x - mean) / sqrt(variance + eps): offset' = sum g, scale' = sum g h,
/// input' = scale / sqrt(variance + eps) * (g - offset' / n - h scale' / n).
static Lowered lowerBatchNormBackward(BatchNormBackwardOp op, ImplicitLocOpBuilder &b) {
  Channels channels(op.getInput(), op.getAxisAttr().getInt());
  Type compute = channels.compute;
  double eps = op.getEpsAttr().getValueAsDouble();
  Value inverse = createPointwise(b, {channels.getSize()}, {readAll(b, op.getVariance())},
                                  ArrayRef<Type>{compute},
                                  [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                                    Formula f{inner, compute};
                                    return SmallVector<Value>{f.inverseRoot(f.wide(x[0]), eps)};
                                  })
                      .front();
  // The deviation is summed first and scaled per channel afterwards: one vector less per element.
  Accumulator sum{ReduceKind::Add, compute};
  SmallVector<Value> sums = createReduction(
      b, channels.type.getShape(), channels.reduced,
      {readAll(b, op.getGradient()), readAll(b, op.getInput()),
       channels.perChannel(b, op.getMean())},
      {sum, sum}, [&](ImplicitLocOpBuilder &inner, ValueRange x) {
        Formula f{inner, compute};
        Value gradient = f.wide(x[0]);
        return SmallVector<Value>{gradient, f.mul(gradient, f.sub(f.wide(x[1]), f.wide(x[2])))};
      });
  SmallVector<Read> reads{readAll(b, sums[0]), readAll(b, sums[1]), readAll(b, inverse)};
  if (op.getScale())
    reads.push_back(readAll(b, op.getScale()));
  SmallVector<Type> types{tensorType(op.getScaleGradient()).getElementType(),
                          tensorType(op.getOffsetGradient()).getElementType(), compute, compute,
                          compute};
  SmallVector<Value> perChannel = createPointwise(
      b, {channels.getSize()}, reads, types, [&](ImplicitLocOpBuilder &inner, ValueRange x) {
        Formula f{inner, compute};
        Value count = f.number(channels.count), scaled = f.mul(x[1], x[2]);
        Value slope = op.getScale() ? f.mul(f.wide(x[3]), x[2]) : x[2];
        return SmallVector<Value>{convertTo(inner, scaled, types[0]),
                                  convertTo(inner, x[0], types[1]), slope, f.div(x[0], count),
                                  f.mul(f.div(scaled, count), x[2])};
      });
  Type element = tensorType(op.getInputGradient()).getElementType();
  Value result = createPointwise(
                     b, channels.type.getShape(),
                     {readAll(b, op.getGradient()), readAll(b, op.getInput()),
                      channels.perChannel(b, op.getMean()), channels.perChannel(b, perChannel[2]),
                      channels.perChannel(b, perChannel[3]), channels.perChannel(b, perChannel[4])},
                     {element},
                     [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                       Formula f{inner, compute};
                       Value deviation = f.sub(f.wide(x[1]), f.wide(x[2]));
                       Value rest = f.sub(f.sub(f.wide(x[0]), x[4]), f.mul(deviation, x[5]));
                       return SmallVector<Value>{convertTo(inner, f.mul(x[3], rest), element)};
                     })
                     .front();
  return SmallVector<Value>{result, perChannel[0], perChannel[1]};
}

void mlir::memopt::populateBatchNormLowerings(LinalgLowerings &lowerings) {
  lowerings.add<BatchNormOp>(lowerBatchNorm);
  lowerings.add<BatchNormBackwardOp>(lowerBatchNormBackward);
}
