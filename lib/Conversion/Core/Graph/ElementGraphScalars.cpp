//===- ElementGraphScalars.cpp - bodies of structured ops -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Graph/ElementGraph.h"
#include "memopt/Conversion/Core/Math/ScalarExpansion.h"
#include "memopt/Dialect/Memopt.h"

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
    if (isa<CheckOp>(op) && guard != kNoNode)
      operands.push_back(guard); // what nobody uses is not reported
    node = buildScalarOp(*op, cast<OpResult>(value).getResultNumber(), operands);
  }
  if (succeeded(node))
    environment[value] = *node;
  return node;
}

/// Whether `op` does arithmetic on halves; the others move them.
static bool needsWidening(Operation &op) {
  if (isa<arith::ExtFOp, arith::TruncFOp, arith::SelectOp, arith::BitcastOp>(op))
    return false;
  auto isHalf = [](Type type) { return isHalfPrecision(getElementTypeOrSelf(type)); };
  return llvm::any_of(op.getOperandTypes(), isHalf) || llvm::any_of(op.getResultTypes(), isHalf);
}

FailureOr<NodeId> ElementGraph::buildScalarOp(Operation &op, unsigned result,
                                              ArrayRef<NodeId> operands) {
  bool isScalarOp = isa<arith::ArithDialect, math::MathDialect>(op.getDialect()) ||
                    isa<CheckOp, RandomWordOp>(op);
  if (!isScalarOp || op.getNumRegions())
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
  if (needsWidening(op))
    return applyWidened(op, operands, type);
  return getApply(name, attributes, operands, type, result);
}

NodeId ElementGraph::convertFloat(NodeId node, Type type) {
  Type from = nodes[node].type;
  if (from == type)
    return node;
  bool extends = from.getIntOrFloatBitWidth() < type.getIntOrFloatBitWidth();
  StringRef cast =
      extends ? arith::ExtFOp::getOperationName() : arith::TruncFOp::getOperationName();
  return getApply(OperationName(cast, context), DictionaryAttr::get(context), node, type);
}

/// Half-precision numbers are computed in f32 and rounded after each op.
NodeId ElementGraph::applyWidened(Operation &op, ArrayRef<NodeId> operands, Type type) {
  Type single = Float32Type::get(context);
  SmallVector<NodeId> wide;
  for (NodeId operand : operands)
    wide.push_back(isHalfPrecision(nodes[operand].type) ? convertFloat(operand, single) : operand);
  NodeId result =
      getApply(op.getName(), op.getAttrDictionary(), wide, isHalfPrecision(type) ? single : type);
  return isHalfPrecision(type) ? convertFloat(result, type) : result;
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
    if (std::optional<IndexExpr> index = asIndex(*node)) {
      indices.push_back(*index);
      continue;
    }
    NodeId inside = clampIndex(*node, size);
    indices.push_back(table.getDatum(inside, size, nodes[inside].variables));
  }
  return build(extract.getTensor(), indices, guard);
}

//===----------------------------------------------------------------------===//
// Indices from data
//===----------------------------------------------------------------------===//

