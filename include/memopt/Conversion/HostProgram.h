//===- HostProgram.h - the step function of a planned program -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_HOSTPROGRAM_H
#define MEMOPT_CONVERSION_HOSTPROGRAM_H

#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace mlir::memopt {

/// Gives the symbol, in the module under construction, of the function that runs `kernel`. It takes
/// one pointer per operand, then one per result.
using KernelSymbolFn = llvm::function_ref<FailureOr<std::string>(KernelOp kernel)>;

/// Name of the global in the program that holds the runtime's table of functions, set by bind.
inline constexpr llvm::StringLiteral kRuntimeTableGlobal = "memopt_runtime_table";

/// Adds to `program` (a module of the LLVM dialect) the entry points of runtime/ProgramInterface.h
/// for the planned function `step`: version, bind, and the step itself, a straight line of kernel
/// and library calls on constant addresses. Instruction i of the manifest is the i-th call; library
/// calls are numbered in order.
LogicalResult buildHostProgram(func::FuncOp step, ModuleOp program, KernelSymbolFn kernelSymbol);

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_HOSTPROGRAM_H
