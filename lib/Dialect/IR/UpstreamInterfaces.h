//===- UpstreamInterfaces.h - interfaces of arith, math and tensor ops -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_DIALECT_IR_UPSTREAMINTERFACES_H
#define MEMOPT_LIB_DIALECT_IR_UPSTREAMINTERFACES_H

#include "mlir/IR/MLIRContext.h"

namespace mlir::memopt {
/// Attaches DifferentiableOpInterface to the upstream ops of training graphs. Their dialects are
/// loaded.
void attachUpstreamGradients(MLIRContext *context);
/// Attaches IterationOpInterface likewise.
void attachUpstreamIteration(MLIRContext *context);
/// Attaches ViewOpInterface likewise.
void attachUpstreamViews(MLIRContext *context);
/// Attaches LayoutOpInterface likewise.
void attachUpstreamLayouts(MLIRContext *context);
} // namespace mlir::memopt

#endif // MEMOPT_LIB_DIALECT_IR_UPSTREAMINTERFACES_H
