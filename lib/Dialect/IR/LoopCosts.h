//===- LoopCosts.h - what bodies of loops cost ------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_DIALECT_IR_LOOPCOSTS_H
#define MEMOPT_LIB_DIALECT_IR_LOOPCOSTS_H

#include "memopt/Dialect/Memopt.h"

namespace mlir::memopt {

/// What `count` says of the ops in the body of a loop, in all iterations.
template <typename LoopOp, typename CountFn> int64_t sumOverBody(LoopOp loop, CountFn count) {
  int64_t sum = 0;
  for (auto op : loop.getBody().front().template getOps<CostOpInterface>())
    sum = addCounts(sum, count(op));
  return multiplyCounts({sum, loop.getRepeatCount()});
}

} // namespace mlir::memopt

#endif // MEMOPT_LIB_DIALECT_IR_LOOPCOSTS_H
