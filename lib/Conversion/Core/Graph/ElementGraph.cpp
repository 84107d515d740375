//===- ElementGraph.cpp - a kernel as scalar expressions over loops -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Nodes and structured ops; views are in ElementGraphViews.cpp, scalars in ElementGraphScalars.cpp.
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Graph/ElementGraph.h"

#include "memopt/Dialect/Memopt.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/DialectResourceBlobManager.h"

using namespace mlir;
using namespace mlir::memopt;

Type mlir::memopt::getScalarType(Type type) {
  return type.isIndex() ? IntegerType::get(type.getContext(), 64) : type;
}

int64_t ElementReduction::getTripCount(const IndexTable &table) const {
  int64_t count = 1;
  for (AtomId variable : variables)
    count *= table.getSize(variable);
  return count;
}

ElementGraph::ElementGraph(Block &body, const LaneRules &laneRules)
    : body(body), context(body.getParentOp()->getContext()), laneRules(laneRules) {}

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

static int64_t asKey(const void *pointer) { return reinterpret_cast<intptr_t>(pointer); }

NodeId ElementGraph::intern(ElementNode node) {
  std::vector<int64_t> key{node.kind,
                           asKey(node.type.getAsOpaquePointer()),
                           asKey(node.attribute.getAsOpaquePointer()),
                           node.name ? asKey(node.name->getAsOpaquePointer()) : 0,
                           node.number,
                           node.reduction,
                           node.guard};
  node.address.encode(key);
  key.insert(key.end(), node.operands.begin(), node.operands.end());
  if (node.kind == ElementNode::Accumulator)
    key.insert(key.end(), node.variables.begin(), node.variables.end());
  auto [entry, isNew] = knownNodes.try_emplace(std::move(key), nodes.size());
  if (!isNew)
    return entry->second;
  mergeVariables(node.variables, table.getVariables(node.address));
  if (node.guard != kNoNode)
    mergeVariables(node.variables, nodes[node.guard].variables);
  for (NodeId operand : node.operands)
    mergeVariables(node.variables, nodes[operand].variables);
  nodes.push_back(std::move(node));
  return nodes.size() - 1;
}

NodeId ElementGraph::getConstant(TypedAttr value) {
  if (auto integer = dyn_cast<IntegerAttr>(value); integer && integer.getType().isIndex())
    value = IntegerAttr::get(IntegerType::get(context, 64), integer.getInt());
  return intern({ElementNode::Constant, value.getType(), value});
}

NodeId ElementGraph::getZero(Type type) { return getConstant(Builder(context).getZeroAttr(type)); }

NodeId ElementGraph::getIndex(const IndexExpr &expr) {
  Type type = IntegerType::get(context, 64);
  if (expr.isConstant())
    return getConstant(IntegerAttr::get(type, expr.constant));
  ElementNode node{ElementNode::Index, type};
  node.address = expr;
  return intern(std::move(node));
}

NodeId ElementGraph::getApply(OperationName name, Attribute attributes, ArrayRef<NodeId> operands,
                              Type type, unsigned number) {
  ElementNode node{ElementNode::Apply, type, attributes, name, number};
  node.operands.assign(operands.begin(), operands.end());
  return intern(std::move(node));
}

/// Whether `address` is one of the buffer's elements wherever the loops are.
bool ElementGraph::isAlwaysInside(unsigned buffer, const IndexExpr &address) const {
  Type type = buffer < body.getNumArguments()
                  ? body.getArgument(buffer).getType()
                  : constantBuffers[buffer - body.getNumArguments()].getType();
  IndexRange range = table.getRange(address);
  return range.low >= 0 && range.high < cast<ShapedType>(type).getNumElements();
}

/// A guard keeps loads inside of the buffer; what is loaded where it is false is chosen by nobody.
/// So a load that cannot leave the buffer has none, and depends on no more than its address does.
NodeId ElementGraph::getLoad(unsigned buffer, Type type, const IndexExpr &address, NodeId guard) {
  ElementNode node{ElementNode::Load, type, {}, std::nullopt, buffer};
  node.address = address;
  node.guard = guard;
  if (guard != kNoNode && !getStorage(node).isShared() && isAlwaysInside(buffer, address))
    node.guard = kNoNode;
  return intern(std::move(node));
}

