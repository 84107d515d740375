//===- AttentionLaunches.cpp - attention as launches ----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Threads/Attention/AttentionLaunches.h"

#include "AttentionKernels.h"
#include "memopt/Conversion/Core/Emission/KernelFunction.h"
#include "memopt/Conversion/Threads/ThreadKernels.h"

using namespace mlir;
using namespace mlir::memopt;

SmallVector<KernelLaunch> mlir::memopt::buildAttentionKernels(ModuleOp program, LibraryCallOp call,
                                                              AttentionAttr attention,
                                                              const DeviceOps &ops,
                                                              StringRef symbol, unsigned number,
                                                              int64_t next) {
  OpBuilder builder(program.getContext());
  size_t count = call->getNumOperands() + call->getNumResults() + call.getWorkspaces().size();
  SmallVector<Type> types =
      getArgumentTypes(program.getContext(), count, attention.getDropout() ? 1 : 0);
  SmallVector<KernelLaunch> launches;
  for (const AttentionKernel &kernel :
       listAttentionKernels(attention, call.getOperandOffsets(), getTarget(call))) {
    std::string name = (symbol + "_stage").str() + std::to_string(launches.size());
    int64_t threads = kernel.getThreads();
    LLVM::LLVMFuncOp function = addKernelFunction(program, call.getLoc(), name, types, number);
    auto blocks = static_cast<int32_t>(kernel.getBlocksOfSm());
    fillThreadKernel(builder, function, ops, threads, blocks, [&](ArrayRef<Value> values) {
      LLVM::ReturnOp end = LLVM::ReturnOp::create(builder, call.getLoc(), ValueRange{});
      builder.setInsertionPoint(end);
      emitAttentionKernel(builder, call.getLoc(), attention, kernel,
                          {ops, values.take_front(count), call.getOperandOffsets(),
                           attention.getDropout() ? values.back() : Value()});
    });
    launches.push_back({name, next++, kernel.blocks, threads, kernel.getSharedBytes()});
  }
  return launches;
}
