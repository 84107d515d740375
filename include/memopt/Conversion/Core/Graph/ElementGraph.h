//===- ElementGraph.h - a kernel as scalar expressions over loops -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What one element of a result is, as a graph of scalar nodes: loads at addresses that are
// expressions in loop variables, arith and math ops, and reductions that own loop variables of
// their own. Equal nodes are one node. Asking for an element walks the kernel's body from the
// result backwards; a view only changes the indices that it passes on, so it leaves no trace. Every
// node knows the loop variables that it depends on, and that alone decides the loop in which it is
// computed.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_CORE_GRAPH_ELEMENTGRAPH_H
#define MEMOPT_CONVERSION_CORE_GRAPH_ELEMENTGRAPH_H

#include "memopt/Conversion/Core/Graph/KernelIndex.h"
#include "memopt/Conversion/Core/Graph/LaneDims.h"
#include "memopt/Conversion/Core/Graph/Storage.h"

#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Operation.h"

namespace mlir::memopt {

using NodeId = unsigned;
constexpr NodeId kNoNode = ~0u;

struct ElementNode {
  enum Kind {
    Constant,    ///< attribute
    Load,        ///< element `address` of buffer `number`, zero where `guard` is false
    Index,       ///< `address` as an integer
    Apply,       ///< result `number` of op `name` on `operands`
    Accumulator, ///< what accumulator `number` of `reduction` holds in its loops
    Reduce       ///< what it holds after them
  } kind;
  Type type;             ///< of the scalar; an index is i64
  Attribute attribute{}; ///< Constant: its TypedAttr; Apply: the op's attributes
  std::optional<OperationName> name{};
  unsigned number = 0;
  unsigned reduction = 0;
  IndexExpr address{};
  NodeId guard = kNoNode;
  SmallVector<NodeId, 3> operands{};
  /// Free loop variables, sorted.
  SmallVector<AtomId, 4> variables{};
};

/// An associative op, recognized by name, that combines an accumulator with one contribution.
struct Combiner {
  OperationName name;
  Attribute attributes;
  TypedAttr neutral;
};

struct ElementReduction {
  Operation *op;
  /// Loop variables, outermost first, bound by this reduction.
  SmallVector<AtomId, 4> variables;
  /// Sizes of the op's dims that each of them runs over.
  SmallVector<SmallVector<int64_t, 2>, 4> extents;
  /// The last of these dims that are one run of lanes, all of the last variable (SumOrder.h).
  unsigned laneDims = 0;
  SmallVector<NodeId, 2> initial; ///< one per accumulator
  SmallVector<NodeId, 2> accumulators;
  SmallVector<NodeId, 2> next; ///< the accumulator after one iteration
  /// Both set when next = combiner(accumulator, contribution).
  SmallVector<std::optional<Combiner>, 2> combiners;
  SmallVector<NodeId, 2> contributions;
  /// Free variables of the whole, its own excluded.
  SmallVector<AtomId, 4> freeVariables;
  bool isAssociative() const {
    return llvm::all_of(combiners, [](auto &combiner) { return combiner.has_value(); });
  }
  int64_t getTripCount(const IndexTable &table) const;
};

class ElementGraph {
public:
  /// `body` has packed tensors as arguments; they are buffers 0, 1, ... Constants of more than one
  /// value become further buffers.
  ElementGraph(Block &body, const LaneRules &laneRules);

  /// The element of `value` at `indices`. Where `guard` (an i1 node) is false the result is not
  /// used and nothing is read. Fails with a diagnostic on an op that no kernel computes.
  FailureOr<NodeId> build(Value value, ArrayRef<IndexExpr> indices, NodeId guard = kNoNode);

  const ElementNode &getNode(NodeId node) const { return nodes[node]; }
  const ElementReduction &getReduction(unsigned reduction) const { return reductions[reduction]; }
  size_t getNumNodes() const { return nodes.size(); }
  IndexTable &getTable() { return table; }
  const IndexTable &getTable() const { return table; }
  Block &getBody() { return body; }
  ArrayRef<DenseElementsAttr> getConstantBuffers() const { return constantBuffers; }
  unsigned getNumArguments() { return body.getNumArguments(); }