SmallVector<NodeId> ElementGraph::getChildren(NodeId id) const {
  const ElementNode &node = nodes[id];
  SmallVector<NodeId> children(node.operands.begin(), node.operands.end());
  if (node.guard != kNoNode)
    children.push_back(node.guard);
  SmallVector<AtomId> pending;
  for (auto [atom, coefficient] : node.address.terms)
    pending.push_back(atom);
  while (!pending.empty()) {
    const IndexAtom &atom = table.getAtom(pending.pop_back_val());
    if (atom.kind == IndexAtom::Datum)
      children.push_back(atom.node);
    for (auto [inner, coefficient] : atom.dividend.terms)
      pending.push_back(inner);
  }
  if (node.kind == ElementNode::Reduce) {
    const ElementReduction &reduction = reductions[node.reduction];
    llvm::append_range(children, reduction.initial);
    llvm::append_range(children, reduction.next);
  }
  return children;
}

/// An operand of bytes that booleans are read from holds bits.
Storage ElementGraph::getStorage(const ElementNode &load) const {
  bool isBits = load.type.isInteger(1) && load.number < body.getNumArguments() &&
                getElementTypeOrSelf(body.getArgument(load.number).getType()).isInteger(8);
  return isBits ? Storage::ofBits(context) : Storage::ofWhole(load.type);
}

Storage ElementGraph::getResultStorage(unsigned result) const {
  Value value = body.getTerminator()->getOperand(result);
  if (isa_and_nonnull<PackBitsOp>(value.getDefiningOp()))
    return Storage::ofBits(context);
  return Storage::ofWhole(getScalarType(getElementTypeOrSelf(value.getType())));
}

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

FailureOr<NodeId> ElementGraph::build(Value value, ArrayRef<IndexExpr> indices, NodeId guard) {
  std::vector<int64_t> key{asKey(value.getAsOpaquePointer()), guard};
  for (const IndexExpr &index : indices)
    index.encode(key);
  auto known = knownElements.find(key);
  if (known != knownElements.end())
    return known->second;
  FailureOr<NodeId> node = buildUncached(value, indices, guard);
  if (succeeded(node))
    knownElements.emplace(std::move(key), *node);
  return node;
}

FailureOr<NodeId> ElementGraph::buildUncached(Value value, ArrayRef<IndexExpr> indices,
                                              NodeId guard) {
  auto type = cast<RankedTensorType>(value.getType());
  if (auto argument = dyn_cast<BlockArgument>(value))
    return getLoad(argument.getArgNumber(), getScalarType(type.getElementType()),
                   IndexTable::linearize(indices, type.getShape()), guard);
  Operation *op = value.getDefiningOp();
  if (auto structured = dyn_cast<linalg::LinalgOp>(op))
    return buildLinalg(structured, cast<OpResult>(value).getResultNumber(), indices, guard);
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    FailureOr<DenseElementsAttr> values = readConstant(constant);
    return failed(values) ? FailureOr<NodeId>(failure()) : buildConstant(*values, indices, guard);
  }
  if (isa<tensor::EmptyOp>(op))
    return getZero(getScalarType(type.getElementType()));
  if (OpTrait::hasElementwiseMappableTraits(op)) {
    SmallVector<NodeId> operands;
    for (Value operand : op->getOperands()) {
      FailureOr<NodeId> node = build(operand, indices, guard);
      if (failed(node))
        return failure();
      operands.push_back(*node);
    }
    if (isa<CheckOp>(op) && guard != kNoNode)
      operands.push_back(guard);
    return buildScalarOp(*op, cast<OpResult>(value).getResultNumber(), operands);
  }
  if (auto unpack = dyn_cast<UnpackBitsOp>(op)) {
    if (auto pack = unpack.getInput().getDefiningOp<PackBitsOp>())
      return build(pack.getInput(), indices, guard);
    return getLoad(cast<BlockArgument>(unpack.getInput()).getArgNumber(), type.getElementType(),
                   IndexTable::linearize(indices, type.getShape()), guard);
  }
  if (auto iota = dyn_cast<IotaOp>(op))
    return buildIota(iota, indices);
  if (auto view = dyn_cast<ViewOpInterface>(op))
    return buildView(view, indices, guard);
  return op->emitError("'") << op->getName() << "' is not computed by any kernel";
}

