//===- ThreadSums.cpp - sums that threads of a device share -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A round of a sum is one number for each lane of its threads, which are the first of the group's;
// those behind them repeat what they do. Lanes of a thread are folded first, then threads of a warp
// by a butterfly of shuffles, then, in a block, warps through shared memory, where every warp folds
// the warps' sums in the same way. All threads get the same bits.
//
//===----------------------------------------------------------------------===//

#include "ThreadSums.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

#include <numeric>

using namespace mlir;
using namespace mlir::memopt;

/// Where the threads are together and enough, each has its lanes; else one of them takes all.
void ThreadSums::emitWithLanes(ArrayRef<unsigned> group, const LaneChoice &choice, Scope *lanesOf) {
  if (lanesOf || threads.areApart() || choice.sharers > threads.shape.group)
    emitLaneByLane(group, choice, lanesOf);
  else
    emitInLanes(group, choice);
}

//===----------------------------------------------------------------------===//
// Rounds
//===----------------------------------------------------------------------===//

/// The number, in a round, of the first lane that this thread has.
Value ThreadSums::getLaneOfThread(const LaneChoice &choice) {
  Value thread = threads.rank;
  if (choice.sharers != threads.shape.group)
    thread = arith::RemUIOp::create(builder, location, thread, constant(choice.sharers));
  return arith::MulIOp::create(builder, location, thread, constant(choice.lanes));
}

/// The first `count` lanes of a round, of numbers from `first` on. Lanes of a thread divide their
/// number, so that a thread has all of them or none.
SmallVector<Value> ThreadSums::emitRound(const GroupLoops &all, Value first, int64_t count,
                                         ValueRange carried) {
  const LaneChoice &choice = *all.choice;
  if (choice.isOneByOne && !all.lane)
    return emitThreadsOneByOne(all, first, count, carried);
  auto addAt = [&](Value lane, ValueRange sums) {
    Value number = arith::AddIOp::create(builder, location, first, lane);
    if (!all.lane)
      return nodes.emitBlock(
          all.getLaneVariable(graph), number, choice.lanes, choice.lanes, sums,
          [&](ValueRange own) { return emitOneIteration(all.group, /*inLanes=*/true, own); });
    ScopeGuard scope(nodes);
    scope->variables.push_back({all.getLaneVariable(graph), number});
    return emitOneIteration(all.group, /*inLanes=*/false, sums);
  };
  Value lane = all.lane ? all.lane : getLaneOfThread(choice);
  if (count == choice.getWidth())
    return addAt(lane, carried);
  return nodes.emitLoop(lane, constant(count), choice.getWidth(), carried, addAt);
}

/// What is added holds sums that the threads share, so all of them compute each number, and one
/// adds it.
SmallVector<Value> ThreadSums::emitThreadsOneByOne(const GroupLoops &all, Value first,
                                                   int64_t count, ValueRange carried) {
  SmallVector<const Combiner *> combiners = getCombiners(all.group);
  int64_t lanes = all.choice->lanes;
  SmallVector<int64_t> numbers(lanes);
  std::iota(numbers.begin(), numbers.end(), 0);
  Value own = arith::ConstantOp::create(builder, location, builder.getI64VectorAttr(numbers));
  own = arith::AddIOp::create(builder, location, own, splat(getLaneOfThread(*all.choice), lanes));
  // Of the loop over rounds, if there is one.
  ScopeGuard roundScope(nodes);
  return nodes.emitLoop(constant(0), constant(count), 1, carried, [&](Value lane, ValueRange sums) {
    ScopeGuard scope(nodes);
    Value number = arith::AddIOp::create(builder, location, first, lane);
    scope->variables.push_back({all.getLaneVariable(graph), number});
    Value isOwn =
        arith::CmpIOp::create(builder, location, arith::CmpIPredicate::eq, own, splat(lane, lanes));
    SmallVector<Value> next;
    for (unsigned reduction : all.group)
      for (NodeId contribution : graph.getReduction(reduction).contributions) {
        Value sum = sums[next.size()];
        Value value = splat(nodes.emitNode(contribution), lanes);
        value = combine(*combiners[next.size()], sum, value);
        next.push_back(arith::SelectOp::create(builder, location, isOwn, value, sum));
      }
    return next;
  });
}

//===----------------------------------------------------------------------===//
// One thread
//===----------------------------------------------------------------------===//

