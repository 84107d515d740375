//===- ThreadSchedule.cpp - rules of schedules for GPUs; threads of stages -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Threads share an iteration of the parallel loop where lanes of a loop inside, or of a sum, are
// theirs: a part of a warp, a warp, or a block, as long as the longest such loop is. Where
// iterations are single lanes, or no lanes are shared, each thread has one of its own.
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Threads/ThreadSchedule.h"

#include "memopt/Conversion/Core/Schedule/SumOrder.h"

#include <limits>

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

/// A run of a block's widest accesses fills the lanes. Memory comes in sectors of 32 bytes, eight
/// floats, and each element is an access. Lanes are so many that instructions cost less of what
/// memory does.
static ScheduleNumbers getNumbersOfDevice(const DeviceMachine &machine) {
  constexpr int64_t kFewResults = 2048, kRowsOfSm = 16;
  ScheduleNumbers numbers;
  numbers.sums = {machine.blockThreads * machine.accessBytes / int64_t(sizeof(float)), kFewResults};
  numbers.lanes = 128;
  numbers.lanesMultiply = true;
  numbers.strided = 16;
  numbers.scattered = 24;
  numbers.reread = 1.0 / 8;
  numbers.enoughRows = kRowsOfSm * machine.sms;
  numbers.enoughLanes = std::numeric_limits<int64_t>::max();
  numbers.tilesHaveLanesTwice = true;
  numbers.accessBytes = machine.accessBytes;
  return numbers;
}

ThreadScheduleRules::ThreadScheduleRules(const DeviceMachine &machine, bool isScalar)
    : ScheduleRules(getNumbersOfDevice(machine), isScalar), machine(machine) {}

//===----------------------------------------------------------------------===//
// Lanes and tiles
//===----------------------------------------------------------------------===//

/// One wide access, or the lanes of a unit of storage; a thread has all of its lanes or none.
int64_t ThreadScheduleRules::fitLanes(int64_t size, int64_t bytes, int64_t together) const {
  int64_t lanes = std::max(together, machine.accessBytes / std::max<int64_t>(bytes, sizeof(float)));
  while (size % lanes)
    lanes /= 2;
  return lanes;
}

int64_t ThreadScheduleRules::countSharers(int64_t vectors) const {
  // A warp goes through rows of four kilobytes faster than a block is brought together.
  constexpr int64_t kLongestOfWarp = 256;
  if (vectors > kLongestOfWarp)
    return machine.blockThreads;
  return std::min(machine.warpThreads, static_cast<int64_t>(llvm::PowerOf2Ceil(vectors)));
}

/// Squares of shared memory.
bool ThreadScheduleRules::fitTiles(const ElementGraph &graph, KernelNest &tiled, int64_t rows,
                                   int64_t columns) const {
  constexpr int64_t kShortest = 8;
  tiled.tile = machine.tileThreads;
  tiled.lanes = 1;
  int64_t bytes = 0;
  for (NodeId id : tiled.staged)
    bytes += tiled.tile * (tiled.tile + 1) * graph.getNode(id).type.getIntOrFloatBitWidth() / 8;
  return bytes != 0 && bytes <= machine.sharedBytes && rows >= kShortest && columns >= kShortest;
}

/// Where tokens alone say which row of the result is changed, the rows are all that there is, and
/// tokens are few enough to be compared with each other.
bool ThreadScheduleRules::goesByTokens(const ElementGraph &graph,
                                       const KernelScatter &scatter) const {
  constexpr int64_t kMostTokens = 1 << 16;
  int64_t tokens = 1;
  for (AtomId variable : scatter.tokens)
    tokens *= graph.getTable().getSize(variable);
  const KernelPoints &points = scatter.points;
  return points.column && points.outer.empty() && tokens > 1 && tokens <= kMostTokens &&
         llvm::none_of(scatter.indices, [&](const KernelScatter::Index &index) {
           return llvm::is_contained(graph.getNode(index.node).variables, *points.column);
         });
}

/// A thread's lanes are one access, whatever is carried.
std::unique_ptr<ScheduleRules> ThreadScheduleRules::getRulesOfWideLanes() const {
  return std::make_unique<ThreadScheduleRules>(machine, isScalar());
}

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

