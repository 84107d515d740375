//===- HostEmitter.cpp - code of the step function --------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Made in the LLVM dialect directly, for nothing in it is left to decide.
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Host/HostEmitter.h"

#include "EntryPoints.h"

using namespace mlir;
using namespace mlir::memopt;

#include "memopt/Conversion/Host/HostInterfaces.cpp.inc"

HostEmitter::HostEmitter(func::FuncOp step, ModuleOp program, KernelFunctionFn lowerKernel,
                         const HostOptions &options)
    : step(step), program(program), lowerKernel(lowerKernel), options(options), graph(step),
      builder(OpBuilder::atBlockEnd(program.getBody())), location(step.getLoc()),
      pointer(LLVM::LLVMPointerType::get(program.getContext())) {}

//===----------------------------------------------------------------------===//
// The function
//===----------------------------------------------------------------------===//

LogicalResult HostEmitter::emitStep() {
  auto type = LLVM::LLVMFunctionType::get(builder.getI32Type(), {pointer});
  auto function = LLVM::LLVMFuncOp::create(builder, location,
                                           (EntryPoints::kStep + options.suffix).str(), type);
  OpBuilder::InsertionGuard guard(builder);
  openStep(function);
  if (failed(emitBlock(step.getBody().front())))
    return failure();
  reportInstruction(static_cast<int64_t>(graph.getInstructions().size()));
  Value done = LLVM::ConstantOp::create(builder, location, builder.getI32Type(),
                                        builder.getI32IntegerAttr(0));
  LLVM::ReturnOp::create(builder, location, done);
  return success();
}

/// At most so many has the function of an instruction: addresses, the word for reports, and ids of
/// random numbers.
static size_t countArguments(Operation *op) {
  size_t streams = isa<LibraryCallOp>(op) ? 1 : 0;
  op->walk([&](RandomWordOp) { ++streams; });
  return op->getNumOperands() + op->getNumResults() +
         cast<InstructionOpInterface>(op).getWorkspaces().size() + 1 + streams;
}

void HostEmitter::openStep(LLVM::LLVMFuncOp function) {
  Block *entry = function.addEntryBlock(builder);
  exit = builder.createBlock(&function.getBody(), function.getBody().end(), {builder.getI32Type()},
                             {location});
  LLVM::ReturnOp::create(builder, location, exit->getArgument(0));
  builder.setInsertionPointToStart(entry);
  frame = entry->getArgument(0);
  session = loadPointer(frame, offsetof(memopt_step, session));
  table = loadPointer(frame, offsetof(memopt_step, runtime));
  for (size_t space = 0; space < MEMOPT_SPACE_COUNT; ++space)
    arenas[space] = loadPointer(frame, offsetof(memopt_step, arena) + space * sizeof(char *));
  size_t most = 1;
  for (Operation *op : graph.getInstructions())
    most = std::max(most, countArguments(op));
  auto allocate = [&]() -> Value {
    return LLVM::AllocaOp::create(builder, location, pointer, pointer,
                                  createNumber(static_cast<int64_t>(most)));
  };
  pointerList = allocate();
  if (options.launchesKernels)
    parameterList = allocate();
}

LogicalResult HostEmitter::emitBlock(Block &block) {
  for (Operation &op : block)
    if (isInstruction(&op) && failed(emitInstruction(&op)))
      return failure();
  return success();
}

LogicalResult HostEmitter::emitInstruction(Operation *op) {
  auto emission = dyn_cast<HostInstructionOpInterface>(op);
  if (!emission)
    return op->emitOpError("does not say how it becomes host code");
  location = op->getLoc();
  reportInstruction(graph.getTime(op) - 1);
  return emission.emit(*this);
}

void HostEmitter::reportInstruction(int64_t index) {
  if (options.isInstrumented)
    callRuntime(offsetof(memopt_runtime_functions, begin_instruction), {createNumber(index)});
}

//===----------------------------------------------------------------------===//
// Numbers and addresses
//===----------------------------------------------------------------------===//

Value HostEmitter::createNumber(int64_t value) {
  return LLVM::ConstantOp::create(builder, location, builder.getI64Type(),
                                  builder.getI64IntegerAttr(value));
}

Value HostEmitter::createOffset(Value base, int64_t bytes) {
  return LLVM::GEPOp::create(builder, location, pointer, builder.getI8Type(), base,
                             ValueRange{createNumber(bytes)});
}

