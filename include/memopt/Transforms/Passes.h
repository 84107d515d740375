//===- Passes.h - IR to IR passes -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_PASSES_H
#define MEMOPT_TRANSFORMS_PASSES_H

#include "memopt/Dialect/Memopt.h"
#include "memopt/Transforms/OffloadTier.h"

#include "mlir/Pass/Pass.h"

namespace mlir::memopt {

/// Search work for the layout of a step, where an order is judged and where it is placed for good.
inline constexpr int64_t kArenaIterations = 4000000;

#define GEN_PASS_DECL
#include "memopt/Transforms/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_PASSES_H
