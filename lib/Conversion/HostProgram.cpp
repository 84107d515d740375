//===- HostProgram.cpp - the step function of a planned program -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The host code is a straight line: for each instruction ask the runtime whether to go on, then
// call the kernel or the library with arena + constant for every buffer. It is made in the LLVM
// dialect directly, for nothing in it is left to decide.
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/HostProgram.h"

#include "memopt-runtime/ProgramInterface.h"
#include "memopt/Analysis/KernelGraph.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// Symbols of the entry points, from the list that the runtime shares.
struct EntryPoints {
#define MEMOPT_ENTRY_POINT(NAME, SYMBOL) static constexpr llvm::StringLiteral k##NAME = SYMBOL;
#include "memopt-runtime/ProgramEntryPoints.def"
};

class HostBuilder {
public:
  HostBuilder(func::FuncOp step, ModuleOp program, KernelSymbolFn kernelSymbol)
      : step(step), program(program), kernelSymbol(kernelSymbol),
        builder(OpBuilder::atBlockEnd(program.getBody())), location(step.getLoc()),
        pointer(LLVM::LLVMPointerType::get(program.getContext())) {}

  LogicalResult build() {
    addTable();
    addVersion();
    addBind();
    return addStep();
  }

private:
  Value constant(Type type, int64_t value) {
    return LLVM::ConstantOp::create(builder, location, type, builder.getIntegerAttr(type, value));
  }
  Value offsetBy(Value base, int64_t bytes) {
    return LLVM::GEPOp::create(builder, location, pointer, builder.getI8Type(), base,
                               ValueRange{constant(builder.getI64Type(), bytes)});
  }
  Value loadPointer(Value base, int64_t bytes) {
    return LLVM::LoadOp::create(builder, location, pointer, offsetBy(base, bytes));
  }

  /// A pointer that bind sets; kernels read it too.
  void addTable() {
    if (program.lookupSymbol<LLVM::GlobalOp>(kRuntimeTableGlobal))
      return;
    auto global = LLVM::GlobalOp::create(builder, location, pointer, /*isConstant=*/false,
                                         LLVM::Linkage::Internal, kRuntimeTableGlobal, Attribute());
    OpBuilder::InsertionGuard guard(builder);
    builder.createBlock(&global.getInitializerRegion());
    Value null = LLVM::ZeroOp::create(builder, location, pointer);
    LLVM::ReturnOp::create(builder, location, null);
  }

  void addVersion() {
    LLVM::GlobalOp::create(builder, location, builder.getI32Type(), /*isConstant=*/true,
                           LLVM::Linkage::External, EntryPoints::kVersion,
                           builder.getI32IntegerAttr(MEMOPT_PROGRAM_INTERFACE_VERSION));
  }

