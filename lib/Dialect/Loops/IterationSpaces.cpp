//===- IterationSpaces.cpp - loops of the dialect's ops ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../IR/Verification.h"
#include "IterationBuilder.h"
#include "memopt/Dialect/Memopt.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

IterationSpace BroadcastOp::getIterationSpace() {
  IterationBuilder b(*this);
  Exprs loops = b.addLoops(getResult()), read;
  for (auto [dim, to] : llvm::enumerate(getDimensions())) {
    bool isRepeated = shapeOf(getInput())[dim] == 1 && shapeOf(getResult())[to] != 1;
    read.push_back(isRepeated ? getAffineConstantExpr(0, getContext()) : loops[to]);
  }
  b.set(getInput(), read);
  b.set(getResult(), loops);
  return b.take();
}

IterationSpace TransposeOp::getIterationSpace() {
  IterationBuilder b(*this);
  Exprs loops = b.addLoops(getResult()), read(loops.size());
  for (auto [dim, from] : llvm::enumerate(getPermutation()))
    read[from] = loops[dim];
  b.set(getInput(), read);
  b.set(getResult(), loops);
  return b.take();
}

IterationSpace ReduceOp::getIterationSpace() {
  IterationBuilder b(*this);
  LoopKind reduced = getKind() == ReduceKind::Add ? LoopKind::Sum : LoopKind::Mix;
  Exprs loops, kept;
  for (auto [dim, size] : llvm::enumerate(shapeOf(getInput()))) {
    bool isReduced = llvm::is_contained(getDimensions(), static_cast<int64_t>(dim));
    loops.push_back(b.addLoop(size, isReduced ? reduced : LoopKind::Parallel));
    if (!isReduced)
      kept.push_back(loops.back());
  }
  b.set(getInput(), loops);
  b.set(getResult(), kept);
  return b.take();
}

IterationSpace CountOp::getIterationSpace() {
  IterationBuilder b(*this);
  Exprs read(shapeOf(getInput()).size(), getAffineConstantExpr(0, getContext()));
  for (int64_t dim : getDimensions())
    read[dim] = b.addLoop(shapeOf(getInput())[dim], LoopKind::Sum);
  b.set(getInput(), read);
  return b.take();
}

IterationSpace PadOp::getIterationSpace() {
  IterationBuilder b(*this);
  Exprs loops = b.addLoops(getResult()), read;
  for (auto [loop, low, high] : llvm::zip_equal(loops, getLow(), getHigh()))
    read.push_back(low || high ? loop - low + b.addLoop(1, LoopKind::Mix) : loop);
  b.set(getInput(), read);
  b.set(getResult(), loops);
  return b.take();
}

void PadOp::resize(TypeRange types) {
  auto type = cast<RankedTensorType>(types.front());
  SmallVector<int64_t> low(getLow()), high(getHigh());
  for (auto [newSize, size, before, behind] :
       llvm::zip_equal(type.getShape(), shapeOf(getResult()), low, high)) {
    if (newSize == size)
      continue;
    before = before * newSize / size;
    behind = behind * newSize / size;
  }
  setLow(low);
  setHigh(high);
  getResult().setType(type);
}

/// Each element is a number of its own along one dimension.
IterationSpace IotaOp::getIterationSpace() {
  IterationBuilder b(*this);
  Exprs loops;
  for (auto [dim, size] : llvm::enumerate(shapeOf(getResult()))) {
    bool counts = dim == static_cast<size_t>(getDimension());
    loops.push_back(b.addLoop(size, counts ? LoopKind::Mix : LoopKind::Parallel));
  }
  b.set(getResult(), loops);
  return b.take();
}

IterationSpace EmbeddingOp::getIterationSpace() {
  IterationBuilder b(*this);
  Exprs picked = b.addLoops(getIndices());
  AffineExpr row = b.addLoop(shapeOf(getTable())[0], LoopKind::Mix);
  AffineExpr column = b.addLoop(shapeOf(getTable())[1]);
  b.set(getTable(), {row, column});
  b.set(getIndices(), picked);
  b.set(getResult(), join(picked, column));
  return b.take();
}

IterationSpace EmbeddingBackwardOp::getIterationSpace() {
  IterationBuilder b(*this);
  Exprs picked = b.addLoops(getIndices(), LoopKind::Sum);
  Exprs table = b.addLoops(getResult());
  b.set(getGradient(), join(picked, table[1]));
  b.set(getIndices(), picked);
  b.set(getResult(), table);
  return b.take();
}