/// Bounds of an integer node, where they are plain to see: of constants, checks, casts and
/// selections.
std::optional<IndexRange> ElementGraph::getBounds(NodeId id) {
  const ElementNode &node = nodes[id];
  auto asNumber = [](const APInt &value) { return value.getSExtValue(); };
  if (node.kind == ElementNode::Index)
    return table.getRange(node.address);
  if (node.kind == ElementNode::Constant) {
    auto integer = dyn_cast<IntegerAttr>(node.attribute);
    if (!integer)
      return std::nullopt;
    return IndexRange{asNumber(integer.getValue()), asNumber(integer.getValue())};
  }
  if (node.kind == ElementNode::Load && node.number >= body.getNumArguments()) {
    DenseElementsAttr values = constantBuffers[node.number - body.getNumArguments()];
    std::optional<IndexRange> &known = constantBounds[values];
    if (!known) {
      known = IndexRange{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
      for (const APInt &value : values.getValues<APInt>())
        known = IndexRange{std::min(known->low, asNumber(value)),
                           std::max(known->high, asNumber(value))};
    }
    // Where a guard is false a load gives zero.
    return IndexRange{std::min<int64_t>(known->low, 0), std::max<int64_t>(known->high, 0)};
  }
  if (node.kind != ElementNode::Apply)
    return std::nullopt;
  StringRef name = node.name->getStringRef();
  if (name == arith::ExtSIOp::getOperationName())
    return getBounds(node.operands[0]);
  if (name == arith::SelectOp::getOperationName()) {
    auto a = getBounds(node.operands[1]), b = getBounds(node.operands[2]);
    if (a && b)
      return IndexRange{std::min(a->low, b->low), std::max(a->high, b->high)};
  }
  auto attributes = dyn_cast<DictionaryAttr>(node.attribute);
  if (name != CheckOp::getOperationName() || attributes.contains("ignore"))
    return std::nullopt;
  auto number = [&](StringRef key) { return attributes.getAs<IntegerAttr>(key).getInt(); };
  int64_t low = number("min"), high = number("max"), otherwise = number("otherwise");
  if (low > high)
    return std::nullopt;
  return IndexRange{std::min(low, otherwise), std::max(high, otherwise)};
}

/// No data reads outside of a buffer: an index that is not known to lie in [0, size) is brought
/// there. Checks come before and report what they find; here nobody is asked to be honest.
NodeId ElementGraph::clampIndex(NodeId node, int64_t size) {
  if (std::optional<IndexRange> bounds = getBounds(node))
    if (bounds->low >= 0 && bounds->high < size)
      return node;
  Type wide = IntegerType::get(context, 64);
  DictionaryAttr none = DictionaryAttr::get(context);
  auto apply = [&](StringRef name, ArrayRef<NodeId> operands) {
    return getApply(OperationName(name, context), none, operands, wide);
  };
  if (nodes[node].type != wide)
    node = apply(arith::ExtSIOp::getOperationName(), node);
  NodeId first = getConstant(IntegerAttr::get(wide, 0));
  NodeId last = getConstant(IntegerAttr::get(wide, size - 1));
  node = apply(arith::MaxSIOp::getOperationName(), {node, first});
  return apply(arith::MinSIOp::getOperationName(), {node, last});
}

//===----------------------------------------------------------------------===//
// Integers that stay symbolic
//===----------------------------------------------------------------------===//

/// Sums and differences of two such numbers do not overflow: what is symbolic has no wrapping
/// around. Other constants (the least of a running maximum) are computed with like any number.
static bool staysExact(IndexRange range) {
  constexpr int64_t most = int64_t(1) << 61;
  return range.low >= -most && range.high <= most;
}

std::optional<IndexExpr> ElementGraph::asIndex(NodeId id) const {
  const ElementNode &node = nodes[id];
  if (node.kind == ElementNode::Index)
    return node.address;
  if (auto integer = dyn_cast_or_null<IntegerAttr>(node.attribute);
      integer && node.kind == ElementNode::Constant && node.type.isInteger(64))
    if (staysExact({integer.getInt(), integer.getInt()}))
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
    if (std::optional<bool> truth = getTruth(operands[0]))
      return operands[*truth ? 1 : 2];
    return operands[1] == operands[2] ? operands[1] : kNoNode;
  }
  if (operands.size() != 2)
    return kNoNode;
  std::optional<IndexExpr> a = asIndex(operands[0]), b = asIndex(operands[1]);
  if (!a || !b)
    return kNoNode;
  auto symbolic = [&](const IndexExpr &expr) {
    return staysExact(table.getRange(expr)) ? getIndex(expr) : kNoNode;
  };
  IndexExpr distance = IndexTable::add(*a, *b, -1);
  IndexRange difference = table.getRange(distance);
  if (isa<arith::AddIOp>(op))
    return symbolic(IndexTable::add(*a, *b));
  if (isa<arith::SubIOp>(op))
    return symbolic(distance);
  if (isa<arith::MulIOp>(op) && (a->isConstant() || b->isConstant())) {
    int64_t factor = a->isConstant() ? a->constant : b->constant, product;
    const IndexExpr &other = a->isConstant() ? *b : *a;
    IndexRange range = table.getRange(other);
    for (int64_t end : {range.low, range.high, other.constant})
      if (llvm::MulOverflow(end, factor, product) || !staysExact({product, product}))
        return kNoNode;
    return symbolic(IndexTable::scale(other, factor));
  }
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

std::optional<bool> ElementGraph::getTruth(NodeId condition) const {
  const ElementNode &node = nodes[condition];
  if (node.kind != ElementNode::Constant)
    return std::nullopt;
  return !cast<IntegerAttr>(node.attribute).getValue().isZero();
}

NodeId ElementGraph::getSelect(NodeId condition, NodeId a, NodeId b) {
  if (a == b)
    return a;
  if (std::optional<bool> truth = getTruth(condition))
    return *truth ? a : b;
  return getApply(OperationName(arith::SelectOp::getOperationName(), context),
                  DictionaryAttr::get(context), {condition, a, b}, nodes[a].type);
}
