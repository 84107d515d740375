//===- GradientOps.cpp - what a model says about its gradients -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Gradients/GradientBuilder.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::memopt;

int64_t StopGradientOp::getFlops() { return 0; }
int64_t IncomingGradientOp::getFlops() { return 0; }
int64_t CustomGradientOp::getFlops() { return 0; }

//===----------------------------------------------------------------------===//
// StopGradientOp
//===----------------------------------------------------------------------===//

bool StopGradientOp::passesGradient(unsigned) { return false; }
bool StopGradientOp::isGradientMark() { return true; }

LogicalResult StopGradientOp::differentiate(OpBuilder &, ArrayRef<Value>, ArrayRef<bool>,
                                            MutableArrayRef<Value>) {
  return success();
}

//===----------------------------------------------------------------------===//
// CustomGradientOp
//===----------------------------------------------------------------------===//

LogicalResult CustomGradientOp::verify() {
  if (getValues().getTypes() != getResultTypes())
    return emitOpError("expects results of the types of its values");
  if (getInputs().getTypes() != getInputGradients().getTypes())
    return emitOpError("expects one gradient of its type for each input");
  SmallVector<Type> types;
  for (Value value : getValues())
    if (isa<FloatType>(tensorType(value).getElementType()))
      types.push_back(value.getType());
  if (getIncoming().getTypes() != TypeRange(types))
    return emitOpError("expects one incoming gradient for each floating-point value");
  for (Value incoming : getIncoming())
    if (!incoming.getDefiningOp<IncomingGradientOp>())
      return emitOpError("expects incoming gradients made by memopt.incoming_gradient");
  return success();
}

/// Where the inputs begin, and how many there are. Their range has no index where there are none:
/// it begins behind all operands.
static std::pair<unsigned, unsigned> findInputs(CustomGradientOp op) {
  constexpr unsigned kSegment = 2;
  return op.getODSOperandIndexAndLength(kSegment);
}

bool CustomGradientOp::passesGradient(unsigned operand) {
  auto [begin, count] = findInputs(*this);
  return operand >= begin && operand < begin + count;
}
bool CustomGradientOp::isGradientMark() { return true; }

/// The ops between `incoming` and `wanted`, in their order.
static SmallVector<Operation *> collectFormula(ValueRange incoming, ArrayRef<Value> wanted) {
  llvm::SmallPtrSet<Operation *, 16> dependent;
  SmallVector<Value> pending(incoming);
  while (!pending.empty())
    for (Operation *user : pending.pop_back_val().getUsers())
      if (dependent.insert(user).second)
        llvm::append_range(pending, user->getResults());
  llvm::SetVector<Operation *> formula;
  pending.assign(wanted.begin(), wanted.end());
  while (!pending.empty()) {
    Operation *op = pending.pop_back_val().getDefiningOp();
    if (op && dependent.contains(op) && formula.insert(op))
      llvm::append_range(pending, op->getOperands());
  }
  SmallVector<Operation *> ops = formula.takeVector();
  llvm::sort(ops, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return ops;
}

LogicalResult CustomGradientOp::differentiate(OpBuilder &builder, ArrayRef<Value> resultGradients,
                                              ArrayRef<bool> needed,
                                              MutableArrayRef<Value> gradients) {
  GradientBuilder b(builder, getLoc());
  SmallVector<Value> given;
  for (auto [value, gradient] : llvm::zip_equal(getValues(), resultGradients))
    if (isa<FloatType>(tensorType(value).getElementType()))
      given.push_back(gradient ? gradient : Value(b.splat(tensorType(value), 0.0)));
  IRMapping mapping;
  mapping.map(getIncoming(), given);
  unsigned first = findInputs(*this).first;
  SmallVector<Value> wanted;
  for (auto [i, gradient] : llvm::enumerate(getInputGradients()))
    if (needed[first + i])
      wanted.push_back(gradient);
  for (Operation *op : collectFormula(getIncoming(), wanted))
    builder.clone(*op, mapping);
  for (auto [i, gradient] : llvm::enumerate(getInputGradients()))
    if (needed[first + i])
      gradients[first + i] = mapping.lookupOrDefault(gradient);
  return success();
}
