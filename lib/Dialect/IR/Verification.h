//===- Verification.h - what several verifiers check ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_DIALECT_IR_VERIFICATION_H
#define MEMOPT_LIB_DIALECT_IR_VERIFICATION_H

#include "memopt/Dialect/Memopt.h"

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Operation.h"

namespace mlir::memopt {

/// ODS has made sure that all operands and results are ranked tensors.
inline ArrayRef<int64_t> shapeOf(Value value) { return tensorType(value).getShape(); }

/// `what` names the value in the message. Optional values that are absent pass.
inline LogicalResult verifyShape(Operation *op, StringRef what, ArrayRef<int64_t> expected,
                                 Value value) {
  if (!value || tensorType(value).getShape() == expected)
    return success();
  InFlightDiagnostic diagnostic = op->emitOpError() << what << " has shape [";
  llvm::interleaveComma(tensorType(value).getShape(), diagnostic);
  diagnostic << "], expected [";
  llvm::interleaveComma(expected, diagnostic);
  return diagnostic << "]";
}

inline LogicalResult verifyElementTypes(Operation *op, ValueRange values) {
  Type expected = tensorType(values.front()).getElementType();
  for (Value value : values)
    if (tensorType(value).getElementType() != expected)
      return op->emitOpError() << "expects equal element types, found " << expected << " and "
                               << tensorType(value).getElementType();
  return success();
}

/// Operands have one type; `result` has that, or the type of their sums.
inline LogicalResult verifyProductTypes(Operation *op, ValueRange operands, Value result) {
  if (failed(verifyElementTypes(op, operands)))
    return failure();
  Type type = tensorType(operands.front()).getElementType();
  Type found = tensorType(result).getElementType();
  if (found == type || found == getComputeType(type))
    return success();
  InFlightDiagnostic diagnostic = op->emitOpError() << "gives " << found << ", expected " << type;
  if (getComputeType(type) != type)
    diagnostic << " or " << getComputeType(type);
  return diagnostic;
}

} // namespace mlir::memopt

#endif // MEMOPT_LIB_DIALECT_IR_VERIFICATION_H
