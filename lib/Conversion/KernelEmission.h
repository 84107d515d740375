//===- KernelEmission.h - loops and vectors of a scheduled kernel -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Emission obeys the schedule. Scopes mirror the loops around the insertion point; a node is
// emitted in the innermost scope that binds one of its variables, before the loops inside that
// scope, and remembered there. So what does not change in a loop is computed before it, and nothing
// twice.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_KERNELEMISSION_H
#define MEMOPT_LIB_CONVERSION_KERNELEMISSION_H

#include "KernelSchedule.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

namespace mlir::memopt {

class StageEmitter {
public:
  /// `buffers`: pointers to operands and constants; `results`: pointers to results; `faults`: to
  /// the word in which memopt.check reports, null when there is none.
  StageEmitter(OpBuilder &builder, Location location, const ElementGraph &graph,
               const KernelStage &stage, const ScheduleTarget &target, ArrayRef<Value> buffers,
               ArrayRef<Value> results, Value faults);

  /// Iterations of the stage's parallel loop.
  static int64_t getTrips(const IndexTable &table, const KernelStage &stage);
  /// Emits iterations [begin, end) of it at the builder's insertion point.
  void emit(Value begin, Value end);

private:
  struct Scope {
    Scope *parent = nullptr;
    /// The loop that is being filled directly inside this scope.
    Operation *child = nullptr;
    SmallVector<std::pair<AtomId, Value>, 2> variables;
    std::optional<AtomId> vector; ///< which of them runs over lanes; its value is that of lane 0
    int64_t lanes = 1;
    llvm::DenseMap<NodeId, Value> nodes, splats;
    llvm::DenseMap<AtomId, Value> atoms;
    llvm::DenseMap<unsigned, SmallVector<Value>> reductions;
  };
  class ScopeGuard;
  using BodyFn = llvm::function_ref<SmallVector<Value>(ValueRange)>;

  // Scopes.
  Scope *findHome(ArrayRef<AtomId> variables);
  bool bindsAll(Scope *scope, ArrayRef<AtomId> variables);
  /// The scope, at or around the current one, whose lanes a node with these variables has.
  Scope *findVectorScope(ArrayRef<AtomId> variables);
  template <typename Fn> auto emitIn(Scope *scope, Fn emit);

  // Loops. Values carried through the loop go in and come out.
  SmallVector<Value> emitLoop(Value lower, Value upper, int64_t step, ValueRange carried,
                              llvm::function_ref<SmallVector<Value>(Value, ValueRange)> body);
  SmallVector<Value> emitScalarLoop(AtomId variable, ValueRange carried, BodyFn body);
  SmallVector<Value> emitVectorLoop(AtomId variable, int64_t lanes, ValueRange carried,
                                    BodyFn body);
  SmallVector<Value> emitBlock(AtomId variable, Value first, int64_t lanes, ValueRange carried,
                               BodyFn body);

  // Nests (KernelEmission.cpp).
  void emitIteration(Value iteration);
  void emitDistributed(const KernelNest &nest, Value block);
  void emitBlockAt(AtomId variable, int64_t lanes, Value block, llvm::function_ref<void()> body);
  void emitNest(const KernelNest &nest, size_t level);
  void emitStores(const KernelNest &nest);

  // Transposed tiles (TileEmission.cpp).
  void emitTileLoop(const KernelNest &nest);
  void emitTileAt(const KernelNest &nest, Value block);
  void emitTile(const KernelNest &nest, Value first);
  void emitPlainRows(const KernelNest &nest, Value first, int64_t count);
  void fillTile(const KernelNest &nest, NodeId id, Value buffer);
  Value getTileBuffer(const KernelNest &nest, NodeId id);

  // Stages that are no loop nests (ScatterEmission.cpp, ScanEmission.cpp).
  static int64_t countPoints(const IndexTable &table, const KernelPoints &points);
  int64_t getLanesOf(const KernelPoints &points);
  void emitIrregular(Value begin, Value end);
  void emitPoint(const KernelPoints &points, Value point, llvm::function_ref<void()> body);
  void emitTokens(const KernelScatter &scatter, size_t level, llvm::function_ref<void()> body);
  void emitRowScatter(const KernelScatter &scatter, Value begin, Value end);
  void emitUpdate(const KernelScatter &scatter);
  void emitCombined(const KernelScatter &scatter, Value address, Value mask);
  Value emitWideIndex(NodeId node);
  void emitScan(const KernelScan &scan);
  void emitOrder(const KernelOrder &order);

