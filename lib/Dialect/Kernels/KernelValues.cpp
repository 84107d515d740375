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

/// What a block argument of a loop is another name, or a slice, of; null for other values.
static Value getOutside(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  Operation *loop = argument ? argument.getOwner()->getParentOp() : nullptr;
  return isa_and_nonnull<RepeatOp, ScanOp>(loop) ? loop->getOperand(argument.getArgNumber())
                                                 : Value();
}

Value mlir::memopt::getBufferRoot(Value value) {
  while (true) {
    if (isReshape(value.getDefiningOp()))
      value = value.getDefiningOp()->getOperand(0);
    else if (Value outside = getOutside(value))
      value = outside;
    else
      return value;
  }
}

SmallVector<OpOperand *> mlir::memopt::getUsesOfBuffer(Value root) {
  SmallVector<OpOperand *> uses;
  SmallVector<Value> names{root};
  for (size_t next = 0; next < names.size(); ++next)
    for (OpOperand &use : names[next].getUses()) {
      if (isReshape(use.getOwner()))
        names.push_back(use.getOwner()->getResult(0));
      else
        uses.push_back(&use);
    }
  return uses;
}

OpOperand *mlir::memopt::findYield(Value root) {
  Operation *maker = root.getDefiningOp();
  if (!maker || !isa_and_nonnull<ScanOp>(maker->getParentOp()))
    return nullptr;
  for (OpOperand *use : getUsesOfBuffer(root))
    if (use->getOwner() == cast<ScanOp>(maker->getParentOp()).getYield())
      return use;
  return nullptr;
}

/// Of slices of `whole`, whose number `first` is that of iteration 0 of `scan`.
static SliceAddress getAddress(ScanOp scan, Value whole, int64_t first) {
  int64_t slices = cast<RankedTensorType>(whole.getType()).getDimSize(0);
  int64_t bytes = getTensorBytes(whole.getType()) / slices;
  return {scan, first * bytes, scan.getStep() * bytes};
}

SmallVector<SliceAddress> mlir::memopt::getSliceAddresses(Value value) {
  SmallVector<SliceAddress> slices;
  while (true) {
    Operation *maker = value.getDefiningOp();
    if (isReshape(maker)) {
      value = maker->getOperand(0);
      continue;
    }
    if (Value outside = getOutside(value)) {
      auto argument = cast<BlockArgument>(value);
      auto scan = dyn_cast<ScanOp>(argument.getOwner()->getParentOp());
      if (scan && scan.isSlice(argument)) {
        unsigned number = argument.getArgNumber() - scan.getFixed().size();
        slices.push_back(getAddress(scan, outside, scan.getFirstOfSlices(number)));
      }
      value = outside;
      continue;
    }
    OpOperand *yield = findYield(value);
    if (!yield)
      return slices;
    auto scan = cast<ScanOp>(maker->getParentOp());
    OpResult result = scan->getResult(yield->getOperandNumber());
    if (yield->getOperandNumber() < scan.getCarried().size())
      return slices; // a carried value's buffer is one of the block that the scan stands in
    slices.push_back(getAddress(scan, result, scan.getFirstOfStacked()));
    value = result;
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