/// By how much the numbers of lanes differ that are folded onto each other, the last fold first.
static SmallVector<int64_t> getFoldSteps(const LaneChoice &choice, int64_t warpThreads) {
  SmallVector<int64_t> steps;
  auto addSteps = [&](int64_t first, int64_t end, int64_t lanes) {
    for (int64_t distance = first; distance < end; distance *= 2)
      steps.push_back(distance * lanes);
  };
  addSteps(warpThreads, choice.sharers, choice.lanes);
  addSteps(1, std::min(choice.sharers, warpThreads), choice.lanes);
  addSteps(1, choice.lanes, 1);
  return steps;
}

/// The tree of folds as loops over its halves, around the sum of one lane; each thread at its own
/// elements, of which it has as many as `lanesOf` has lanes.
void ThreadSums::emitLaneByLane(ArrayRef<unsigned> group, const LaneChoice &choice,
                                Scope *lanesOf) {
  GroupLoops all = getLoops(group, choice);
  SmallVector<const Combiner *> combiners = getCombiners(group);
  SmallVector<int64_t> steps = getFoldSteps(choice, threads.machine.warpThreads);
  SmallVector<Value> neutral;
  for (const Combiner *combiner : combiners)
    neutral.push_back(emitNeutral(*combiner, lanesOf ? lanesOf->lanes : 0));
  std::function<SmallVector<Value>(size_t, Value)> emitHalves = [&](size_t level, Value lane) {
    if (level == steps.size()) {
      all.lane = lane;
      return emitReductionLoops(all, 0, Value(), neutral);
    }
    return nodes.emitLoop(constant(0), constant(2), 1, neutral, [&](Value half, ValueRange sums) {
      ScopeGuard scope(nodes);
      Value step = arith::MulIOp::create(builder, location, half, constant(steps[level]));
      SmallVector<Value> parts =
          emitHalves(level + 1, arith::AddIOp::create(builder, location, lane, step));
      for (auto [combiner, sum, part] : llvm::zip_equal(combiners, sums, parts))
        part = combine(*combiner, sum, part);
      return parts;
    });
  };
  setResults(group, emitHalves(0, constant(0)), lanesOf);
}

//===----------------------------------------------------------------------===//
// Folds
//===----------------------------------------------------------------------===//

Value ThreadSums::combineByShuffles(const Combiner &combiner, Value value, int64_t count) {
  ImplicitLocOpBuilder b(location, builder);
  for (int64_t distance = count / 2; distance > 0; distance /= 2)
    value = combine(combiner, value, shuffleWarp(threads.ops, b, threads.mask, value, distance));
  return value;
}

/// From `values[i]`, lanes of each thread, to their sum over `count` threads, in all of the
/// group's.
void ThreadSums::combineSharers(ArrayRef<const Combiner *> combiners, MutableArrayRef<Value> values,
                                int64_t count) {
  for (auto [combiner, value] : llvm::zip_equal(combiners, values))
    value = combineByShuffles(*combiner, combineLanes(*combiner, value),
                              std::min(count, threads.machine.warpThreads));
  int64_t warps = count / threads.machine.warpThreads;
  if (warps <= 1)
    return;
  Value warp = threads.getWarp();
  Value lane = threads.getLaneOfWarp();
  Value isFirst = nodes.isBelow(lane, 1);
  SmallVector<Value> places;
  for (size_t i = 0; i < values.size(); ++i)
    places.push_back(
        threads.getSharedBuffer("sums" + std::to_string(i), builder.getI64Type(), warps));
  // The sums before may still be read.
  threads.synchronize();
  nodes.emitWhere(isFirst, [&] {
    for (auto [place, value] : llvm::zip_equal(places, values))
      nodes.storeTo(nodes.getAddress(place, builder.getI64Type(), warp), value,
                    nodes.getAlignment(value.getType()), nullptr);
  });
  threads.synchronize();
  // Lanes of a warp take the sums of the warps in turn, as often as they come.
  Value from = arith::RemUIOp::create(builder, location, lane, constant(warps));
  for (auto [combiner, place, value] : llvm::zip_equal(combiners, places, values)) {
    Type type = value.getType();
    Value sum = nodes.loadFrom(nodes.getAddress(place, builder.getI64Type(), from), type,
                               nodes.getAlignment(type), nullptr);
    value = combineByShuffles(*combiner, sum, warps);
  }
}
