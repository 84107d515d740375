//===- KernelValues.cpp - values of the kernel graph as buffers -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace mlir::memopt;

bool memopt::isReshape(Operation *op) {
  return isa_and_nonnull<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(op);
}

Value memopt::getBufferRoot(Value value) {
  while (isReshape(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  return value;
}

Operation *memopt::getStart(Operation *wait) {
  for (Value operand : wait->getOperands())
    if (isa<TokenType>(operand.getType()))
      return operand.getDefiningOp();
  return nullptr;
}

FailureOr<int64_t> memopt::getPlannedOffset(Value value) {
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
