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

#ifndef MEMOPT_CONVERSION_CORE_EMISSION_KERNELEMISSION_H
#define MEMOPT_CONVERSION_CORE_EMISSION_KERNELEMISSION_H

#include "memopt/Conversion/Core/Schedule/SumOrder.h"

#include "memopt/Dialect/Philox.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/BitVector.h"

namespace mlir::memopt {

/// A boolean is one byte, 0 or 1.
Type getMemoryType(Type type);

class StageEmitter {
public:
  /// `buffers`: pointers to operands and constants; `results`: pointers to results; `faults`: to
  /// the word in which memopt.check reports, null when there is none; `randomIds`: those that
  /// moveRandomIds took from the kernel, as i64.
  StageEmitter(OpBuilder &builder, Location location, const ElementGraph &graph,
               const KernelStage &stage, const ScheduleTarget &target, ArrayRef<Value> buffers,
               ArrayRef<Value> results, Value faults, ArrayRef<Value> randomIds);

  /// Emits iterations [begin, end) of the stage's parallel loop at the builder's insertion point.
  void emit(Value begin, Value end);
  /// Emits those that a thread of a device takes. `overOperand`: the results that lie over an
  /// operand.
  void emitOnDevice(const llvm::BitVector &overOperand);

private:
  struct Scope {
    Scope *parent = nullptr;
    /// The loop that is being filled directly inside this scope.
    Operation *child = nullptr;
    SmallVector<std::pair<AtomId, Value>, 2> variables;
    std::optional<AtomId> vector; ///< which of them runs over lanes; its value is that of lane 0
    int64_t lanes = 1;
    int64_t step = 1; ///< divides the number of the first lane
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
  using LoopFn = llvm::function_ref<SmallVector<Value>(Value, ValueRange)>;
  SmallVector<Value> emitLoop(Value lower, Value upper, Value step, ValueRange carried,
                              LoopFn body);
  SmallVector<Value> emitLoop(Value lower, Value upper, int64_t step, ValueRange carried,
                              LoopFn body) {
    return emitLoop(lower, upper, constant(step), carried, body);
  }
  /// Iterations of the parallel loop, one after the other.
  void emitParallel(Value begin, Value end, llvm::function_ref<void(Value)> body);
  SmallVector<Value> emitScalarLoop(AtomId variable, ValueRange carried, BodyFn body);
  SmallVector<Value> emitVectorLoop(AtomId variable, int64_t lanes, ValueRange carried,
                                    BodyFn body);
  /// Full blocks of lanes of `size` iterations, then one of what is left.
  using LanesFn = llvm::function_ref<SmallVector<Value>(Value first, int64_t lanes, ValueRange)>;
  SmallVector<Value> emitLaneBlocks(int64_t size, int64_t lanes, ValueRange carried, LanesFn body);
  /// `lanes` from `first` on, which is a multiple of `step`.
  SmallVector<Value> emitBlock(AtomId variable, Value first, int64_t lanes, int64_t step,
                               ValueRange carried, BodyFn body);

  // Nests (KernelEmission.cpp).
  void emitIteration(Value iteration);
  void emitDistributed(const KernelNest &nest, Value block);
  void emitBlockAt(AtomId variable, int64_t lanes, Value block, llvm::function_ref<void()> body);
  void emitNest(const KernelNest &nest, size_t level);
  void emitStores(const KernelNest &nest);

  // Threads of a device (ThreadEmission.cpp).
  static int64_t getGroupsOfBlock(const KernelStage &stage);
  void openThreads();
  void emitGridLoop(Value begin, Value end, llvm::function_ref<void(Value)> body);
  void synchronize();
  void emitWhere(Value condition, llvm::function_ref<void()> body);
  Value isBelow(Value a, int64_t b);
  Value getFirstLane(int64_t lanes, Value block);
  void emitThreadBlockAt(AtomId variable, int64_t lanes, Value block,
                         llvm::function_ref<void()> body);
  SmallVector<Value> emitThreadLoop(AtomId variable, int64_t lanes, ValueRange carried,
                                    BodyFn body);
  bool areThreadsApart();
  void emitFencedNest(const KernelNest &nest);
  bool isOverOperand(const KernelNest &nest);
  Value getSharedBuffer(const std::string &name, Type element, int64_t count);

