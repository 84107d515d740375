//===- HostProgram.h - the step function of a program -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_HOST_HOSTPROGRAM_H
#define MEMOPT_CONVERSION_HOST_HOSTPROGRAM_H

#include "memopt/Analysis/StepModel.h"
#include "memopt/Conversion/Host/HostEmitter.h"

namespace mlir::memopt {

/// Adds what a package's code has once (ProgramInterface.h) to `program`: the version, and the place
/// of the digest.
void addPackageSymbols(ModuleOp program);

/// Adds the step of one of the package's programs to `program`, which runs the instructions of the
/// planned step in order. Fails with a diagnostic when something has no offset or does not say how it
/// is emitted.
LogicalResult buildHostProgram(const StepModel &step, ModuleOp program,
                               KernelFunctionFn lowerKernel, const HostOptions &options = {});

/// What a program exports as the digest of its package, until that is known (Package.cpp).
constexpr llvm::StringLiteral kDigestPlaceholder = "(where the digest of the package stands)";

/// Lets the dialect's instructions emit themselves.
void registerHostInstructions(DialectRegistry &registry);

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_HOST_HOSTPROGRAM_H