/// How many of a group's threads have a part of the nest: the others wait where its lanes are few.
static int64_t countActiveThreads(const IndexTable &table, const KernelStage &stage,
                                  const KernelNest &nest, int64_t group) {
  if (!nest.vectorLoop || nest.tileLoop || (stage.distributesNest && nest.vectorLoop == 0u))
    return group;
  return std::min(group, table.getSize(nest.loops[*nest.vectorLoop]) / nest.lanes);
}

/// A multiprocessor needs many threads to wait for memory while others compute. It has eight times
/// as many at a time, those that have no part of a nest included.
double ThreadScheduleRules::addOverheads(const ElementGraph &graph,
                                         const KernelStage &stage) const {
  constexpr double kThreadsOfSm = 256, kMostThreadsOfSm = 8 * kThreadsOfSm;
  const IndexTable &table = graph.getTable();
  ThreadShape shape = chooseThreads(graph, stage);
  auto group = double(shape.group), sms = double(machine.sms);
  double threads =
      std::min(double(countTrips(table, stage, shape)) * group, kMostThreadsOfSm * sms);
  double cost = machine.launchCost;
  for (const KernelNest &nest : stage.nests) {
    double active = double(countActiveThreads(table, stage, nest, shape.group)) / group;
    cost += nest.cost * std::max(1.0, kThreadsOfSm * sms / (threads * active));
  }
  return cost;
}

/// Threads for the longest loop and the longest sum that they share; a block where they share
/// tiles.
int64_t ThreadScheduleRules::countGroupThreads(const ElementGraph &graph,
                                               const KernelStage &stage) const {
  if (stage.isIrregular())
    return getTokenScatter(stage) ? machine.warpThreads : 1;
  const IndexTable &table = graph.getTable();
  int64_t threads = 1;
  llvm::SmallDenseSet<AtomId> lanes;
  for (const KernelNest &nest : stage.nests) {
    if (nest.tileLoop)
      return machine.blockThreads;
    if (!nest.vectorLoop)
      continue;
    AtomId loop = nest.loops[*nest.vectorLoop];
    lanes.insert(loop);
    if (!stage.distributesNest || nest.vectorLoop != 0u)
      threads = std::max(threads, countSharers(table.getSize(loop) / nest.lanes));
  }
  for (unsigned number : collectReductions(graph, stage)) {
    const ElementReduction &reduction = graph.getReduction(number);
    // One whose result varies along lanes has an accumulator for each.
    if (llvm::any_of(reduction.freeVariables, [&](AtomId atom) { return lanes.contains(atom); }))
      continue;
    if (std::optional<LaneChoice> choice = getLanesOfSum(graph, reduction, *this))
      threads = std::max(threads, choice->sharers);
  }
  return threads;
}

ThreadShape ThreadScheduleRules::chooseThreads(const ElementGraph &graph,
                                               const KernelStage &stage) const {
  ThreadShape shape{countGroupThreads(graph, stage), machine.blockThreads};
  // Few threads go to as many multiprocessors as there are.
  int64_t threads = countTrips(graph.getTable(), stage, shape) * shape.group;
  auto share = static_cast<int64_t>(llvm::PowerOf2Ceil(llvm::divideCeil(threads, machine.sms)));
  shape.block = std::clamp(share, std::max(machine.warpThreads, shape.group), machine.blockThreads);
  return shape;
}

int64_t mlir::memopt::countBlocks(const IndexTable &table, const KernelStage &stage,
                                  const ThreadShape &shape) {
  const KernelNest &nest = stage.nests.front();
  if (nest.loops.empty())
    return 1;
  if (nest.vectorLoop == 0u)
    return llvm::divideCeil(table.getSize(nest.loops.front()), nest.lanes * shape.group);
  int64_t blocks = countBlocks(table, stage);
  if (nest.tileLoop != 0u)
    return blocks;
  return blocks * llvm::divideCeil(table.getSize(nest.loops.back()), nest.tile);
}

int64_t mlir::memopt::countTrips(const IndexTable &table, const KernelStage &stage,
                                 const ThreadShape &shape) {
  if (stage.isIrregular() || !stage.distributesNest)
    return countTrips(table, stage);
  int64_t rows = stage.row ? table.getSize(*stage.row) : 1;
  return rows * countBlocks(table, stage, shape);
}