/// Constants of models come as resources: raw bytes, one for a boolean.
FailureOr<DenseElementsAttr> ElementGraph::readConstant(Operation *op) {
  auto value = cast<arith::ConstantOp>(op).getValue();
  if (auto dense = dyn_cast<DenseElementsAttr>(value))
    return dense;
  DenseElementsAttr &known = resources[value];
  if (known)
    return known;
  auto resource = dyn_cast<DenseResourceElementsAttr>(value);
  AsmResourceBlob *blob = resource ? resource.getRawHandle().getBlob() : nullptr;
  if (!blob)
    return op->emitError("the constant's data is missing");
  ShapedType type = resource.getType();
  ArrayRef<char> data = blob->getData();
  size_t bytes = llvm::divideCeil(type.getElementTypeBitWidth(), 8) * type.getNumElements();
  if (data.size() != bytes)
    return op->emitError("the constant's data has ") << data.size() << " bytes, expected " << bytes;
  if (!type.getElementType().isInteger(1)) {
    known = DenseElementsAttr::getFromRawBuffer(type, data);
  } else {
    auto bits = llvm::map_to_vector(data, [](char byte) { return byte != 0; });
    known = DenseElementsAttr::get(type, ArrayRef<bool>(bits));
  }
  return known;
}

FailureOr<NodeId> ElementGraph::buildConstant(DenseElementsAttr values, ArrayRef<IndexExpr> indices,
                                              NodeId guard) {
  if (values.isSplat())
    return getConstant(values.getSplatValue<TypedAttr>());
  auto *known = llvm::find(constantBuffers, values);
  unsigned number = body.getNumArguments() + (known - constantBuffers.begin());
  if (known == constantBuffers.end())
    constantBuffers.push_back(values);
  auto type = cast<RankedTensorType>(values.getType());
  return getLoad(number, getScalarType(type.getElementType()),
                 IndexTable::linearize(indices, type.getShape()), guard);
}

//===----------------------------------------------------------------------===//
// Structured ops
//===----------------------------------------------------------------------===//

LogicalResult ElementGraph::bindOperands(linalg::LinalgOp op, ArrayRef<IndexExpr> loops,
                                         NodeId guard, bool withOutputs, Environment &environment) {
  for (OpOperand &operand : op->getOpOperands()) {
    BlockArgument argument = op.getMatchingBlockArgument(&operand);
    if (argument.use_empty() || (op.isDpsInit(&operand) && !withOutputs))
      continue;
    FailureOr<NodeId> node = failure();
    if (!isa<RankedTensorType>(operand.get().getType())) {
      node = buildScalar(operand.get(), loops, guard, environment);
    } else {
      auto indices = mapIndices(op.getMatchingIndexingMap(&operand), loops);
      if (!indices)
        return op->emitError("operand ")
               << operand.getOperandNumber() << " has an indexing map that no kernel computes";
      node = build(operand.get(), *indices, guard);
    }
    if (failed(node))
      return failure();
    environment[argument] = *node;
  }
  return success();
}

FailureOr<NodeId> ElementGraph::buildLinalg(linalg::LinalgOp op, unsigned result,
                                            ArrayRef<IndexExpr> indices, NodeId guard) {
  SmallVector<int64_t> sizes = op.getStaticLoopRanges();
  SmallVector<std::optional<IndexExpr>> loops(sizes.size());
  AffineMap map = op.getMatchingIndexingMap(op.getDpsInitOperand(result));
  for (auto [expr, index] : llvm::zip_equal(map.getResults(), indices)) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    if (!dim)
      return op->emitError("result ") << result << " is not indexed by loops alone";
    loops[dim.getPosition()] = index;
  }
  SmallVector<utils::IteratorType> iterators = op.getIteratorTypesArray();
  bool isReduction = false;
  SmallVector<IndexExpr> bound;
  for (auto [dim, loop] : llvm::enumerate(loops)) {
    if (!loop && sizes[dim] != 1 && iterators[dim] != utils::IteratorType::reduction)
      return op->emitError("loop ") << dim << " is parallel and not an index of result " << result;
    isReduction |= !loop && sizes[dim] != 1;
    bound.push_back(loop.value_or(IndexExpr()));
  }
  if (isReduction)
    return buildReduction(op, result, bound, guard);
  Environment environment;
  if (failed(bindOperands(op, bound, guard, /*withOutputs=*/true, environment)))
    return failure();
  return buildScalar(op.getBlock()->getTerminator()->getOperand(result), bound, guard, environment);
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

