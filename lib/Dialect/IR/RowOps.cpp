//===- RowOps.cpp - rows of which some count --------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Gradients/GradientBuilder.h"
#include "../Loops/IterationBuilder.h"
#include "memopt/Dialect/ApartOps.h"

#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace mlir::memopt;

#define GET_OP_CLASSES
#include "memopt/Dialect/RowOps.cpp.inc"

LogicalResult FillRowsOp::verify() {
  RankedTensorType type = tensorType(getInput()), counts = tensorType(getCounts());
  if (getResult().getType() != type)
    return emitOpError() << "gives " << getResult().getType()
                         << ", expected the type of its input, " << type;
  auto dim = static_cast<int64_t>(getDim());
  if (dim < 0 || dim >= type.getRank())
    return emitOpError() << "has the dim " << dim << ", expected one of 0 to "
                         << type.getRank() - 1;
  if (counts.getRank() != 1 || counts.getDimSize(0) != type.getDimSize(dim))
    return emitOpError() << "has counts of " << counts << ", expected one for each of "
                         << type.getDimSize(dim) << " rows";
  return success();
}

int64_t FillRowsOp::getFlops() { return 0; }
SmallVector<unsigned> FillRowsOp::getFollowedOperands() { return {0}; }

/// Any part of the rows has one that it may lend.
IterationSpace FillRowsOp::getIterationSpace() {
  IterationBuilder b(*this);
  Exprs loops;
  for (auto [dim, size] : llvm::enumerate(tensorType(getInput()).getShape()))
    loops.push_back(b.addLoop(size, dim == getDim() ? LoopKind::Statistic : LoopKind::Parallel));
  b.set(getInput(), loops);
  b.set(getCounts(), {loops[getDim()]});
  b.set(getResult(), loops);
  return b.take();
}

LogicalResult FillRowsOp::differentiate(OpBuilder &builder, ArrayRef<Value> resultGradients,
                                        ArrayRef<bool> needed, MutableArrayRef<Value> gradients) {
  if (!needed[0])
    return success();
  GradientBuilder b(builder, getLoc());
  RankedTensorType type = tensorType(getInput());
  Value counts =
      b.broadcast(getCounts(), type.clone(builder.getI1Type()), {static_cast<int64_t>(getDim())});
  gradients[0] = select(counts, b(resultGradients[0]), 0.0);
  return success();
}
