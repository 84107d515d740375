//===- KernelOps.cpp - the kernel graph -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// KernelOp: memopt.kernel (%inner = %outer : type, ...) -> (types) attributes {...} { body }
//===----------------------------------------------------------------------===//

ParseResult KernelOp::parse(OpAsmParser &parser, OperationState &state) {
  SmallVector<OpAsmParser::Argument> arguments;
  SmallVector<OpAsmParser::UnresolvedOperand> operands;
  SMLoc operandsAt = parser.getCurrentLocation();
  auto parseBinding = [&]() -> ParseResult {
    OpAsmParser::Argument &argument = arguments.emplace_back();
    return failure(failed(parser.parseArgument(argument)) || failed(parser.parseEqual()) ||
                   failed(parser.parseOperand(operands.emplace_back())) ||
                   failed(parser.parseColonType(argument.type)));
  };
  if (parser.parseCommaSeparatedList(OpAsmParser::Delimiter::Paren, parseBinding) ||
      parser.parseArrowTypeList(state.types) ||
      parser.parseOptionalAttrDictWithKeyword(state.attributes))
    return failure();
  SmallVector<Type> types;
  for (const OpAsmParser::Argument &argument : arguments)
    types.push_back(argument.type);
  return failure(failed(parser.resolveOperands(operands, types, operandsAt, state.operands)) ||
                 failed(parser.parseRegion(*state.addRegion(), arguments)));
}

void KernelOp::print(OpAsmPrinter &printer) {
  printer << " (";
  llvm::interleaveComma(llvm::zip(getBody().getArguments(), getInputs()), printer, [&](auto pair) {
    auto [argument, input] = pair;
    printer << argument << " = " << input << " : " << input.getType();
  });
  printer << ")";
  printer.printArrowTypeList(getResultTypes());
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs());
  printer << " ";
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

/// What code generation knows how to read through or compute.
static bool belongsInKernel(Operation *op) {
  return isa<linalg::GenericOp, linalg::FillOp, arith::ConstantOp, tensor::EmptyOp,
             tensor::ExtractSliceOp, tensor::ExpandShapeOp, tensor::CollapseShapeOp,
             tensor::ConcatOp, TransposeOp, BroadcastOp, PadOp, IotaOp, EmbeddingBackwardOp,
             YieldOp>(op);
}

LogicalResult KernelOp::verify() {
  Block &body = getBody().front();
  if (body.getArgumentTypes() != getInputs().getTypes())
    return emitOpError("expects one block argument for each operand, of its type");
  auto yield = dyn_cast<YieldOp>(body.getTerminator());
  if (!yield || yield.getValues().getTypes() != getResultTypes())
    return emitOpError("expects the body to yield one value for each result, of its type");
  for (Operation &op : body)
    if (!belongsInKernel(&op)) {
      InFlightDiagnostic diagnostic = emitOpError()
                                      << "holds '" << op.getName() << "', which no kernel computes";
      diagnostic.attachNote(op.getLoc()) << "here";
      return diagnostic;
    }
  return success();
}

//===----------------------------------------------------------------------===//
// LibraryCallOp
//===----------------------------------------------------------------------===//

LogicalResult LibraryCallOp::verify() {
  if (!getDescriptor().getAs<StringAttr>("kind"))
    return emitOpError("descriptor lacks a string 'kind'");
  if (getOperandOffsets().size() != getInputs().size())
    return emitOpError() << "has " << getOperandOffsets().size() << " operand offsets, expected "
                         << getInputs().size();
  for (auto [offset, input] : llvm::zip(getOperandOffsets(), getInputs()))
    if (offset < 0 ||
        offset >= std::max<int64_t>(1, cast<RankedTensorType>(input.getType()).getNumElements()))
      return emitOpError() << "operand offset " << offset << " lies outside " << input.getType();
  if (getWorkspaceAttr().getInt() < 0)
    return emitOpError() << "workspace must not be negative, found " << getWorkspaceAttr().getInt();
  return success();
}

int64_t LibraryCallOp::getFlops() { return getFlopCountAttr().getInt(); }
int64_t LibraryCallOp::getBytesMoved() { return getOperandAndResultBytes(*this); }
int64_t LibraryCallOp::getWorkspaceBytes() { return getWorkspaceAttr().getInt(); }
