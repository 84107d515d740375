//===- KernelValues.cpp - values of the kernel graph as buffers -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Memopt.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace mlir::memopt;

SmallVector<Block *> mlir::memopt::getProgramBlocks(Block &step) {
  SmallVector<Block *> blocks{&step};
  for (size_t next = 0; next < blocks.size(); ++next)
    for (auto instruction : blocks[next]->getOps<InstructionOpInterface>())
      llvm::append_range(blocks, instruction.getBodies());
  return blocks;
}

bool mlir::memopt::isReshape(Operation *op) {
  auto view = dyn_cast_or_null<ViewOpInterface>(op);
  return view && view.getViewKind() == ViewKind::Reshape;
}

/// What a block argument of a repeat is another name of; null for other values.
static Value getRepeated(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  auto repeat = argument ? dyn_cast<RepeatOp>(argument.getOwner()->getParentOp()) : nullptr;
  return repeat ? repeat.getInputs()[argument.getArgNumber()] : Value();
}

Value mlir::memopt::getBufferRoot(Value value) {
  while (true) {
    if (isReshape(value.getDefiningOp()))
      value = value.getDefiningOp()->getOperand(0);
    else if (Value outside = getRepeated(value))
      value = outside;
    else
      return value;
  }
}

Operation *mlir::memopt::getStart(Operation *wait) {
  for (Value operand : wait->getOperands())
    if (isa<TokenType>(operand.getType()))
      return operand.getDefiningOp();
  return nullptr;
}

FailureOr<int64_t> mlir::memopt::getPlannedOffset(Value value) {
  Value root = getBufferRoot(value);
  IntegerAttr offset;
  if (auto argument = dyn_cast<BlockArgument>(root)) {
    auto function = dyn_cast<FunctionOpInterface>(argument.getOwner()->getParentOp());
    if (function)
      offset = function.getArgAttrOfType<IntegerAttr>(argument.getArgNumber(),
                                                      MemoptDialect::kOffsetAttr);
  } else if (auto read = root.getDefiningOp<ReadOp>()) {
    auto variable = SymbolTable::lookupNearestSymbolFrom<VariableOp>(read, read.getVariableAttr());
    offset = variable.getOffsetAttr();
  } else if (auto instruction = root.getDefiningOp<InstructionOpInterface>()) {
    if (DenseI64ArrayAttr offsets = instruction.getOffsetsAttr())
      return offsets[cast<OpResult>(root).getResultNumber()];
  }
  if (!offset)
    return failure();
  return offset.getInt();
}

VariableOp mlir::memopt::findIndexFault(ModuleOp module) {
  for (auto variable : module.getOps<VariableOp>())
    if (variable.getRole() == Role::IndexFault)
      return variable;
  return nullptr;
}