//===----------------------------------------------------------------------===//
// Convolution, matmul, attention
//===----------------------------------------------------------------------===//

namespace {
/// Loops of a window that slides over spatial dimensions.
struct WindowLoops {
  Exprs at;     ///< of the smaller side: one for each position of the window
  Exprs inside; ///< of the window
  Exprs over;   ///< indices on the larger side
};
} // namespace

static WindowLoops addWindow(IterationBuilder &b, ArrayRef<int64_t> positions,
                             ArrayRef<int64_t> kernel, ArrayRef<int64_t> strides,
                             ArrayRef<int64_t> dilations, ArrayRef<int64_t> padding) {
  WindowLoops loops;
  loops.at = b.addLoops(positions);
  loops.inside = b.addLoops(kernel, LoopKind::Mix);
  for (auto [dim, at, inside] : llvm::enumerate(loops.at, loops.inside))
    loops.over.push_back(at * strides[dim] + inside * (dilations.empty() ? 1 : dilations[dim]) -
                         padding[dim]);
  return loops;
}

/// [N, C, spatial...] in the op's layout.
static Exprs arrange(AffineExpr sample, AffineExpr channel, ArrayRef<AffineExpr> spatial,
                     Layout layout) {
  return layout == Layout::ChannelsLast ? join({sample}, join(spatial, channel))
                                        : join({sample, channel}, spatial);
}

static ArrayRef<int64_t> getSpatial(Value value, Layout layout) {
  ArrayRef<int64_t> shape = shapeOf(value);
  return layout == Layout::ChannelsLast ? shape.drop_front().drop_back() : shape.drop_front(2);
}

/// `input` is the larger side, `output` the smaller one, whichever of the three the op makes.
template <typename OpType>
static IterationSpace getConvolutionSpace(OpType op, Value input, Value filter, Value output) {
  IterationBuilder b(op);
  Layout layout = op.getLayout();
  int64_t groups = op.getGroupsAttr().getInt();
  ArrayRef<int64_t> weight = shapeOf(filter);
  bool sumsSamples = op.getResult() == filter;
  AffineExpr sample =
      b.addLoop(shapeOf(input)[0], sumsSamples ? LoopKind::Sum : LoopKind::Parallel);
  AffineExpr to = b.addLoop(weight[0]), from = b.addLoop(weight[1]);
  WindowLoops window = addWindow(b, getSpatial(output, layout), weight.drop_front(2),
                                 op.getStrides(), op.getDilations(), op.getPaddingLow());
  AffineExpr inGroup = groups == 1 ? from : to.floorDiv(weight[0] / groups) * weight[1] + from;
  b.set(input, arrange(sample, inGroup, window.over, layout));
  b.set(output, arrange(sample, to, window.at, layout));
  b.set(filter, join({to, from}, window.inside));
  return b.take();
}

IterationSpace ConvolutionOp::getIterationSpace() {
  return getConvolutionSpace(*this, getInput(), getFilter(), getResult());
}
IterationSpace ConvolutionBackwardDataOp::getIterationSpace() {
  return getConvolutionSpace(*this, getResult(), getFilter(), getGradient());
}
IterationSpace ConvolutionBackwardWeightsOp::getIterationSpace() {
  return getConvolutionSpace(*this, getInput(), getResult(), getGradient());
}

IterationSpace MatmulOp::getIterationSpace() {
  IterationBuilder b(*this);
  ArrayRef<int64_t> shape = shapeOf(getResult()), a = shapeOf(getA());
  Exprs batch = b.addLoops(shape.drop_back(2));
  AffineExpr m = b.addLoop(shape[shape.size() - 2]), n = b.addLoop(shape.back());
  AffineExpr k = b.addLoop(getTransposeA() ? a[a.size() - 2] : a.back(), LoopKind::Sum);
  b.setOperand(0, join(batch, getTransposeA() ? Exprs{k, m} : Exprs{m, k}));
  b.setOperand(1, join(batch, getTransposeB() ? Exprs{n, k} : Exprs{k, n}));
  b.setResult(0, join(batch, {m, n}));
  return b.take();
}

namespace {
/// Loops over the scores of attention.
struct AttentionLoops {
  AffineExpr sample, head, group, query, key, feature, value;
};
} // namespace