SmallVector<AtomId, 4> ElementGraph::chooseVariables(ArrayRef<int64_t> sizes,
                                                     ArrayRef<AtomId> taken) {
  SmallVector<AtomId, 4> chosen;
  for (int64_t size : sizes) {
    for (unsigned variant = 0;; ++variant) {
      auto [entry, isNew] = reductionVariables.try_emplace({size, variant}, 0);
      if (isNew)
        entry->second = table.addVariable(size);
      if (llvm::is_contained(taken, entry->second) || llvm::is_contained(chosen, entry->second))
        continue;
      chosen.push_back(entry->second);
      break;
    }
  }
  return chosen;
}

FailureOr<NodeId> ElementGraph::buildReduction(linalg::LinalgOp op, unsigned result,
                                               ArrayRef<IndexExpr> loops, NodeId guard) {
  std::vector<int64_t> key{asKey(op.getOperation()), guard};
  for (const IndexExpr &loop : loops)
    loop.encode(key);
  auto [entry, isNew] = knownReductions.try_emplace(key, reductions.size());
  unsigned number = entry->second;
  if (isNew) {
    reductions.emplace_back();
    reductions.back().op = op;
    if (failed(fillReduction(op, loops, guard, number)))
      return failure();
  }
  const ElementReduction &reduction = reductions[number];
  ElementNode node{ElementNode::Reduce,
                   getScalarType(getElementTypeOrSelf(op->getResult(result).getType()))};
  node.number = result;
  node.reduction = number;
  node.variables.assign(reduction.freeVariables.begin(), reduction.freeVariables.end());
  return intern(std::move(node));
}

/// The nodes that compute `roots`, without entering other reductions.
static SmallVector<NodeId> collectNodes(const ElementGraph &graph, ArrayRef<NodeId> roots) {
  llvm::SmallSetVector<NodeId, 32> found(roots.begin(), roots.end());
  for (size_t i = 0; i < found.size(); ++i)
    if (graph.getNode(found[i]).kind != ElementNode::Reduce)
      for (NodeId child : graph.getChildren(found[i]))
        found.insert(child);
  return found.takeVector();
}

/// Addresses in which one of `variables` sits inside a quotient.
static unsigned countBrokenAddresses(const ElementGraph &graph, ArrayRef<NodeId> roots,
                                     ArrayRef<AtomId> variables) {
  unsigned count = 0;
  for (NodeId node : collectNodes(graph, roots))
    for (AtomId variable : variables)
      count += !graph.getTable().getStride(graph.getNode(node).address, variable);
  return count;
}

