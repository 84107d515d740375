//===- TargetCode.h - code of a kind of machine ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_TARGETS_TARGETCODE_H
#define MEMOPT_CONVERSION_TARGETS_TARGETCODE_H

#include "memopt/Conversion/Kernels/KernelLowering.h"
#include "memopt/Conversion/Objects/ObjectEmission.h"

#include "mlir/IR/Attributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"

#include <string>

#include "memopt/Conversion/Targets/TargetCode.h.inc"

namespace mlir::memopt {

/// Gives the dialect's own targets their code: processors, and NVIDIA's GPUs.
void registerTargetCode(DialectRegistry &registry);

/// The code of the machine that `planned` is for. Fails with a diagnostic where nobody knows any.
FailureOr<TargetCodeAttrInterface> getTargetCode(ModuleOp planned);

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_TARGETS_TARGETCODE_H
