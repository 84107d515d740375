//===- PlaceOps.h - ops that take another place in their block -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The next question for the order of two ops numbers the whole block again after `moveBefore` and
// `moveAfter`. An op that is taken out and put in alone gets a new number. So these are for loops
// that move ops and ask for their order in turn.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_UTILS_PLACEOPS_H
#define MEMOPT_TRANSFORMS_UTILS_PLACEOPS_H

#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"

namespace mlir::memopt {

inline void putBefore(Operation *moved, Operation *op) {
  moved->remove();
  op->getBlock()->getOperations().insert(op->getIterator(), moved);
}

inline void putAfter(Operation *moved, Operation *op) {
  moved->remove();
  op->getBlock()->getOperations().insertAfter(op->getIterator(), moved);
}

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_UTILS_PLACEOPS_H
