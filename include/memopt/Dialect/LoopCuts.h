//===- LoopCuts.h - long loops as several -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_LOOPCUTS_H
#define MEMOPT_DIALECT_LOOPCUTS_H

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/SmallVector.h"

namespace mlir::memopt {

/// How many iterations each of the loops has that one of `count` iterations is cut into, the first
/// loop first. `layers` such loops stand in a row; many of them are cut into fewer each. It follows
/// from these numbers alone, so that sums of gradients have one order under every budget. Loops are
/// short, for they are what a planner chooses among: it keeps what all of them leave for the backward
/// pass, what some leave, or the state in front of some, from which it runs others again, nested as
/// in Revolve (Griewank and Walther, Algorithm 799, ACM TOMS 2000).
SmallVector<int64_t> cutLoop(int64_t count, int64_t layers = 1);

} // namespace mlir::memopt

#endif // MEMOPT_DIALECT_LOOPCUTS_H