/// A mask broadcasts to [B, H, T, S] with sizes 1.
static Exprs getMaskExprs(Value mask, const AttentionLoops &l) {
  Exprs scores{l.sample, l.head, l.query, l.key}, read;
  ArrayRef<int64_t> shape = shapeOf(mask);
  for (auto [dim, size] : llvm::enumerate(shape))
    read.push_back(size == 1 ? getAffineConstantExpr(0, mask.getContext())
                             : scores[4 - shape.size() + dim]);
  return read;
}

template <typename OpType>
static AttentionLoops addAttention(IterationBuilder &b, OpType op, bool sumsSamples = false) {
  ArrayRef<int64_t> query = shapeOf(op.getQuery()), key = shapeOf(op.getKey());
  AttentionLoops l;
  // The gradient of a mask that all samples share is a sum over them.
  l.sample = b.addLoop(query[0], sumsSamples ? LoopKind::Sum : LoopKind::Parallel);
  l.head = b.addLoop(query[1]);
  l.group = query[1] == key[1] ? l.head : l.head.floorDiv(query[1] / key[1]);
  l.query = b.addLoop(query[2], LoopKind::Mix);
  l.key = b.addLoop(key[2], LoopKind::Mix);
  l.feature = b.addLoop(query[3], LoopKind::Mix);
  l.value = b.addLoop(shapeOf(op.getValue())[3], LoopKind::Mix);
  b.set(op.getQuery(), {l.sample, l.head, l.query, l.feature});
  b.set(op.getKey(), {l.sample, l.group, l.key, l.feature});
  b.set(op.getValue(), {l.sample, l.group, l.key, l.value});
  if (Value mask = op.getMask())
    b.set(mask, getMaskExprs(mask, l));
  return l;
}

IterationSpace AttentionOp::getIterationSpace() {
  IterationBuilder b(*this);
  AttentionLoops l = addAttention(b, *this);
  b.set(getResult(), {l.sample, l.head, l.query, l.value});
  b.set(getLogsumexp(), {l.sample, l.head, l.query});
  return b.take();
}

IterationSpace AttentionBackwardOp::getIterationSpace() {
  IterationBuilder b(*this);
  Value maskGradient = getMaskGradient();
  bool isShared =
      maskGradient && (shapeOf(maskGradient).size() < 4 || shapeOf(maskGradient)[0] == 1);
  AttentionLoops l = addAttention(b, *this, isShared);
  if (maskGradient)
    b.set(maskGradient, getMaskExprs(maskGradient, l));
  Exprs output{l.sample, l.head, l.query, l.value};
  b.set(getOutput(), output);
  b.set(getGradient(), output);
  b.set(getLogsumexp(), {l.sample, l.head, l.query});
  b.set(getQueryGradient(), {l.sample, l.head, l.query, l.feature});
  b.set(getKeyGradient(), {l.sample, l.group, l.key, l.feature});
  b.set(getValueGradient(), {l.sample, l.group, l.key, l.value});
  return b.take();
}

//===----------------------------------------------------------------------===//
// Activations, normalization, softmax
//===----------------------------------------------------------------------===//

IterationSpace CheckOp::getIterationSpace() { return getElementwiseSpace(*this); }
IterationSpace ReluOp::getIterationSpace() { return getElementwiseSpace(*this); }
IterationSpace SigmoidOp::getIterationSpace() { return getElementwiseSpace(*this); }
IterationSpace SoftplusOp::getIterationSpace() { return getElementwiseSpace(*this); }

/// Loops over all dimensions, those other than the channels' of one kind.
static std::pair<Exprs, AffineExpr> addChannels(IterationBuilder &b, Value input, int64_t axis,
                                                LoopKind others) {
  Exprs loops;
  for (auto [dim, size] : llvm::enumerate(shapeOf(input)))
    loops.push_back(
        b.addLoop(size, static_cast<int64_t>(dim) == axis ? LoopKind::Parallel : others));
  AffineExpr channel = loops[axis];
  return {std::move(loops), channel};
}

IterationSpace BatchNormOp::getIterationSpace() {
  IterationBuilder b(*this);
  auto [loops, channel] = addChannels(b, getInput(), getAxisAttr().getInt(), LoopKind::Statistic);
  b.set(getInput(), loops);
  b.set(getResult(), loops);
  for (Value value : {getScale(), getOffset(), getMean(), getVariance()})
    b.set(value, channel);
  return b.take();
}

