//===- HostProgram.h - the step function of a planned program -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_HOSTPROGRAM_H
#define MEMOPT_CONVERSION_HOSTPROGRAM_H

#include "memopt/Analysis/KernelGraph.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace mlir::memopt {

/// Gives the symbol, in the module under construction, of the function that runs `kernel`. It takes
/// a pointer to the memopt_step, then one per operand, then one per result.
using KernelSymbolFn = llvm::function_ref<FailureOr<std::string>(KernelOp kernel)>;

struct HostOptions {
  /// Report each instruction to the runtime before it runs, which timelines, saved gradients and
  /// the search for the origin of a NaN need.
  bool isInstrumented = true;
};

/// Adds to `program` (a module of the LLVM dialect) the entry points of runtime/ProgramInterface.h
/// for the planned function `step`: version, and the step itself, a straight line of kernel and
/// library calls on constant addresses. Instruction i of the manifest is the i-th call.
LogicalResult buildHostProgram(func::FuncOp step, ModuleOp program, KernelSymbolFn kernelSymbol,
                               const HostOptions &options = {});

/// The number of each library call of a kernel graph: its place in the manifest's library_calls.
llvm::DenseMap<Operation *, int64_t> numberLibraryCalls(const KernelGraph &graph);

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_HOSTPROGRAM_H
