//===- Memopt.h - the memopt dialect ----------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_MEMOPT_H
#define MEMOPT_DIALECT_MEMOPT_H

#include "memopt/Interfaces/MemoptInterfaces.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"

#include "memopt/Dialect/MemoptDialect.h.inc"
#include "memopt/Dialect/MemoptEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "memopt/Dialect/MemoptAttributes.h.inc"

#define GET_OP_CLASSES
#include "memopt/Dialect/MemoptOps.h.inc"

namespace mlir::memopt {
/// Attaches the differentiate, batch dimension and recompute interfaces to the arith, math and tensor
/// ops that training graphs use.
void registerUpstreamInterfaces(DialectRegistry &registry);
} // namespace mlir::memopt

#endif // MEMOPT_DIALECT_MEMOPT_H
