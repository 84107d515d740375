//===- NeuralNetworkOps.cpp - convolution, matmul, attention, pooling -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Verification.h"
#include "memopt/Dialect/Memopt.h"

#include <cmath>
#include <numeric>

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Windows, shared by convolutions and pools
//===----------------------------------------------------------------------===//

namespace {
/// One sliding window over the spatial dimensions; `dilations` may be empty for dense ones.
struct Window {
  ArrayRef<int64_t> kernel, strides, low, high, dilations;

  int64_t dilation(size_t i) const { return dilations.empty() ? 1 : dilations[i]; }

  LogicalResult verify(Operation *op, size_t rank) const {
    if (rank < 1 || rank > 3)
      return op->emitOpError() << "expects one to three spatial dimensions, found " << rank;
    if (kernel.size() != rank || strides.size() != rank || low.size() != rank ||
        high.size() != rank || (!dilations.empty() && dilations.size() != rank))
      return op->emitOpError() << "window attributes need one entry for each of the " << rank
                               << " spatial dimensions";
    for (size_t i = 0; i < rank; ++i)
      if (kernel[i] < 1 || strides[i] < 1 || dilation(i) < 1 || low[i] < 0 || high[i] < 0)
        return op->emitOpError()
               << "window sizes, strides and dilations must be positive and padding not "
                  "negative in spatial dimension "
               << i;
    return success();
  }

  /// Number of windows along spatial dimension `i` of an input of `size`; 0 when none fits.
  int64_t count(size_t i, int64_t size) const {
    int64_t room = size + low[i] + high[i] - dilation(i) * (kernel[i] - 1) - 1;
    return room < 0 ? 0 : room / strides[i] + 1;
  }
};

/// Splits an activation's shape by layout.
struct Activation {
  int64_t batch, channels;
  SmallVector<int64_t> spatial;
  Layout layout;

  Activation(Value value, Layout layout) : layout(layout) {
    ArrayRef<int64_t> shape = tensorType(value).getShape();
    bool last = layout == Layout::ChannelsLast;
    batch = shape[0];
    channels = last ? shape.back() : shape[1];
    spatial.assign(last ? shape.begin() + 1 : shape.begin() + 2,
                   last ? shape.end() - 1 : shape.end());
  }

  SmallVector<int64_t> shape(int64_t newChannels, ArrayRef<int64_t> newSpatial) const {
    SmallVector<int64_t> result{batch};
    if (layout == Layout::ChannelsFirst)
      result.push_back(newChannels);
    llvm::append_range(result, newSpatial);
    if (layout == Layout::ChannelsLast)
      result.push_back(newChannels);
    return result;
  }
};
} // namespace

/// Every convolution op says the same of the three tensors: `input` * `filter` -> `result`.
static LogicalResult verifyConvolution(Operation *op, Value input, Value filter, Value result,
                                       Window window, int64_t groups, Layout layout) {
  if (failed(verifyProductTypes(op, op->getOperands(), op->getResult(0))))
    return failure();
  int64_t rank = tensorType(input).getRank();
  if (rank < 3 || tensorType(filter).getRank() != rank || tensorType(result).getRank() != rank)
    return op->emitOpError() << "expects input, filter and result of one rank, at least 3";
  ArrayRef<int64_t> filterShape = tensorType(filter).getShape();
  window.kernel = filterShape.drop_front(2);
  if (failed(window.verify(op, rank - 2)))
    return failure();
  Activation from(input, layout);
  if (groups < 1 || from.channels % groups || filterShape[0] % groups)
    return op->emitOpError() << "groups must divide input channels " << from.channels
                             << " and output channels " << filterShape[0] << ", found " << groups;
  if (filterShape[1] != from.channels / groups)
    return op->emitOpError() << "filter has " << filterShape[1] << " input channels, expected "
                             << from.channels / groups;
  SmallVector<int64_t> spatial;
  for (auto [index, size] : llvm::enumerate(from.spatial))
    spatial.push_back(window.count(index, size));
  return verifyShape(op, "output", from.shape(filterShape[0], spatial), result);
}

