//===- ScanOp.cpp - loops over slices ---------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BoundRegion.h"
#include "LoopCosts.h"

#include "memopt/Dialect/Memopt.h"

#include "mlir/IR/Builders.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Building
//===----------------------------------------------------------------------===//

/// The type of one slice along the leading dimension.
static RankedTensorType getSliceType(Type whole) {
  auto type = cast<RankedTensorType>(whole);
  return type.clone(type.getShape().drop_front());
}

static RankedTensorType stackTypes(Type slice, int64_t count) {
  auto type = cast<RankedTensorType>(slice);
  SmallVector<int64_t> shape{count};
  llvm::append_range(shape, type.getShape());
  return type.clone(shape);
}

void ScanOp::build(OpBuilder &builder, OperationState &state, ValueRange fixed, ValueRange slices,
                   ArrayRef<int64_t> firsts, ValueRange carried, int64_t count, bool reverse) {
  for (ValueRange group : {fixed, slices, carried})
    state.addOperands(group);
  Properties &properties = state.getOrAddProperties<Properties>();
  properties.count = builder.getI64IntegerAttr(count);
  properties.firsts = builder.getDenseI64ArrayAttr(firsts);
  if (reverse)
    properties.reverse = builder.getUnitAttr();
  properties.operandSegmentSizes = {static_cast<int32_t>(fixed.size()),
                                    static_cast<int32_t>(slices.size()),
                                    static_cast<int32_t>(carried.size())};
  Block &block = state.addRegion()->emplaceBlock();
  for (Value value : fixed)
    block.addArgument(value.getType(), value.getLoc());
  for (Value value : slices)
    block.addArgument(getSliceType(value.getType()), value.getLoc());
  for (Value value : carried)
    block.addArgument(value.getType(), value.getLoc());
}

SmallVector<Type> ScanOp::getTypesOfBody() {
  SmallVector<Type> types(getNextValues().getTypes());
  for (Value slice : getYieldedSlices())
    types.push_back(stackTypes(slice.getType(), getRepeatCount()));
  return types;
}

ScanOp ScanOp::finish(OpBuilder &builder, ScanOp open) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(open);
  OperationState state(open.getLoc(), getOperationName());
  state.addOperands(open->getOperands());
  state.addTypes(open.getTypesOfBody());
  state.propertiesAttr = open->getPropertiesAsAttribute();
  state.attributes = open->getDiscardableAttrDictionary();
  state.addRegion()->takeBody(open.getBody());
  auto made = cast<ScanOp>(builder.create(state));
  for (auto [old, value] : llvm::zip_first(open->getResults(), made->getResults()))
    old.replaceAllUsesWith(value);
  open.erase();
  return made;
}

YieldOp ScanOp::getYield() { return cast<YieldOp>(getBody().front().getTerminator()); }

OperandRange ScanOp::getNextValues() {
  return getYield().getValues().take_front(getCarried().size());
}

OperandRange ScanOp::getYieldedSlices() {
  return getYield().getValues().drop_front(getCarried().size());
}

//===----------------------------------------------------------------------===//
// Verification
//===----------------------------------------------------------------------===//

static LogicalResult verifyArguments(ScanOp scan) {
  if (scan.getBody().getNumArguments() != scan->getNumOperands())
    return scan.emitOpError() << "has " << scan.getBody().getNumArguments()
                              << " block arguments, expected " << scan->getNumOperands();
  if (scan.getFirsts().size() != scan.getSlices().size())
    return scan.emitOpError() << "has " << scan.getFirsts().size() << " first slices, expected "
                              << scan.getSlices().size();
  for (auto [argument, operand] : llvm::zip(scan.getBody().getArguments(), scan->getOperands())) {
    auto type = cast<RankedTensorType>(operand.getType());
    bool isSlice = scan.isSlice(argument);
    if (isSlice && type.getRank() == 0)
      return scan.emitOpError("slices a tensor of rank 0");
    Type expected = isSlice ? getSliceType(type) : type;
    if (argument.getType() != expected)
      return scan.emitOpError() << "has a block argument " << argument.getArgNumber() << " of type "
                                << argument.getType() << ", expected " << expected;
  }
  for (auto [operand, first] : llvm::zip(scan.getSlices(), scan.getFirsts())) {
    int64_t size = cast<RankedTensorType>(operand.getType()).getDimSize(0);
    if (first < 0 || first > size - scan.getRepeatCount())
      return scan.emitOpError() << "reads slices " << first << " to "
                                << first + scan.getRepeatCount() - 1 << " of " << size;
  }
  return success();
}

LogicalResult ScanOp::verify() {
  if (failed(verifyArguments(*this)))
    return failure();
  Block &block = getBody().front();
  auto yield = block.empty() ? YieldOp() : dyn_cast<YieldOp>(block.back());
  if (!yield || yield.getValues().size() < getCarried().size())
    return emitOpError("expects a yield of the next carried values and of slices");
  if (TypeRange(getNextValues()) != TypeRange(getCarried()))
    return emitOpError("yields carried values of other types than it begins with");
  if (TypeRange(getTypesOfBody()) != TypeRange(getResultTypes()))
    return emitOpError("has results of other types than its body yields");
  WalkResult accesses = getBody().walk([](Operation *op) {
    return isa<ReadOp, WriteOp, GradientOp>(op) ? WalkResult::interrupt() : WalkResult::advance();
  });
  if (accesses.wasInterrupted())
    return emitOpError("reads or writes variables; its body is a function of its arguments");
  return success();
}

//===----------------------------------------------------------------------===//
// Interfaces
//===----------------------------------------------------------------------===//

