//===- ModuleBlocks.h - the repeated parts of a model -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Models are stacks of like modules: layers, residual blocks. Those are what people checkpoint.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_MEMORY_MODULEBLOCKS_H
#define MEMOPT_LIB_TRANSFORMS_MEMORY_MODULEBLOCKS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>

namespace mlir::memopt {

/// The block that each path of a module lies in, numbered as they come, or -1. Blocks are the
/// outermost modules whose name ends in a number, that have modules inside, and that have a sibling
/// like them: `net.layer1.0` and `net.layer1.1`.
llvm::SmallVector<int32_t> numberBlocks(llvm::ArrayRef<llvm::StringRef> paths);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_MEMORY_MODULEBLOCKS_H
