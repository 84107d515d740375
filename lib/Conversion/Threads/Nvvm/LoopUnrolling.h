//===- LoopUnrolling.h - how often loops of kernels are unrolled -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// ptxas unrolls loops whole whose turns it knows, be they 64 turns of 16 bytes each, and then has
// too few registers. So no loop is left to it: those that wait for memory have several turns under
// way, as many as registers are sure to hold, and all of them forbid it to unroll.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_THREADS_NVVM_LOOPUNROLLING_H
#define MEMOPT_LIB_CONVERSION_THREADS_NVVM_LOOPUNROLLING_H

#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"

namespace mlir::memopt {

/// Unrolls the loops of all functions.
void unrollLoops(llvm::Module &module, llvm::TargetMachine &machine);

/// The same code, each loop of which ptxas is not to unroll: LLVM says so of those that it unrolled
/// itself, and forgets others on its way.
std::string forbidUnrolling(llvm::StringRef ptx);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_THREADS_NVVM_LOOPUNROLLING_H
