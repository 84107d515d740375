//===- InlineIntoReaders.h - kernels that store less ----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernel fusion stores a value that several kernels read when computing it again in each would take
// longer. Where such a value stands in the way of a small arena, each reader can compute it all the
// same, from what the producer reads: a recomputation that never has its result in memory. Clones
// of whole kernels cannot do that.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_KERNELS_INLINEINTOREADERS_H
#define MEMOPT_TRANSFORMS_KERNELS_INLINEINTOREADERS_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace mlir::memopt {

/// A copy of a kernel graph's module in which some values are computed by the kernels that read
/// them, and how many; no module where none helps.
struct InlinedForm {
  OwningOpRef<ModuleOp> module;
  int64_t values = 0;
};

/// Looks at the instruction whose own operands, results and workspace are the most bytes, which
/// bounds the peak of any order, and computes one of these values in its readers if that lowers the
/// bound; and so on while it does. No form where all that saves next to nothing. Only elementwise
/// values that kernels without sums read, so that no bits change.
InlinedForm inlineIntoReaders(ModuleOp module);

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_KERNELS_INLINEINTOREADERS_H
