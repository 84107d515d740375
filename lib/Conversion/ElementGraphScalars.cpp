//===- ElementGraphScalars.cpp - bodies of structured ops -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ElementGraph.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::memopt;

FailureOr<NodeId> ElementGraph::buildScalar(Value value, ArrayRef<IndexExpr> loops, NodeId guard,
                                            Environment &environment) {
  auto known = environment.find(value);
  if (known != environment.end())
    return known->second;
  Operation *op = value.getDefiningOp();
  if (!op)
    return emitError(value.getLoc(), "a kernel's body uses a scalar argument from outside");
  FailureOr<NodeId> node = failure();
  if (auto index = dyn_cast<linalg::IndexOp>(op)) {
    node = getIndex(loops[index.getDim()]);
  } else if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    node = getConstant(constant.getValue());
  } else if (isa<tensor::ExtractOp>(op)) {
    node = buildExtract(op, loops, guard, environment);
  } else {
    SmallVector<NodeId> operands;
    for (Value operand : op->getOperands()) {
      FailureOr<NodeId> child = buildScalar(operand, loops, guard, environment);
      if (failed(child))
        return failure();
      operands.push_back(*child);
    }
    node = buildScalarOp(*op, cast<OpResult>(value).getResultNumber(), operands);
  }
  if (succeeded(node))
    environment[value] = *node;
  return node;
}

FailureOr<NodeId> ElementGraph::buildScalarOp(Operation &op, unsigned result,
                                              ArrayRef<NodeId> operands) {
  if (!isa<arith::ArithDialect, math::MathDialect>(op.getDialect()) || op.getNumRegions())
    return op.emitError("'") << op.getName() << "' is not computed by any kernel";
  NodeId folded = foldIndex(op, operands);
  if (folded != kNoNode)
    return folded;
  Type type = getScalarType(getElementTypeOrSelf(op.getResult(result).getType()));
  OperationName name = op.getName();
  Attribute attributes = op.getAttrDictionary();
  // An index is an i64 here, so casts to and from it are those between integers.
  if (isa<arith::IndexCastOp, arith::IndexCastUIOp>(op)) {
    unsigned from = nodes[operands[0]].type.getIntOrFloatBitWidth();
    unsigned to = type.getIntOrFloatBitWidth();
    if (from == to)
      return operands[0];
    bool isSigned = isa<arith::IndexCastOp>(op);
    StringRef cast = to < from  ? arith::TruncIOp::getOperationName()
                     : isSigned ? arith::ExtSIOp::getOperationName()
                                : arith::ExtUIOp::getOperationName();
    name = OperationName(cast, context);
    attributes = DictionaryAttr::get(context);
  }
  return getApply(name, attributes, operands, type, result);
}

FailureOr<NodeId> ElementGraph::buildExtract(Operation *op, ArrayRef<IndexExpr> loops, NodeId guard,
                                             Environment &environment) {
  auto extract = cast<tensor::ExtractOp>(op);
  SmallVector<IndexExpr> indices;
  for (auto [value, size] :
       llvm::zip_equal(extract.getIndices(), extract.getTensor().getType().getShape())) {
    FailureOr<NodeId> node = buildScalar(value, loops, guard, environment);
    if (failed(node))
      return failure();
    if (std::optional<IndexExpr> index = asIndex(*node))
      indices.push_back(*index);
    else
      indices.push_back(table.getDatum(*node, size, nodes[*node].variables));
  }
  return build(extract.getTensor(), indices, guard);
}

//===----------------------------------------------------------------------===//
// Integers that stay symbolic
//===----------------------------------------------------------------------===//

std::optional<IndexExpr> ElementGraph::asIndex(NodeId id) const {
  const ElementNode &node = nodes[id];
  if (node.kind == ElementNode::Index)
    return node.address;
  if (auto integer = dyn_cast_or_null<IntegerAttr>(node.attribute);
      integer && node.kind == ElementNode::Constant && node.type.isInteger(64))
    return IndexExpr(integer.getInt());
  return std::nullopt;
}

