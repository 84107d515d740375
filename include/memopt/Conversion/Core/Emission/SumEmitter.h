//===- SumEmitter.h - reductions of kernels ----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_CORE_EMISSION_SUMEMITTER_H
#define MEMOPT_CONVERSION_CORE_EMISSION_SUMEMITTER_H

#include "memopt/Conversion/Core/Emission/NodeEmitter.h"
#include "memopt/Conversion/Core/Schedule/SumOrder.h"

namespace mlir::memopt {

/// Reductions, in the order of SumOrder.h. What is done with lanes is for each kind of machine.
class SumEmitter : protected EmitterPart {
public:
  SumEmitter(NodeEmitter &nodes, const KernelStage &stage, const ScheduleRules &rules);
  virtual ~SumEmitter() = default;
  /// The reduction's result, and all others that its loops can make as well.
  Value emit(const ElementNode &node);

protected:
  /// The loops of a group of reductions that is being emitted.
  struct GroupLoops {
    ArrayRef<unsigned> group;
    SmallVector<SumLoop> loops;
    std::optional<LaneChoice> choice; ///< for the last loop
    Value lane = nullptr;             ///< the one that is made alone; null: all of them
    AtomId getLaneVariable(const ElementGraph &graph) const {
      return graph.getReduction(group.front()).variables[loops.back().variable];
    }
  };

  /// Emits sums that have lanes of their own; `lanesOf`: the scope whose lanes they vary along.
  virtual void emitWithLanes(ArrayRef<unsigned> group, const LaneChoice &choice,
                             Scope *lanesOf) = 0;
  /// Adds `count` numbers from `first` on, at most one for each lane.
  virtual SmallVector<Value> emitRound(const GroupLoops &all, Value first, int64_t count,
                                       ValueRange carried) = 0;
  /// Makes one of what several have who share the sums.
  virtual void combineSharers(ArrayRef<const Combiner *> combiners, MutableArrayRef<Value> sums,
                              int64_t sharers) {}

  GroupLoops getLoops(ArrayRef<unsigned> group, std::optional<LaneChoice> choice);
  void emitInLanes(ArrayRef<unsigned> group, const LaneChoice &choice);
  SmallVector<Value> emitReductionLoops(const GroupLoops &all, size_t level, Value base,
                                        ValueRange carried);
  SmallVector<Value> emitOneIteration(ArrayRef<unsigned> group, bool inLanes, ValueRange carried);
  Value combine(const Combiner &combiner, Value a, Value b);
  /// `lanes` 0: a scalar.
  Value emitNeutral(const Combiner &combiner, int64_t lanes);
  SmallVector<const Combiner *> getCombiners(ArrayRef<unsigned> group);
  void setResults(ArrayRef<unsigned> group, ArrayRef<Value> sums, Scope *lanesOf);
  Value widen(Value value, Value neutral);
  Value combineLanes(const Combiner &combiner, Value value);

private:
  SmallVector<unsigned> chooseCompanions(unsigned reduction, Scope *home);
  bool areInputsReady(unsigned reduction);
  bool hasInnerReductions(unsigned reduction);
  void emitInputs(unsigned reduction);
  void emitSequential(ArrayRef<unsigned> group, Scope *lanesOf);
  SmallVector<Value> emitLaneRun(const GroupLoops &all, Value base, ValueRange carried);
  SmallVector<Value> emitInBlocks(ArrayRef<unsigned> group, int64_t size, int64_t block,
                                  ValueRange carried, LoopFn body);

  const ScheduleRules &rules;
  /// Reductions of the stage, those that others need first.
  SmallVector<unsigned> reductions;
  /// Of each the longest chain of reductions that it is made of.
  llvm::DenseMap<unsigned, unsigned> depths;
};

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_CORE_EMISSION_SUMEMITTER_H