  // Scatters of warps (WarpScatter.cpp).
  void emitTokenScatter(const KernelScatter &scatter, Value begin, Value end);
  void bindTokens(const KernelScatter &scatter, Value token);
  Value emitKey(const KernelScatter &scatter, Value token);
  Value hasKey(const KernelScatter &scatter, Value token, Value end, Value key);
  Value isFirstOfKey(const KernelScatter &scatter, Value token, Value key);
  void emitTokensOfKey(const KernelScatter &scatter, Value token, Value key);
  void emitTokensOfMask(Value mask, llvm::function_ref<void(Value)> body);
  void emitTokenRow(const KernelScatter &scatter, Value token, Value key);

  // Tiles of threads (ThreadTiles.cpp).
  /// Of an element of a tile along one loop: that of the tile's first, and its number in the tile.
  struct TilePosition {
    Value first, number;
  };
  void emitThreadTiles(const KernelNest &nest);
  void emitThreadTile(const KernelNest &nest, Value number);
  void emitTileElement(const KernelNest &nest, TilePosition row, TilePosition column, bool isVector,
                       llvm::function_ref<void()> body);
  void fillTileLine(const KernelNest &nest, TilePosition row, TilePosition column);
  void emitTileLine(const KernelNest &nest, TilePosition row, TilePosition column);
  Value getTileSquare(const KernelNest &nest, NodeId id);

  // Transposed tiles (TileEmission.cpp).
  void emitTileLoop(const KernelNest &nest);
  void emitTileAt(const KernelNest &nest, Value block);
  void emitTile(const KernelNest &nest, Value first);
  void emitPlainRows(const KernelNest &nest, Value first, int64_t count);
  void fillTile(const KernelNest &nest, NodeId id, Value buffer);
  Value getTileBuffer(const KernelNest &nest, NodeId id);

  // Stages that are no loop nests (ScatterEmission.cpp, ScanEmission.cpp).
  int64_t getLanesOf(const KernelPoints &points);
  void emitIrregular(Value begin, Value end);
  void emitPoint(const KernelPoints &points, Value point, llvm::function_ref<void()> body);
  void emitTokens(const KernelScatter &scatter, size_t level, llvm::function_ref<void()> body);
  void emitRowScatter(const KernelScatter &scatter, Value begin, Value end);
  void emitUpdate(const KernelScatter &scatter);
  Value join(StringRef name, Value a, Value b, int64_t lanes);
  struct ScatterPlace {
    Value inside, offset;
  };
  ScatterPlace emitPlace(const KernelScatter &scatter, int64_t lanes);
  unsigned getAlignmentOf(const KernelScatter &scatter, Type element);
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
  /// Of what `scope` has of a contiguous address, or of one element without a scope.
  unsigned getAlignment(const IndexExpr &address, Type element, Scope *scope);
  Value loadFrom(Value pointer, Type type, unsigned alignment, Value mask);
  void storeTo(Value pointer, Value value, unsigned alignment, Value mask);
  void emitStore(const KernelStore &store, const KernelNest &nest, Value value);

  // Random bits (RandomEmission.cpp).
  Value emitRandomWord(const ElementNode &node);
  Value emitNeighbours(const RandomStream &stream, Value first, int64_t lanes);
  Value emitWords(const RandomStream &stream, Value first, Value number);
  Value emitWordsOfPart(const RandomStream &stream, Value first, Value begin, Value numbers,
                        int64_t lanes);
  bool isMultiple(NodeId node, int64_t divisor);

  // Booleans in bits (BitEmission.cpp).
  bool beginWithMultiple(const IndexExpr &number, Scope *scope, int64_t divisor);
  bool areWholeBytes(const IndexExpr &address, Scope *scope);
  Value emitBitLoad(const ElementNode &node);
  void emitBitStore(const KernelStore &store, Scope *scope, Value value);
  void emitOneBit(Value buffer, Value index, Value bit);

