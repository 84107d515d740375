//===- ForeignOps.cpp - functions that the user gives in C -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Loops/IterationBuilder.h"
#include "memopt/Dialect/ApartOps.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace mlir::memopt;

#define GET_OP_CLASSES
#include "memopt/Dialect/ForeignOps.cpp.inc"

LogicalResult ForeignCallOp::verify() {
  if (getNumResults() == 0)
    return emitOpError() << "has no result, expected one or more";
  StringRef name = getFunction();
  if (name.empty() || llvm::isDigit(name.front()) ||
      !llvm::all_of(name, [](char c) { return llvm::isAlnum(c) || c == '_'; }))
    return emitOpError() << "calls '" << name << "', expected the name of a function of C";
  if (!getElementwise())
    return success();
  ArrayRef<int64_t> shape = cast<ShapedType>(getResult(0).getType()).getShape();
  for (Type type : llvm::concat<const Type>(getOperandTypes(), getResultTypes()))
    if (cast<ShapedType>(type).getShape() != shape)
      return emitOpError() << "goes element by element and has " << type
                           << ", expected the shape of its first result, "
                           << getResult(0).getType();
  return success();
}

int64_t ForeignCallOp::getFlops() { return 0; }
int64_t ForeignCallOp::getBytesMoved() { return getOperandAndResultBytes(*this); }
std::string ForeignCallOp::getKindName() { return getFunction().str(); }

/// What the function computes is unknown: about as much as it moves.
Work ForeignCallOp::getWork() {
  Work work;
  work.bytes = static_cast<double>(getBytesMoved());
  work.operations = work.bytes / 4;
  return work;
}

/// Of others every element of the results follows from all of the operands, as far as is known.
IterationSpace ForeignCallOp::getIterationSpace() {
  if (getElementwise())
    return getElementwiseSpace(*this);
  IterationBuilder b(*this);
  for (auto [number, input] : llvm::enumerate(getInputs()))
    b.setOperand(number, b.addLoops(input, LoopKind::Mix));
  for (auto [number, result] : llvm::enumerate(getResults()))
    b.setResult(number, b.addLoops(result, LoopKind::Mix));
  return b.take();
}
