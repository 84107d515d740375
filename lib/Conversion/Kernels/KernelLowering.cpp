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

#include "memopt-runtime/interface/ProgramInterface.h"
#include "memopt/Conversion/Core/Emission/KernelEmission.h"
#include "memopt/Conversion/Core/Graph/KernelArguments.h"
#include "memopt/Conversion/Core/Schedule/KernelAliasing.h"
#include "memopt/Conversion/Objects/ObjectEmission.h"
#include "memopt/Conversion/Threads/AttentionKernels.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/AsmState.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mlir::memopt;

/// Price, in scalar instructions, of the least piece that a thread should get.
static constexpr double kPieceCost = 20000;

bool mlir::memopt::hasChecks(KernelOp kernel) {
  return kernel.walk([](CheckOp) { return WalkResult::interrupt(); }).wasInterrupted();
}

/// Everything that two kernels must have in common to share a function.
static std::string getKey(KernelOp kernel, ArrayRef<int64_t> resultBuffers) {
  std::string key;
  llvm::raw_string_ostream os(key);
  AsmState state(kernel, OpPrintingFlags().useLocalScope());
  for (int64_t buffer : resultBuffers)
    os << buffer << " ";
  llvm::interleaveComma(kernel.getBody().getArgumentTypes(), os);
  for (Operation &op : kernel.getBody().front()) {
    os << "\n";
    op.print(os, state);
  }
  return key;
}

/// An empty function, at the end of `program`.
static LLVM::LLVMFuncOp addFunction(ModuleOp program, Location location, StringRef symbol,
                                    ArrayRef<Type> arguments, unsigned number) {
  OpBuilder builder = OpBuilder::atBlockEnd(program.getBody());
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(program.getContext()), arguments);
  auto function = LLVM::LLVMFuncOp::create(builder, location, symbol, type);
  function.setVisibility_(LLVM::Visibility::Hidden);
  function->setAttr(kKernelNumberAttr, builder.getI64IntegerAttr(number));
  return function;
}

/// So many pointers, and ids of random numbers behind them.
static SmallVector<Type> getArgumentTypes(MLIRContext *context, size_t pointers, size_t ids) {
  SmallVector<Type> types(pointers, LLVM::LLVMPointerType::get(context));
  types.append(ids, IntegerType::get(context, 64));
  return types;
}

/// A kernel of a device, of blocks of `threads`. So many `blocks` are to fit a multiprocessor with
/// their registers.
static LLVM::LLVMFuncOp addDeviceKernel(ModuleOp program, Location location, StringRef symbol,
                                        ArrayRef<Type> arguments, int64_t threads, unsigned number,
                                        int32_t blocks) {
  LLVM::LLVMFuncOp function = addFunction(program, location, symbol, arguments, number);
  Builder builder(program.getContext());
  function.setVisibility_(LLVM::Visibility::Default);
  function->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(), builder.getUnitAttr());
  function->setAttr(NVVM::NVVMDialect::getMaxntidAttrName(),
                    builder.getDenseI32ArrayAttr({static_cast<int32_t>(threads)}));
  function->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(), builder.getI32IntegerAttr(blocks));
  return function;
}

namespace {
class FunctionBuilder {
public:
  /// `ids`: how many the kernel takes.
  FunctionBuilder(ModuleOp program, KernelOp kernel, size_t ids, std::string name, unsigned number,
                  double serialCost)
      : program(program), kernel(kernel), name(std::move(name)), number(number),
        serialCost(serialCost), builder(OpBuilder::atBlockEnd(program.getBody())),
        location(kernel.getLoc()), pointer(LLVM::LLVMPointerType::get(program.getContext())),
        i64(builder.getI64Type()), none(LLVM::LLVMVoidType::get(program.getContext())),
        argumentTypes(getArgumentTypes(program.getContext(), getNumPointers(), ids)) {}

  void build(const ElementGraph &graph, const KernelSchedule &schedule,
             const ScheduleTarget &target) {
    SmallVector<LLVM::LLVMFuncOp> bodies;
    for (auto [i, stage] : llvm::enumerate(schedule.stages))
      bodies.push_back(buildBody(graph, stage, target, name + "_stage" + std::to_string(i)));
    SmallVector<Type> types{pointer};
    llvm::append_range(types, argumentTypes);
    auto function = addFunction(name, types);
    Block *entry = function.addEntryBlock(builder);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(entry);
    // Every argument has the size of a pointer.
    Value closure = LLVM::AllocaOp::create(builder, location, pointer, pointer,
                                           constant(static_cast<int64_t>(argumentTypes.size())));
    step = entry->getArgument(0);
    for (auto [i, argument] : llvm::enumerate(entry->getArguments().drop_front()))
      LLVM::StoreOp::create(builder, location, argument, getSlot(closure, i));
    for (auto [stage, body] : llvm::zip_equal(schedule.stages, bodies))
      launch(body, closure, countTrips(graph.getTable(), stage), stage.cost);
    LLVM::ReturnOp::create(builder, location, ValueRange{});
  }