  void addBind() {
    auto type =
        LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(program.getContext()), {pointer});
    auto function = LLVM::LLVMFuncOp::create(builder, location, EntryPoints::kBind, type);
    OpBuilder::InsertionGuard guard(builder);
    Block *entry = function.addEntryBlock(builder);
    builder.setInsertionPointToStart(entry);
    Value slot = LLVM::AddressOfOp::create(builder, location, pointer, kRuntimeTableGlobal);
    LLVM::StoreOp::create(builder, location, entry->getArgument(0), slot);
    LLVM::ReturnOp::create(builder, location, ValueRange{});
  }

  LogicalResult addStep() {
    KernelGraph graph(step);
    auto type = LLVM::LLVMFunctionType::get(builder.getI32Type(), {pointer});
    auto function = LLVM::LLVMFuncOp::create(builder, location, EntryPoints::kStep, type);
    OpBuilder::InsertionGuard guard(builder);
    openStep(function, graph);
    for (auto [index, op] : llvm::enumerate(graph.getInstructions())) {
      location = op->getLoc();
      leaveUnlessZero(
          callTable(beginInstruction, {session, constant(builder.getI64Type(), index)}));
      LogicalResult called =
          isa<KernelOp>(op) ? callKernel(cast<KernelOp>(op)) : callLibrary(cast<LibraryCallOp>(op));
      if (failed(called))
        return failure();
    }
    int64_t count = static_cast<int64_t>(graph.getInstructions().size());
    leaveUnlessZero(callTable(beginInstruction, {session, constant(builder.getI64Type(), count)}));
    LLVM::ReturnOp::create(builder, location, constant(builder.getI32Type(), 0));
    return success();
  }

  void openStep(LLVM::LLVMFuncOp function, const KernelGraph &graph) {
    Block *entry = function.addEntryBlock(builder);
    exit = builder.createBlock(&function.getBody(), function.getBody().end(),
                               {builder.getI32Type()}, {location});
    LLVM::ReturnOp::create(builder, location, exit->getArgument(0));
    builder.setInsertionPointToStart(entry);
    Value argument = entry->getArgument(0);
    session = loadPointer(argument, offsetof(memopt_step, session));
    arena = loadPointer(argument, offsetof(memopt_step, arena));
    Value slot = LLVM::AddressOfOp::create(builder, location, pointer, kRuntimeTableGlobal);
    Value table = LLVM::LoadOp::create(builder, location, pointer, slot);
    beginInstruction = loadPointer(table, offsetof(memopt_runtime_functions, begin_instruction));
    libraryCall = loadPointer(table, offsetof(memopt_runtime_functions, library_call));
    size_t most = 1;
    for (Operation *op : graph.getInstructions())
      most = std::max<size_t>(most, op->getNumOperands() + op->getNumResults() + 1);
    pointers = LLVM::AllocaOp::create(builder, location, pointer, pointer,
                                      constant(builder.getI64Type(), static_cast<int64_t>(most)));
  }

  /// Calls a function of the table that answers i32.
  Value callTable(Value callee, ArrayRef<Value> arguments) {
    SmallVector<Type> types(ValueRange(arguments).getTypes());
    auto type = LLVM::LLVMFunctionType::get(builder.getI32Type(), types);
    SmallVector<Value> all{callee};
    llvm::append_range(all, arguments);
    return LLVM::CallOp::create(builder, location, type, all).getResult();
  }

  void leaveUnlessZero(Value code) {
    Block *next = builder.createBlock(exit); // before the exit block
    builder.setInsertionPointAfterValue(code);
    Value zero = constant(builder.getI32Type(), 0);
    Value go = LLVM::ICmpOp::create(builder, location, LLVM::ICmpPredicate::eq, code, zero);
    LLVM::CondBrOp::create(builder, location, go, next, ValueRange{}, exit, ValueRange{code});
    builder.setInsertionPointToStart(next);
  }

  LogicalResult callKernel(KernelOp kernel) {
    FailureOr<std::string> symbol = kernelSymbol(kernel);
    if (failed(symbol))
      return failure();
    FailureOr<SmallVector<Value>> buffers = addressesOf(kernel);
    if (failed(buffers))
      return failure();
    LLVM::CallOp::create(builder, location, TypeRange{}, *symbol, *buffers);
    return success();
  }

  LogicalResult callLibrary(LibraryCallOp call) {
    FailureOr<SmallVector<Value>> buffers = addressesOf(call);
    if (failed(buffers))
      return failure();
    for (auto [operand, offset] : llvm::enumerate(call.getOperandOffsets()))
      if (offset) {
        auto type = cast<RankedTensorType>(call.getInputs()[operand].getType());
        (*buffers)[operand] =
            offsetBy((*buffers)[operand], offset * (getTensorBytes(type) / type.getNumElements()));
      }
    if (call.getWorkspaces().empty())
      buffers->push_back(LLVM::ZeroOp::create(builder, location, pointer));
    for (auto [index, buffer] : llvm::enumerate(*buffers))
      LLVM::StoreOp::create(builder, location, buffer,
                            offsetBy(pointers, static_cast<int64_t>(index * sizeof(void *))));
    if (!call.getNumber())
      return call.emitOpError("has no number: the program is not planned");
    Value number = constant(builder.getI64Type(), *call.getNumber());
    leaveUnlessZero(callTable(libraryCall, {session, number, pointers}));
    return success();
  }

  /// Operands, results, and the workspace if there is one.
  FailureOr<SmallVector<Value>> addressesOf(Operation *op) {
    SmallVector<Value> addresses;
    for (Value operand : op->getOperands()) {
      FailureOr<int64_t> offset = getPlannedOffset(operand);
      if (failed(offset))
        return op->emitOpError() << "has an operand of type " << operand.getType()
                                 << " without an offset";
      addresses.push_back(offsetBy(arena, *offset));
    }
    DenseI64ArrayAttr offsets = cast<InstructionOpInterface>(op).getOffsetsAttr();
    if (!offsets)
      return op->emitOpError("has no offsets: the program is not planned");
    for (int64_t offset : offsets.asArrayRef())
      addresses.push_back(offsetBy(arena, offset));
    return addresses;
  }

  func::FuncOp step;
  ModuleOp program;
  KernelSymbolFn kernelSymbol;
  OpBuilder builder;
  Location location;
  LLVM::LLVMPointerType pointer;
  Value session, arena, beginInstruction, libraryCall, pointers;
  Block *exit = nullptr;
};
} // namespace

LogicalResult memopt::buildHostProgram(func::FuncOp step, ModuleOp program,
                                       KernelSymbolFn kernelSymbol) {
  return HostBuilder(step, program, kernelSymbol).build();
}
