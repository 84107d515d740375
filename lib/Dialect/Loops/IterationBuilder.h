//===- IterationBuilder.h - iteration spaces of ops -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_DIALECT_LOOPS_ITERATIONBUILDER_H
#define MEMOPT_LIB_DIALECT_LOOPS_ITERATIONBUILDER_H

#include "memopt/Interfaces/IterationSpace.h"

#include "mlir/IR/Operation.h"

namespace mlir::memopt {

using Exprs = SmallVector<AffineExpr>;

/// Collects loops, and a map for each operand and result of one op.
class IterationBuilder {
public:
  explicit IterationBuilder(Operation *op);

  AffineExpr addLoop(int64_t size, LoopKind kind = LoopKind::Parallel);
  Exprs addLoops(ArrayRef<int64_t> sizes, LoopKind kind = LoopKind::Parallel);
  /// One loop for each dimension of a value.
  Exprs addLoops(Value value, LoopKind kind = LoopKind::Parallel);

  /// Says how a value of the op is indexed; an absent optional operand is passed over. A value that
  /// comes as several operands is indexed in each by the map that was set last, so such operands
  /// are set by number.
  void setOperand(unsigned number, ArrayRef<AffineExpr> exprs);
  void set(Value value, ArrayRef<AffineExpr> exprs);
  void setResult(unsigned number, ArrayRef<AffineExpr> exprs);

  /// Scalars need no word. Everything else must have got its map.
  IterationSpace take();

private:
  Operation *op;
  IterationSpace space;
  SmallVector<Exprs> indices; ///< operands, then results
};

/// The concatenation of two lists of indices.
Exprs join(ArrayRef<AffineExpr> a, ArrayRef<AffineExpr> b);

/// A space with one loop for each dimension of the results, by which all operands of their rank are
/// indexed too.
IterationSpace getElementwiseSpace(Operation *op);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_DIALECT_LOOPS_ITERATIONBUILDER_H