  /// Kernels of a device, whose numbers go on from `next`.
  SmallVector<KernelLaunch> buildLaunches(const ElementGraph &graph, const KernelSchedule &schedule,
                                          const ScheduleTarget &target, ArrayRef<int64_t> aliases,
                                          unsigned next) {
    // As many threads as a multiprocessor holds; a thread goes on where there are more iterations.
    constexpr int64_t kThreadsOfSm = 2048;
    llvm::BitVector overOperand(aliases.size());
    for (auto [result, operand] : llvm::enumerate(aliases))
      overOperand[result] = operand >= 0;
    SmallVector<KernelLaunch> launches;
    for (auto [i, stage] : llvm::enumerate(schedule.stages)) {
      std::string symbol = name + "_stage" + std::to_string(i);
      buildDeviceKernel(graph, stage, target, symbol, overOperand);
      int64_t groups = stage.blockThreads / stage.groupThreads;
      int64_t wanted = llvm::divideCeil(countTrips(graph.getTable(), stage), groups);
      int64_t most = target.sms * (kThreadsOfSm / stage.blockThreads);
      launches.push_back(
          {symbol, next++, std::min(wanted, most), stage.blockThreads, /*sharedBytes=*/0});
    }
    return launches;
  }

private:
  /// Operands, results, and the word for reports if the kernel checks anything.
  unsigned getNumPointers() {
    return kernel.getNumOperands() + kernel.getNumResults() + (hasChecks(kernel) ? 1 : 0);
  }
  Value constant(int64_t value) {
    return LLVM::ConstantOp::create(builder, location, i64, builder.getI64IntegerAttr(value));
  }
  Value getSlot(Value base, int32_t index) {
    return LLVM::GEPOp::create(builder, location, pointer, pointer, base,
                               ArrayRef<LLVM::GEPArg>{index});
  }

  Value loadPointer(Value base, size_t bytes) {
    Value field = LLVM::GEPOp::create(builder, location, pointer, builder.getI8Type(), base,
                                      ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(bytes)});
    return LLVM::LoadOp::create(builder, location, pointer, field);
  }

  LLVM::LLVMFuncOp addFunction(StringRef symbol, ArrayRef<Type> arguments) {
    return ::addFunction(program, location, symbol, arguments, number);
  }

  /// body(closure, begin, end)
  LLVM::LLVMFuncOp buildBody(const ElementGraph &graph, const KernelStage &stage,
                             const ScheduleTarget &target, StringRef symbol) {
    auto function = addFunction(symbol, {pointer, i64, i64});
    OpBuilder::InsertionGuard guard(builder);
    Block *entry = function.addEntryBlock(builder);
    builder.setInsertionPointToStart(entry);
    SmallVector<Value> arguments;
    for (auto [i, type] : llvm::enumerate(argumentTypes))
      arguments.push_back(
          LLVM::LoadOp::create(builder, location, type, getSlot(entry->getArgument(0), i)));
    emitStage(graph, stage, target, arguments, [&](StageEmitter &emitter) {
      emitter.emit(entry->getArgument(1), entry->getArgument(2));
    });
    return function;
  }

  void buildDeviceKernel(const ElementGraph &graph, const KernelStage &stage,
                         const ScheduleTarget &target, StringRef symbol,
                         const llvm::BitVector &overOperand) {
    // ptxas is not to spill registers so that more blocks fit a multiprocessor.
    auto function =
        addDeviceKernel(program, location, symbol, argumentTypes, stage.blockThreads, number,
                        /*blocks=*/1);
    OpBuilder::InsertionGuard guard(builder);
    Block *entry = function.addEntryBlock(builder);
    builder.setInsertionPointToStart(entry);
    SmallVector<Value> arguments(entry->getArguments());
    emitStage(graph, stage, target, arguments,
              [&](StageEmitter &emitter) { emitter.emitOnDevice(overOperand); });
  }

