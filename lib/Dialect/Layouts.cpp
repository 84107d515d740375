//===- Layouts.cpp - ops that follow the order of dimensions ----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// LayoutOpInterface of this dialect's ops and of upstream's: which values lie in one order, and
// what to change when it is another.
//
//===----------------------------------------------------------------------===//

#include "UpstreamInterfaces.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::memopt;

/// Ties operands 0 to `operands` and results 0 to `results`.
static TiedValues tieFirst(Operation *op, unsigned operands, unsigned results) {
  TiedValues tied;
  for (OpOperand &operand : op->getOpOperands().take_front(operands))
    tied.operands.push_back(&operand);
  tied.results.assign(op->result_begin(), op->result_begin() + results);
  return tied;
}

/// For each dimension its place in memory.
static int64_t getPlace(ArrayRef<int64_t> order, int64_t dim) {
  return llvm::find(order, dim) - order.begin();
}

static SmallVector<int64_t> permute(ArrayRef<int64_t> values, ArrayRef<int64_t> order) {
  return llvm::map_to_vector(order, [&](int64_t dim) { return values[dim]; });
}

//===----------------------------------------------------------------------===//
// Ops that know channels-first and channels-last
//===----------------------------------------------------------------------===//

/// One that is channels-last already stays as it is.
template <typename OpType>
static TiedValues tieWindow(OpType op, unsigned operands, unsigned results) {
  if (op.getLayout() == Layout::ChannelsLast)
    return {};
  TiedValues tied = tieFirst(op, operands, results);
  tied.hasLayoutAttribute = true;
  return tied;
}

template <typename OpType>
static TiedValues tieConvolution(OpType op, unsigned operands, unsigned results) {
  TiedValues tied = tieWindow(op, operands, results);
  tied.prefersChannelsLast = !tied.operands.empty();
  return tied;
}

#define WINDOW(OP, TIED)                                                                           \
  TiedValues OP::getTiedValues() { return TIED; }                                                  \
  void OP::permuteDimensions(ArrayRef<int64_t>) { setLayout(Layout::ChannelsLast); }

WINDOW(ConvolutionOp, tieConvolution(*this, 1, 1))
WINDOW(ConvolutionBackwardDataOp, tieConvolution(*this, 1, 1))
WINDOW(ConvolutionBackwardWeightsOp, tieConvolution(*this, 2, 0))
WINDOW(MaxPoolOp, tieWindow(*this, 1, 2))
WINDOW(MaxPoolBackwardOp, tieWindow(*this, 2, 1))
WINDOW(AvgPoolOp, tieWindow(*this, 1, 1))
WINDOW(AvgPoolBackwardOp, tieWindow(*this, 1, 1))
WINDOW(InterpolateOp, tieWindow(*this, 1, 1))
WINDOW(InterpolateBackwardOp, tieWindow(*this, 1, 1))
WINDOW(GroupNormOp, tieWindow(*this, 1, 1))
#undef WINDOW

//===----------------------------------------------------------------------===//
// Ops that work along an axis
//===----------------------------------------------------------------------===//

#define ALONG_AXIS(OP, OPERANDS)                                                                   \
  TiedValues OP::getTiedValues() { return tieFirst(*this, OPERANDS, 1); }                          \
  void OP::permuteDimensions(ArrayRef<int64_t> order) { setAxis(getPlace(order, getAxis())); }

ALONG_AXIS(BatchNormOp, 1)
ALONG_AXIS(BatchNormBackwardOp, 2)
ALONG_AXIS(SoftmaxOp, 1)
ALONG_AXIS(LogSoftmaxOp, 1)
#undef ALONG_AXIS

//===----------------------------------------------------------------------===//
// Others
//===----------------------------------------------------------------------===//

TiedValues ReluOp::getTiedValues() { return tieFirst(*this, 1, 1); }
TiedValues SigmoidOp::getTiedValues() { return tieFirst(*this, 1, 1); }
TiedValues SoftplusOp::getTiedValues() { return tieFirst(*this, 1, 1); }
TiedValues AccumulateOp::getTiedValues() { return tieFirst(*this, 2, 1); }

TiedValues PadOp::getTiedValues() { return tieFirst(*this, 1, 1); }
void PadOp::permuteDimensions(ArrayRef<int64_t> order) {
  setLow(permute(getLow(), order));
  setHigh(permute(getHigh(), order));
}

namespace {
struct ConcatLayout : LayoutOpInterface::ExternalModel<ConcatLayout, tensor::ConcatOp> {
  TiedValues getTiedValues(Operation *op) const { return tieFirst(op, op->getNumOperands(), 1); }
  void permuteDimensions(Operation *op, ArrayRef<int64_t> order) const {
    auto concat = cast<tensor::ConcatOp>(op);
    concat.setDim(getPlace(order, concat.getDim()));
  }
};

struct SliceLayout : LayoutOpInterface::ExternalModel<SliceLayout, tensor::ExtractSliceOp> {
  TiedValues getTiedValues(Operation *op) const {
    auto slice = cast<tensor::ExtractSliceOp>(op);
    bool isPlain =
        op->getNumOperands() == 1 && slice.getSourceType().getRank() == slice.getType().getRank();
    return isPlain ? tieFirst(op, 1, 1) : TiedValues();
  }
  void permuteDimensions(Operation *op, ArrayRef<int64_t> order) const {
    auto slice = cast<tensor::ExtractSliceOp>(op);
    slice.setStaticOffsets(permute(slice.getStaticOffsets(), order));
    slice.setStaticSizes(permute(slice.getStaticSizes(), order));
    slice.setStaticStrides(permute(slice.getStaticStrides(), order));
  }
};
} // namespace

void memopt::attachUpstreamLayouts(MLIRContext *context) {
  tensor::ConcatOp::attachInterface<ConcatLayout>(*context);
  tensor::ExtractSliceOp::attachInterface<SliceLayout>(*context);
}