template <typename OpTy> static Window convolutionWindow(OpTy op) {
  return {{}, op.getStrides(), op.getPaddingLow(), op.getPaddingHigh(), op.getDilations()};
}

LogicalResult ConvolutionOp::verify() {
  return verifyConvolution(*this, getInput(), getFilter(), getResult(), convolutionWindow(*this),
                           getGroups(), getLayout());
}
LogicalResult ConvolutionBackwardDataOp::verify() {
  return verifyConvolution(*this, getResult(), getFilter(), getGradient(), convolutionWindow(*this),
                           getGroups(), getLayout());
}
LogicalResult ConvolutionBackwardWeightsOp::verify() {
  return verifyConvolution(*this, getInput(), getResult(), getGradient(), convolutionWindow(*this),
                           getGroups(), getLayout());
}

/// Two operations for each output element and each tap of its filter.
static int64_t convolutionFlops(Value output, Value filter) {
  RankedTensorType filterType = tensorType(filter);
  return multiplyCounts(
      {2, tensorType(output).getNumElements(), multiplyCounts(filterType.getShape().drop_front())});
}
int64_t ConvolutionOp::getFlops() { return convolutionFlops(getResult(), getFilter()); }
int64_t ConvolutionBackwardDataOp::getFlops() {
  return convolutionFlops(getGradient(), getFilter());
}
int64_t ConvolutionBackwardWeightsOp::getFlops() {
  return convolutionFlops(getGradient(), getResult());
}

//===----------------------------------------------------------------------===//
// MatmulOp
//===----------------------------------------------------------------------===//

LogicalResult MatmulOp::verify() {
  if (failed(verifyProductTypes(*this, {getA(), getB()}, getResult())))
    return failure();
  RankedTensorType a = tensorType(getA()), b = tensorType(getB());
  int64_t rank = a.getRank();
  if (rank < 2 || b.getRank() != rank)
    return emitOpError() << "expects operands of one rank, at least 2, found " << a << " and " << b;
  int64_t m = a.getDimSize(rank - (getTransposeA() ? 1 : 2)),
          k = a.getDimSize(rank - (getTransposeA() ? 2 : 1));
  int64_t inner = b.getDimSize(rank - (getTransposeB() ? 1 : 2)),
          n = b.getDimSize(rank - (getTransposeB() ? 2 : 1));
  if (k != inner)
    return emitOpError() << "contracts " << k << " elements of a with " << inner << " of b";
  SmallVector<int64_t> batch(a.getShape().drop_back(2));
  if (ArrayRef<int64_t>(batch) != b.getShape().drop_back(2))
    return emitOpError() << "expects equal batch dimensions, found " << a << " and " << b;
  batch.append({m, n});
  return verifyShape(*this, "result", batch, getResult());
}

