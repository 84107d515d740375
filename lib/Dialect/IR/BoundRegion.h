//===- BoundRegion.h - text of regions with named operands ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ops whose block arguments are other names of their operands are written
// `(%inner = %outer : type, ...) { body }`.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_DIALECT_IR_BOUNDREGION_H
#define MEMOPT_LIB_DIALECT_IR_BOUNDREGION_H

#include "mlir/IR/OpImplementation.h"

namespace mlir::memopt {

ParseResult parseBindings(OpAsmParser &parser,
                          SmallVectorImpl<OpAsmParser::UnresolvedOperand> &operands,
                          SmallVectorImpl<OpAsmParser::Argument> &arguments,
                          OpAsmParser::Delimiter delimiter = OpAsmParser::Delimiter::Paren);
void printBindings(OpAsmPrinter &printer, Block::BlockArgListType arguments, ValueRange inputs);
SmallVector<Type> getTypes(ArrayRef<OpAsmParser::Argument> arguments);

/// For assembly formats; bindings are left out where there are none, and an empty terminator is.
ParseResult parseBoundRegion(OpAsmParser &parser,
                             SmallVectorImpl<OpAsmParser::UnresolvedOperand> &operands,
                             SmallVectorImpl<Type> &types, Region &body);
void printBoundRegion(OpAsmPrinter &printer, Operation *op, ValueRange inputs, TypeRange types,
                      Region &body);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_DIALECT_IR_BOUNDREGION_H
