//===- ScheduleRules.h - what schedules of a machine differ in --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The search for a schedule and the order of sums are the same for all machines. What they ask of a
// machine is here: numbers, and decisions that each kind of machine makes in its own way.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_CORE_SCHEDULE_SCHEDULERULES_H
#define MEMOPT_CONVERSION_CORE_SCHEDULE_SCHEDULERULES_H

#include "memopt/Conversion/Core/Graph/LaneDims.h"

#include <memory>

namespace mlir::memopt {

class ElementGraph;
struct KernelNest;
struct KernelScatter;
struct KernelStage;

/// Prices are in operations on all lanes at once.
struct ScheduleNumbers {
  LaneRules sums;           ///< which sums have lanes
  double lanes;             ///< that compute at once
  bool lanesMultiply;       ///< lanes of a loop add to those of the loops around it
  double strided;           ///< an access whose lanes are at one distance from each other
  double scattered;         ///< one whose lanes are anywhere
  double reread;            ///< an element that a second stage reads again
  int64_t enoughRows;       ///< iterations of a parallel loop that occupy the machine
  int64_t enoughLanes;      ///< a loop of so many is not exchanged for another with lanes
  bool tilesHaveLanesTwice; ///< lanes run along both loops of a tile
  int64_t accessBytes;      ///< that lanes are to fill where they are stored narrow; 0: none
};

class ScheduleRules {
public:
  virtual ~ScheduleRules() = default;
  const ScheduleNumbers &getNumbers() const { return numbers; }
  /// Plain loops over elements, no lanes: the reference that other schedules are compared with.
  bool isScalar() const { return scalar; }

  /// Lanes for `size` elements of `bytes` each. Storage has `together` elements in one unit.
  virtual int64_t fitLanes(int64_t size, int64_t bytes, int64_t together = 1) const = 0;
  /// How many share a run of `blocks` of lanes.
  virtual int64_t countSharers(int64_t blocks) const { return 1; }
  /// Chooses tile and lanes of a nest whose loads `staged` want tiles of loops over `rows` and
  /// `columns`. Gives false where tiles do not fit.
  virtual bool fitTiles(const ElementGraph &graph, KernelNest &tiled, int64_t rows,
                        int64_t columns) const = 0;
  /// Whether the parallel loop of a scatter is over tokens.
  virtual bool goesByTokens(const ElementGraph &graph, const KernelScatter &scatter) const {
    return false;
  }
  /// The stage's cost with what it takes to start it and to occupy the machine.
  virtual double addOverheads(const ElementGraph &graph, const KernelStage &stage) const = 0;
  /// Rules for loops whose lanes carry numbers of eight bytes beside what they read.
  virtual std::unique_ptr<ScheduleRules> getRulesOfWideLanes() const = 0;

protected:
  ScheduleRules(const ScheduleNumbers &numbers, bool isScalar)
      : numbers(numbers), scalar(isScalar) {}

private:
  ScheduleNumbers numbers;
  bool scalar;
};

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_CORE_SCHEDULE_SCHEDULERULES_H