  // Nodes (NodeEmission.cpp).
  Value emitNode(NodeId id);
  Value emitNodeHere(NodeId id);
  Value emitLoad(const ElementNode &node);
  Value emitApply(const ElementNode &node);
  Value emitCheck(const ElementNode &node);
  void reportFault(Value isBad, Value value, int64_t site);
  Value emitIndexNode(const ElementNode &node);
  Value emitAtom(AtomId atom);
  Value emitScalarIndex(const IndexExpr &expr);
  Value emitVectorIndex(const IndexExpr &expr, Scope *scope);
  Value emitVectorAtom(AtomId atom, Scope *scope);
  Value emitIndex(const IndexExpr &expr, Scope *scope);
  Value emitLanesOf(NodeId id, int64_t lanes);
  Value splat(Value value, int64_t lanes);
  Value getAddress(Value buffer, Type element, Value index);
  static unsigned getAlignment(Type element);
  Value loadFrom(Value pointer, Type type, unsigned alignment, Value mask);
  void storeTo(Value pointer, Value value, Value mask);
  void emitStore(const KernelStore &store, const KernelNest &nest, Value value);

  // Reductions (ReductionEmission.cpp).
  Value emitReduce(const ElementNode &node);
  SmallVector<unsigned> chooseCompanions(unsigned reduction, Scope *home);
  bool areInputsReady(unsigned reduction);
  void emitInputs(unsigned reduction);
  void emitSequential(ArrayRef<unsigned> group, Scope *lanesOf);
  void emitInLanes(ArrayRef<unsigned> group, LaneChoice choice);
  SmallVector<Value> emitReductionLoops(ArrayRef<unsigned> group, ArrayRef<unsigned> order,
                                        size_t level, std::optional<LaneChoice> choice,
                                        ValueRange carried);
  SmallVector<Value> emitOneIteration(ArrayRef<unsigned> group, bool inLanes, ValueRange carried);
  SmallVector<Value> emitCascade(ArrayRef<unsigned> group, AtomId variable, ValueRange carried,
                                 BodyFn body);
  Value combine(const Combiner &combiner, Value a, Value b);
  Value emitNeutral(const Combiner &combiner, int64_t lanes);
  Value widen(Value value, Value neutral);
  Value combineLanes(const Combiner &combiner, Value value);

  Value constant(int64_t value);
  Type getVectorType(Type element, int64_t lanes) { return VectorType::get({lanes}, element); }
  static int64_t getLanes(Value value);

  OpBuilder &builder;
  Location location;
  const ElementGraph &graph;
  const IndexTable &table;
  const KernelStage &stage;
  const ScheduleTarget &target;
  SmallVector<Value> buffers, results;
  Value faults;
  Scope root;
  Scope *current = &root;
  /// Buffers of staged loads, and the row of the tile that is being computed; null outside of
  /// tiles.
  llvm::DenseMap<NodeId, Value> tileBuffers;
  Value tileRow;
  int64_t tileLanes = 0;
  /// Reductions of the stage, those that others need first.
  SmallVector<unsigned> reductions;
};

/// Enters a scope inside the current one for as long as it lives.
class StageEmitter::ScopeGuard {
public:
  explicit ScopeGuard(StageEmitter &emitter) : emitter(emitter) {
    scope.parent = emitter.current;
    emitter.current = &scope;
  }
  ~ScopeGuard() { emitter.current = scope.parent; }
  Scope *operator->() { return &scope; }

private:
  StageEmitter &emitter;
  Scope scope;
};

/// Runs `emit` with the builder before whatever loop is being filled inside `scope`.
template <typename Fn> auto StageEmitter::emitIn(Scope *scope, Fn emit) {
  OpBuilder::InsertionGuard guard(builder);
  Operation *loop = nullptr;
  for (Scope *inner = current; inner != scope->parent; inner = inner->parent)
    if (inner->child)
      loop = inner->child;
  if (loop)
    builder.setInsertionPoint(loop);
  Scope *previous = current;
  Operation *previousChild = scope->child;
  current = scope;
  scope->child = nullptr;
  auto result = emit();
  scope->child = previousChild;
  current = previous;
  return result;
}

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_KERNELEMISSION_H
