//===- Pooling.cpp - pooling, resizing, padding -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpContext.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::ValueRange;
using Builder = mlir::ImplicitLocOpBuilder;
namespace arith = mlir::arith;
namespace math = mlir::math;

//===----------------------------------------------------------------------===//
// Pooling
//===----------------------------------------------------------------------===//

namespace {
struct Pool {
  Shape kernel, strides, low, high, dilations;
  Shape sizes; ///< of the result
};
} // namespace

/// Largest number that windows may contain; keeps their arithmetic far from overflow.
static Error checkWindow(OpContext &op, const Pool &pool) {
  for (const Shape *values : {&pool.kernel, &pool.strides, &pool.dilations})
    for (int64_t value : *values)
      if (value < 1 || value > (1 << 20))
        return op.error("expected positive kernel sizes, strides and dilations, found " +
                        toString(*values));
  for (int64_t value : pool.low)
    if (value < 0 || value > (1 << 20))
      return op.error("expected padding of at least 0, found " + toString(pool.low));
  return Error::success();
}

/// Where windows lie. With `ceil_mode` a last window may hang over the end: it is given padding
/// there.
static Expected<Pool> getPool(OpContext &op, const Tensor &input, int64_t rank, bool hasDilation) {
  if (input.rank() != rank + 2 || input.getNumElements() == 0 || !isFloat(input.dtype))
    return op.error("expected a floating-point input of rank " + Twine(rank + 2) + ", found " +
                    getName(input.dtype) + toString(input.sizes));
  Pool pool;
  ASSIGN_OR_RETURN(pool.kernel, op.perDimension("kernel_size", rank));
  pool.strides = pool.kernel;
  if (!op.integers("stride").empty()) {
    ASSIGN_OR_RETURN(pool.strides, op.perDimension("stride", rank));
  }
  ASSIGN_OR_RETURN(pool.low, op.perDimension("padding", rank));
  pool.dilations.assign(rank, 1);
  if (hasDilation) {
    ASSIGN_OR_RETURN(pool.dilations, op.perDimension("dilation", rank));
  }
  RETURN_IF_ERROR(checkWindow(op, pool));
  pool.high = pool.low;
  pool.sizes.assign({input.sizes[0], input.sizes[1]});
  for (int64_t i = 0; i != rank; ++i) {
    int64_t size = input.sizes[i + 2], reach = pool.dilations[i] * (pool.kernel[i] - 1) + 1;
    int64_t room = size + 2 * pool.low[i] - reach;
    if (room < 0)
      return op.error("a window of " + Twine(reach) + " does not fit " + Twine(size) + " elements");
    int64_t count = room / pool.strides[i] + 1;
    if (op.flag("ceil_mode")) {
      count = (room + pool.strides[i] - 1) / pool.strides[i] + 1;
      if ((count - 1) * pool.strides[i] >= size + pool.low[i]) // would start in the padding
        --count;
      pool.high[i] =
          std::max(pool.low[i], (count - 1) * pool.strides[i] + reach - size - pool.low[i]);
    }
    pool.sizes.push_back(count);
  }
  return pool;
}

template <int64_t rank> static Error lowerMaxPool(OpContext &op) {
  Tensor input = op.tensor("self");
  ASSIGN_OR_RETURN(Pool pool, getPool(op, input, rank, /*hasDilation=*/true));
  if (op.getNumResults() > 1 && op.isUsed(1))
    return op.error("the indices of maxima are not supported as a value");
  int64_t taps = 1;
  for (int64_t size : pool.kernel)
    taps *= size;
  mlir::Type tapType = taps <= 127 ? op.b.getI8Type() : op.b.getI32Type();
  auto maxPool = mlir::memopt::MaxPoolOp::create(
      op.b, op.tensorType(input.dtype, pool.sizes), RankedTensorType::get(pool.sizes, tapType),
      op.get(input), pool.kernel, pool.strides, pool.low, pool.high,
      mlir::memopt::Layout::ChannelsFirst, pool.dilations);
  op.setResult(0, maxPool.getResult());
  return Error::success();
}

