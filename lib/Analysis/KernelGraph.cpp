//===- KernelGraph.cpp - buffers and live ranges of a kernel graph -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Analysis/KernelGraph.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::memopt;

func::FuncOp memopt::getStepFunction(ModuleOp module) {
  auto functions = module.getOps<func::FuncOp>();
  for (func::FuncOp function : functions)
    if (function.isPublic() && !function.isDeclaration())
      return function;
  return nullptr;
}

bool memopt::isInstruction(Operation *op) { return isa<KernelOp, LibraryCallOp>(op); }

bool memopt::isReshape(Operation *op) {
  return isa_and_nonnull<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op);
}

Value memopt::getBufferRoot(Value value) {
  while (isReshape(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  return value;
}

StringRef memopt::getModulePath(Location location) {
  StringRef path;
  location->walk([&](Location inner) {
    auto name = dyn_cast<NameLoc>(inner);
    if (!name || name.getName().empty())
      return WalkResult::advance();
    path = name.getName();
    return WalkResult::interrupt();
  });
  return path;
}

FailureOr<int64_t> memopt::getPlannedOffset(Value value) {
  Value root = getBufferRoot(value);
  IntegerAttr offset;
  if (auto argument = dyn_cast<BlockArgument>(root)) {
    auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
    if (function)
      offset = function.getArgAttrOfType<IntegerAttr>(argument.getArgNumber(),
                                                      MemoptDialect::kOffsetAttr);
  } else if (auto read = root.getDefiningOp<ReadOp>()) {
    auto variable = SymbolTable::lookupNearestSymbolFrom<VariableOp>(read, read.getVariableAttr());
    offset = variable->getAttrOfType<IntegerAttr>(MemoptDialect::kOffsetAttr);
  } else if (auto offsets = root.getDefiningOp()->getAttrOfType<DenseI64ArrayAttr>(
                 MemoptDialect::kOffsetsAttr)) {
    return offsets[cast<OpResult>(root).getResultNumber()];
  }
  if (!offset)
    return failure();
  return offset.getInt();
}

std::string Buffer::describe() const {
  VariableOp variable = this->variable; // MLIR's handles have no const accessors
  Value value = this->value;
  std::string text;
  llvm::raw_string_ostream out(text);
  if (kind == Kind::Variable) {
    out << stringifyRole(variable.getRole()) << " " << variable.getSymName();
    return text;
  }
  if (kind == Kind::Input) {
    unsigned number = cast<BlockArgument>(value).getArgNumber();
    auto function = cast<func::FuncOp>(value.getParentBlock()->getParentOp());
    auto name = function.getArgAttrOfType<StringAttr>(number, MemoptDialect::kNameAttr);
    out << "input ";
    name ? out << name.getValue() : out << number;
    return text;
  }
  out << (kind == Kind::Workspace ? "workspace of " : "result of ");
  if (auto call = dyn_cast<LibraryCallOp>(op))
    out << call.getDescriptor().getAs<StringAttr>("kind").getValue();
  else
    out << "kernel";
  StringRef path = getModulePath(op->getLoc());
  if (!path.empty())
    out << " in " << path;
  if (kind == Kind::Result)
    out << " : " << value.getType();
  return text;
}

KernelGraph::KernelGraph(func::FuncOp function) {
  numberInstructions(function);
  addVariables(function);
  addInputsAndResults(function);
  extendToUses(function);
  bindWrites(function);
}

void KernelGraph::numberInstructions(func::FuncOp function) {
  for (Operation &op : function.getBody().front())
    if (isInstruction(&op)) {
      instructions.push_back(&op);
      times[&op] = static_cast<int64_t>(instructions.size());
    }
}

void KernelGraph::addVariables(func::FuncOp function) {
  auto module = function->getParentOfType<ModuleOp>();
  for (auto variable : module.getOps<VariableOp>()) {
    variableBuffer[variable.getSymNameAttr()] = buffers.size();
    buffers.push_back({Buffer::Kind::Variable, getTensorBytes(variable.getTensorType()), 0,
                       getExitTime() + 1, variable, Value()});
  }
  for (auto read : function.getOps<ReadOp>())
    bufferOf[read.getResult()] = variableBuffer.lookup(read.getVariableAttr().getAttr());
}

void KernelGraph::addInputsAndResults(func::FuncOp function) {
  for (BlockArgument argument : function.getArguments()) {
    bufferOf[argument] = buffers.size();
    buffers.push_back(
        {Buffer::Kind::Input, getTensorBytes(argument.getType()), 0, 1, nullptr, argument});
  }
  for (Operation *op : instructions) {
    int64_t time = times[op];
    for (OpResult result : op->getResults()) {
      bufferOf[result] = buffers.size();
      buffers.push_back({Buffer::Kind::Result, getTensorBytes(result.getType()), time, time + 1,
                         nullptr, result, op, result.getResultNumber()});
    }
    int64_t workspace = 0;
    if (auto cost = dyn_cast<CostOpInterface>(op))
      workspace = cost.getWorkspaceBytes();
    if (workspace > 0) {
      workspaceOf[op] = buffers.size();
      buffers.push_back({Buffer::Kind::Workspace, workspace, time, time + 1, nullptr, Value(), op});
    }
  }
}

void KernelGraph::extendToUses(func::FuncOp function) {
  for (Operation &op : function.getBody().front()) {
    if (!isInstruction(&op) && !isa<func::ReturnOp>(op))
      continue;
    int64_t time = isa<func::ReturnOp>(op) ? getExitTime() : times[&op];
    for (Value operand : op.getOperands()) {
      Value root = getBufferRoot(operand);
      int64_t &last = lastUse[root];
      last = std::max(last, time);
      Buffer &buffer = buffers[bufferOf[root]];
      buffer.end = std::max(buffer.end, time + 1);
    }
  }
}

int64_t KernelGraph::getLastUse(Value root) const {
  auto it = lastUse.find(root);
  return it == lastUse.end() ? 0 : it->second;
}

/// The producer may write into the variable's bytes when nobody reads the old value afterwards, and
/// the producer itself only reads it element by element as it writes.
bool KernelGraph::canStoreDirectly(WriteOp write, ArrayRef<Value> oldValues) const {
  Value value = write.getValue();
  auto kernel = value.getDefiningOp<KernelOp>();
  bool isLibrary = value.getDefiningOp<LibraryCallOp>();
  if (!kernel && !isLibrary)
    return false;
  int64_t time = times.lookup(value.getDefiningOp());
  for (Value old : oldValues) {
    if (getLastUse(old) > time)
      return false;
    if (getLastUse(old) < time)
      continue;
    if (!kernel)
      return false;
    SmallVector<unsigned> allowed =
        kernel.getInPlaceOperands(cast<OpResult>(value).getResultNumber());
    for (OpOperand &operand : kernel->getOpOperands())
      if (getBufferRoot(operand.get()) == old &&
          !llvm::is_contained(allowed, operand.getOperandNumber()))
        return false;
  }
  return true;
}

void KernelGraph::bindWrites(func::FuncOp function) {
  llvm::MapVector<StringAttr, SmallVector<Value>> reads;
  for (auto read : function.getOps<ReadOp>())
    reads[read.getVariableAttr().getAttr()].push_back(read.getResult());
  llvm::SmallPtrSet<void *, 16> bound;
  for (auto write : function.getOps<WriteOp>()) {
    StringAttr name = write.getVariableAttr().getAttr();
    if (!canStoreDirectly(write, reads.lookup(name)) ||
        !bound.insert(write.getValue().getAsOpaquePointer()).second) {
      copies.push_back(write);
      Value root = getBufferRoot(write.getValue());
      Buffer &buffer = buffers[bufferOf[root]];
      buffer.end = std::max(buffer.end, getExitTime());
      continue;
    }
    unsigned own = bufferOf[write.getValue()];
    buffers[own].bytes = 0; // lives inside the variable from now on
    bufferOf[write.getValue()] = variableBuffer.lookup(name);
  }
}

SmallVector<unsigned> KernelGraph::getTakeableBuffers(unsigned number) const {
  const Buffer &buffer = buffers[number];
  SmallVector<unsigned> takeable;
  if (buffer.kind != Buffer::Kind::Result || buffer.bytes == 0)
    return takeable;
  auto inPlace = dyn_cast<InPlaceOpInterface>(buffer.op);
  if (!inPlace)
    return takeable;
  SmallVector<unsigned> allowed = inPlace.getInPlaceOperands(buffer.result);
  for (unsigned operand : allowed) {
    unsigned candidate = getBufferOf(buffer.op->getOperand(operand));
    const Buffer &old = buffers[candidate];
    // One buffer may come in as several operands; all of them must bear being written over.
    bool isReadOtherwise = llvm::any_of(buffer.op->getOpOperands(), [&](OpOperand &other) {
      return getBufferOf(other.get()) == candidate &&
             !llvm::is_contained(allowed, other.getOperandNumber());
    });
    if (old.kind != Buffer::Kind::Variable && old.bytes >= buffer.bytes && !isReadOtherwise &&
        !llvm::is_contained(takeable, candidate))
      takeable.push_back(candidate);
  }
  return takeable;
}

SmallVector<int32_t> KernelGraph::getBuffersInPlace() const {
  SmallVector<int32_t> inPlaceOf(buffers.size(), -1);
  DenseSet<unsigned> taken;
  for (auto [number, buffer] : llvm::enumerate(buffers))
    for (unsigned candidate : getTakeableBuffers(number))
      if (buffers[candidate].end - 1 == buffer.begin && taken.insert(candidate).second) {
        inPlaceOf[number] = static_cast<int32_t>(candidate);
        break;
      }
  return inPlaceOf;
}

int64_t KernelGraph::getVariableBytes() const {
  int64_t bytes = 0;
  for (const Buffer &buffer : buffers)
    if (buffer.kind == Buffer::Kind::Variable)
      bytes += buffer.bytes;
  return bytes;
}

SmallVector<int64_t> KernelGraph::getLiveBytes() const {
  SmallVector<int64_t> live(getExitTime() + 3);
  for (const Buffer &buffer : buffers) {
    live[buffer.begin] += buffer.bytes;
    live[std::min<int64_t>(buffer.end, live.size() - 1)] -= buffer.bytes;
  }
  for (auto [number, replaced] : llvm::enumerate(getBuffersInPlace()))
    if (replaced >= 0) {
      live[buffers[number].begin] -= buffers[number].bytes;
      live[buffers[number].begin + 1] += buffers[number].bytes;
    }
  for (size_t time = 1; time < live.size(); ++time)
    live[time] += live[time - 1];
  return live;
}
