//===- TilePasses.h - a step in parts that are no samples -------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_TILEPASSES_H
#define MEMOPT_TRANSFORMS_TILEPASSES_H

#include "memopt/Dialect/Memopt.h"

#include "mlir/Pass/Pass.h"

namespace mlir::memopt {

#define GEN_PASS_DECL
#include "memopt/Transforms/TilePasses.h.inc"

#define GEN_PASS_REGISTRATION
#include "memopt/Transforms/TilePasses.h.inc"

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_TILEPASSES_H