/// Writes the reduction's loops as few long ones: neighbours merge as long as no address breaks,
/// which is how a sum over height and width becomes one contiguous sweep.
LogicalResult ElementGraph::fillReduction(linalg::LinalgOp op, ArrayRef<IndexExpr> loops,
                                          NodeId guard, unsigned number) {
  SmallVector<int64_t> sizes = op.getStaticLoopRanges();
  SmallVector<utils::IteratorType> iterators = op.getIteratorTypesArray();
  SmallVector<unsigned> dims;
  SmallVector<AtomId> taken;
  for (auto [dim, loop] : llvm::enumerate(loops)) {
    if (iterators[dim] == utils::IteratorType::reduction)
      dims.push_back(dim);
    else
      mergeVariables(taken, table.getVariables(loop));
  }
  if (guard != kNoNode)
    mergeVariables(taken, nodes[guard].variables);

  ElementReduction best;
  unsigned fewestBroken = ~0u, laneDims = countLaneDims(op, laneRules);
  // Groups of neighbouring reduction dims, each one loop.
  auto tryGroups = [&](ArrayRef<SmallVector<unsigned>> groups) -> FailureOr<bool> {
    SmallVector<int64_t> groupSizes;
    for (ArrayRef<unsigned> group : groups) {
      int64_t size = 1;
      for (unsigned dim : group)
        size *= sizes[dim];
      groupSizes.push_back(size);
    }
    ElementReduction attempt;
    attempt.op = op;
    attempt.variables = chooseVariables(groupSizes, taken);
    attempt.laneDims = laneDims;
    SmallVector<IndexExpr> bound(loops);
    for (auto [group, variable] : llvm::zip_equal(groups, attempt.variables)) {
      SmallVector<int64_t> inner;
      for (unsigned dim : group)
        inner.push_back(sizes[dim]);
      SmallVector<IndexExpr> parts = table.delinearize(table.get(variable), inner);
      for (auto [dim, part] : llvm::zip_equal(group, parts))
        bound[dim] = part;
      attempt.extents.emplace_back(inner.begin(), inner.end());
    }
    Environment environment;
    if (failed(bindOperands(op, bound, guard, /*withOutputs=*/false, environment)))
      return failure();
    for (auto [i, argument] : llvm::enumerate(op.getRegionOutputArgs())) {
      ElementNode node{ElementNode::Accumulator, getScalarType(argument.getType())};
      node.number = i;
      node.reduction = number;
      node.variables = attempt.variables;
      llvm::sort(node.variables);
      attempt.accumulators.push_back(intern(std::move(node)));
      environment[argument] = attempt.accumulators.back();
    }
    for (Value yielded : op.getBlock()->getTerminator()->getOperands()) {
      FailureOr<NodeId> next = buildScalar(yielded, bound, guard, environment);
      if (failed(next))
        return failure();
      attempt.next.push_back(*next);
    }
    unsigned broken = countBrokenAddresses(*this, attempt.next, attempt.variables);
    if (broken > fewestBroken)
      return false;
    fewestBroken = broken;
    recognizeCombiners(op, attempt, environment);
    best = std::move(attempt);
    return true;
  };

  // Loops of one iteration are none; at least one loop is left, for buildLinalg saw to it.
  SmallVector<SmallVector<unsigned>> groups;
  for (unsigned dim : dims)
    if (sizes[dim] != 1)
      groups.push_back({dim});
  // A run of lanes is one loop, whatever becomes of addresses.
  for (unsigned i = 1; i < laneDims; ++i) {
    SmallVector<unsigned> last = groups.pop_back_val();
    groups.back().append(last);
  }
  if (failed(tryGroups(groups)))
    return failure();
  for (size_t i = groups.size(); i-- > 1;) {
    SmallVector<SmallVector<unsigned>> merged(groups);
    merged[i - 1].append(merged[i]);
    merged.erase(merged.begin() + i);
    FailureOr<bool> better = tryGroups(merged);
    if (failed(better))
      return failure();
    if (*better)
      groups = std::move(merged);
  }

  for (OpOperand &init : op.getDpsInitsMutable()) {
    SmallVector<IndexExpr> indices;
    for (AffineExpr expr : op.getMatchingIndexingMap(&init).getResults())
      indices.push_back(loops[cast<AffineDimExpr>(expr).getPosition()]);
    FailureOr<NodeId> node = build(init.get(), indices, guard);
    if (failed(node))
      return failure();
    best.initial.push_back(*node);
    mergeVariables(best.freeVariables, nodes[*node].variables);
  }
  for (NodeId next : best.next)
    mergeVariables(best.freeVariables, nodes[next].variables);
  llvm::erase_if(best.freeVariables,
                 [&](AtomId variable) { return llvm::is_contained(best.variables, variable); });
  reductions[number] = std::move(best);
  return success();
}

void ElementGraph::recognizeCombiners(linalg::LinalgOp op, ElementReduction &reduction,
                                      Environment &environment) {
  for (auto [i, argument] : llvm::enumerate(op.getRegionOutputArgs())) {
    std::optional<Combiner> &combiner = reduction.combiners.emplace_back();
    NodeId &contribution = reduction.contributions.emplace_back(kNoNode);
    Operation *last = op.getBlock()->getTerminator()->getOperand(i).getDefiningOp();
    if (!last || last->getNumOperands() != 2 || !argument.hasOneUse() ||
        *argument.user_begin() != last || !last->hasTrait<OpTrait::IsCommutative>())
      continue;
    std::optional<TypedAttr> neutral = arith::getNeutralElement(last);
    if (!neutral)
      continue;
    NodeId other = environment.lookup(last->getOperand(last->getOperand(0) == argument ? 1 : 0));
    bool usesAccumulators = llvm::any_of(collectNodes(*this, other), [&](NodeId node) {
      return nodes[node].kind == ElementNode::Accumulator;
    });
    if (usesAccumulators)
      continue;
    combiner = Combiner{last->getName(), last->getAttrDictionary(), *neutral};
    contribution = other;
  }
}