/// The truth of `predicate` for every value of a - b in `range`, if it is one.
static std::optional<bool> decide(arith::CmpIPredicate predicate, IndexRange range) {
  using P = arith::CmpIPredicate;
  auto when = [](bool always, bool never) -> std::optional<bool> {
    return always ? std::optional(true) : never ? std::optional(false) : std::nullopt;
  };
  switch (predicate) {
  case P::slt:
    return when(range.high < 0, range.low >= 0);
  case P::sle:
    return when(range.high <= 0, range.low > 0);
  case P::sgt:
    return when(range.low > 0, range.high <= 0);
  case P::sge:
    return when(range.low >= 0, range.high < 0);
  case P::eq:
    return when(range.low == 0 && range.high == 0, range.low > 0 || range.high < 0);
  case P::ne:
    return when(range.low > 0 || range.high < 0, range.low == 0 && range.high == 0);
  default:
    return std::nullopt;
  }
}

NodeId ElementGraph::foldIndex(Operation &op, ArrayRef<NodeId> operands) {
  if (isa<arith::SelectOp>(op)) {
    auto condition = dyn_cast_or_null<IntegerAttr>(nodes[operands[0]].attribute);
    if (nodes[operands[0]].kind == ElementNode::Constant && condition)
      return operands[condition.getValue().isZero() ? 2 : 1];
    return operands[1] == operands[2] ? operands[1] : kNoNode;
  }
  if (operands.size() != 2)
    return kNoNode;
  std::optional<IndexExpr> a = asIndex(operands[0]), b = asIndex(operands[1]);
  if (!a || !b)
    return kNoNode;
  IndexRange difference = table.getRange(IndexTable::add(*a, *b, -1));
  if (isa<arith::AddIOp>(op))
    return getIndex(IndexTable::add(*a, *b));
  if (isa<arith::SubIOp>(op))
    return getIndex(IndexTable::add(*a, *b, -1));
  if (isa<arith::MulIOp>(op) && (a->isConstant() || b->isConstant()))
    return getIndex(a->isConstant() ? IndexTable::scale(*b, a->constant)
                                    : IndexTable::scale(*a, b->constant));
  if (isa<arith::MaxSIOp>(op) && (difference.low >= 0 || difference.high <= 0))
    return operands[difference.low >= 0 ? 0 : 1];
  if (isa<arith::MinSIOp>(op) && (difference.low >= 0 || difference.high <= 0))
    return operands[difference.low >= 0 ? 1 : 0];
  if (auto compare = dyn_cast<arith::CmpIOp>(op))
    if (std::optional<bool> truth = decide(compare.getPredicate(), difference))
      return getConstant(BoolAttr::get(context, *truth));
  bool isPositive = b->isConstant() && b->constant > 0 && table.getRange(*a).low >= 0;
  if (isPositive && isa<arith::DivSIOp, arith::DivUIOp, arith::FloorDivSIOp>(op))
    return getIndex(table.floorDiv(*a, b->constant));
  if (isPositive && isa<arith::RemSIOp, arith::RemUIOp>(op))
    return getIndex(table.mod(*a, b->constant));
  return kNoNode;
}

NodeId ElementGraph::compareIndex(const IndexExpr &a, bool isBelow, int64_t bound) {
  auto predicate = isBelow ? arith::CmpIPredicate::slt : arith::CmpIPredicate::sge;
  IndexRange range = table.getRange(a);
  if (std::optional<bool> truth = decide(predicate, {range.low - bound, range.high - bound}))
    return getConstant(BoolAttr::get(context, *truth));
  Builder builder(context);
  NamedAttribute attribute("predicate", arith::CmpIPredicateAttr::get(context, predicate));
  return getApply(OperationName(arith::CmpIOp::getOperationName(), context),
                  builder.getDictionaryAttr(attribute), {getIndex(a), getIndex(IndexExpr(bound))},
                  builder.getI1Type());
}

NodeId ElementGraph::conjoin(NodeId a, NodeId b) {
  NodeId truth = getConstant(BoolAttr::get(context, true));
  if (a == kNoNode || a == truth || a == b)
    return b;
  if (b == kNoNode || b == truth)
    return a;
  return getApply(OperationName(arith::AndIOp::getOperationName(), context),
                  DictionaryAttr::get(context), {a, b}, IntegerType::get(context, 1));
}

NodeId ElementGraph::getSelect(NodeId condition, NodeId a, NodeId b) {
  if (a == b)
    return a;
  const ElementNode &node = nodes[condition];
  if (node.kind == ElementNode::Constant)
    return cast<IntegerAttr>(node.attribute).getValue().isZero() ? b : a;
  return getApply(OperationName(arith::SelectOp::getOperationName(), context),
                  DictionaryAttr::get(context), {condition, a, b}, nodes[a].type);
}
