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

#include "../IR/UpstreamInterfaces.h"
#include "../IR/Verification.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"

using namespace mlir;
using namespace mlir::memopt;

/// Ties operands 0 to `operands` and results 0 to `results`.
static TiedValues tieFirst(Operation *op, unsigned operands, unsigned results) {
  TiedValues tied;
  for (OpOperand &operand : op->getOpOperands().take_front(operands))
    tied.operands.push_back(&operand);
  tied.results.assign(op->result_begin(), op->result_begin() + results);
  tied.shape.assign(tensorType(tied.operands.front()->get()).getShape());
  return tied;
}

/// Ties the operand and the result of an op on dimensions of size `shape`.
static TiedValues tieDims(Operation *op, ArrayRef<int64_t> shape, SmallVector<DimGroup> operand,
                          SmallVector<DimGroup> result) {
  TiedValues tied = tieFirst(op, 1, 1);
  tied.shape.assign(shape);
  tied.dims = {std::move(operand), std::move(result)};
  return tied;
}

/// Each of `dims` by itself.
template <typename Range> static SmallVector<DimGroup> getSingly(Range &&dims) {
  return llvm::map_to_vector(dims, [](int64_t dim) { return DimGroup{dim}; });
}

/// All dimensions of `value`, by themselves.
static SmallVector<DimGroup> getDims(Value value) {
  return getSingly(llvm::seq(tensorType(value).getRank()));
}

/// The place of a dimension in memory.
static int64_t getPlace(ArrayRef<int64_t> order, int64_t dim) {
  return llvm::find(order, dim) - order.begin();
}

/// Places in memory of a set of dimensions, increasing.
static SmallVector<int64_t> getPlaces(ArrayRef<int64_t> order, ArrayRef<int64_t> dims) {
  auto places = llvm::map_to_vector(dims, [&](int64_t dim) { return getPlace(order, dim); });
  llvm::sort(places);
  return places;
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
// Ops that add, drop and move dimensions
//===----------------------------------------------------------------------===//

TiedValues BroadcastOp::getTiedValues() {
  return tieDims(*this, getType().getShape(), getSingly(getDimensions()), getDims(getResult()));
}
void BroadcastOp::permuteDimensions(ArrayRef<int64_t> order) {
  setDimensions(getPlaces(order, getDimensions()));
}

TiedValues ReduceOp::getTiedValues() {
  auto kept =
      llvm::make_filter_range(llvm::seq(tensorType(getInput()).getRank()), [&](int64_t dim) {
        return !llvm::is_contained(getDimensions(), dim);
      });
  return tieDims(*this, tensorType(getInput()).getShape(), getDims(getInput()),
                 getSingly(llvm::to_vector(kept)));
}
void ReduceOp::permuteDimensions(ArrayRef<int64_t> order) {
  setDimensions(getPlaces(order, getDimensions()));
}

/// Free: the same bytes under other numbers.
TiedValues TransposeOp::getTiedValues() {
  TiedValues tied =
      tieDims(*this, getType().getShape(), getSingly(invertPermutationVector(getPermutation())),
              getDims(getResult()));
  tied.rearranges = true;
  return tied;
}

//===----------------------------------------------------------------------===//
// Others
//===----------------------------------------------------------------------===//

TiedValues ReluOp::getTiedValues() { return tieFirst(*this, 1, 1); }
TiedValues SigmoidOp::getTiedValues() { return tieFirst(*this, 1, 1); }
TiedValues SoftplusOp::getTiedValues() { return tieFirst(*this, 1, 1); }
TiedValues AccumulateOp::getTiedValues() { return tieFirst(*this, 2, 1); }

TiedValues PadOp::getTiedValues() { return tieFirst(*this, 1, 1); }
void PadOp::permuteDimensions(ArrayRef<int64_t> order) {
  setLow(applyPermutation(getLow(), order));
  setHigh(applyPermutation(getHigh(), order));
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
    slice.setStaticOffsets(applyPermutation(slice.getStaticOffsets(), order));
    slice.setStaticSizes(applyPermutation(slice.getStaticSizes(), order));
    slice.setStaticStrides(applyPermutation(slice.getStaticStrides(), order));
  }
};

/// The op's dimensions are those of the side that has more.
template <typename OpType>
struct ReshapeLayout : LayoutOpInterface::ExternalModel<ReshapeLayout<OpType>, OpType> {
  TiedValues getTiedValues(Operation *op) const {
    constexpr bool expands = std::is_same_v<OpType, tensor::ExpandShapeOp>;
    Value fine = expands ? op->getResult(0) : op->getOperand(0);
    SmallVector<DimGroup> groups = cast<OpType>(op).getReassociationIndices();
    TiedValues tied = tieDims(op, tensorType(fine).getShape(), expands ? groups : getDims(fine),
                              expands ? getDims(fine) : groups);
    tied.rearranges = true;
    return tied;
  }
};
} // namespace

void mlir::memopt::attachUpstreamLayouts(MLIRContext *context) {
  tensor::ConcatOp::attachInterface<ConcatLayout>(*context);
  tensor::ExtractSliceOp::attachInterface<SliceLayout>(*context);
  tensor::ExpandShapeOp::attachInterface<ReshapeLayout<tensor::ExpandShapeOp>>(*context);
  tensor::CollapseShapeOp::attachInterface<ReshapeLayout<tensor::CollapseShapeOp>>(*context);
}
