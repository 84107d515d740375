//===- IterationBuilder.cpp - iteration spaces of ops -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "IterationBuilder.h"

#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;
using namespace mlir::memopt;

IterationBuilder::IterationBuilder(Operation *op)
    : op(op), indices(op->getNumOperands() + op->getNumResults()) {}

AffineExpr IterationBuilder::addLoop(int64_t size, LoopKind kind) {
  space.sizes.push_back(size);
  space.kinds.push_back(kind);
  return getAffineDimExpr(space.sizes.size() - 1, op->getContext());
}

Exprs IterationBuilder::addLoops(ArrayRef<int64_t> sizes, LoopKind kind) {
  return llvm::map_to_vector(sizes, [&](int64_t size) { return addLoop(size, kind); });
}

Exprs IterationBuilder::addLoops(Value value, LoopKind kind) {
  return addLoops(cast<RankedTensorType>(value.getType()).getShape(), kind);
}

void IterationBuilder::setOperand(unsigned number, ArrayRef<AffineExpr> exprs) {
  indices[number].assign(exprs.begin(), exprs.end());
}

void IterationBuilder::setResult(unsigned number, ArrayRef<AffineExpr> exprs) {
  setOperand(op->getNumOperands() + number, exprs);
}

void IterationBuilder::set(Value value, ArrayRef<AffineExpr> exprs) {
  if (!value)
    return;
  if (auto result = dyn_cast<OpResult>(value); result && result.getOwner() == op)
    return setResult(result.getResultNumber(), exprs);
  for (OpOperand &operand : op->getOpOperands())
    if (operand.get() == value)
      setOperand(operand.getOperandNumber(), exprs);
}

IterationSpace IterationBuilder::take() {
  SmallVector<Value> values(op->getOperands());
  llvm::append_range(values, op->getResults());
  for (auto [value, exprs] : llvm::zip_equal(values, indices)) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    assert((!type || type.getRank() == static_cast<int64_t>(exprs.size())) &&
           "a tensor has one index for each dimension");
    space.maps.push_back(type ? AffineMap::get(space.getNumLoops(), 0, exprs, op->getContext())
                              : AffineMap());
  }
  return std::move(space);
}

Exprs mlir::memopt::join(ArrayRef<AffineExpr> a, ArrayRef<AffineExpr> b) {
  Exprs both(a);
  both.append(b.begin(), b.end());
  return both;
}

IterationSpace mlir::memopt::getElementwiseSpace(Operation *op) {
  IterationBuilder builder(op);
  if (op->getNumResults() == 0 || !isa<RankedTensorType>(op->getResult(0).getType()))
    return builder.take();
  Exprs loops = builder.addLoops(op->getResult(0));
  for (OpOperand &operand : op->getOpOperands())
    if (auto type = dyn_cast<RankedTensorType>(operand.get().getType()); type && type.getRank())
      builder.setOperand(operand.getOperandNumber(), loops);
  for (OpResult result : op->getResults())
    builder.setResult(result.getResultNumber(), loops);
  return builder.take();
}
