//===- KernelAliasing.h - results that take an operand's buffer -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_CORE_SCHEDULE_KERNELALIASING_H
#define MEMOPT_CONVERSION_CORE_SCHEDULE_KERNELALIASING_H

#include "memopt/Conversion/Core/Schedule/KernelSchedule.h"

namespace mlir::memopt {

/// Orders the nests of each stage so that results over operands are stored last, and checks that no
/// element is read after it is overwritten. `resultBuffers[i]` is the operand under result i, or
/// -1. Gives the number of a result that would be stored too early.
std::optional<unsigned> orderForAliases(const ElementGraph &graph, KernelSchedule &schedule,
                                        ArrayRef<int64_t> resultBuffers);

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_CORE_SCHEDULE_KERNELALIASING_H
