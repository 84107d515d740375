//===- KernelSchedule.h - the loops of a kernel -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which loops a kernel runs, decided apart from emission. A stage is one parallel loop over rows;
// in every row it runs loop nests, each of which stores results. A node is computed in the
// innermost loop whose variable it depends on, so the choice of rows and of loop order settles
// where reductions are taken: once per row, once per column block, or (badly) once per element.
// Candidates are priced by counting what every loop executes, and the cheapest is taken.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_CORE_SCHEDULE_KERNELSCHEDULE_H
#define MEMOPT_CONVERSION_CORE_SCHEDULE_KERNELSCHEDULE_H

#include "memopt/Conversion/Core/Graph/ElementGraph.h"
#include "memopt/Conversion/Core/Schedule/ScheduleRules.h"

#include <variant>

namespace mlir::memopt {

/// One element of a result.
struct KernelStore {
  unsigned result;
  IndexExpr address;
  NodeId value;
};

struct KernelNest {
  /// Outermost first.
  SmallVector<AtomId, 4> loops;
  /// Which of the loops runs over blocks of lanes; none: every element alone.
  std::optional<unsigned> vectorLoop;
  /// Of a block; where several share the loop, of one of them.
  int64_t lanes = 1;
  SmallVector<KernelStore, 2> stores;
  /// The loop before the vector loop, taken in tiles: `staged` loads are contiguous along it and
  /// not along the lanes, so each tile of them is transposed through a buffer.
  std::optional<unsigned> tileLoop;
  int64_t tile = 1;
  SmallVector<NodeId, 2> staged;
  double cost = 0; ///< its part of the stage's, without overheads
};

/// The parallel loop of a stage that is no loop nest: one iteration for each combination of `outer`
/// and each block of `column`, whose addresses are contiguous.
struct KernelPoints {
  SmallVector<AtomId, 4> outer;
  std::optional<AtomId> column;
  int64_t lanes = 1;
};

/// Combines elements of the result, which an earlier stage has filled, with `value(points,
/// tokens)`, in the order of tokens. Different points are different elements, so that no two
/// iterations meet.
struct KernelScatter {
  KernelPoints points;
  SmallVector<AtomId, 4> tokens;
  unsigned result;
  /// None: the value replaces the element.
  std::optional<OperationName> combiner;
  NodeId value;
  /// What points and tokens contribute to the address.
  IndexExpr address;
  /// What data contributes: index times stride. Where one is not in [0, size) nothing happens.
  struct Index {
    NodeId node;
    int64_t size, stride;
  };
  SmallVector<Index, 2> indices;
  /// Nothing happens for this first index.
  std::optional<int64_t> padding;
  /// The parallel loop is over tokens: the first of each index goes through those that follow.
  bool isByTokens = false;
};

/// Stores the positions of the first elements of `value(points, along)` in order.
struct KernelOrder {
  KernelPoints points;
  unsigned result;
  AtomId along; ///< over elements
  AtomId place; ///< over the result
  NodeId value;
  IndexExpr address;
  bool isDescending;
};

/// Goes along an axis and carries what it has stored.
struct KernelScan {
  KernelPoints points;
  unsigned result;
  Operation *op; ///< says what a step is
  AtomId along;
  SmallVector<NodeId, 2> values; ///< of the op's operands
  IndexExpr address;
  bool isReversed;
};

struct KernelStage {
  /// In place of everything below.
  std::variant<std::monostate, KernelScatter, KernelOrder, KernelScan> irregular;
  bool isIrregular() const { return irregular.index() != 0; }
  /// Of an irregular stage.
  const KernelPoints &getPoints() const;
  /// The parallel loop over rows; none when there is a single row.
  std::optional<AtomId> row;
  SmallVector<KernelNest, 2> nests;
  /// Iterations of the first nest's outermost loop are distributed as well.
  bool distributesNest = false;
  double cost = 0;
};

struct KernelSchedule {
  /// Run one after the other.
  SmallVector<KernelStage, 1> stages;
  /// `printMore` adds to the line of a stage.
  void print(const ElementGraph &graph, raw_ostream &os,
             llvm::function_ref<void(size_t stage)> printMore) const;
};

/// Results of the kernel are the values that `terminator` yields; result i is buffer i of the
/// results. Schedules that `accept` refuses are taken only when it refuses all.
FailureOr<KernelSchedule> scheduleKernel(ElementGraph &graph, Operation *terminator,
                                         const ScheduleRules &rules,
                                         llvm::function_ref<bool(KernelSchedule &)> accept);

/// The stages of a kernel whose only result is that of `op`, which fills it.
FailureOr<KernelSchedule> scheduleIrregular(ElementGraph &graph, Operation *op,
                                            const ScheduleRules &rules);

/// Reductions under the stage's results, those that others need first.
SmallVector<unsigned> collectReductions(const ElementGraph &graph, const KernelStage &stage);

/// The scatter of a stage whose parallel loop is over tokens; null for other stages.
const KernelScatter *getTokenScatter(const KernelStage &stage);

/// Parts that the parallel loop takes of the first nest's outermost loop where it is distributed.
int64_t countBlocks(const IndexTable &table, const KernelStage &stage);
/// The same of a column of points.
int64_t countBlocks(const IndexTable &table, const KernelPoints &points);
/// Iterations of the stage's parallel loop.
int64_t countTrips(const IndexTable &table, const KernelStage &stage);

/// Lanes of a block that holds elements of the types that `roots` compute from data in a loop over
/// `variable` of `size` iterations. Results that they go to have up to `together` elements in one
/// unit of their storage.
int64_t chooseLanes(const ElementGraph &graph, ArrayRef<NodeId> roots, AtomId variable,
                    int64_t size, const ScheduleRules &rules, int64_t together = 1);

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_CORE_SCHEDULE_KERNELSCHEDULE_H