IterationSpace BatchNormBackwardOp::getIterationSpace() {
  IterationBuilder b(*this);
  auto [loops, channel] = addChannels(b, getInput(), getAxisAttr().getInt(), LoopKind::Sum);
  b.set(getGradient(), loops);
  b.set(getInput(), loops);
  b.set(getInputGradient(), loops);
  for (Value value :
       {getScale(), getMean(), getVariance(), getScaleGradient(), getOffsetGradient()})
    b.set(value, channel);
  return b.take();
}

namespace {
/// A norm over the last dimensions: rows, and what each row mixes.
struct RowLoops {
  Exprs rows, inside, outside;
  Exprs getRead() const { return join(rows, inside); }
  Exprs getWritten() const { return join(rows, outside); }
};
} // namespace

static RowLoops addRows(IterationBuilder &b, Value input, int64_t begin,
                        LoopKind rows = LoopKind::Parallel) {
  ArrayRef<int64_t> shape = shapeOf(input);
  RowLoops loops;
  loops.rows = b.addLoops(shape.take_front(begin), rows);
  loops.inside = b.addLoops(shape.drop_front(begin), LoopKind::Mix);
  loops.outside = b.addLoops(shape.drop_front(begin));
  return loops;
}

IterationSpace LayerNormOp::getIterationSpace() {
  IterationBuilder b(*this);
  RowLoops loops = addRows(b, getInput(), getBegin());
  b.set(getInput(), loops.getRead());
  b.set(getScale(), loops.outside);
  b.set(getOffset(), loops.outside);
  b.set(getResult(), loops.getWritten());
  b.set(getMean(), loops.rows);
  b.set(getInverseDeviation(), loops.rows);
  return b.take();
}

IterationSpace LayerNormBackwardOp::getIterationSpace() {
  IterationBuilder b(*this);
  RowLoops loops = addRows(b, getInput(), getBegin(), LoopKind::Sum);
  b.set(getGradient(), loops.getRead());
  b.set(getInput(), loops.getRead());
  b.set(getScale(), loops.inside);
  b.set(getMean(), loops.rows);
  b.set(getInverseDeviation(), loops.rows);
  b.set(getInputGradient(), loops.getWritten());
  b.set(getScaleGradient(), loops.outside);
  b.set(getOffsetGradient(), loops.outside);
  return b.take();
}

IterationSpace RmsNormOp::getIterationSpace() {
  IterationBuilder b(*this);
  RowLoops loops = addRows(b, getInput(), getBegin());
  b.set(getInput(), loops.getRead());
  b.set(getScale(), loops.outside);
  b.set(getResult(), loops.getWritten());
  return b.take();
}

IterationSpace GroupNormOp::getIterationSpace() {
  IterationBuilder b(*this);
  RowLoops loops = addRows(b, getInput(), /*begin=*/1);
  b.set(getInput(), loops.getRead());
  b.set(getResult(), loops.getWritten());
  AffineExpr channel =
      getLayout() == Layout::ChannelsLast ? loops.outside.back() : loops.outside.front();
  b.set(getScale(), channel);
  b.set(getOffset(), channel);
  AffineExpr group = b.addLoop(getGroupsAttr().getInt());
  b.set(getMean(), join(loops.rows, group));
  b.set(getInverseDeviation(), join(loops.rows, group));
  return b.take();
}

static IterationSpace getSoftmaxSpace(Operation *op, Value input, int64_t axis) {
  IterationBuilder b(op);
  Exprs written = b.addLoops(input), read = written;
  read[axis] = b.addLoop(shapeOf(input)[axis], LoopKind::Mix);
  b.setOperand(0, read);
  b.setResult(0, written);
  return b.take();
}
IterationSpace SoftmaxOp::getIterationSpace() {
  return getSoftmaxSpace(*this, getInput(), getAxisAttr().getInt());
}
IterationSpace LogSoftmaxOp::getIterationSpace() {
  return getSoftmaxSpace(*this, getInput(), getAxisAttr().getInt());
}

//===----------------------------------------------------------------------===//
// Losses
//===----------------------------------------------------------------------===//