template <int64_t rank> static Error lowerAvgPool(OpContext &op) {
  Tensor input = op.tensor("self");
  ASSIGN_OR_RETURN(Pool pool, getPool(op, input, rank, /*hasDilation=*/false));
  bool counts = op.flag("count_include_pad");
  int64_t divisor = rank > 1 && op.has("divisor_override") ? op.integer("divisor_override") : 0;
  if (rank > 1 && op.has("divisor_override") && divisor <= 0)
    return op.error("argument 'divisor_override': expected a positive integer, found " +
                    Twine(divisor));
  // A hanging window counts the padding it was promised but not the rest; the dialect has no such
  // count.
  if (counts && divisor == 0 && pool.high != pool.low)
    return op.error("ceil_mode with count_include_pad is not supported");
  return setResult(
      op, op.wrap(input.dtype, mlir::memopt::AvgPoolOp::create(
                                   op.b, op.tensorType(input.dtype, pool.sizes), op.get(input),
                                   pool.kernel, pool.strides, pool.low, pool.high,
                                   mlir::memopt::Layout::ChannelsFirst, counts, divisor)));
}

/// Windows of equal size, or one over everything, which is a plain mean.
template <int64_t rank> static Error lowerAdaptiveAvgPool(OpContext &op) {
  Tensor input = op.tensor("self");
  if (input.rank() != rank + 2 || input.getNumElements() == 0 || !isFloat(input.dtype))
    return op.error("expected a floating-point input of rank " + Twine(rank + 2) + ", found " +
                    getName(input.dtype) + toString(input.sizes));
  ASSIGN_OR_RETURN(Shape output, op.perDimension("output_size", rank));
  Shape kernel, sizes(ArrayRef(input.sizes).take_front(2));
  int64_t elements = 1;
  for (int64_t i = 0; i != rank; ++i) {
    int64_t size = input.sizes[i + 2];
    if (output[i] < 1 || size % output[i])
      return op.error("expected an output size that divides " + Twine(size) + ", found " +
                      Twine(output[i]));
    kernel.push_back(size / output[i]);
    elements *= kernel.back();
    sizes.push_back(output[i]);
  }
  Value value = op.get(input);
  if (elements == 1)
    return setResult(op, op.copy(input));
  if (all_of(output, [](int64_t size) { return size == 1; })) {
    Value sum = reduceValue(op.b, value, mlir::memopt::ReduceKind::Add,
                            to_vector(seq<int64_t>(2, input.rank())), /*keep=*/true);
    Value mean = arith::DivFOp::create(op.b, sum, splat(op.b, sum.getType(), double(elements)));
    return setResult(op, op.wrap(input.dtype, mean));
  }
  Shape none(rank, 0);
  return setResult(op, op.wrap(input.dtype, mlir::memopt::AvgPoolOp::create(
                                                op.b, op.tensorType(input.dtype, sizes), value,
                                                kernel, kernel, none, none)));
}

