//===- StateNames.h - variables of one program among those of all -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_PACKAGE_STATENAMES_H
#define MEMOPT_LIB_PACKAGE_STATENAMES_H

#include "memopt/Dialect/Memopt.h"

#include "mlir/IR/SymbolTable.h"

namespace mlir::memopt {

/// Gives a variable another name; fails where that is taken.
LogicalResult renameVariable(SymbolTable &symbols, VariableOp variable, StringRef name);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_PACKAGE_STATENAMES_H