  NodeId getIndex(const IndexExpr &expr);
  NodeId getZero(Type type);
  NodeId getApply(OperationName name, Attribute attributes, ArrayRef<NodeId> operands, Type type,
                  unsigned number = 0);
  /// How the elements that a load reads lie in memory.
  Storage getStorage(const ElementNode &load) const;
  Storage getResultStorage(unsigned result) const;
  /// Children that the node reads directly, addresses and guards included.
  SmallVector<NodeId> getChildren(NodeId node) const;

private:
  using Environment = llvm::DenseMap<Value, NodeId>;

  FailureOr<NodeId> buildUncached(Value value, ArrayRef<IndexExpr> indices, NodeId guard);
  FailureOr<NodeId> buildView(ViewOpInterface view, ArrayRef<IndexExpr> at, NodeId guard);
  NodeId buildIota(IotaOp iota, ArrayRef<IndexExpr> indices);
  NodeId isInside(const ViewPart &part, ArrayRef<IndexExpr> indices);
  /// The results of `map`; nothing where no kernel computes one.
  std::optional<SmallVector<IndexExpr>> mapIndices(AffineMap map, ArrayRef<IndexExpr> indices);
  FailureOr<DenseElementsAttr> readConstant(Operation *op);
  FailureOr<NodeId> buildConstant(DenseElementsAttr values, ArrayRef<IndexExpr> indices,
                                  NodeId guard);
  FailureOr<NodeId> buildLinalg(linalg::LinalgOp op, unsigned result, ArrayRef<IndexExpr> indices,
                                NodeId guard);
  FailureOr<NodeId> buildReduction(linalg::LinalgOp op, unsigned result, ArrayRef<IndexExpr> loops,
                                   NodeId guard);
  LogicalResult bindOperands(linalg::LinalgOp op, ArrayRef<IndexExpr> loops, NodeId guard,
                             bool withOutputs, Environment &environment);
  LogicalResult fillReduction(linalg::LinalgOp op, ArrayRef<IndexExpr> loops, NodeId guard,
                              unsigned number);
  void recognizeCombiners(linalg::LinalgOp op, ElementReduction &reduction,
                          Environment &environment);
  SmallVector<AtomId, 4> chooseVariables(ArrayRef<int64_t> sizes, ArrayRef<AtomId> taken);
  /// A scalar of a body or of the kernel's top level.
  FailureOr<NodeId> buildScalar(Value value, ArrayRef<IndexExpr> loops, NodeId guard,
                                Environment &environment);
  FailureOr<NodeId> buildScalarOp(Operation &op, unsigned result, ArrayRef<NodeId> operands);
  NodeId applyWidened(Operation &op, ArrayRef<NodeId> operands, Type type);
  NodeId convertFloat(NodeId node, Type type);
  FailureOr<NodeId> buildExtract(Operation *op, ArrayRef<IndexExpr> loops, NodeId guard,
                                 Environment &environment);
  std::optional<IndexExpr> asIndex(NodeId node) const;
  std::optional<IndexRange> getBounds(NodeId node);
  NodeId clampIndex(NodeId node, int64_t size);
  NodeId foldIndex(Operation &op, ArrayRef<NodeId> operands);
  NodeId compareIndex(const IndexExpr &a, bool isBelow, int64_t bound);
  NodeId conjoin(NodeId a, NodeId b);
  NodeId getConstant(TypedAttr value);
  /// What a condition is, if that is known.
  std::optional<bool> getTruth(NodeId condition) const;
  NodeId getSelect(NodeId condition, NodeId a, NodeId b);
  bool isAlwaysInside(unsigned buffer, const IndexExpr &address) const;
  NodeId getLoad(unsigned buffer, Type type, const IndexExpr &address, NodeId guard);
  NodeId intern(ElementNode node);

  Block &body;
  MLIRContext *context;
  LaneRules laneRules;
  IndexTable table;
  std::vector<ElementNode> nodes;
  std::vector<ElementReduction> reductions;
  SmallVector<DenseElementsAttr> constantBuffers;
  llvm::DenseMap<Attribute, std::optional<IndexRange>> constantBounds;
  llvm::DenseMap<Attribute, DenseElementsAttr> resources;
  std::map<std::vector<int64_t>, NodeId> knownNodes, knownElements;
  std::map<std::vector<int64_t>, unsigned> knownReductions;
  /// Loop variables of reductions by size; two reductions over equal boxes use the same variables,
  /// so that what they read in common is one node.
  std::map<std::pair<int64_t, unsigned>, AtomId> reductionVariables;
};

/// The type of a scalar inside kernels: index becomes i64.
Type getScalarType(Type type);

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_CORE_GRAPH_ELEMENTGRAPH_H
