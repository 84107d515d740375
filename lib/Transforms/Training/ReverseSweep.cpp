//===- ReverseSweep.cpp - from an op's results to its operands --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ReverseSweep.h"
#include "GradientSums.h"
#include "ScanGradient.h"

#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::memopt;

/// The sum of what was contributed, which is no longer known afterwards; null where nothing was.
Value ReverseSweep::take(Value value, Location location, bool isOfParameter) {
  auto found = contributions.find(value);
  if (found == contributions.end())
    return Value();
  SmallVector<Value> all = llvm::to_vector(found->second);
  contributions.erase(found);
  return addUp(builder, location, value.getType(), all, isOfParameter);
}

LogicalResult ReverseSweep::visit(Operation *op) {
  if (llvm::none_of(op->getResults(), [&](Value result) { return isOnPath(result); }))
    return success();
  bool castsParameter = isa<arith::TruncFOp>(op) && op->getOperand(0).getDefiningOp<ReadOp>();
  SmallVector<Value> resultGradients;
  for (Value result : op->getResults())
    resultGradients.push_back(take(result, op->getLoc(), castsParameter));
  if (llvm::all_of(resultGradients,
                   [](Value gradient) { return !gradient || isZeroGradient(gradient); }))
    return success();
  return differentiate(op, resultGradients);
}

LogicalResult ReverseSweep::differentiate(Operation *op, ArrayRef<Value> resultGradients) {
  auto rule = dyn_cast<DifferentiableOpInterface>(op);
  SmallVector<bool> needed;
  for (OpOperand &operand : op->getOpOperands())
    needed.push_back(isOnPath(operand.get()) &&
                     (!rule || rule.passesGradient(operand.getOperandNumber())));
  SmallVector<Value> operands(op->getOperands()), gradients(operands.size());
  if (auto scan = dyn_cast<ScanOp>(op)) {
    FailureOr<ScanOp> kept = differentiateScan(builder, scan, resultGradients, needed, gradients);
    if (failed(kept))
      return failure();
    op = *kept;
  } else if (!rule || failed(rule.differentiate(builder, resultGradients, needed, gradients))) {
    InFlightDiagnostic diagnostic =
        op->emitOpError(rule ? "stands" : "has no gradient rule and stands");
    explain(op, diagnostic);
    return diagnostic;
  }
  for (auto [operand, need, gradient] : llvm::zip_equal(operands, needed, gradients)) {
    if (!need || !gradient)
      continue;
    if (gradient.getType() != operand.getType())
      return op->emitOpError() << "has a rule that gave a gradient of type " << gradient.getType()
                               << ", expected " << operand.getType();
    contribute(operand, gradient);
  }
  return success();
}
