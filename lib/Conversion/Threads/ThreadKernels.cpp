//===- ThreadKernels.cpp - kernels as launches of a device -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Threads/ThreadKernels.h"

#include "memopt/Conversion/Threads/ThreadEmitter.h"

using namespace mlir;
using namespace mlir::memopt;

void mlir::memopt::fillThreadKernel(OpBuilder &builder, LLVM::LLVMFuncOp function,
                                    const DeviceOps &ops, int64_t threads, int32_t blocks,
                                    llvm::function_ref<void(ArrayRef<Value>)> emit) {
  function.setVisibility_(LLVM::Visibility::Default);
  ops.markKernel(function, threads, blocks);
  OpBuilder::InsertionGuard guard(builder);
  Block *entry = function.addEntryBlock(builder);
  builder.setInsertionPointToStart(entry);
  emit(SmallVector<Value>(entry->getArguments()));
}

SmallVector<KernelLaunch>
mlir::memopt::buildThreadKernels(KernelFunctionBuilder &functions, const DeviceOps &ops,
                                 const ElementGraph &graph, const KernelSchedule &schedule,
                                 const ThreadScheduleRules &rules, ArrayRef<int64_t> aliases,
                                 int64_t alignment, int64_t next) {
  const DeviceMachine &machine = rules.getMachine();
  llvm::BitVector overOperand(aliases.size());
  for (auto [result, operand] : llvm::enumerate(aliases))
    overOperand[result] = operand >= 0;
  SmallVector<KernelLaunch> launches;
  for (const KernelStage &stage : schedule.stages) {
    ThreadShape shape = rules.chooseThreads(graph, stage);
    std::string symbol = functions.getStageName(launches.size());
    LLVM::LLVMFuncOp function = functions.add(symbol, functions.getArgumentTypes());
    auto emitBody = [&](ArrayRef<Value> values) {
      StageArguments arguments = functions.getStageArguments(graph, values);
      NodeEmitter nodes(functions.builder, functions.location, graph, arguments, alignment);
      ThreadEmitter(nodes, ops, stage, shape, rules, overOperand).emit();
      LLVM::ReturnOp::create(functions.builder, functions.location, ValueRange{});
    };
    // The assembler is not to spill registers so that more blocks fit a multiprocessor.
    fillThreadKernel(functions.builder, function, ops, shape.block, /*blocks=*/1, emitBody);
    int64_t wanted =
        llvm::divideCeil(countTrips(graph.getTable(), stage, shape), shape.getGroupsOfBlock());
    // As many threads as a multiprocessor holds.
    int64_t most = machine.sms * (machine.threadsOfSm / shape.block);
    launches.push_back({symbol, next++, std::min(wanted, most), shape.block, /*sharedBytes=*/0,
                        /*isStrided=*/true});
  }
  return launches;
}
