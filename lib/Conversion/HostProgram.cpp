//===- HostProgram.cpp - the step function of a planned program -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The host code is a straight line: for each instruction call the kernel or the library with arena
// + constant for every buffer, and once, when the loss is there, ask the runtime whether to go on.
// It is made in the LLVM dialect directly, for nothing in it is left to decide.
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/HostProgram.h"

#include "memopt-runtime/ProgramInterface.h"

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
  HostBuilder(func::FuncOp step, ModuleOp program, KernelSymbolFn kernelSymbol,
              const HostOptions &options)
      : step(step), program(program), kernelSymbol(kernelSymbol), options(options), graph(step),
        callNumbers(numberLibraryCalls(graph)), builder(OpBuilder::atBlockEnd(program.getBody())),
        location(step.getLoc()), pointer(LLVM::LLVMPointerType::get(program.getContext())) {}

  LogicalResult build() {
    addVersion();
    return addStep();
  }

private:
  Value constant(Type type, int64_t value) {
    return LLVM::ConstantOp::create(builder, location, type, builder.getIntegerAttr(type, value));
  }
  Value number(int64_t value) { return constant(builder.getI64Type(), value); }
  Value offsetBy(Value base, int64_t bytes) {
    return LLVM::GEPOp::create(builder, location, pointer, builder.getI8Type(), base,
                               ValueRange{number(bytes)});
  }
  Value loadPointer(Value base, int64_t bytes) {
    return LLVM::LoadOp::create(builder, location, pointer, offsetBy(base, bytes));
  }

  void addVersion() {
    LLVM::GlobalOp::create(builder, location, builder.getI32Type(), /*isConstant=*/true,
                           LLVM::Linkage::External, EntryPoints::kVersion,
                           builder.getI32IntegerAttr(MEMOPT_PROGRAM_INTERFACE_VERSION));
  }

  LogicalResult addStep() {
    auto type = LLVM::LLVMFunctionType::get(builder.getI32Type(), {pointer});
    auto function = LLVM::LLVMFuncOp::create(builder, location, EntryPoints::kStep, type);
    OpBuilder::InsertionGuard guard(builder);
    openStep(function);
    int64_t commitTime = getCommitTime();
    if (commitTime == 0)
      callRuntime(offsetof(memopt_runtime_functions, commit), {});
    for (auto [index, op] : llvm::enumerate(graph.getInstructions())) {
      location = op->getLoc();
      reportInstruction(index);
      LogicalResult called =
          isa<KernelOp>(op) ? callKernel(cast<KernelOp>(op)) : callLibrary(cast<LibraryCallOp>(op));
      if (failed(called))
        return failure();
      if (graph.getTime(op) == commitTime)
        callRuntime(offsetof(memopt_runtime_functions, commit), {});
    }
    reportInstruction(static_cast<int64_t>(graph.getInstructions().size()));
    LLVM::ReturnOp::create(builder, location, constant(builder.getI32Type(), 0));
    return success();
  }

  /// The time of the instruction that makes the loss, 0 when it is there from the start, -1 when
  /// there is none.
  int64_t getCommitTime() {
    for (OpOperand &operand : step.getBody().front().getTerminator()->getOpOperands()) {
      auto role = step.getResultAttrOfType<StringAttr>(operand.getOperandNumber(),
                                                       MemoptDialect::kRoleAttr);
      if (role && role.getValue() == "loss") {
        Operation *op = getBufferRoot(operand.get()).getDefiningOp();
        return op && isInstruction(op) ? graph.getTime(op) : 0;
      }
    }
    return -1;
  }

  void openStep(LLVM::LLVMFuncOp function) {
    Block *entry = function.addEntryBlock(builder);
    exit = builder.createBlock(&function.getBody(), function.getBody().end(),
                               {builder.getI32Type()}, {location});
    LLVM::ReturnOp::create(builder, location, exit->getArgument(0));
    builder.setInsertionPointToStart(entry);
    frame = entry->getArgument(0);
    session = loadPointer(frame, offsetof(memopt_step, session));
    table = loadPointer(frame, offsetof(memopt_step, runtime));
    arena = loadPointer(frame, offsetof(memopt_step, arena) + MEMOPT_SPACE_DEVICE * sizeof(char *));
    size_t most = 1;
    for (Operation *op : graph.getInstructions())
      most = std::max<size_t>(most, op->getNumOperands() + op->getNumResults() + 1);
    pointers = LLVM::AllocaOp::create(builder, location, pointer, pointer,
                                      number(static_cast<int64_t>(most)));
  }

  void reportInstruction(int64_t index) {
    if (options.isInstrumented)
      callRuntime(offsetof(memopt_runtime_functions, begin_instruction), {number(index)});
  }

  /// Calls the function at `field` of the runtime's table with the session and `arguments`, and
  /// leaves the step when it does not answer 0.
  void callRuntime(size_t field, ArrayRef<Value> arguments) {
    SmallVector<Value> all{loadPointer(table, static_cast<int64_t>(field)), session};
    llvm::append_range(all, arguments);
    SmallVector<Type> types(ValueRange(all).drop_front().getTypes());
    auto type = LLVM::LLVMFunctionType::get(builder.getI32Type(), types);
    leaveUnlessZero(LLVM::CallOp::create(builder, location, type, all).getResult());
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
    buffers->insert(buffers->begin(), frame);
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
    if (call.getWorkspaceBytes() == 0)
      buffers->push_back(LLVM::ZeroOp::create(builder, location, pointer));
    for (auto [index, buffer] : llvm::enumerate(*buffers))
      LLVM::StoreOp::create(builder, location, buffer,
                            offsetBy(pointers, static_cast<int64_t>(index * sizeof(void *))));
    callRuntime(offsetof(memopt_runtime_functions, library_call),
                {number(callNumbers.lookup(call)), pointers});
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
    auto offsets = op->getAttrOfType<DenseI64ArrayAttr>(MemoptDialect::kOffsetsAttr);
    if (!offsets || offsets.size() < op->getNumResults())
      return op->emitOpError("has no offsets: the program is not planned");
    for (int64_t offset : offsets.asArrayRef())
      addresses.push_back(offsetBy(arena, offset));
    return addresses;
  }

  func::FuncOp step;
  ModuleOp program;
  KernelSymbolFn kernelSymbol;
  const HostOptions &options;
  KernelGraph graph;
  llvm::DenseMap<Operation *, int64_t> callNumbers;
  OpBuilder builder;
  Location location;
  LLVM::LLVMPointerType pointer;
  Value frame, session, table, arena, pointers;
  Block *exit = nullptr;
};
} // namespace

llvm::DenseMap<Operation *, int64_t> memopt::numberLibraryCalls(const KernelGraph &graph) {
  llvm::DenseMap<Operation *, int64_t> numbers;
  for (Operation *op : graph.getInstructions())
    if (isa<LibraryCallOp>(op))
      numbers.try_emplace(op, static_cast<int64_t>(numbers.size()));
  return numbers;
}

LogicalResult memopt::buildHostProgram(func::FuncOp step, ModuleOp program,
                                       KernelSymbolFn kernelSymbol, const HostOptions &options) {
  return HostBuilder(step, program, kernelSymbol, options).build();
}