  /// The rest of a function that has `arguments`.
  void emitStage(const ElementGraph &graph, const KernelStage &stage, const ScheduleTarget &target,
                 ArrayRef<Value> arguments, llvm::function_ref<void(StageEmitter &)> emit) {
    unsigned numOperands = kernel.getNumOperands(), numResults = kernel.getNumResults();
    ArrayRef<Value> ids = arguments.drop_front(getNumPointers());
    SmallVector<Value> buffers(arguments.take_front(numOperands));
    ArrayRef<Value> results = arguments.slice(numOperands, numResults);
    ArrayRef<Value> faults = arguments.drop_back(ids.size()).drop_front(numOperands + numResults);
    for (DenseElementsAttr values : graph.getConstantBuffers())
      buffers.push_back(addConstant(values));
    StageEmitter emitter(builder, location, graph, stage, target, buffers, results,
                         faults.empty() ? Value() : faults.front(), ids);
    emit(emitter);
    LLVM::ReturnOp::create(builder, location, ValueRange{});
  }

  Value addConstant(DenseElementsAttr values) {
    if (values.getElementType().isInteger(1))
      values = values.mapValues(builder.getI8Type(), [](const APInt &bit) { return bit.zext(8); });
    auto flat = RankedTensorType::get(values.getNumElements(), values.getElementType());
    std::string symbol = name + "_constant" + std::to_string(numConstants++);
    {
      OpBuilder::InsertionGuard guard(builder);
      builder.setInsertionPointToStart(program.getBody());
      auto type = LLVM::LLVMArrayType::get(values.getElementType(), values.getNumElements());
      auto global = LLVM::GlobalOp::create(builder, location, type, /*isConstant=*/true,
                                           LLVM::Linkage::Internal, symbol, values.reshape(flat),
                                           /*alignment=*/64);
      global->setAttr(kKernelNumberAttr, builder.getI64IntegerAttr(number));
    }
    return LLVM::AddressOfOp::create(builder, location, pointer, symbol);
  }

  void launch(LLVM::LLVMFuncOp body, Value closure, int64_t trips, double cost) {
    if (trips == 1 || cost < serialCost) {
      LLVM::CallOp::create(builder, location, body,
                           ValueRange{closure, constant(0), constant(trips)});
      return;
    }
    Value session = loadPointer(step, offsetof(memopt_step, session));
    Value table = loadPointer(step, offsetof(memopt_step, runtime));
    Value parallelFor = loadPointer(table, offsetof(memopt_runtime_functions, parallel_for));
    Value function = LLVM::AddressOfOp::create(builder, location, body);
    double grain = std::max(1.0, std::ceil(kPieceCost / (cost / double(trips))));
    auto type = LLVM::LLVMFunctionType::get(none, {pointer, i64, i64, pointer, pointer});
    LLVM::CallOp::create(builder, location, type,
                         ValueRange{parallelFor, session, constant(trips), constant(int64_t(grain)),
                                    function, closure});
  }

  ModuleOp program;
  KernelOp kernel;
  std::string name;
  unsigned number, numConstants = 0;
  double serialCost;
  OpBuilder builder;
  Location location;
  Type pointer, i64, none;
  SmallVector<Type> argumentTypes; ///< without the step
  Value step;                      ///< the entry's first argument
};
} // namespace

static FailureOr<KernelSchedule> chooseSchedule(ElementGraph &graph, KernelOp kernel,
                                                const ScheduleTarget &target,
                                                ArrayRef<int64_t> aliases) {
  Operation *yield = kernel.getYield();
  if (yield->getNumOperands() == 1)
    if (Operation *op = yield->getOperand(0).getDefiningOp();
        op && op->hasTrait<OpTrait::FillsKernel>())
      return scheduleIrregular(graph, op, target);
  return scheduleKernel(graph, yield, target, [&](KernelSchedule &candidate) {
    return !orderForAliases(graph, candidate, aliases);
  });
}

KernelLowering::KernelLowering(ModuleOp program, const KernelOptions &options)
    : program(program), options(options) {}

FailureOr<KernelFunction> KernelLowering::lower(KernelOp kernel, ArrayRef<int64_t> resultBuffers) {
  SmallVector<int64_t> aliases(resultBuffers);
  aliases.resize(kernel.getNumResults(), -1);
  // A copy, for the planned program is not to change.
  OwningOpRef<KernelOp> copy = cast<KernelOp>(kernel->clone());
  KernelFunction function;
  function.operandOffsets = moveSliceOffsets(*copy, aliases, options.sms ? kDeviceAlignment : 1);
  function.randomIds = moveRandomIds(*copy);
  FailureOr<LoweredBody> body = lowerBody(*copy, aliases, function.randomIds.size());
  if (failed(body))
    return failure();
  function.symbol = body->symbol;
  function.launches = body->launches;
  return function;
}

