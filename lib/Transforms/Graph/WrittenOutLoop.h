//===- WrittenOutLoop.h - a loop whose turns stand one behind the other -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A front end that knows no loops writes the body once for each turn. The turns are one loop where
// each operand of an op in the body is, in all turns alike,
//
//   the same value from outside                        fixed
//   a result of the body, in the same turn             itself
//   the same, of the turn before                       carried; the first turn has a value from outside
//   slice first + step * turn of a value from outside  a slice
//
// or any of these behind ops that only move elements or are constants. Those belong to no turn: each
// may stand anywhere in front of its readers.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_GRAPH_WRITTENOUTLOOP_H
#define MEMOPT_LIB_TRANSFORMS_GRAPH_WRITTENOUTLOOP_H

#include "mlir/IR/Operation.h"

namespace mlir::memopt {

/// Whether `op` only moves elements of one operand, or is a constant.
bool movesElements(Operation *op);

/// Replaces the ops of all turns, in their order, by loops (memopt.scan); of each turn there are
/// `period`. Fails, and leaves the step as it was, where they are not one loop, or where the loop
/// would be worse than what stands there: a chain of elementwise ops is one kernel.
LogicalResult rollLoop(ArrayRef<Operation *> turns, size_t period);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_GRAPH_WRITTENOUTLOOP_H
