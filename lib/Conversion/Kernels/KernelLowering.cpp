//===- KernelLowering.cpp - code of kernels -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// memopt.kernel -> @k(step, operands..., results..., faults, ids...): faults only where
// memopt.check may report, an id for each stream of random numbers. It stores its arguments to a
// closure and hands each stage's body @k_stage(closure, begin, end) to the parallel_for of the
// step's runtime; small stages are called directly.
//
// For a device each stage is a kernel of the device, @k_stage(operands..., results..., faults,
// ids...), and the host launches one after the other.
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Kernels/KernelLowering.h"

#include "memopt/Conversion/Core/Emission/KernelFunction.h"
#include "memopt/Conversion/Core/Schedule/KernelAliasing.h"
#include "memopt/Conversion/Loops/LoopFunctions.h"
#include "memopt/Conversion/Threads/Attention/AttentionLaunches.h"
#include "memopt/Conversion/Threads/ThreadKernels.h"
#include "memopt/Dialect/Kernels/KernelBody.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Kernels that share a function
//===----------------------------------------------------------------------===//

KernelLowering::LoweredKernel *KernelLowering::find(KernelOp kernel,
                                                    ArrayRef<int64_t> resultBuffers,
                                                    int64_t alignment, size_t hash) {
  for (const std::unique_ptr<LoweredKernel> &known : kernels[hash])
    if (ArrayRef(known->resultBuffers) == resultBuffers && known->alignment == alignment &&
        haveEqualBodies(*known->kernel, kernel))
      return known.get();
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

static FailureOr<KernelSchedule> chooseSchedule(ElementGraph &graph, KernelOp kernel,
                                                const ScheduleRules &rules,
                                                ArrayRef<int64_t> aliases) {
  Operation *yield = kernel.getYield();
  if (yield->getNumOperands() == 1)
    if (Operation *op = yield->getOperand(0).getDefiningOp();
        op && op->hasTrait<OpTrait::FillsKernel>())
      return scheduleIrregular(graph, op, rules);
  return scheduleKernel(graph, yield, rules, [&](KernelSchedule &candidate) {
    return !orderForAliases(graph, candidate, aliases);
  });
}

KernelLowering::KernelLowering(ModuleOp program, const KernelOptions &options)
    : program(program), options(options) {
  constexpr int64_t kVectorsOfBlock = 4;
  if (options.device)
    threadRules = std::make_unique<ThreadScheduleRules>(*options.device, options.isReference);
  else
    loopRules = std::make_unique<LoopScheduleRules>(kVectorsOfBlock * options.vectorBytes,
                                                    options.isReference);
  rules = loopRules ? static_cast<ScheduleRules *>(loopRules.get()) : threadRules.get();
}

KernelLowering::~KernelLowering() = default;

/// `bytes` where all buffers of a kernel begin at multiples of it, slices in all iterations too; else
/// 0: elements are all that is aligned.
static int64_t getAlignment(KernelOp kernel, int64_t bytes) {
  SmallVector<Value> buffers(kernel->getOperands());
  llvm::append_range(buffers, kernel->getResults());
  for (Value buffer : buffers)
    for (const SliceAddress &slice : getSliceAddresses(buffer))
      if (slice.first % bytes || slice.step % bytes)
        return 0;
  return bytes;
}

FailureOr<KernelFunction> KernelLowering::lower(KernelOp kernel, ArrayRef<int64_t> resultBuffers) {
  SmallVector<int64_t> aliases(resultBuffers);
  aliases.resize(kernel.getNumResults(), -1);
  // A copy, for the planned program is not to change.
  OwningOpRef<KernelOp> copy = cast<KernelOp>(kernel->clone());
  KernelFunction function;
  function.operandOffsets =
      moveSliceOffsets(*copy, aliases, options.device ? options.device->accessBytes : 1);
  function.randomIds = moveRandomIds(*copy);
  size_t hash = llvm::hash_combine(hashBody(*copy), llvm::hash_combine_range(aliases));
  int64_t alignment = options.device ? getAlignment(kernel, options.device->accessBytes) : 0;
  const LoweredKernel *known = find(*copy, aliases, alignment, hash);
  if (!known) {
    FailureOr<LoweredBody> body = lowerBody(*copy, aliases, alignment, function.randomIds.size());
    if (failed(body))
      return failure();
    known =
        kernels[hash]
            .emplace_back(new LoweredKernel{std::move(copy), aliases, alignment, std::move(*body)})
            .get();
    ++numFunctions;
  }
  function.symbol = known->body.symbol;
  function.launches = known->body.launches;
  return function;
}

FailureOr<KernelLowering::LoweredBody> KernelLowering::lowerBody(KernelOp kernel,
                                                                 ArrayRef<int64_t> aliases,
                                                                 int64_t alignment, size_t ids) {
  unsigned number = numFunctions;
  LoweredBody body{"memopt_kernel_" + std::to_string(number), {}};
  ElementGraph graph(kernel.getBody().front(), rules->getNumbers().sums);
  FailureOr<KernelSchedule> schedule = chooseSchedule(graph, kernel, *rules, aliases);
  if (failed(schedule))
    return failure();
  if (std::optional<unsigned> result = orderForAliases(graph, *schedule, aliases))
    return kernel.emitError("result ") << *result << " would overwrite operand " << aliases[*result]
                                       << " while it is still read";
  if (options.scheduleOutput)
    print(graph, *schedule, body.symbol);
  KernelFunctionBuilder functions(program, kernel, ids, body.symbol, number);
  if (loopRules)
    buildLoopFunctions(functions, graph, *schedule, *loopRules, options.serialCost);
  else
    addLaunches(body, buildThreadKernels(functions, *options.deviceOps, graph, *schedule,
                                         *threadRules, aliases, alignment, deviceKernels.size()));
  return body;
}

void KernelLowering::print(const ElementGraph &graph, const KernelSchedule &schedule,
                           StringRef name) {
  raw_ostream &os = *options.scheduleOutput;
  os << "kernel " << name << "\n";
  schedule.print(graph, os, [&](size_t stage) {
    if (!threadRules)
      return;
    ThreadShape shape = threadRules->chooseThreads(graph, schedule.stages[stage]);
    os << " threads=" << shape.group << "/" << shape.block;
  });
}

void KernelLowering::addLaunches(LoweredBody &body, SmallVector<KernelLaunch> launches) {
  llvm::append_range(deviceKernels, launches);
  body.launches = std::move(launches);
}

//===----------------------------------------------------------------------===//
// Library calls
//===----------------------------------------------------------------------===//

FailureOr<KernelFunction> KernelLowering::lower(LibraryCallOp call) {
  auto attention = dyn_cast<AttentionAttr>(call.getCall());
  if (!attention || !options.device)
    return call.emitOpError("is no call that kernels of a device compute");
  unsigned number = numFunctions;
  std::string name = "memopt_" + call.getCall().getKindName().str() + "_" + std::to_string(number);
  llvm::json::Object description = attention.toJson();
  if (llvm::json::Object *dropout = description.getObject("dropout"))
    dropout->erase("id");
  std::string key = llvm::formatv("{0} ", llvm::json::Value(std::move(description)));
  llvm::raw_string_ostream os(key);
  llvm::interleaveComma(call.getOperandOffsets(), os);
  auto [entry, isNew] = calls.try_emplace(key, LoweredBody{name, {}});
  if (isNew) {
    addLaunches(entry->second, buildAttentionKernels(program, call, attention, *options.deviceOps,
                                                     name, number, deviceKernels.size()));
    ++numFunctions;
  }
  KernelFunction function;
  function.symbol = entry->second.symbol;
  function.launches = entry->second.launches;
  function.operandOffsets.assign(call.getOperandOffsets().begin(), call.getOperandOffsets().end());
  if (attention.getDropout())
    function.randomIds = {attention.getId()};
  return function;
}
