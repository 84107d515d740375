//===- RuntimeImplementations.h - what the runtime would run ----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TARGET_CPU_RUNTIMEIMPLEMENTATIONS_H
#define MEMOPT_LIB_TARGET_CPU_RUNTIMEIMPLEMENTATIONS_H

#include "memopt/Dialect/Memopt.h"

#include "llvm/Support/JSON.h"

namespace mlir::memopt {

/// The implementation that the runtime on this machine would run for a library call, as a target
/// describes it, planned for `threads`.
FailureOr<SmallVector<CallImplementation>> askRuntime(llvm::json::Object description, int threads,
                                                      function_ref<InFlightDiagnostic()> emitError);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TARGET_CPU_RUNTIMEIMPLEMENTATIONS_H
