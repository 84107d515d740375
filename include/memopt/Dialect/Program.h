//===- Program.h - what a program and who runs it agree on ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_PROGRAM_H
#define MEMOPT_DIALECT_PROGRAM_H

#include "memopt/Dialect/Memopt.h"

namespace mlir::memopt {

/// The variable of that name that the runtime writes; null where there is none. A variable of the
/// model may have any name.
VariableOp findHyperparameter(ModuleOp module, StringRef name);

/// Whether a compilation may declare a symbol of this name of its own: the step's, or that of a
/// variable that the runtime or the optimizer needs. A model's variable of such a name gets another
/// symbol, and keeps its name in checkpoints.
bool isProgramName(StringRef name);

/// On modules, a unit: the program is one of several over the same state, whose variables come
/// first, in one order.
constexpr llvm::StringLiteral kSharesStateAttr = "memopt.shares_state";
/// On variables of such a module, a unit: a constant of this program alone, no part of the state.
constexpr llvm::StringLiteral kOwnAttr = "memopt.own";
/// On variables of such a module: how checkpoints restore them, which another program may know.
constexpr llvm::StringLiteral kRestoreAttr = "memopt.restore";

/// How many sites of memopt.check a program tells apart: a report holds the number in 16 bits, and
/// one word says that there is no report.
constexpr int64_t kMostIndexSites = (1 << 16) - 1;

} // namespace mlir::memopt

#endif // MEMOPT_DIALECT_PROGRAM_H
