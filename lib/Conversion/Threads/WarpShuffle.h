//===- WarpShuffle.h - what the threads of a warp exchange ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LIB_CONVERSION_THREADS_WARPSHUFFLE_H
#define LIB_CONVERSION_THREADS_WARPSHUFFLE_H

#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::memopt {

/// The value, a number of at most 64 bits, of the thread whose number differs in bit `distance`.
/// `mask`, an i32, has the threads of the warp that take part.
Value shuffleWarp(ImplicitLocOpBuilder &b, Value mask, Value value, int64_t distance);

} // namespace mlir::memopt

#endif // LIB_CONVERSION_THREADS_WARPSHUFFLE_H
