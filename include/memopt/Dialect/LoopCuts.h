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

namespace mlir::memopt {

/// How many iterations each of the loops has that one of `count` iterations is cut into, the first
/// loop first. Long loops are several, about as many as each has iterations: then a planner may keep
/// what only some of them leave for the backward pass, and run the others again (Chen et al.,
/// Training Deep Nets with Sublinear Memory Cost, 2016). Short ones stay whole.
SmallVector<int64_t> cutLoop(int64_t count);

} // namespace mlir::memopt

#endif // MEMOPT_DIALECT_LOOPCUTS_H
