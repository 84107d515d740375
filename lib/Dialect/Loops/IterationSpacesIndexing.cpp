//===- IterationSpacesIndexing.cpp - loops of ops that index, scan or draw -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../IR/Verification.h"
#include "IterationBuilder.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Gathers and scatters
//===----------------------------------------------------------------------===//

/// An index tensor has size 1 along dimensions that it does not vary in.
static Exprs getIndexExprs(Value index, ArrayRef<AffineExpr> loops) {
  Exprs read;
  for (auto [loop, size] : llvm::zip_equal(loops, shapeOf(index)))
    read.push_back(size == 1 ? getAffineConstantExpr(0, index.getContext()) : loop);
  return read;
}

/// How the large side of a gather or scatter is indexed: by data along `indexed` dimensions, and
/// along the others by loops of the small side.
static Exprs getPickedExprs(IterationBuilder &b, ArrayRef<int64_t> shape, ArrayRef<int64_t> indexed,
                            ArrayRef<int64_t> positions, ArrayRef<int64_t> smallShape,
                            ArrayRef<AffineExpr> loops) {
  Exprs exprs;
  size_t next = 0;
  for (auto [dim, size] : llvm::enumerate(shape)) {
    if (llvm::is_contained(indexed, static_cast<int64_t>(dim))) {
      exprs.push_back(b.addLoop(size, LoopKind::Mix));
      continue;
    }
    int64_t at = positions[next++];
    // A part of a dimension is no longer all of its samples.
    exprs.push_back(smallShape[at] == size ? loops[at] : loops[at] + b.addLoop(1, LoopKind::Mix));
  }
  return exprs;
}

IterationSpace GatherOp::getIterationSpace() {
  IterationBuilder b(*this);
  Exprs loops = b.addLoops(getResult());
  b.set(getSource(), getPickedExprs(b, shapeOf(getSource()), getIndexed(), getPositions(),
                                    shapeOf(getResult()), loops));
  for (OpOperand &index : getIndicesMutable())
    b.setOperand(index.getOperandNumber(), getIndexExprs(index.get(), loops));
  b.set(getResult(), loops);
  return b.take();
}

/// Whether all elements are known to be zero.
static bool isZero(Value value) {
  while (auto broadcast = value.getDefiningOp<BroadcastOp>())
    value = broadcast.getInput();
  return matchPattern(value, m_AnyZeroFloat()) || matchPattern(value, m_Zero());
}

/// Updates of several samples that come together are summed; onto something else than zeros that is
/// no sum, for sums over parts of a batch would count it once for each.
IterationSpace ScatterOp::getIterationSpace() {
  IterationBuilder b(*this);
  bool isSum = getKind() == ScatterKind::Add && isZero(getInput());
  LoopKind combined = isSum ? LoopKind::Sum : LoopKind::Mix;
  Exprs loops;
  for (auto [dim, size] : llvm::enumerate(shapeOf(getUpdates()))) {
    bool isKept = llvm::is_contained(getPositions(), static_cast<int64_t>(dim));
    loops.push_back(b.addLoop(size, isKept ? LoopKind::Parallel : combined));
  }
  Exprs written = getPickedExprs(b, shapeOf(getResult()), getIndexed(), getPositions(),
                                 shapeOf(getUpdates()), loops);
  b.setOperand(0, written);
  b.setOperand(1, loops);
  for (OpOperand &index : getIndicesMutable())
    b.setOperand(index.getOperandNumber(), getIndexExprs(index.get(), loops));
  b.setResult(0, written);
  return b.take();
}

//===----------------------------------------------------------------------===//
// Along an axis
//===----------------------------------------------------------------------===//

IterationSpace ArgsortOp::getIterationSpace() {
  IterationBuilder b(*this);
  Exprs written = b.addLoops(getResult()), read = written;
  read[getAxis()] = b.addLoop(shapeOf(getInput())[getAxis()], LoopKind::Mix);
  b.set(getInput(), read);
  b.set(getResult(), written);
  return b.take();
}

/// Each element follows from those before it along the axis.
static IterationSpace getScanSpace(Operation *op, int64_t axis) {
  IterationBuilder b(op);
  Exprs loops;
  for (auto [dim, size] : llvm::enumerate(shapeOf(op->getResult(0))))
    loops.push_back(
        b.addLoop(size, static_cast<int64_t>(dim) == axis ? LoopKind::Mix : LoopKind::Parallel));
  for (OpOperand &operand : op->getOpOperands())
    b.setOperand(operand.getOperandNumber(), loops);
  b.setResult(0, loops);
  return b.take();
}
IterationSpace LinearScanOp::getIterationSpace() { return getScanSpace(*this, getAxis()); }
IterationSpace LogSumExpScanOp::getIterationSpace() { return getScanSpace(*this, getAxis()); }
IterationSpace ArgextremeScanOp::getIterationSpace() { return getScanSpace(*this, getAxis()); }

IterationSpace ReverseOp::getIterationSpace() {
  IterationBuilder b(*this);
  Exprs loops = b.addLoops(getResult()), read = loops;
  for (int64_t dim : getDimensions())
    read[dim] = shapeOf(getInput())[dim] - 1 - loops[dim];
  b.set(getInput(), read);
  b.set(getResult(), loops);
  return b.take();
}

//===----------------------------------------------------------------------===//
// About gradients
//===----------------------------------------------------------------------===//

IterationSpace RandomOp::getIterationSpace() { return getElementwiseSpace(*this); }
IterationSpace StochasticRoundOp::getIterationSpace() { return getElementwiseSpace(*this); }
IterationSpace StopGradientOp::getIterationSpace() { return getElementwiseSpace(*this); }
IterationSpace IncomingGradientOp::getIterationSpace() { return getElementwiseSpace(*this); }

/// Results are the values; gradients have the shapes of what they are gradients of.
IterationSpace CustomGradientOp::getIterationSpace() {
  IterationBuilder b(*this);
  auto pair = [&](OperandRange values, OperandRange gradients, bool givesResults) {
    for (auto [number, value] : llvm::enumerate(values)) {
      Exprs loops = b.addLoops(value);
      b.setOperand(values.getBeginOperandIndex() + number, loops);
      if (number < gradients.size())
        b.setOperand(gradients.getBeginOperandIndex() + number, loops);
      if (givesResults)
        b.setResult(number, loops);
    }
  };
  pair(getValues(), getIncoming(), /*givesResults=*/true);
  pair(getInputs(), getInputGradients(), /*givesResults=*/false);
  return b.take();
}
