//===- WrittenOutLoop.h - a loop whose turns stand one behind the other -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_GRAPH_WRITTENOUTLOOP_H
#define MEMOPT_LIB_TRANSFORMS_GRAPH_WRITTENOUTLOOP_H

#include "mlir/IR/Operation.h"

namespace mlir::memopt {

/// Replaces the ops of all turns, in their order, by loops (memopt.scan); of each turn there are
/// `period`. Fails, and leaves the step as it was, where they are not one loop, or where the loop
/// would be worse than what stands there: a chain of elementwise ops is one kernel.
LogicalResult rollLoop(ArrayRef<Operation *> turns, size_t period);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_GRAPH_WRITTENOUTLOOP_H