Value HostEmitter::loadPointer(Value base, int64_t bytes) {
  return LLVM::LoadOp::create(builder, location, pointer, createOffset(base, bytes));
}

static FailureOr<size_t> getArena(Operation *op, Type type) {
  auto space = static_cast<size_t>(getSpace(type));
  if (space >= MEMOPT_SPACE_COUNT)
    return op->emitOpError() << "reads or writes a value on the " << stringifySpace(getSpace(type))
                             << ", which has no address";
  return space;
}

FailureOr<Value> HostEmitter::createAddress(Value tensor) {
  Operation *op = tensor.getDefiningOp() ? tensor.getDefiningOp() : step.getOperation();
  FailureOr<int64_t> offset = graph.getOffset(tensor);
  if (failed(offset))
    return op->emitOpError() << "has a value of type " << tensor.getType()
                             << " without an offset: the program is not planned";
  FailureOr<size_t> arena = getArena(op, tensor.getType());
  if (failed(arena))
    return failure();
  return moveToSlices(createOffset(arenas[*arena], *offset), tensor);
}

/// The address of a value that iterations have slices of: that of the slices they are at.
Value HostEmitter::moveToSlices(Value address, Value tensor) {
  for (const SliceAddress &slice : getSliceAddresses(tensor)) {
    Value iteration = iterations.lookup(slice.scan);
    Value moved = LLVM::MulOp::create(builder, location, iteration, createNumber(slice.step));
    Value bytes = LLVM::AddOp::create(builder, location, moved, createNumber(slice.first));
    address = LLVM::GEPOp::create(builder, location, pointer, builder.getI8Type(), address,
                                  ValueRange{bytes});
  }
  return address;
}

FailureOr<SmallVector<Value>> HostEmitter::createAddresses(InstructionOpInterface instruction) {
  SmallVector<Value> tensors(instruction->getOperands());
  llvm::append_range(tensors, instruction->getResults());
  SmallVector<Value> addresses;
  for (Value tensor : tensors) {
    if (!isa<RankedTensorType>(tensor.getType()))
      continue;
    FailureOr<Value> address = createAddress(tensor);
    if (failed(address))
      return failure();
    addresses.push_back(*address);
  }
  SmallVector<Workspace> workspaces = instruction.getWorkspaces();
  if (workspaces.empty())
    return addresses;
  ArrayRef<int64_t> offsets = instruction.getOffsetsAttr().asArrayRef();
  for (auto [workspace, offset] : llvm::zip_equal(workspaces, offsets.take_back(workspaces.size())))
    addresses.push_back(createOffset(arenas[static_cast<size_t>(workspace.space)], offset));
  return addresses;
}

void HostEmitter::moveToElements(MutableArrayRef<Value> addresses, ValueRange tensors,
                                 ArrayRef<int64_t> elements) {
  for (auto [address, tensor, element] : llvm::zip(addresses, tensors, elements))
    if (element) {
      auto type = cast<RankedTensorType>(tensor.getType());
      address = createOffset(address, element * (getTensorBytes(type) / type.getNumElements()));
    }
}

Value HostEmitter::createPointerList(ArrayRef<Value> pointers) {
  for (auto [index, address] : llvm::enumerate(pointers))
    LLVM::StoreOp::create(builder, location, address, getSlot(pointerList, index));
  return pointerList;
}

Value HostEmitter::getSlot(Value list, size_t index) {
  return createOffset(list, static_cast<int64_t>(index * sizeof(void *)));
}

//===----------------------------------------------------------------------===//
// Calls and loops
//===----------------------------------------------------------------------===//

void HostEmitter::callRuntime(size_t field, ArrayRef<Value> arguments) {
  SmallVector<Value> all{loadPointer(table, static_cast<int64_t>(field)), session};
  llvm::append_range(all, arguments);
  SmallVector<Type> types(ValueRange(all).drop_front().getTypes());
  auto type = LLVM::LLVMFunctionType::get(builder.getI32Type(), types);
  leaveUnlessZero(LLVM::CallOp::create(builder, location, type, all).getResult());
}