  // Reductions (ReductionEmission.cpp).
  Value emitReduce(const ElementNode &node);
  SmallVector<unsigned> chooseCompanions(unsigned reduction, Scope *home);
  bool areInputsReady(unsigned reduction);
  void emitInputs(unsigned reduction);
  void emitSequential(ArrayRef<unsigned> group, Scope *lanesOf);
  void emitInLanes(ArrayRef<unsigned> group, LaneChoice choice);
  void emitFolded(ArrayRef<unsigned> group, Scope *lanesOf);
  /// The loops of a group of reductions that is being emitted.
  struct GroupLoops {
    ArrayRef<unsigned> group;
    SmallVector<SumLoop> loops;
    std::optional<LaneChoice> choice; ///< for the last loop
    Value lane = nullptr;             ///< the one that a thread makes alone; null: all of them
    AtomId getLaneVariable(const ElementGraph &graph) const {
      return graph.getReduction(group.front()).variables[loops.back().variable];
    }
  };
  GroupLoops getLoops(ArrayRef<unsigned> group, std::optional<LaneChoice> choice);
  SmallVector<Value> emitReductionLoops(const GroupLoops &all, size_t level, Value base,
                                        ValueRange carried);
  SmallVector<Value> emitOneIteration(ArrayRef<unsigned> group, bool inLanes, ValueRange carried);
  SmallVector<Value> emitLaneRun(const GroupLoops &all, Value base, ValueRange carried);
  SmallVector<Value> emitOneByOne(const GroupLoops &all, Value first, int64_t lanes,
                                  ValueRange carried);
  SmallVector<Value> emitRoundOfLanes(const GroupLoops &all, Value first, int64_t count,
                                      ValueRange carried);
  SmallVector<Value> emitInBlocks(ArrayRef<unsigned> group, int64_t size, int64_t block,
                                  ValueRange carried, LoopFn body);
  Value combine(const Combiner &combiner, Value a, Value b);
  Value emitNeutral(const Combiner &combiner, int64_t lanes);
  SmallVector<const Combiner *> getCombiners(ArrayRef<unsigned> group);
  void setResults(ArrayRef<unsigned> group, ArrayRef<Value> sums, Scope *lanesOf);
  Value widen(Value value, Value neutral);
  Value fold(const Combiner &combiner, SmallVector<Value> lanes);
  Value combineLanes(const Combiner &combiner, Value value);

  // Sums of a device (ThreadSums.cpp).
  SmallVector<Value> emitThreadRound(const GroupLoops &all, Value first, int64_t count,
                                     ValueRange carried);
  SmallVector<Value> emitThreadsOneByOne(const GroupLoops &all, Value first, int64_t count,
                                         ValueRange carried);
  Value getLaneOfThread(const LaneChoice &choice);
  void emitLaneByLane(ArrayRef<unsigned> group, const LaneChoice &choice, Scope *lanesOf);
  Value combineByShuffles(const Combiner &combiner, Value value, int64_t count);
  void combineThreads(ArrayRef<const Combiner *> combiners, MutableArrayRef<Value> values,
                      int64_t count);

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
  SmallVector<Value> randomIds;
  Scope root;
  Scope *current = &root;
  /// Of what depends on no loop.
  Scope *outermost = &root;
  /// Buffers of staged loads, and the row of the tile that is being computed; null outside of
  /// tiles.
  llvm::DenseMap<NodeId, Value> tileBuffers;
  Value tileRow;
  int64_t tileLanes = 0;
  /// Reductions of the stage, those that others need first.
  SmallVector<unsigned> reductions;
  /// On a device: this thread's number in its block, the block's group that it belongs to, its
  /// number there, and the threads of its warp that do.
  struct {
    Value inBlock, group, rank, mask;
  } threads;
  Value gridStep; ///< groups of the grid; null on a processor
  llvm::BitVector overOperand;
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

#endif // MEMOPT_CONVERSION_CORE_EMISSION_KERNELEMISSION_H
