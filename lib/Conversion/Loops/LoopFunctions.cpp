//===- LoopFunctions.cpp - kernels as functions of a processor -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Loops/LoopFunctions.h"

#include "memopt-runtime/interface/ProgramInterface.h"
#include "memopt/Conversion/Loops/LoopEmitter.h"

using namespace mlir;
using namespace mlir::memopt;

/// Price, in scalar instructions, of the least piece that a thread should get.
static constexpr double kPieceCost = 20000;

namespace {
class LoopFunctionBuilder {
public:
  LoopFunctionBuilder(KernelFunctionBuilder &functions, const ElementGraph &graph,
                      const LoopScheduleRules &rules)
      : functions(functions), graph(graph), rules(rules), builder(functions.builder),
        location(functions.location), pointer(functions.pointer), i64(functions.i64) {}

  /// body(closure, begin, end)
  LLVM::LLVMFuncOp buildBody(const KernelStage &stage, StringRef symbol);
  void buildFunction(const KernelSchedule &schedule, ArrayRef<LLVM::LLVMFuncOp> bodies,
                     double serialCost);

private:
  Value constant(int64_t value) { return functions.constant(value); }
  Value getSlot(Value base, int32_t index) {
    return LLVM::GEPOp::create(builder, location, pointer, pointer, base,
                               ArrayRef<LLVM::GEPArg>{index});
  }
  Value loadPointer(Value base, size_t bytes);
  void call(LLVM::LLVMFuncOp body, Value closure, int64_t trips);
  void callOnThreads(LLVM::LLVMFuncOp body, Value closure, int64_t trips, double cost);

  KernelFunctionBuilder &functions;
  const ElementGraph &graph;
  const LoopScheduleRules &rules;
  OpBuilder &builder;
  const Location location;
  const Type pointer, i64;
  Value step; ///< the entry's first argument
};
} // namespace

LLVM::LLVMFuncOp LoopFunctionBuilder::buildBody(const KernelStage &stage, StringRef symbol) {
  LLVM::LLVMFuncOp function = functions.add(symbol, {pointer, i64, i64});
  OpBuilder::InsertionGuard guard(builder);
  Block *entry = function.addEntryBlock(builder);
  builder.setInsertionPointToStart(entry);
  SmallVector<Value> values;
  for (auto [i, type] : llvm::enumerate(functions.getArgumentTypes()))
    values.push_back(
        LLVM::LoadOp::create(builder, location, type, getSlot(entry->getArgument(0), i)));
  StageArguments arguments = functions.getStageArguments(graph, values);
  NodeEmitter nodes(builder, location, graph, arguments, /*alignment=*/0);
  LoopEmitter(nodes, stage, rules).emit(entry->getArgument(1), entry->getArgument(2));
  LLVM::ReturnOp::create(builder, location, ValueRange{});
  return function;
}

Value LoopFunctionBuilder::loadPointer(Value base, size_t bytes) {
  Value field = LLVM::GEPOp::create(builder, location, pointer, builder.getI8Type(), base,
                                    ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(bytes)});
  return LLVM::LoadOp::create(builder, location, pointer, field);
}

void LoopFunctionBuilder::call(LLVM::LLVMFuncOp body, Value closure, int64_t trips) {
  LLVM::CallOp::create(builder, location, body, ValueRange{closure, constant(0), constant(trips)});
}

void LoopFunctionBuilder::callOnThreads(LLVM::LLVMFuncOp body, Value closure, int64_t trips,
                                        double cost) {
  Value session = loadPointer(step, offsetof(memopt_step, session));
  Value table = loadPointer(step, offsetof(memopt_step, runtime));
  Value parallelFor = loadPointer(table, offsetof(memopt_runtime_functions, parallel_for));
  Value function = LLVM::AddressOfOp::create(builder, location, body);
  double grain = std::max(1.0, std::ceil(kPieceCost / (cost / double(trips))));
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(builder.getContext()),
                                          {pointer, i64, i64, pointer, pointer});
  LLVM::CallOp::create(builder, location, type,
                       ValueRange{parallelFor, session, constant(trips), constant(int64_t(grain)),
                                  function, closure});
}

void LoopFunctionBuilder::buildFunction(const KernelSchedule &schedule,
                                        ArrayRef<LLVM::LLVMFuncOp> bodies, double serialCost) {
  SmallVector<Type> types{pointer};
  llvm::append_range(types, functions.getArgumentTypes());
  LLVM::LLVMFuncOp function = functions.add(functions.getName(), types);
  Block *entry = function.addEntryBlock(builder);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(entry);
  // Every argument has the size of a pointer.
  auto slots = static_cast<int64_t>(functions.getArgumentTypes().size());
  Value closure = LLVM::AllocaOp::create(builder, location, pointer, pointer, constant(slots));
  step = entry->getArgument(0);
  for (auto [i, argument] : llvm::enumerate(entry->getArguments().drop_front()))
    LLVM::StoreOp::create(builder, location, argument, getSlot(closure, i));
  for (auto [stage, body] : llvm::zip_equal(schedule.stages, bodies)) {
    int64_t trips = countTrips(graph.getTable(), stage);
    if (trips == 1 || stage.cost < serialCost)
      call(body, closure, trips);
    else
      callOnThreads(body, closure, trips, stage.cost);
  }
  LLVM::ReturnOp::create(builder, location, ValueRange{});
}

void mlir::memopt::buildLoopFunctions(KernelFunctionBuilder &functions, const ElementGraph &graph,
                                      const KernelSchedule &schedule,
                                      const LoopScheduleRules &rules, double serialCost) {
  LoopFunctionBuilder builder(functions, graph, rules);
  SmallVector<LLVM::LLVMFuncOp> bodies;
  for (auto [i, stage] : llvm::enumerate(schedule.stages))
    bodies.push_back(builder.buildBody(stage, functions.getStageName(i)));
  builder.buildFunction(schedule, bodies, serialCost);
}