/// Windows of equal size only, as for means.
static Error lowerAdaptiveMaxPool(OpContext &op) {
  Tensor input = op.tensor("self");
  if (input.rank() != 4 || input.getNumElements() == 0 || !isFloat(input.dtype))
    return op.error("expected a floating-point input of rank 4, found " + getName(input.dtype) +
                    toString(input.sizes));
  if (op.getNumResults() > 1 && op.isUsed(1))
    return op.error("the indices of maxima are not supported as a value");
  ASSIGN_OR_RETURN(Shape output, op.perDimension("output_size", 2));
  Shape kernel, sizes(ArrayRef(input.sizes).take_front(2)), zeros(2, 0), ones(2, 1);
  for (int64_t i = 0; i != 2; ++i) {
    if (output[i] < 1 || input.sizes[i + 2] % output[i])
      return op.error("expected an output size that divides " + Twine(input.sizes[i + 2]) +
                      ", found " + Twine(output[i]));
    kernel.push_back(input.sizes[i + 2] / output[i]);
    sizes.push_back(output[i]);
  }
  mlir::Type tapType = kernel[0] * kernel[1] <= 127 ? op.b.getI8Type() : op.b.getI32Type();
  auto pool = mlir::memopt::MaxPoolOp::create(
      op.b, op.tensorType(input.dtype, sizes), RankedTensorType::get(sizes, tapType), op.get(input),
      kernel, kernel, zeros, zeros, mlir::memopt::Layout::ChannelsFirst, ones);
  op.setResult(0, pool.getResult());
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Resizing
//===----------------------------------------------------------------------===//

/// Source steps per result element, as ATen's area_pixel_compute_scale has them.
static Error lowerInterpolate(OpContext &op, bool linear, bool alignCorners) {
  Tensor input = op.tensor("input");
  const TensorMeta &meta = op.resultMeta(0);
  int64_t rank = input.rank() - 2;
  if (rank < 1 || rank > 3 || int64_t(meta.sizes.size()) != input.rank() || !isFloat(input.dtype) ||
      input.getNumElements() == 0 || meta.getNumElements() == 0)
    return op.error("expected a floating-point input and a result of one rank from 3 to 5, found " +
                    getName(input.dtype) + toString(input.sizes) + " and " + toString(meta.sizes));
  ArrayRef<double> factors;
  if (op.has("scale_factors"))
    factors = op.numbers("scale_factors");
  if (!factors.empty() && int64_t(factors.size()) != rank)
    return op.error("argument 'scale_factors': expected " + Twine(rank) + " numbers, found " +
                    Twine(factors.size()));
  SmallVector<double> scales;
  for (int64_t i = 0; i != rank; ++i) {
    double from = double(input.sizes[i + 2]), to = double(meta.sizes[i + 2]);
    if (alignCorners)
      scales.push_back(to > 1 ? (from - 1) / (to - 1) : 0);
    else if (!factors.empty() && factors[i] > 0)
      scales.push_back(1 / factors[i]);
    else
      scales.push_back(from / to);
  }
  return setResult(op, op.wrap(input.dtype, mlir::memopt::InterpolateOp::create(
                                                op.b, op.resultType(0), op.get(input), scales,
                                                linear, alignCorners)));
}

static Error lowerNearest(OpContext &op) { return lowerInterpolate(op, false, false); }
static Error lowerLinearResize(OpContext &op) {
  return lowerInterpolate(op, true, op.flag("align_corners"));
}

//===----------------------------------------------------------------------===//
// Padding
//===----------------------------------------------------------------------===//

/// Elements of `value` before and after a dimension.
static Value surround(OpContext &op, Value inside, int64_t dim, int64_t low, int64_t high,
                      double value) {
  auto type = cast<RankedTensorType>(inside.getType());
  SmallVector<Value> parts;
  auto fill = [&](int64_t count) {
    Shape sizes(type.getShape());
    sizes[dim] = count;
    if (count > 0)
      parts.push_back(splat(op.b, type.clone(sizes), value));
  };
  fill(low);
  parts.push_back(inside);
  fill(high);
  return parts.size() == 1 ? inside : mlir::tensor::ConcatOp::create(op.b, dim, parts).getResult();
}

/// `pad` has two numbers for each dimension, last dimension first; negative ones cut.
static Error lowerConstantPad(OpContext &op) {
  Tensor self = op.tensor("self");
  ArrayRef<int64_t> pad = op.integers("pad");
  double value = op.has("value") ? op.number("value") : 0;
  if (pad.size() % 2 || int64_t(pad.size() / 2) > self.rank() || self.getNumElements() == 0)
    return op.error("argument 'pad': expected pairs for at most " + Twine(self.rank()) +
                    " dimensions, found " + toString(pad));
  Shape low(self.rank(), 0), high(self.rank(), 0), sizes(self.sizes);
  for (size_t i = 0; i != pad.size() / 2; ++i) {
    int64_t dim = self.rank() - 1 - int64_t(i), before = pad[2 * i], after = pad[2 * i + 1];
    constexpr int64_t most = int64_t(1) << 40;
    if (before < -most || after < -most || before > most || after > most)
      return op.error("argument 'pad': out of range: " + toString(pad));
    int64_t begin = std::max<int64_t>(0, -before);
    int64_t count = sizes[dim] - begin - std::max<int64_t>(0, -after);
    if (count < 1)
      return op.error("argument 'pad': cuts all of dimension " + Twine(dim));
    ASSIGN_OR_RETURN(self, slice(op, self, dim, begin, 1, count));
    low[dim] = std::max<int64_t>(0, before);
    high[dim] = std::max<int64_t>(0, after);
    sizes[dim] = low[dim] + count + high[dim];
  }
  RETURN_IF_ERROR(countElements(op, sizes).takeError());
  Value result = op.get(self);
  if (value == 0 && ArrayRef(self.sizes) != ArrayRef(sizes))
    result = mlir::memopt::PadOp::create(op.b, op.tensorType(self.dtype, sizes), result, low, high);
  for (int64_t dim = 0; value != 0 && dim != self.rank(); ++dim)
    result = surround(op, result, dim, low[dim], high[dim], value);
  return setResult(op, op.wrap(self.dtype, result));
}

static Error lowerPad(OpContext &op) {
  if (op.text("mode") != "constant")
    return op.error("argument 'mode': expected constant, found " + op.text("mode"));
  return lowerConstantPad(op);
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerPooling(OpTable &table) {
  constexpr StringLiteral maxPool =
      "Tensor self, int[] kernel_size, int[] stride=[], int[] padding=0, "
      "int[] dilation=1, bool ceil_mode=False";
  constexpr StringLiteral avgPool =
      "Tensor self, int[] kernel_size, int[] stride=[], int[] padding=0, "
      "bool ceil_mode=False, bool count_include_pad=True, "
      "int? divisor_override=None";
  constexpr StringLiteral adaptive = "Tensor self, int[] output_size";
  constexpr StringLiteral nearest = "Tensor input, int[]? output_size, float[]? scale_factors";
  constexpr StringLiteral bilinear =
      "Tensor input, int[]? output_size, bool align_corners, float[]? scale_factors";
  table.add("aten.max_pool1d.default", maxPool, lowerMaxPool<1>);
  table.add("aten.max_pool2d.default", maxPool, lowerMaxPool<2>);
  table.add("aten.max_pool3d.default", maxPool, lowerMaxPool<3>);
  table.add("aten.max_pool2d_with_indices.default", maxPool, lowerMaxPool<2>);
  table.add("aten.avg_pool1d.default", avgPool, lowerAvgPool<1>);
  table.add("aten.avg_pool2d.default", avgPool, lowerAvgPool<2>);
  table.add("aten.avg_pool3d.default", avgPool, lowerAvgPool<3>);
  table.add("aten.adaptive_avg_pool1d.default", adaptive, lowerAdaptiveAvgPool<1>);
  table.add("aten.adaptive_avg_pool2d.default", adaptive, lowerAdaptiveAvgPool<2>);
  table.add("aten._adaptive_avg_pool2d.default", adaptive, lowerAdaptiveAvgPool<2>);
  table.add("aten.adaptive_avg_pool3d.default", adaptive, lowerAdaptiveAvgPool<3>);
  table.add("aten.adaptive_max_pool2d.default", adaptive, lowerAdaptiveMaxPool);
  table.add("aten.upsample_nearest1d.vec", nearest, lowerNearest);
  table.add("aten.upsample_nearest2d.vec", nearest, lowerNearest);
  table.add("aten.upsample_nearest3d.vec", nearest, lowerNearest);
  table.add("aten.upsample_linear1d.vec", bilinear, lowerLinearResize);
  table.add("aten.upsample_bilinear2d.vec", bilinear, lowerLinearResize);
  table.add("aten.constant_pad_nd.default", "Tensor self, int[] pad, Scalar value=0",
            lowerConstantPad);
  table.add("aten.pad.default", "Tensor self, int[] pad, str mode='constant', float? value=None",
            lowerPad);
}
