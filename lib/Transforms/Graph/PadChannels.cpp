//===- PadChannels.cpp - channels that tensor cores take --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For devices. cuDNN feeds tensor cores with eight channels of 16 bits at a time, and has no fast
// deterministic engine for the gradient of a filter that reads fewer, as the first convolution of a
// network for images does: on an H100 that of ResNet-50's stem (256 images, bf16) took 472 ms of a
// step of 560. So input and filter get channels of zeros. What the filter's gradient has there is
// left out, for a pad's gradient is a slice.
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Memopt.h"
#include "memopt/Transforms/Passes.h"
#include "memopt/Transforms/Utils/TensorBuilders.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/Remarks.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_PADCHANNELSPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

/// Of 16 bits, what 16 bytes hold.
static constexpr int64_t kChannelsAtOnce = 8;

/// The channels that a convolution should have. An input that would become larger than the result
/// stays as it is.
static std::optional<int64_t> getPaddedChannels(ConvolutionOp op) {
  RankedTensorType input = tensorType(op.getInput());
  int64_t channels = input.getDimSize(1);
  auto padded = static_cast<int64_t>(llvm::alignTo(channels, kChannelsAtOnce));
  if (!input.getElementType().isIntOrFloat() || input.getElementTypeBitWidth() != 16 ||
      op.getGroups() != 1 || op.getLayout() != Layout::ChannelsFirst || padded == channels ||
      input.getNumElements() / channels * padded > tensorType(op.getResult()).getNumElements())
    return std::nullopt;
  return padded;
}

static Value padChannels(ImplicitLocOpBuilder &b, Value value, int64_t channels) {
  RankedTensorType type = tensorType(value);
  SmallVector<int64_t> shape(type.getShape()), low(shape.size(), 0), high(shape.size(), 0);
  high[1] = channels - shape[1];
  shape[1] = channels;
  return PadOp::create(b, type.clone(shape), value, low, high);
}

namespace {
struct PadChannelsPass : mlir::memopt::impl::PadChannelsPassBase<PadChannelsPass> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    if (!getTarget(function).isDevice())
      return;
    function.walk([&](ConvolutionOp op) {
      std::optional<int64_t> channels = getPaddedChannels(op);
      if (!channels)
        return;
      ImplicitLocOpBuilder b(op.getLoc(), op);
      op.getInputMutable().assign(padChannels(b, op.getInput(), *channels));
      op.getFilterMutable().assign(padChannels(b, op.getFilter(), *channels));
      remark::passed(op.getLoc(), remark::RemarkOpts::name("PadChannels")
                                      .category("memopt-pad-channels")
                                      .function(function.getName()))
          << remark::metric("PaddedBytes", getTensorBytes(tensorType(op.getInput())));
    });
  }
};
} // namespace
