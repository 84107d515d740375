//===- LaneDims.h - which dims of a sum are a run of lanes ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// SumOrder.h says what follows from them.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_CORE_GRAPH_LANEDIMS_H
#define MEMOPT_CONVERSION_CORE_GRAPH_LANEDIMS_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::memopt {

/// Which sums have lanes (SumOrder.h).
struct LaneRules {
  int64_t run;        ///< numbers that fill the lanes
  int64_t fewResults; ///< a long sum of fewer results has lanes however it reads
};

/// The last reduction dims of `op` that are one run of lanes, dims of size 1 left out; 0: none.
unsigned countLaneDims(linalg::LinalgOp op, const LaneRules &rules);

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_CORE_GRAPH_LANEDIMS_H
