//===- TokenTiles.h - the mark of a tile of tokens --------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_UTILS_TOKENTILES_H
#define MEMOPT_TRANSFORMS_UTILS_TOKENTILES_H

#include "llvm/ADT/StringRef.h"

namespace mlir::memopt {

/// Before kernels are formed, on ops of a part of the tokens: its number, -1 on what joins the
/// parts. Kernels do not reach across them.
inline constexpr llvm::StringLiteral kTileAttr = "memopt.tile";

/// In place of a module's name: every wide layer whose gradient waits for others.
inline constexpr llvm::StringLiteral kAllLayers = "all";

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_UTILS_TOKENTILES_H
