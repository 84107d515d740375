//===- FormLibraryCalls.h - named ops to library calls --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_FORMLIBRARYCALLS_H
#define MEMOPT_LIB_TRANSFORMS_FORMLIBRARYCALLS_H

#include "mlir/IR/Block.h"

namespace mlir::memopt {

struct LibraryCallOptions {
  int threads = 2;        ///< for which workspaces are planned
  bool reference = false; ///< ask for reference implementations
};

/// Turns every matmul, convolution and attention op of `block` into memopt.library_call, with views
/// of operands and results folded into strides and a following bias folded into the call.
llvm::LogicalResult formLibraryCalls(Block &block, const LibraryCallOptions &options);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_FORMLIBRARYCALLS_H