IterationSpace CrossEntropyOp::getIterationSpace() {
  IterationBuilder b(*this);
  AffineExpr row = b.addLoop(shapeOf(getLogits())[0], LoopKind::Sum);
  AffineExpr column = b.addLoop(shapeOf(getLogits())[1], LoopKind::Mix);
  b.set(getLogits(), {row, column});
  b.set(getTargets(), row);
  b.set(getClassWeights(), column);
  b.set(getLargest(), row);
  b.set(getLogSum(), row);
  return b.take();
}

IterationSpace CrossEntropyBackwardOp::getIterationSpace() {
  IterationBuilder b(*this);
  Exprs loops = b.addLoops(getLogits());
  b.set(getLogits(), loops);
  b.set(getTargets(), loops[0]);
  b.set(getClassWeights(), loops[1]);
  b.set(getLargest(), loops[0]);
  b.set(getLogSum(), loops[0]);
  b.set(getResult(), loops);
  return b.take();
}

//===----------------------------------------------------------------------===//
// Pooling and interpolation
//===----------------------------------------------------------------------===//

template <typename OpType>
static IterationSpace getPoolSpace(OpType op, Value larger, ValueRange smaller,
                                   ArrayRef<int64_t> dilations) {
  IterationBuilder b(op);
  Layout layout = op.getLayout();
  ArrayRef<int64_t> shape = shapeOf(larger);
  AffineExpr sample = b.addLoop(shape[0]);
  AffineExpr channel = b.addLoop(layout == Layout::ChannelsLast ? shape.back() : shape[1]);
  WindowLoops window = addWindow(b, getSpatial(smaller.front(), layout), op.getKernel(),
                                 op.getStrides(), dilations, op.getPaddingLow());
  b.set(larger, arrange(sample, channel, window.over, layout));
  for (Value value : smaller)
    b.set(value, arrange(sample, channel, window.at, layout));
  return b.take();
}

IterationSpace MaxPoolOp::getIterationSpace() {
  return getPoolSpace(*this, getInput(), getResults(), getDilations());
}
IterationSpace MaxPoolBackwardOp::getIterationSpace() {
  return getPoolSpace(*this, getResult(), getOperands(), getDilations());
}
IterationSpace AvgPoolOp::getIterationSpace() {
  return getPoolSpace(*this, getInput(), getResult(), {});
}
IterationSpace AvgPoolBackwardOp::getIterationSpace() {
  return getPoolSpace(*this, getResult(), getGradient(), {});
}

/// Which elements are read follows from scales that are no integers.
static IterationSpace getInterpolationSpace(Operation *op, Layout layout) {
  IterationBuilder b(op);
  Value input = op->getOperand(0), result = op->getResult(0);
  ArrayRef<int64_t> shape = shapeOf(input);
  AffineExpr sample = b.addLoop(shape[0]);
  AffineExpr channel = b.addLoop(layout == Layout::ChannelsLast ? shape.back() : shape[1]);
  Exprs read = b.addLoops(getSpatial(input, layout), LoopKind::Mix);
  Exprs written = b.addLoops(getSpatial(result, layout));
  b.setOperand(0, arrange(sample, channel, read, layout));
  b.setResult(0, arrange(sample, channel, written, layout));
  return b.take();
}
IterationSpace InterpolateOp::getIterationSpace() {
  return getInterpolationSpace(*this, getLayout());
}
IterationSpace InterpolateBackwardOp::getIterationSpace() {
  return getInterpolationSpace(*this, getLayout());
}

//===----------------------------------------------------------------------===//
// Training
//===----------------------------------------------------------------------===//

IterationSpace DropoutMaskOp::getIterationSpace() { return getElementwiseSpace(*this); }
IterationSpace AccumulateOp::getIterationSpace() { return getElementwiseSpace(*this); }

/// Whatever a rule of an optimizer does, no sample has a part in it.
static IterationSpace getMixedSpace(Operation *op) {
  IterationBuilder b(op);
  for (OpOperand &operand : op->getOpOperands())
    b.setOperand(operand.getOperandNumber(), b.addLoops(operand.get(), LoopKind::Mix));
  for (OpResult result : op->getResults())
    b.setResult(result.getResultNumber(), b.addLoops(result, LoopKind::Mix));
  return b.take();
}
IterationSpace OptimizerStepOp::getIterationSpace() { return getMixedSpace(*this); }
IterationSpace GlobalNormOp::getIterationSpace() { return getMixedSpace(*this); }