int64_t MatmulOp::getFlops() {
  RankedTensorType a = tensorType(getA());
  int64_t k = a.getDimSize(a.getRank() - (getTransposeA() ? 2 : 1));
  return multiplyCounts({2, tensorType(getResult()).getNumElements(), k});
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

template <typename OpTy> static LogicalResult verifyAttention(OpTy op) {
  RankedTensorType query = tensorType(op.getQuery()), key = tensorType(op.getKey()),
                   value = tensorType(op.getValue());
  if (query.getRank() != 4 || key.getRank() != 4 || value.getRank() != 4)
    return op.emitOpError() << "expects query, key and value of rank 4";
  if (failed(verifyElementTypes(op, {op.getQuery(), op.getKey(), op.getValue()})))
    return failure();
  Type sum = getComputeType(query.getElementType());
  if (tensorType(op.getLogsumexp()).getElementType() != sum)
    return op.emitOpError() << "has logarithms of sums in "
                            << tensorType(op.getLogsumexp()).getElementType() << ", expected "
                            << sum;
  ArrayRef<int64_t> q = query.getShape(), k = key.getShape();
  if (k[1] < 1 || q[1] % k[1])
    return op.emitOpError() << "key heads must divide query heads " << q[1] << ", found " << k[1];
  if (failed(verifyShape(op, "key", {q[0], k[1], k[2], q[3]}, op.getKey())) ||
      failed(verifyShape(op, "value", {q[0], k[1], k[2], value.getDimSize(3)}, op.getValue())) ||
      failed(verifyShape(op, "logsumexp", q.take_front(3), op.getLogsumexp())))
    return failure();
  if (Value mask = op.getMask()) {
    RankedTensorType type = tensorType(mask);
    int64_t scores[] = {q[0], q[1], q[2], k[2]};
    if (type.getRank() != 4)
      return op.emitOpError() << "expects a mask of rank 4, found " << type;
    for (int i = 0; i < 4; ++i)
      if (type.getDimSize(i) != 1 && type.getDimSize(i) != scores[i])
        return op.emitOpError() << "mask dimension " << i << " has size " << type.getDimSize(i)
                                << ", expected 1 or " << scores[i];
    if (!type.getElementType().isInteger(1) && type.getElementType() != sum)
      return op.emitOpError() << "mask holds " << type.getElementType() << ", expected i1 or "
                              << sum;
  }
  double dropout = op.getDropout().convertToDouble();
  if (!(dropout >= 0.0 && dropout < 1.0))
    return op.emitOpError() << "dropout must lie in [0, 1), found " << dropout;
  if ((dropout > 0.0) != (op.getSeed() && op.getStep()))
    return op.emitOpError("expects seed and step exactly when there is dropout");
  if (op.getFirst() && !op.getSeed())
    return op.emitOpError("expects the number of a first score only when there is dropout");
  return success();
}

LogicalResult AttentionOp::verify() {
  if (failed(verifyAttention(*this)) ||
      failed(verifyElementTypes(*this, {getQuery(), getResult()})))
    return failure();
  SmallVector<int64_t> expected(tensorType(getQuery()).getShape());
  expected.back() = tensorType(getValue()).getDimSize(3);
  return verifyShape(*this, "result", expected, getResult());
}

LogicalResult AttentionBackwardOp::verify() {
  if (failed(verifyAttention(*this)))
    return failure();
  if (getOutput().getType() != getGradient().getType())
    return emitOpError() << "gradient has type " << getGradient().getType()
                         << ", expected the output's " << getOutput().getType();
  for (auto [result, operand] :
       llvm::zip(getResults(), ValueRange{getQuery(), getKey(), getValue()}))
    if (result.getType() != operand.getType())
      return emitOpError() << "gradient result has type " << result.getType() << ", expected "
                           << operand.getType();
  if (getMaskGradient() && (!getMask() || getMask().getType() != getMaskGradient().getType()))
    return emitOpError() << "mask gradient has type " << getMaskGradient().getType()
                         << ", expected that of a mask of numbers";
  return success();
}

/// Operations of `products` score-sized matrix products.
static int64_t attentionFlops(Value query, Value key, int64_t products) {
  RankedTensorType q = tensorType(query);
  return multiplyCounts({2, products, q.getNumElements(), tensorType(key).getDimSize(2)});
}
int64_t AttentionOp::getFlops() { return attentionFlops(getQuery(), getKey(), 2); }
int64_t AttentionBackwardOp::getFlops() {
  return attentionFlops(getQuery(), getKey(), getMaskGradient() ? 7 : 5);
}

//===----------------------------------------------------------------------===//
// Pooling and interpolation
//===----------------------------------------------------------------------===//

static LogicalResult verifyPool(Operation *op, Value input, Value output, Window window,
                                Layout layout) {
  int64_t rank = tensorType(input).getRank();
  if (rank < 3)
    return op->emitOpError() << "expects batch, channel and spatial dimensions, found rank "
                             << rank;
  if (failed(verifyElementTypes(op, {input, output})) || failed(window.verify(op, rank - 2)))
    return failure();
  Activation from(input, layout);
  SmallVector<int64_t> expected;
  for (auto [index, size] : llvm::enumerate(from.spatial))
    expected.push_back(window.count(index, size));
  return verifyShape(op, "output", from.shape(from.channels, expected), output);
}

template <typename OpTy> static Window poolWindow(OpTy op, ArrayRef<int64_t> dilations = {}) {
  return {op.getKernel(), op.getStrides(), op.getPaddingLow(), op.getPaddingHigh(), dilations};
}

LogicalResult MaxPoolOp::verify() {
  if (tensorType(getTaps()).getShape() != tensorType(getResult()).getShape())
    return emitOpError("expects taps of the result's shape");
  return verifyPool(*this, getInput(), getResult(), poolWindow(*this, getDilations()), getLayout());
}
LogicalResult MaxPoolBackwardOp::verify() {
  if (tensorType(getTaps()).getShape() != tensorType(getGradient()).getShape())
    return emitOpError("expects taps of the gradient's shape");
  return verifyPool(*this, getResult(), getGradient(), poolWindow(*this, getDilations()),
                    getLayout());
}
LogicalResult AvgPoolOp::verify() {
  return verifyPool(*this, getInput(), getResult(), poolWindow(*this), getLayout());
}
LogicalResult AvgPoolBackwardOp::verify() {
  return verifyPool(*this, getResult(), getGradient(), poolWindow(*this), getLayout());
}

static LogicalResult verifyInterpolation(Operation *op, Value input, Value output,
                                         ArrayRef<double> scales, Layout layout) {
  RankedTensorType from = tensorType(input), to = tensorType(output);
  int64_t channel = layout == Layout::ChannelsLast ? from.getRank() - 1 : 1;
  if (from.getRank() < 3 || to.getRank() != from.getRank() ||
      from.getDimSize(0) != to.getDimSize(0) || from.getDimSize(channel) != to.getDimSize(channel))
    return op->emitOpError() << "expects equal batch and channel dimensions, found " << from
                             << " and " << to;
  if (static_cast<int64_t>(scales.size()) != from.getRank() - 2)
    return op->emitOpError() << "expects one scale for each of the " << from.getRank() - 2
                             << " spatial dimensions, found " << scales.size();
  for (double scale : scales)
    if (!std::isfinite(scale) || scale < 0)
      return op->emitOpError() << "expects scales of at least 0, found " << scale;
  return verifyElementTypes(op, {input, output});
}
LogicalResult InterpolateOp::verify() {
  return verifyInterpolation(*this, getInput(), getResult(), getScales(), getLayout());
}
LogicalResult InterpolateBackwardOp::verify() {
  return verifyInterpolation(*this, getResult(), getGradient(), getScales(), getLayout());
}

static int64_t poolFlops(Value output, ArrayRef<int64_t> kernel) {
  return multiplyCounts({tensorType(output).getNumElements(), multiplyCounts(kernel)});
}
int64_t MaxPoolOp::getFlops() { return poolFlops(getResult(), getKernel()); }
int64_t MaxPoolBackwardOp::getFlops() { return poolFlops(getGradient(), getKernel()); }
int64_t AvgPoolOp::getFlops() { return poolFlops(getResult(), getKernel()); }
int64_t AvgPoolBackwardOp::getFlops() { return poolFlops(getGradient(), getKernel()); }
int64_t InterpolateOp::getFlops() { return 8 * tensorType(getResult()).getNumElements(); }
int64_t InterpolateBackwardOp::getFlops() { return 8 * tensorType(getGradient()).getNumElements(); }
