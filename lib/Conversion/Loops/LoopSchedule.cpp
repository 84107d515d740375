//===- LoopSchedule.cpp - rules of schedules for processors -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Loops/LoopSchedule.h"

using namespace mlir;
using namespace mlir::memopt;

/// Lanes of one vector of floats.
static constexpr double kLanes = 16;

/// A run of 32 numbers fills the lanes of every processor, so that sums have the same lanes on all.
/// Lanes that lie apart are accessed one by one, each on its own cache line when far apart.
static ScheduleNumbers getNumbersOfProcessors() {
  ScheduleNumbers numbers;
  numbers.sums = {/*run=*/32, /*fewResults=*/0};
  numbers.lanes = kLanes;
  numbers.lanesMultiply = false;
  numbers.strided = 1.5 * kLanes;
  numbers.scattered = 3 * kLanes;
  numbers.reread = 1;
  numbers.enoughRows = 64;
  numbers.enoughLanes = 16;
  numbers.tilesHaveLanesTwice = false;
  numbers.accessBytes = 0;
  return numbers;
}

LoopScheduleRules::LoopScheduleRules(int64_t blockBytes, bool isScalar)
    : ScheduleRules(getNumbersOfProcessors(), isScalar), blockBytes(blockBytes) {}

int64_t LoopScheduleRules::fitLanes(int64_t size, int64_t bytes, int64_t) const {
  int64_t lanes = std::max<int64_t>(1, blockBytes / std::max<int64_t>(bytes, sizeof(float)));
  if (size <= lanes)
    return size;
  // Half as many lanes and no tail beat a tail.
  return size % lanes && size % (lanes / 2) == 0 ? lanes / 2 : lanes;
}

/// A tile of the lanes is square, or several squares.
bool LoopScheduleRules::fitTiles(const ElementGraph &, KernelNest &tiled, int64_t rows,
                                 int64_t) const {
  tiled.lanes = tiled.lanes / tiled.tile * tiled.tile;
  return !tiled.staged.empty() && tiled.lanes != 0 && rows >= tiled.tile;
}

/// Starting threads costs, and few iterations occupy few of them. Small stages get no other threads
/// anyway.
double LoopScheduleRules::addOverheads(const ElementGraph &graph, const KernelStage &stage) const {
  constexpr double kLaunch = 5000, kSmall = 40000;
  auto trips = double(countTrips(graph.getTable(), stage));
  double idle = std::min(1.0, 3 / trips) * std::max(0.0, stage.cost - kSmall);
  return stage.cost + (idle + std::min(stage.cost, kLaunch));
}

std::unique_ptr<ScheduleRules> LoopScheduleRules::getRulesOfWideLanes() const {
  return std::make_unique<LoopScheduleRules>(blockBytes / 2, isScalar());
}