int64_t ScanOp::getFlops() {
  return sumOverBody(*this, [](CostOpInterface op) { return op.getFlops(); });
}
int64_t ScanOp::getBytesMoved() {
  return sumOverBody(*this, [](CostOpInterface op) { return op.getBytesMoved(); });
}
std::string ScanOp::getKindName() { return "scan"; }
Work ScanOp::getWork() { return Work(); }
int64_t ScanOp::getRepeatCount() { return getCountAttr().getInt(); }
SmallVector<Block *> ScanOp::getBodies() { return {&getBody().front()}; }
bool ScanOp::isRecomputable() {
  return llvm::all_of(getBody().front().without_terminator(), [](Operation &op) {
    auto rule = dyn_cast<RecomputableOpInterface>(op);
    return rule ? rule.isRecomputable() : isPure(&op);
  });
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

using Operands = SmallVector<OpAsmParser::UnresolvedOperand>;
using Arguments = SmallVector<OpAsmParser::Argument>;

/// `keyword(%a = %x : type, ...)`, or nothing.
static ParseResult parseGroup(OpAsmParser &parser, StringRef keyword, Operands &operands,
                              Arguments &arguments, SmallVectorImpl<Type> &types) {
  if (failed(parser.parseOptionalKeyword(keyword)))
    return success();
  size_t known = arguments.size();
  if (parseBindings(parser, operands, arguments))
    return failure();
  llvm::append_range(types, getTypes(ArrayRef(arguments).drop_front(known)));
  return success();
}

/// `slices(%a = %x[first] : type of type, ...)`, or nothing.
static ParseResult parseSlices(OpAsmParser &parser, Operands &operands, Arguments &arguments,
                               SmallVectorImpl<Type> &types, SmallVectorImpl<int64_t> &firsts) {
  if (failed(parser.parseOptionalKeyword("slices")))
    return success();
  return parser.parseCommaSeparatedList(OpAsmParser::Delimiter::Paren, [&]() -> ParseResult {
    OpAsmParser::Argument &argument = arguments.emplace_back();
    int64_t &first = firsts.emplace_back(0);
    if (parser.parseArgument(argument) || parser.parseEqual() ||
        parser.parseOperand(operands.emplace_back()))
      return failure();
    if (succeeded(parser.parseOptionalLSquare()) &&
        (parser.parseInteger(first) || parser.parseRSquare()))
      return failure();
    return failure(parser.parseColonType(argument.type) || parser.parseKeyword("of") ||
                   parser.parseType(types.emplace_back()));
  });
}

ParseResult ScanOp::parse(OpAsmParser &parser, OperationState &state) {
  Operands operands;
  Arguments arguments;
  SmallVector<Type> types, results;
  SmallVector<int64_t> firsts;
  int64_t count = 0;
  Builder &builder = parser.getBuilder();
  Properties &properties = state.getOrAddProperties<Properties>();
  SMLoc start = parser.getCurrentLocation();
  if (parser.parseKeyword("count") || parser.parseLParen() || parser.parseInteger(count) ||
      parser.parseRParen())
    return failure();
  if (succeeded(parser.parseOptionalKeyword("reverse")))
    properties.reverse = builder.getUnitAttr();
  if (parseGroup(parser, "fixed", operands, arguments, types))
    return failure();
  size_t fixed = operands.size();
  if (parseSlices(parser, operands, arguments, types, firsts))
    return failure();
  size_t slices = operands.size() - fixed;
  if (parseGroup(parser, "carried", operands, arguments, types))
    return failure();
  properties.count = builder.getI64IntegerAttr(count);
  properties.firsts = builder.getDenseI64ArrayAttr(firsts);
  properties.operandSegmentSizes = {static_cast<int32_t>(fixed), static_cast<int32_t>(slices),
                                    static_cast<int32_t>(operands.size() - fixed - slices)};
  if (parser.parseRegion(*state.addRegion(), arguments))
    return failure();
  if (succeeded(parser.parseOptionalArrow()) && parser.parseTypeList(results))
    return failure();
  state.addTypes(results);
  return failure(parser.parseOptionalAttrDict(state.attributes) ||
                 parser.resolveOperands(operands, types, start, state.operands));
}

static void printGroup(OpAsmPrinter &printer, StringRef keyword, Block::BlockArgListType arguments,
                       ValueRange operands) {
  if (operands.empty())
    return;
  printer << " " << keyword;
  printBindings(printer, arguments, operands);
}

void ScanOp::print(OpAsmPrinter &printer) {
  printer << " count(" << getRepeatCount() << ")";
  if (getReverse())
    printer << " reverse";
  printGroup(printer, "fixed", getFixedArguments(), getFixed());
  if (!getSlices().empty()) {
    printer << " slices(";
    auto all = llvm::zip(getSliceArguments(), getSlices(), getFirsts());
    llvm::interleaveComma(all, printer, [&](auto part) {
      auto [argument, operand, first] = part;
      printer << argument << " = " << operand;
      if (first)
        printer << "[" << first << "]";
      printer << " : " << argument.getType() << " of " << operand.getType();
    });
    printer << ")";
  }
  printGroup(printer, "carried", getCarriedArguments(), getCarried());
  printer << " ";
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
  if (getNumResults()) {
    printer << " -> ";
    llvm::interleaveComma(getResultTypes(), printer);
  }
  SmallVector<StringRef> hidden{getCountAttrName(), getFirstsAttrName(), getReverseAttrName(),
                                "operandSegmentSizes"};
  if (getPhase() == Phase::Forward)
    hidden.push_back(getPhaseAttrName());
  if (getClone() == 0)
    hidden.push_back(getCloneAttrName());
  printer.printOptionalAttrDict((*this)->getAttrs(), hidden);
}
