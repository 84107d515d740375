//===- FormLibraryCalls.cpp - named ops to library calls --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Libraries/FormLibraryCalls.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::memopt;

LogicalResult mlir::memopt::formLibraryCalls(Block &block) {
  // Collected first: folding erases users that stand further down.
  SmallVector<Operation *> ops;
  VariableWrites writes;
  for (Operation &op : block) {
    if (auto write = dyn_cast<WriteOp>(op))
      writes[write.getVariableAttr()].push_back(write);
    if (op.hasTrait<OpTrait::ComputedByLibrary>() || op.hasTrait<OpTrait::ComputedInFull>())
      ops.push_back(&op);
  }
  for (Operation *op : ops) {
    LogicalResult formed =
        llvm::TypeSwitch<Operation *, LogicalResult>(op)
            .Case([&](MatmulOp matmul) { return formMatmulCall(matmul, writes); })
            .Case([&](ConvolutionBackwardWeightsOp weights) {
              return formConvolutionCall(weights, writes);
            })
            .Case<ConvolutionOp, ConvolutionBackwardDataOp>(
                [](auto convolution) { return formConvolutionCall(convolution); })
            .Case<AttentionOp, AttentionBackwardOp>(
                [](auto attention) { return formAttentionCall(attention); })
            .Case([](LinearAlgebraOp algebra) { return formLinearAlgebraCall(algebra); })
            .Default([](Operation *other) {
              return other->emitOpError("is computed by a library, but no call is known for it");
            });
    if (failed(formed))
      return failure();
  }
  return success();
}
