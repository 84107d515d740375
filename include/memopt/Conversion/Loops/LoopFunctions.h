//===- LoopFunctions.h - kernels as functions of a processor -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_LOOPS_LOOPFUNCTIONS_H
#define MEMOPT_CONVERSION_LOOPS_LOOPFUNCTIONS_H

#include "memopt/Conversion/Core/Emission/KernelFunction.h"
#include "memopt/Conversion/Loops/LoopSchedule.h"

namespace mlir::memopt {

/// Adds the function of a kernel, which calls those of its stages, on several threads where they
/// cost more than `serialCost`.
void buildLoopFunctions(KernelFunctionBuilder &functions, const ElementGraph &graph,
                        const KernelSchedule &schedule, const LoopScheduleRules &rules,
                        double serialCost);

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_LOOPS_LOOPFUNCTIONS_H
