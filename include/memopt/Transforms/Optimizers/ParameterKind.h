//===- ParameterKind.h - what a parameter is for its model -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_OPTIMIZERS_PARAMETERKIND_H
#define MEMOPT_TRANSFORMS_OPTIMIZERS_PARAMETERKIND_H

#include "memopt/Dialect/Memopt.h"
#include "memopt/Transforms/Optimizers/Optimizers.h"

namespace mlir::memopt {

/// Names, kind and type of a parameter. What owns it says whether it is a norm's; where that is
/// unknown, its reads do. The names live as long as the variable.
ParameterInfo describeParameter(VariableOp variable, ArrayRef<ReadOp> reads);

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_OPTIMIZERS_PARAMETERKIND_H