void HostEmitter::leaveUnlessZero(Value code) {
  Block *next = builder.createBlock(exit); // before the exit block
  builder.setInsertionPointAfterValue(code);
  Value zero = LLVM::ConstantOp::create(builder, location, builder.getI32Type(),
                                        builder.getI32IntegerAttr(0));
  Value go = LLVM::ICmpOp::create(builder, location, LLVM::ICmpPredicate::eq, code, zero);
  LLVM::CondBrOp::create(builder, location, go, next, ValueRange{}, exit, ValueRange{code});
  builder.setInsertionPointToStart(next);
}

LogicalResult HostEmitter::callKernel(KernelOp kernel, ArrayRef<Value> buffers) {
  FailureOr<KernelFunction> function = lowerKernel(kernel);
  if (failed(function))
    return failure();
  SmallVector<Value> arguments(buffers);
  moveToElements(arguments, kernel.getInputs(), function->operandOffsets);
  if (hasChecks(kernel)) {
    FailureOr<Value> word = createFaultWord(kernel);
    if (failed(word))
      return failure();
    arguments.push_back(*word);
  }
  appendRandomIds(arguments, *function);
  if (options.launchesKernels) {
    launchKernels(*function, arguments);
    return success();
  }
  arguments.insert(arguments.begin(), frame);
  LLVM::CallOp::create(builder, location, TypeRange{}, function->symbol, arguments);
  return success();
}

LogicalResult HostEmitter::launchCall(LibraryCallOp call, ArrayRef<Value> buffers) {
  FailureOr<KernelFunction> function = lowerKernel(call);
  if (failed(function))
    return failure();
  SmallVector<Value> arguments(buffers);
  appendRandomIds(arguments, *function);
  launchKernels(*function, arguments);
  return success();
}

void HostEmitter::appendRandomIds(SmallVector<Value> &arguments, const KernelFunction &function) {
  for (int64_t id : function.randomIds)
    arguments.push_back(createNumber(id));
}

/// A launch takes the address of each parameter's value.
void HostEmitter::launchKernels(const KernelFunction &function, ArrayRef<Value> arguments) {
  Value values = createPointerList(arguments);
  for (size_t index = 0; index < arguments.size(); ++index)
    LLVM::StoreOp::create(builder, location, getSlot(values, index), getSlot(parameterList, index));
  auto number = [&](int64_t value) {
    return LLVM::ConstantOp::create(builder, location, builder.getI32Type(),
                                    builder.getI32IntegerAttr(static_cast<int32_t>(value)));
  };
  for (const KernelLaunch &launch : function.launches) {
    auto blocks = number(launch.blocks);
    blocks->setAttr(kBlocksOfLaunchAttr, builder.getI64IntegerAttr(launch.number));
    callRuntime(offsetof(memopt_runtime_functions, launch),
                {number(launch.number), blocks, number(launch.threads), number(launch.sharedBytes),
                 parameterList});
  }
}

FailureOr<Value> HostEmitter::createFaultWord(KernelOp kernel) {
  VariableOp variable = findIndexFault(kernel->getParentOfType<ModuleOp>());
  if (!variable || !variable.getOffset())
    return kernel.emitOpError("checks indices, but no planned variable has the role index_fault");
  return createOffset(arenas[static_cast<size_t>(variable.getPlacement())],
                      static_cast<int64_t>(*variable.getOffset()));
}

/// before -> head(i) -> body ... -> head(i + 1); head -> behind
LogicalResult HostEmitter::emitLoop(int64_t count, llvm::function_ref<LogicalResult(Value)> body) {
  Value zero = createNumber(0), one = createNumber(1), end = createNumber(count);
  Block *before = builder.getInsertionBlock();
  Block *head = builder.createBlock(exit, {builder.getI64Type()}, {location});
  Block *first = builder.createBlock(exit);
  builder.setInsertionPointToEnd(before);
  LLVM::BrOp::create(builder, location, zero, head);
  builder.setInsertionPointToStart(first);
  Value iteration = head->getArgument(0);
  if (failed(body(iteration)))
    return failure();
  Value next = LLVM::AddOp::create(builder, location, iteration, one);
  LLVM::BrOp::create(builder, location, next, head);
  Block *behind = builder.createBlock(exit);
  builder.setInsertionPointToStart(head);
  Value goes = LLVM::ICmpOp::create(builder, location, LLVM::ICmpPredicate::slt, iteration, end);
  LLVM::CondBrOp::create(builder, location, goes, first, ValueRange{}, behind, ValueRange{});
  builder.setInsertionPointToStart(behind);
  return success();
}
