//===- BoundRegion.cpp - text of regions with named operands ----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BoundRegion.h"

#include "memopt/Dialect/Memopt.h"

using namespace mlir;
using namespace mlir::memopt;

ParseResult mlir::memopt::parseBindings(OpAsmParser &parser,
                                        SmallVectorImpl<OpAsmParser::UnresolvedOperand> &operands,
                                        SmallVectorImpl<OpAsmParser::Argument> &arguments,
                                        OpAsmParser::Delimiter delimiter) {
  return parser.parseCommaSeparatedList(delimiter, [&]() -> ParseResult {
    OpAsmParser::Argument &argument = arguments.emplace_back();
    return failure(failed(parser.parseArgument(argument)) || failed(parser.parseEqual()) ||
                   failed(parser.parseOperand(operands.emplace_back())) ||
                   failed(parser.parseColonType(argument.type)));
  });
}

void mlir::memopt::printBindings(OpAsmPrinter &printer, Block::BlockArgListType arguments,
                                 ValueRange inputs) {
  printer << "(";
  llvm::interleaveComma(llvm::zip(arguments, inputs), printer, [&](auto pair) {
    auto [argument, input] = pair;
    printer << argument << " = " << input << " : " << input.getType();
  });
  printer << ")";
}

SmallVector<Type> mlir::memopt::getTypes(ArrayRef<OpAsmParser::Argument> arguments) {
  return llvm::map_to_vector(arguments,
                             [](const OpAsmParser::Argument &argument) { return argument.type; });
}

ParseResult
mlir::memopt::parseBoundRegion(OpAsmParser &parser,
                               SmallVectorImpl<OpAsmParser::UnresolvedOperand> &operands,
                               SmallVectorImpl<Type> &types, Region &body) {
  SmallVector<OpAsmParser::Argument> arguments;
  if (parseBindings(parser, operands, arguments, OpAsmParser::Delimiter::OptionalParen))
    return failure();
  llvm::append_range(types, getTypes(arguments));
  if (parser.parseRegion(body, arguments))
    return failure();
  if (body.empty())
    body.emplaceBlock();
  OpBuilder builder(parser.getContext());
  RepeatOp::ensureTerminator(body, builder, builder.getUnknownLoc());
  return success();
}

void mlir::memopt::printBoundRegion(OpAsmPrinter &printer, Operation *, ValueRange inputs,
                                    TypeRange, Region &body) {
  if (!inputs.empty()) {
    printBindings(printer, body.getArguments(), inputs);
    printer << " ";
  }
  printer.printRegion(body, /*printEntryBlockArgs=*/false, /*printBlockTerminators=*/false);
}
