//===- KernelPasses.h - LLVM's part in the code of kernels ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_OBJECTS_KERNELPASSES_H
#define MEMOPT_CONVERSION_OBJECTS_KERNELPASSES_H

#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"
#include "llvm/Target/TargetMachine.h"

namespace mlir::memopt {

/// Runs the passes that scheduled kernels still need, on processors and devices alike. `inlines`:
/// functions marked so are first put where they are called.
llvm::Error optimizeKernels(llvm::Module &module, llvm::TargetMachine &machine,
                            bool inlines = false);

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_OBJECTS_KERNELPASSES_H
