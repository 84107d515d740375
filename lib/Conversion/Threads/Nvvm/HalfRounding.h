//===- HalfRounding.h - two floats rounded to f16 at a time -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_THREADS_NVVM_HALFROUNDING_H
#define MEMOPT_LIB_CONVERSION_THREADS_NVVM_HALFROUNDING_H

#include "llvm/IR/Module.h"

namespace mlir::memopt {

/// Whether the chip rounds two floats to f16 with one instruction (cvt.rn.f16x2.f32).
bool hasPairedRoundings(llvm::StringRef chip);

/// Makes roundings of vectors to f16 roundings of pairs, which LLVM finds for bf16 alone.
void pairRoundings(llvm::Module &module);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_THREADS_NVVM_HALFROUNDING_H