FailureOr<KernelLowering::LoweredBody>
KernelLowering::lowerBody(KernelOp kernel, ArrayRef<int64_t> aliases, size_t ids) {
  unsigned number = bodies.size();
  std::string name = "memopt_kernel_" + std::to_string(number);
  auto [entry, isNew] = bodies.try_emplace(getKey(kernel, aliases), LoweredBody{name, {}});
  if (!isNew)
    return entry->second;

  ScheduleTarget target;
  target.sms = options.sms;
  target.blockBytes = 4 * options.vectorBytes;
  target.isScalar = options.isReference;
  ElementGraph graph(kernel.getBody().front(), getLaneRules(target));
  FailureOr<KernelSchedule> schedule = chooseSchedule(graph, kernel, target, aliases);
  if (failed(schedule))
    return failure();
  if (std::optional<unsigned> result = orderForAliases(graph, *schedule, aliases))
    return kernel.emitError("result ") << *result << " would overwrite operand " << aliases[*result]
                                       << " while it is still read";
  if (options.scheduleOutput) {
    *options.scheduleOutput << "kernel " << name << "\n";
    schedule->print(graph, *options.scheduleOutput);
  }
  FunctionBuilder functions(program, kernel, ids, name, number, options.serialCost);
  if (!target.isDevice()) {
    functions.build(graph, *schedule, target);
    return entry->second;
  }
  entry->second.launches =
      functions.buildLaunches(graph, *schedule, target, aliases, deviceKernels.size());
  for (const KernelLaunch &launch : entry->second.launches)
    deviceKernels.push_back(launch.symbol);
  return entry->second;
}

//===----------------------------------------------------------------------===//
// Library calls
//===----------------------------------------------------------------------===//

FailureOr<KernelFunction> KernelLowering::lower(LibraryCallOp call) {
  auto attention = dyn_cast<AttentionAttr>(call.getCall());
  if (!attention || !options.sms)
    return call.emitOpError("is no call that kernels of a device compute");
  unsigned number = bodies.size();
  std::string name = "memopt_" + call.getCall().getKindName().str() + "_" + std::to_string(number);
  llvm::json::Object description = attention.toJson();
  if (llvm::json::Object *dropout = description.getObject("dropout"))
    dropout->erase("id");
  std::string key = llvm::formatv("{0} ", llvm::json::Value(std::move(description)));
  llvm::raw_string_ostream os(key);
  llvm::interleaveComma(call.getOperandOffsets(), os);
  auto [entry, isNew] = bodies.try_emplace(key, LoweredBody{name, {}});
  if (isNew)
    buildCall(call, attention, number, entry->second);
  KernelFunction function;
  function.symbol = entry->second.symbol;
  function.launches = entry->second.launches;
  function.operandOffsets.assign(call.getOperandOffsets().begin(), call.getOperandOffsets().end());
  if (attention.getDropout())
    function.randomIds = {attention.getId()};
  return function;
}

void KernelLowering::buildCall(LibraryCallOp call, AttentionAttr attention, unsigned number,
                               LoweredBody &body) {
  size_t count = call->getNumOperands() + call->getNumResults() + call.getWorkspaces().size();
  for (const AttentionKernel &kernel : listAttentionKernels(attention)) {
    std::string symbol = body.symbol + "_stage" + std::to_string(body.launches.size());
    // Two blocks hide each other's waits; most kernels can do with half of the registers.
    LLVM::LLVMFuncOp function = addDeviceKernel(
        program, call.getLoc(), symbol,
        getArgumentTypes(program.getContext(), count, attention.getDropout() ? 1 : 0),
        kernel.tiles.getThreads(), number, /*blocks=*/2);
    OpBuilder builder(function);
    Block *entry = function.addEntryBlock(builder);
    builder.setInsertionPointToEnd(entry);
    LLVM::ReturnOp end = LLVM::ReturnOp::create(builder, call.getLoc(), ValueRange{});
    builder.setInsertionPoint(end);
    ValueRange arguments = entry->getArguments();
    emitAttentionKernel(builder, call.getLoc(), attention, kernel,
                        {arguments.take_front(count), call.getOperandOffsets(),
                         attention.getDropout() ? arguments.back() : Value()});
    body.launches.push_back({symbol, static_cast<int64_t>(deviceKernels.size()), kernel.blocks,
                             kernel.tiles.getThreads(), kernel.tiles.sharedBytes});
    deviceKernels.push_back(symbol);
  }
}
