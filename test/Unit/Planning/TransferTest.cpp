//===- TransferTest.cpp - plans with spaces, links, ways and regions ---------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Order/PlanSolver.h"

#include "memopt/Planning/Problem/PlanFile.h"
#include "memopt/Planning/Simulation/PlanExecution.h"
#include "memopt/Planning/Simulation/PlanSequence.h"
#include "memopt/Planning/Utils/SearchRandom.h"

#include "llvm/ADT/Sequence.h"

#include <gtest/gtest.h>
#include <map>
#include <queue>

using namespace memopt::planning;

static PlanOp op(int64_t bytes, int64_t cost, std::vector<int32_t> inputs) {
  PlanOp result;
  result.results = {{bytes}};
  result.cost = cost;
  for (int32_t input : inputs)
    result.inputs.push_back({input, 0});
  return result;
}

/// A device with a host beside it, and a link for each direction.
static PlanProblem twoSpaces(std::vector<PlanOp> ops) {
  PlanProblem problem;
  problem.ops = std::move(ops);
  problem.spaces = {{"device"}, {"host"}};
  problem.resources = {"compute", "out", "in"};
  return problem;
}

/// The first result of `op` may be stored and fetched again, `cost` in each direction.
static PlanWay swapOf(const PlanProblem &problem, int32_t op, int64_t cost) {
  PlanWay way;
  way.value = {op, 0};
  way.store = PlanTransfer{1, cost, {}};
  way.fetch = {2, cost, {}};
  way.copy = {problem.ops[op].results[0].bytes, 1, 1};
  return way;
}

static PlanWay homeOf(int32_t op, int64_t cost) {
  PlanWay way;
  way.value = {op, 0};
  way.fetch = {2, cost, {}};
  return way;
}

static PlanMeasure measure(const PlanProblem &problem, llvm::ArrayRef<int32_t> order) {
  EXPECT_EQ(llvm::toString(checkPlanProblem(problem)), "");
  llvm::Expected<PlanMeasure> result = measurePlan(problem, order);
  if (!result) {
    ADD_FAILURE() << llvm::toString(result.takeError());
    return {};
  }
  return *result;
}

static std::string why(const PlanProblem &problem, llvm::ArrayRef<int32_t> order) {
  llvm::Expected<PlanMeasure> result = measurePlan(problem, order);
  return result ? std::string() : llvm::toString(result.takeError());
}

static std::string refusal(const PlanProblem &problem) {
  return llvm::toString(checkPlanProblem(problem));
}

//===----------------------------------------------------------------------===//
// What plans mean
//===----------------------------------------------------------------------===//

/// Op 0 makes 100 bytes that op 3 reads; in between 50 bytes come and go.
static PlanProblem swapExample() {
  PlanProblem problem =
      twoSpaces({op(100, 10, {}), op(50, 10, {0}), op(1, 10, {1}), op(1, 10, {0, 2})});
  problem.ways = {swapOf(problem, 0, 8)};
  return problem;
}

TEST(Transfer, ActionsHaveNumbersBehindOps) {
  PlanProblem problem = swapExample();
  problem.regions = {{1, 3, 2}};
  EXPECT_EQ(getNumActions(problem), 10);
  for (int32_t number = 0; number < 10; ++number)
    EXPECT_EQ(getNumber(problem, getAction(problem, number)), number);
  EXPECT_EQ(getAction(problem, 6).kind, PlanAction::FetchStart);
  EXPECT_EQ(getAction(problem, 9).kind, PlanAction::Leave);
  EXPECT_EQ(getGivenOrder(problem), (std::vector<int32_t>{0, 8, 1, 2, 9, 3}));
}

/// Store 4, wait 5, fetch 6, wait 7. Device bytes are held until the store's wait and from the
/// fetch's start; host bytes from the store's start to the fetch's wait.
TEST(Transfer, BytesFollowFromPositions) {
  PlanProblem problem = swapExample();
  EXPECT_EQ(measure(problem, {0, 1, 2, 3}).peak, 151);
  // 0: 100; 1: 100 + 50; the store has been waited for in front of 2.
  PlanMeasure swapped = measure(problem, {0, 1, 4, 5, 2, 6, 7, 3});
  EXPECT_EQ(swapped.peak, 150);
  EXPECT_EQ(swapped.otherPeaks, std::vector<int64_t>{100});
  // Fetched beside op 2, which has 50 + 1 bytes.
  EXPECT_EQ(measure(problem, {0, 1, 4, 5, 6, 2, 7, 3}).peak, 151);
  // Copies add up with residents of their space.
  problem.residents = {{7, 1, 0}, {5, 1, 1}};
  EXPECT_EQ(measure(problem, {0, 1, 4, 5, 2, 6, 7, 3}).otherPeaks, std::vector<int64_t>{105});
  EXPECT_EQ(measure(problem, {0, 1, 2, 3}).peak, 158);
}

/// 40 of compute; the store hides behind op 1, the fetch behind nothing, or behind op 2.
TEST(Transfer, TimeFollowsFromQueues) {
  PlanProblem problem = swapExample();
  EXPECT_EQ(measure(problem, {0, 1, 2, 3}).cost, 40);
  EXPECT_EQ(measure(problem, {0, 4, 1, 5, 2, 6, 7, 3}).cost, 48);
  EXPECT_EQ(measure(problem, {0, 4, 1, 5, 6, 2, 7, 3}).cost, 40);
  EXPECT_EQ(measure(problem, {0, 4, 5, 1, 6, 2, 7, 3}).cost, 48);
  // On one link the fetch stands behind the store.
  problem.ways[0].fetch.resource = 1;
  problem.ways[0].store->cost = 25;
  EXPECT_EQ(measure(problem, {0, 4, 1, 5, 6, 2, 7, 3}).cost, 10 + 25 + 10 + 10);
  // An op of another resource that nobody waits for holds the plan up, behind what is queued there.
  problem.ops[2].resource = 1;
  EXPECT_EQ(measure(problem, {0, 4, 1, 2, 5, 6, 7, 3}).cost, 10 + 25 + 10 + 8 + 10);
}

TEST(Transfer, HomesAreFetchedAtAnyTime) {
  PlanProblem problem = twoSpaces({op(100, 10, {}), op(50, 10, {0}), op(1, 10, {1, 0})});
  problem.ways = {homeOf(0, 4)};
  int32_t fetch = 5, wait = 6;
  EXPECT_EQ(measure(problem, {0, 1, fetch, wait, 2}).cost, 34);
  EXPECT_EQ(why(problem, {fetch, wait, 0, 1, 2}),
            "position 0: the fetch of way 0 comes before op 0 has run");
  EXPECT_EQ(why(problem, {0, 1, 3, 4, 2}), "position 2: the store of way 0, which has a home");
  problem.ops[2].after = {0};
  EXPECT_EQ(why(problem, {0, 1, 2, fetch, wait}),
            "position 3: the fetch of way 0 runs after an op that must come after it");
}

/// A fetch that is behind an op comes behind its first run, as the simulator and the judge see it;
/// in the file a way says so.
TEST(Transfer, FetchesMayHaveToComeBehindAnotherOp) {
  PlanProblem problem =
      twoSpaces({op(100, 10, {}), op(50, 10, {0}), op(0, 10, {}), op(1, 10, {0})});
  problem.ways = {homeOf(0, 4)};
  problem.ways[0].behind = PlanValue{2, 0};
  int32_t fetch = 6, wait = 7;
  EXPECT_EQ(measure(problem, {0, 1, 2, fetch, wait, 3}).cost, 44);
  std::vector<int32_t> early{0, 1, fetch, wait, 2, 3};
  EXPECT_EQ(why(problem, early), "position 2: the fetch of way 0 uses op 2, which has not run");
  llvm::Expected<PlanMeasure> judged = judgePlan(problem, early);
  EXPECT_FALSE(bool(judged));
  llvm::consumeError(judged.takeError());
  EXPECT_EQ(why(problem, {0, 1, 2, fetch, 2, wait, 3}),
            "position 5: what the fetch of way 0 holds was made again before its wait");

  std::string text = printPlanProblem(problem);
  EXPECT_NE(text.find("behind"), std::string::npos) << text;
  llvm::Expected<PlanFile> again = parsePlanFile(text, "text");
  ASSERT_TRUE(bool(again)) << llvm::toString(again.takeError());
  ASSERT_EQ(again->problem.ways.size(), 1u);
  EXPECT_EQ(again->problem.ways[0].behind, problem.ways[0].behind);
}

/// Bytes on the device alone: a copy of fewer bytes, made and read by kernels, in turn with all
/// else.
TEST(Transfer, CopiesMayLieBesideTheirValues) {
  PlanProblem problem = twoSpaces(
      {op(100, 10, {}), op(1, 10, {0}), op(80, 10, {1}), op(1, 10, {2}), op(1, 10, {0, 3})});
  PlanWay way;
  way.value = {0, 0};
  way.store = PlanTransfer{0, 3, {}};
  way.fetch = {0, 2, {}};
  way.copy = {25, 1, 0};
  problem.ways = {way};
  EXPECT_EQ(measure(problem, {0, 1, 2, 3, 4}).peak, 181);
  PlanMeasure narrowed = measure(problem, {0, 1, 5, 6, 2, 3, 7, 8, 4});
  // While the copy is made or read both are there, beside 1; in between 25 + 80 + 1.
  EXPECT_EQ(narrowed.peak, 126);
  EXPECT_EQ(narrowed.cost, 55);
}

/// What a start reads and makes, and what it needs besides, stays until its wait.
TEST(Transfer, StartsHoldBothEndsUntilTheirWait) {
  PlanProblem problem =
      twoSpaces({op(10, 1, {}), op(20, 5, {0}), op(3, 2, {}), PlanOp(), op(1, 1, {1, 2})});
  problem.ops[1].workspaces = {{4}};
  problem.ops[1].resource = 1;
  problem.ops[3].waitsFor = 1;
  PlanMeasure given = measure(problem, {0, 1, 2, 3, 4});
  EXPECT_EQ(given.peak, 10 + 20 + 4 + 3); // at 2 and 3
  EXPECT_EQ(given.position, 2);
  EXPECT_EQ(given.cost, 1 + 5 + 1); // op 2 hides
  EXPECT_EQ(why(problem, {0, 1, 2, 4, 3}), "position 3: op 4 uses op 1, which is in flight");
  EXPECT_EQ(why(problem, {0, 1, 0, 2, 3, 4}),
            "position 4: what op 1 holds was made again before its wait");
  EXPECT_EQ(why(problem, {0, 1, 1, 2, 3, 4}), "position 2: op 1 starts again before its wait");
  EXPECT_EQ(why(problem, {0, 3, 1, 2, 4}), "position 1: op 3 waits for what is not in flight");
  EXPECT_EQ(why(problem, {0, 2, 1, 3, 4, 1}), "op 1 is never waited for");
  EXPECT_EQ(measure(problem, {0, 1, 2, 3, 1, 3, 4}).cost, 1 + 5 + 5 + 1);
}

/// The body runs three times: what it reads of outside lives to its end, and clones inside cost
/// thrice.
TEST(Transfer, RegionsStretchWhatTheyRead) {
  PlanProblem problem =
      twoSpaces({op(100, 10, {}), op(10, 1, {0}), op(50, 2, {1}), op(1, 3, {2}), op(5, 4, {0})});
  problem.regions = {{1, 4, 3}};
  int32_t enter = 5, leave = 6;
  PlanMeasure given = measure(problem, {0, enter, 1, 2, 3, leave, 4});
  EXPECT_EQ(given.peak, 100 + 10 + 50);
  EXPECT_EQ(given.cost, 10 + 3 * (1 + 2 + 3) + 4);
  // Computed inside, its bytes need not last: 100 + 10 at op 1, then op 2 alone.
  problem.ops[4].inputs.clear();
  PlanMeasure inside = measure(problem, {0, enter, 0, 1, 2, 3, leave, 4});
  EXPECT_EQ(inside.peak, 100 + 10);
  EXPECT_EQ(inside.cost, 10 + 3 * (10 + 1 + 2 + 3) + 4);
  // What was made inside is gone behind it.
  problem.ops[4].inputs = {{0, 0}};
  EXPECT_EQ(measure(problem, {0, enter, 0, 1, 2, 3, leave, 4}).peak, 100 + 100 + 10);
  EXPECT_EQ(why(problem, {enter, 0, 1, 2, 3, leave, 4}),
            "position 6: op 4 uses op 0, which has not run");
  EXPECT_EQ(why(problem, {0, enter, 1, leave, 2, 3, 4}),
            "position 4: op 2 stands outside its region 0");
  EXPECT_EQ(why(problem, {0, 1, enter, 2, 3, leave, 4}),
            "position 1: op 1 stands outside its region 0");
  problem.ops[4].pinned = true;
  EXPECT_EQ(why(problem, {0, enter, 1, 2, 3, 4, leave}),
            "position 5: op 4 stands outside its region");
  // Op 3 writes what op 0 reads: in the next iteration op 0 would read it too late.
  problem.ops[3].after = {0};
  EXPECT_EQ(why(problem, {0, enter, 0, 1, 2, 3, leave, 4}),
            "position 5: op 0 runs again in region 0 behind op 3");
}

TEST(Transfer, ArenasOfPlans) {
  PlanProblem problem = swapExample();
  problem.ways[0].store->workspaces = {{6, 2, 0}};
  std::vector<int32_t> order = {0, 1, 4, 5, 2, 6, 7, 3};
  llvm::Expected<ArenaProblem> device = buildArenaProblem(problem, order);
  llvm::Expected<ArenaProblem> host = buildArenaProblem(problem, order, /*space=*/1);
  ASSERT_TRUE(bool(device) && bool(host));
  ASSERT_EQ(host->buffers.size(), 1u);
  EXPECT_EQ(host->buffers[0].lower, 2);
  EXPECT_EQ(host->buffers[0].upper, 7);
  EXPECT_EQ(arenaLoad(*device), measure(problem, order).peak);
  // The staging lies there from the store's start to its wait, the fetched value from its start.
  EXPECT_EQ(device->buffers[2].size, 6);
  EXPECT_EQ(device->buffers[2].lower, 2);
  EXPECT_EQ(device->buffers[2].upper, 4);
  EXPECT_EQ(device->buffers[4].lower, 5);
  EXPECT_EQ(device->buffers[4].upper, 8);
  problem.regions = {{1, 4, 2}};
  device = buildArenaProblem(problem, getGivenOrder(problem));
  ASSERT_TRUE(bool(device));
  ASSERT_EQ(device->loops.size(), 1u);
  EXPECT_EQ(device->loops[0].lower, 1);
  EXPECT_EQ(device->loops[0].upper, 6);
}

TEST(Transfer, FatesOfValues) {
  PlanProblem problem = swapExample();
  std::vector<PlanFate> fates = getPlanFates(problem, {0, 1, 4, 5, 2, 6, 7, 1, 3});
  ASSERT_EQ(fates.size(), 2u);
  EXPECT_EQ(fates[0].value, (PlanValue{0, 0}));
  EXPECT_EQ(fates[0].swapped, 1);
  EXPECT_EQ(fates[0].recomputed, 0);
  EXPECT_EQ(fates[1].value, (PlanValue{1, 0}));
  EXPECT_EQ(fates[1].recomputed, 1);
}

TEST(Transfer, RefusesBrokenProblems) {
  PlanProblem good = swapExample(), problem = good;
  problem.ops[1].results[0].space = 2;
  EXPECT_EQ(refusal(problem), "op 1: space of bytes is 2, expected one of 2");
  problem = good;
  problem.ops[1].resource = 3;
  EXPECT_EQ(refusal(problem), "op 1: resource is 3, expected one of 3");
  problem = good;
  problem.ops[3].waitsFor = 2;
  EXPECT_EQ(refusal(problem), "op 3: is a wait, expected no results, inputs or workspaces");
  problem = good;
  problem.ops.push_back(PlanOp());
  problem.ops[4].waitsFor = 1;
  EXPECT_EQ(refusal(problem), "op 2: input is op 1, for which op 4 waits later");
  problem.ops[4].waitsFor = 3;
  EXPECT_EQ(refusal(problem), "");
  problem.ops.push_back(PlanOp());
  problem.ops[5].waitsFor = 3;
  EXPECT_EQ(refusal(problem), "op 5: waits for op 3, as op 4 does already");
  problem = good;
  problem.ways[0].value.result = 1;
  EXPECT_EQ(refusal(problem), "way 0: leads to result 1 of op 0, which there is not");
  problem = good;
  problem.ways[0].store.reset();
  EXPECT_EQ(refusal(problem), "way 0: has a copy and nothing that stores it");
  problem = good;
  problem.ways[0].behind = PlanValue{4, 0};
  EXPECT_EQ(refusal(problem), "way 0: is fetched behind result 0 of op 4, which there is not");
  problem.ways[0].behind = PlanValue{1, 0};
  EXPECT_EQ(refusal(problem), "way 0: is fetched behind a value with bytes");
  problem.ops[2].results.push_back({});
  problem.ops[3].inputs = {{0, 0}};
  problem.ways[0].behind = PlanValue{2, 1};
  EXPECT_EQ(refusal(problem), "");
  problem.regions = {{1, 3, 2}};
  EXPECT_EQ(refusal(problem),
            "way 0: is fetched behind op 2 of region 0, whose values do not leave it");
  problem = good;
  problem.regions = {{1, 3, 2}};
  EXPECT_EQ(refusal(problem), "op 3: input is op 2 of region 0, whose values do not leave it");
  problem.regions = {{1, 4, 2}, {0, 2, 2}};
  EXPECT_EQ(refusal(problem), "region 1 crosses the begin or end of an earlier one at op 1");
  problem.regions = {{0, 4, 0}};
  EXPECT_EQ(refusal(problem), "region 0: count is 0, expected at least 1 and 2^62 runs in all");
  problem.regions = {{0, 4, int64_t(1) << 61}};
  EXPECT_EQ(refusal(problem), "op 0: the sum of cost up to here does not fit 62 bits");
  problem.regions.assign(5, {0, 4, 1});
  EXPECT_EQ(refusal(problem), "region 4 lies in 4 others, expected at most 3");
  problem.regions = {{2, 5, 1}};
  EXPECT_EQ(refusal(problem), "region 0 has the ops 2 to 5, expected a range within 4");
}

//===----------------------------------------------------------------------===//
// Random plans: the simulator, the judge and the sequence that searches edit
//===----------------------------------------------------------------------===//

/// Ops with several results in two spaces, regions, starts and waits, ways of both kinds.
static PlanProblem randomProblem(SearchRandom &random, int count, bool withRegions) {
  PlanProblem problem = twoSpaces({});
  problem.residents = {{random.below(5)}, {random.below(5), 1, 1}};
  problem.spaces[1].budget = 10 + random.below(60);
  if (withRegions && count > 4) {
    int begin = 1 + random.below(count / 2);
    problem.regions.push_back(
        {begin, begin + 1 + int32_t(random.below(count - begin)), 1 + random.below(3)});
    const PlanRegion &outer = problem.regions[0];
    if (outer.end - outer.begin > 2 && random.below(2)) {
      int from = outer.begin + random.below(outer.end - outer.begin - 1);
      problem.regions.push_back(
          {from, from + 1 + int32_t(random.below(outer.end - from)), 1 + random.below(3)});
    }
  }
  auto regionOf = [&](int op) {
    int found = -1;
    for (int i = 0; i < int(problem.regions.size()); ++i)
      if (problem.regions[i].begin <= op && op < problem.regions[i].end)
        found = i;
    return found;
  };
  auto reaches = [&](int from, int to) {
    int region = regionOf(from);
    return region < 0 || (problem.regions[region].begin <= to && to < problem.regions[region].end);
  };
  std::vector<int> waited; // by op: where its wait stands, or -1
  int flying = -1;         // a start whose wait is to come
  for (int i = 0; i < count; ++i) {
    PlanOp op;
    waited.push_back(-1);
    if (flying >= 0 && regionOf(flying) == regionOf(i) &&
        (random.below(2) || i + 1 == count || regionOf(i + 1) != regionOf(i))) {
      op.waitsFor = flying;
      waited[flying] = i;
      flying = -1;
      problem.ops.push_back(op);
      continue;
    }
    for (int r = random.below(3); r; --r)
      op.results.push_back({random.below(10), 1, int32_t(random.below(6) == 0)});
    op.cost = random.below(10);
    op.resource = random.below(5) ? 0 : random.below(3);
    for (int tries = random.below(4); tries && i; --tries) {
      int32_t from = random.below(i);
      int many = problem.ops[from].results.size();
      if (many && from != flying && reaches(from, i))
        op.inputs.push_back({from, int32_t(random.below(many))});
    }
    op.workspaces = {{random.below(4) ? 0 : random.below(10), 1, int32_t(random.below(2))}};
    op.pinned = random.below(6) == 0;
    if (i && random.below(6) == 0)
      if (int32_t earlier = random.below(i); earlier != flying)
        op.after.push_back(earlier);
    if (flying < 0 && random.below(5) == 0 && i + 1 < count && regionOf(i + 1) == regionOf(i)) {
      flying = i;
      op.resource = 1 + random.below(2);
    } else {
      for (size_t result = 0; result < op.results.size(); ++result)
        for (PlanValue input : op.inputs) {
          const PlanBuffer &old = problem.ops[input.op].results[input.result];
          if (old.bytes >= op.results[result].bytes && old.space == op.results[result].space &&
              random.below(2))
            op.inPlace.push_back({int32_t(result), input});
        }
    }
    problem.ops.push_back(op);
  }
  for (int32_t i = 0; i < count; ++i)
    for (int32_t r = 0; r < int32_t(problem.ops[i].results.size()); ++r)
      if (random.below(2)) {
        PlanWay way;
        way.value = {i, r};
        way.fetch = {1 + int32_t(random.below(2)), random.below(8), {{random.below(3)}}};
        if (random.below(2)) {
          way.store = PlanTransfer{1, random.below(8), {}};
          way.copy = {problem.ops[i].results[r].bytes, 1, 1};
        }
        if (int32_t other = random.below(count);
            random.below(4) == 0 && reaches(other, i) && problem.ops[other].waitsFor < 0) {
          way.behind = PlanValue{other, int32_t(problem.ops[other].results.size())};
          problem.ops[other].results.push_back({});
        }
        problem.ways.push_back(way);
      }
  return problem;
}

/// Inserts or takes out an action, or a pair of them; the order need not stay valid.
static void mutate(SearchRandom &random, const PlanProblem &problem, std::vector<int32_t> &order) {
  auto put = [&](int32_t number, size_t from) {
    size_t at = from + random.below(order.size() - from + 1);
    order.insert(order.begin() + at, number);
    return at + 1;
  };
  int32_t ops = problem.ops.size();
  switch (random.below(5)) {
  case 0: {
    int32_t op = random.below(ops);
    size_t next = put(op, 0);
    for (int32_t wait = 0; wait < ops; ++wait)
      if (problem.ops[wait].waitsFor == op)
        put(wait, next);
    return;
  }
  case 1:
  case 2:
    if (!problem.ways.empty()) {
      int32_t way = random.below(problem.ways.size());
      size_t next = random.below(order.size() / 2 + 1);
      if (problem.ways[way].store) {
        next = put(getNumber(problem, {PlanAction::StoreStart, way}), next);
        next = put(getNumber(problem, {PlanAction::StoreWait, way}), next);
      }
      next = put(getNumber(problem, {PlanAction::FetchStart, way}), next);
      put(getNumber(problem, {PlanAction::FetchWait, way}), next);
    }
    return;
  case 3: {
    size_t from = random.below(order.size());
    int32_t number = order[from];
    order.erase(order.begin() + from);
    put(number, 0);
    return;
  }
  default:
    order.erase(order.begin() + random.below(order.size()));
  }
}

/// Whether a plan is valid, and what it takes, is the same in the simulator and by the judge, who
/// share nothing.
TEST(Transfer, TwoOpinionsOnRandomPlans) {
  SearchRandom random(71);
  int valid = 0, invalid = 0;
  for (int round = 0; round < 4000; ++round) {
    PlanProblem problem = randomProblem(random, 3 + random.below(9), round % 2);
    ASSERT_EQ(refusal(problem), "") << "round " << round;
    std::vector<int32_t> order = getGivenOrder(problem);
    for (int mutations = random.below(4); mutations && !order.empty(); --mutations)
      mutate(random, problem, order);
    llvm::Expected<PlanMeasure> first = measurePlan(problem, order);
    llvm::Expected<PlanMeasure> second = judgePlan(problem, order);
    std::string reasons[] = {first ? "" : llvm::toString(first.takeError()),
                             second ? "" : llvm::toString(second.takeError())};
    ASSERT_EQ(reasons[0].empty(), reasons[1].empty())
        << "round " << round << ": " << reasons[0] << " / " << reasons[1];
    if (!reasons[0].empty()) {
      ++invalid;
      continue;
    }
    ++valid;
    ASSERT_EQ(first->peak, second->peak) << "round " << round;
    ASSERT_EQ(first->cost, second->cost) << "round " << round;
    ASSERT_EQ(first->position, second->position) << "round " << round;
    ASSERT_EQ(first->otherPeaks, second->otherPeaks) << "round " << round;
    for (int32_t space : {0, 1}) {
      llvm::Expected<ArenaProblem> arena = buildArenaProblem(problem, order, space);
      ASSERT_TRUE(bool(arena));
      EXPECT_FALSE(bool(checkArena(*arena)));
      EXPECT_EQ(arenaLoad(*arena), space ? first->otherPeaks[0] : first->peak) << "round " << round;
    }
  }
  EXPECT_GT(valid, 1500);
  EXPECT_GT(invalid, 1000);
}

/// The sequence keeps its figures through edits, knows which edits are valid, and takes them back.
TEST(Transfer, SequencesAgreeWithTheSimulator) {
  SearchRandom random(73);
  int valid = 0, invalid = 0;
  for (int round = 0; round < 400; ++round) {
    PlanProblem problem = randomProblem(random, 3 + random.below(12), round % 2);
    search::Graph graph(problem);
    search::Sequence sequence(graph);
    sequence.assign(graph.givenOrder());
    for (int step = 0; step < 40; ++step) {
      std::vector<int32_t> before = sequence.order();
      int64_t peaks[] = {sequence.peak(0), sequence.peak(1)}, cost = sequence.cost();
      for (int edits = 1 + random.below(4); edits; --edits) {
        int32_t slot = 1 + random.below(sequence.slots() - 2), at = sequence.at(slot);
        auto isMark = [&](int32_t action) {
          return graph.kind[action] == search::ActionKind::Enter ||
                 graph.kind[action] == search::ActionKind::Leave;
        };
        if (at == search::Sequence::none) {
          int32_t action = random.below(graph.numActions);
          bool stores = false; // of what has a home
          for (const search::Graph::Way &way : graph.ways)
            stores |= way.copy < 0 && (action == way.storeStart || action == way.storeStart + 1);
          if (!isMark(action) && !stores)
            sequence.insert(action, slot);
        } else if (!isMark(at) && (at >= graph.numOps || sequence.instancesOf(at).size() > 1)) {
          sequence.erase(slot);
        }
      }
      std::vector<int32_t> order = sequence.order();
      search::Execution execution(graph, order);
      llvm::Error error = execution.run();
      ASSERT_EQ(!error, sequence.areEditsValid() &&
                            llvm::none_of(llvm::seq(0, graph.numOps),
                                          [&](int32_t op) {
                                            return graph.pinned[op] &&
                                                   sequence.instancesOf(op).size() > 1;
                                          }))
          << "round " << round << ": " << llvm::toString(std::move(error));
      bool isValid = !error;
      llvm::consumeError(std::move(error));
      if (isValid && random.below(2)) {
        llvm::Expected<PlanMeasure> measured = execution.measure();
        ASSERT_TRUE(bool(measured));
        ASSERT_EQ(sequence.peak(), measured->peak) << "round " << round;
        ASSERT_EQ(sequence.peak(1), measured->otherPeaks[0]) << "round " << round;
        ASSERT_EQ(sequence.cost(), measured->cost) << "round " << round;
        ASSERT_EQ(sequence.at(sequence.peakSlot()), order[measured->position]);
        sequence.keep();
        ++valid;
        continue;
      }
      ++invalid;
      sequence.undo([](int32_t) {});
      ASSERT_EQ(sequence.order(), before);
      ASSERT_EQ(sequence.peak(0), peaks[0]);
      ASSERT_EQ(sequence.peak(1), peaks[1]);
      ASSERT_EQ(sequence.cost(), cost);
    }
  }
  EXPECT_GT(valid, 1000);
  EXPECT_GT(invalid, 1000);
}

//===----------------------------------------------------------------------===//
// Solvers against brute force
//===----------------------------------------------------------------------===//

namespace {

/// The fastest plan of a tiny problem without regions, by a search over everything that matters of
/// a plan's past: what has run, what is held where, what is in flight, and how long queues are
/// busy. Values are dropped at any time, so it shares no idea with the solver.
class Exhaustive {
public:
  explicit Exhaustive(const PlanProblem &problem) : problem(problem) {
    for (const PlanOp &op : problem.ops) {
      first.push_back(buffers.size());
      buffers.insert(buffers.end(), op.results.begin(), op.results.end());
    }
    results = buffers.size();
    for (const PlanWay &way : problem.ways)
      buffers.push_back(way.copy);
    numberActions();
  }

  /// Least makespan within a budget, or -1.
  int64_t cost(int64_t budget) {
    budgets = {budget};
    for (size_t i = 1; i < problem.spaces.size(); ++i)
      budgets.push_back(problem.spaces[i].budget < 0 ? INT64_MAX : problem.spaces[i].budget);
    best.clear();
    open = {};
    State begin;
    begin.busy.assign(problem.resources.size(), 0);
    begin.arrival.assign(starts.size(), -1);
    push(begin, 0);
    while (!open.empty()) {
      auto [negative, state] = open.top();
      open.pop();
      if (best[state] < -negative)
        continue;
      if (state.ran == (1u << problem.ops.size()) - 1 && !isFlying(state))
        return -negative;
      expand(state, -negative);
    }
    return -1;
  }

private:
  struct State {
    unsigned ran = 0, held = 0;
    std::vector<int64_t> busy, arrival; ///< from now on; by start: -1 when not in flight
    bool operator<(const State &other) const {
      return std::tie(ran, held, busy, arrival) <
             std::tie(other.ran, other.held, other.busy, other.arrival);
    }
  };
  struct Start {
    int32_t op = -1; ///< or a transfer:
    int32_t way = -1;
    bool isStore = false;
    unsigned reads = 0, makes = 0;
    int32_t resource = 0;
    int64_t cost = 0;
    std::vector<PlanBuffer> workspaces;
    int32_t wait = -1; ///< op, or -1
  };

  void numberActions() {
    for (int32_t op = 0; op < int32_t(problem.ops.size()); ++op)
      if (problem.ops[op].waitsFor >= 0) {
        Start start;
        start.op = problem.ops[op].waitsFor;
        const PlanOp &source = problem.ops[start.op];
        start.reads = readsOf(source);
        start.makes = makesOf(start.op);
        start.resource = source.resource;
        start.cost = source.cost;
        start.workspaces = source.workspaces;
        start.wait = op;
        starts.push_back(start);
      }
    for (int32_t i = 0; i < int32_t(problem.ways.size()); ++i) {
      const PlanWay &way = problem.ways[i];
      unsigned value = 1u << (first[way.value.op] + way.value.result), copy = 1u << (results + i);
      Start fetch{-1,
                  i,
                  false,
                  way.store ? copy : 0,
                  value,
                  way.fetch.resource,
                  way.fetch.cost,
                  way.fetch.workspaces,
                  -1};
      starts.push_back(fetch);
      if (way.store)
        starts.push_back({-1, i, true, value, copy, way.store->resource, way.store->cost,
                          way.store->workspaces, -1});
    }
  }
  unsigned readsOf(const PlanOp &op) const {
    unsigned mask = 0;
    for (PlanValue input : op.inputs)
      mask |= 1u << (first[input.op] + input.result);
    return mask;
  }
  unsigned makesOf(int32_t op) const {
    return ((1u << problem.ops[op].results.size()) - 1) << first[op];
  }
  static bool isFlying(const State &state) {
    return llvm::any_of(state.arrival, [](int64_t arrival) { return arrival >= 0; });
  }
  void push(State state, int64_t now) {
    auto [known, fresh] = best.try_emplace(state, now);
    if (!fresh && known->second <= now)
      return;
    known->second = now;
    open.push({-now, state});
  }
  static void pass(State &state, int64_t time) {
    for (int64_t &busy : state.busy)
      busy = std::max<int64_t>(0, busy - time);
    for (int64_t &arrival : state.arrival)
      if (arrival >= 0)
        arrival = std::max<int64_t>(0, arrival - time);
  }
  /// Values that starts in flight read or make.
  unsigned lockedIn(const State &state, bool madeOnly) const {
    unsigned mask = 0;
    for (size_t i = 0; i < starts.size(); ++i)
      if (state.arrival[i] >= 0)
        mask |= starts[i].makes | (madeOnly ? 0 : starts[i].reads);
    return mask;
  }
  bool fits(const State &state, unsigned held, const std::vector<PlanBuffer> &workspaces,
            const std::vector<int64_t> &saved) const {
    std::vector<int64_t> alive(problem.spaces.size(), 0);
    for (const PlanBuffer &buffer : problem.residents)
      alive[buffer.space] += buffer.bytes;
    for (const PlanBuffer &buffer : workspaces)
      alive[buffer.space] += buffer.bytes;
    for (size_t i = 0; i < starts.size(); ++i)
      if (state.arrival[i] >= 0)
        for (const PlanBuffer &buffer : starts[i].workspaces)
          alive[buffer.space] += buffer.bytes;
    for (size_t value = 0; value < buffers.size(); ++value)
      if (held >> value & 1)
        alive[buffers[value].space] += buffers[value].bytes;
    for (size_t space = 0; space < alive.size(); ++space)
      if (alive[space] - saved[space] > budgets[space])
        return false;
    return true;
  }
  /// Every instance of what `op` comes after is over, and nothing has run that comes after it.
  bool isInTurn(const State &state, int32_t op) const {
    for (int32_t earlier : problem.ops[op].after) {
      if (!(state.ran >> earlier & 1))
        return false;
      for (size_t i = 0; i < starts.size(); ++i)
        if (state.arrival[i] >= 0 && starts[i].wait != op &&
            (starts[i].op == earlier || (starts[i].way >= 0 && !starts[i].isStore &&
                                         problem.ways[starts[i].way].value.op == earlier)))
          return false;
    }
    return !isClosed(state, op);
  }
  bool isClosed(const State &state, int32_t op) const {
    for (size_t later = 0; later < problem.ops.size(); ++later)
      if ((state.ran >> later & 1) && llvm::is_contained(problem.ops[later].after, op))
        return true;
    return false;
  }

  void expand(const State &state, int64_t now) {
    unsigned locked = lockedIn(state, /*madeOnly=*/false);
    for (size_t value = 0; value < buffers.size(); ++value)
      if ((state.held & ~locked) >> value & 1) {
        State next = state;
        next.held &= ~(1u << value);
        push(next, now);
      }
    for (int32_t op = 0; op < int32_t(problem.ops.size()); ++op)
      if (problem.ops[op].waitsFor < 0 &&
          llvm::none_of(starts, [&](const Start &start) { return start.op == op; }))
        run(state, now, op);
    for (size_t i = 0; i < starts.size(); ++i)
      state.arrival[i] < 0 ? begin(state, now, i) : end(state, now, i);
  }
  void run(const State &state, int64_t now, int32_t index) {
    const PlanOp &op = problem.ops[index];
    unsigned reads = readsOf(op), locked = lockedIn(state, false);
    if ((op.pinned && (state.ran >> index & 1)) || !isInTurn(state, index) ||
        (reads & ~(state.held & ~lockedIn(state, true))) || (makesOf(index) & locked))
      return;
    unsigned operands = 0;
    for (const PlanInPlace &pair : op.inPlace)
      operands |= 1u << (first[pair.operand.op] + pair.operand.result);
    operands &= ~locked;
    for (unsigned ended = 0; ended <= operands; ++ended) {
      if (ended & ~operands)
        continue;
      unsigned held = state.held | makesOf(index);
      if (!fits(state, held, op.workspaces, savedBy(op, ended)))
        continue;
      State next = state;
      next.ran |= 1u << index;
      next.held = held & ~ended;
      int64_t done = std::max<int64_t>(0, next.busy[op.resource]) + op.cost;
      pass(next, done);
      push(next, now + done);
    }
  }
  /// Each result in turn takes the first of the operands that end and that it may have.
  std::vector<int64_t> savedBy(const PlanOp &op, unsigned ended) const {
    std::vector<int64_t> saved(problem.spaces.size(), 0);
    for (int32_t result = 0; result < int32_t(op.results.size()); ++result)
      for (const PlanInPlace &pair : op.inPlace) {
        unsigned operand = 1u << (first[pair.operand.op] + pair.operand.result);
        if (pair.result != result || !(ended & operand))
          continue;
        ended &= ~operand;
        saved[op.results[result].space] += op.results[result].bytes;
        break;
      }
    return saved;
  }
  void begin(const State &state, int64_t now, size_t i) {
    const Start &start = starts[i];
    unsigned locked = lockedIn(state, false);
    if ((start.reads & ~(state.held & ~lockedIn(state, true))) || (start.makes & locked))
      return;
    if (start.op >= 0 && ((problem.ops[start.op].pinned && (state.ran >> start.op & 1)) ||
                          !isInTurn(state, start.op)))
      return;
    if (start.way >= 0 && !start.isStore) {
      int32_t op = problem.ways[start.way].value.op;
      if (!(state.ran >> op & 1) || isClosed(state, op))
        return;
    }
    State next = state;
    next.held |= start.makes;
    next.arrival[i] = next.busy[start.resource] += start.cost;
    if (start.op >= 0)
      next.ran |= 1u << start.op;
    if (fits(next, next.held, {}, std::vector<int64_t>(problem.spaces.size(), 0)))
      push(next, now);
  }
  void end(const State &state, int64_t now, size_t i) {
    const Start &start = starts[i];
    int64_t done = state.arrival[i];
    if (start.wait >= 0 && !isInTurn(state, start.wait))
      return;
    if (!fits(state, state.held, {}, std::vector<int64_t>(problem.spaces.size(), 0)))
      return;
    State next = state;
    next.arrival[i] = -1;
    pass(next, done);
    if (start.wait >= 0) {
      next.ran |= 1u << start.wait;
      const PlanOp &wait = problem.ops[start.wait];
      if (wait.cost) {
        int64_t more = next.busy[wait.resource] + wait.cost;
        next.busy[wait.resource] = more;
        pass(next, more);
        done += more;
      }
    }
    push(next, now + done);
  }

  const PlanProblem &problem;
  std::vector<int> first;
  std::vector<PlanBuffer> buffers; ///< results, then the copies of ways
  int results = 0;
  std::vector<Start> starts;
  std::vector<int64_t> budgets;
  std::map<State, int64_t> best;
  std::priority_queue<std::pair<int64_t, State>> open;
};

} // namespace

static PlanSolution solve(const PlanProblem &problem, PlanOptions options) {
  llvm::Expected<PlanSolution> solution = solvePlan(problem, options);
  if (!solution) {
    ADD_FAILURE() << llvm::toString(solution.takeError());
    return {};
  }
  if (llvm::Error error = verifyPlan(problem, options, *solution))
    ADD_FAILURE() << llvm::toString(std::move(error));
  return std::move(*solution);
}

static PlanOptions options(int64_t budget, int64_t iterations) {
  PlanOptions result;
  result.budget = budget;
  result.iterations = iterations;
  return result;
}

/// Three ops and their gradients, of which the first two read values that may be fetched.
static PlanProblem randomChain(SearchRandom &random) {
  PlanProblem problem = twoSpaces({});
  problem.spaces[1].budget = random.below(40);
  constexpr int32_t kLayers = 3;
  for (int32_t i = 0; i < 2 * kLayers; ++i) {
    PlanOp op;
    op.results = {{1 + random.below(i < kLayers ? 10 : 4)}};
    op.cost = random.below(40);
    if (i)
      op.inputs.push_back({i - 1});
    if (i > kLayers)
      op.inputs.push_back({2 * kLayers - 1 - i});
    problem.ops.push_back(op);
  }
  for (int32_t i = 0; i + 1 < kLayers; ++i) {
    PlanWay way;
    way.value = {i};
    way.fetch = {1 + int32_t(random.below(2)), random.below(20), {}};
    if (random.below(2)) {
      way.store = PlanTransfer{1, random.below(20), {}};
      way.copy = {problem.ops[i].results[0].bytes, 1, 1};
    }
    problem.ways.push_back(way);
  }
  return problem;
}

/// No plan beats the fastest there is, and nearly all are as fast.
TEST(Transfer, TinyProblemsAgainstBruteForce) {
  SearchRandom random(79);
  int optimal = 0, slower = 0, missed = 0, none = 0, transferred = 0;
  for (int round = 0; round < 120; ++round) {
    PlanProblem problem =
        round % 3 ? randomChain(random) : randomProblem(random, 4 + random.below(3), false);
    problem.ways.resize(std::min<size_t>(problem.ways.size(), 2));
    int64_t given = measure(problem, getGivenOrder(problem)).peak;
    int64_t bound = planPeakLowerBound(problem);
    Exhaustive exhaustive(problem);
    for (int64_t budget : {given, given - 2, given - 6, given * 2 / 3}) {
      int64_t fastest = exhaustive.cost(budget);
      PlanSolution solution = solve(problem, options(budget, 20000));
      if (fastest < 0) {
        EXPECT_FALSE(solution.feasible) << "round " << round << " budget " << budget;
        ++none;
        continue;
      }
      EXPECT_LE(bound, budget) << "round " << round;
      EXPECT_LE(solution.costLowerBound, fastest) << "round " << round;
      if (!solution.feasible) {
        ++missed;
        continue;
      }
      EXPECT_GE(solution.cost, fastest) << "round " << round << " budget " << budget;
      ++(solution.cost == fastest ? optimal : slower);
      for (const PlanFate &fate : getPlanFates(problem, solution.order))
        transferred += fate.fetched || fate.swapped;
    }
  }
  EXPECT_GT(optimal, 200);
  EXPECT_LE(slower + missed, optimal / 20) << slower << " slower, " << missed << " missed";
  EXPECT_GT(none, 20);
  EXPECT_GT(transferred, 50);
}

/// A search that goes on from what is known without ways has a point as good as each of them, and
/// finds transfers, whatever the known orders leave out.
TEST(Transfer, FrontiersGoOnFromWhatIsKnown) {
  PlanProblem problem = twoSpaces({});
  for (int32_t i = 0; i < 60; ++i) {
    problem.ops.push_back(op(10 + i % 3, 5, {}));
    for (int32_t input : {i - 1, i < 30 ? -1 : 59 - i})
      if (input >= 0)
        problem.ops[i].inputs.push_back({input, 0});
  }
  PlanFrontierOptions options;
  options.iterations = 60000;
  PlanFrontier without = llvm::cantFail(solvePlanFrontier(problem, options));
  for (int32_t i = 0; i < 30; i += 2)
    problem.ways.push_back(swapOf(problem, i, 4));
  for (const PlanFrontier::Point &point : without.points)
    options.known.push_back(point.order);
  PlanFrontier with = llvm::cantFail(solvePlanFrontier(problem, options));
  EXPECT_FALSE(bool(verifyPlanFrontier(problem, with)));
  int64_t faster = 0;
  for (const PlanFrontier::Point &known : without.points) {
    int64_t cost = std::numeric_limits<int64_t>::max();
    for (const PlanFrontier::Point &point : with.points)
      if (point.peak <= known.peak)
        cost = std::min(cost, point.cost);
    EXPECT_LE(cost, known.cost) << known.peak;
    faster += cost < known.cost;
  }
  EXPECT_GT(faster, 5);
  options.known.push_back({1, 0});
  llvm::Expected<PlanFrontier> wrong = solvePlanFrontier(problem, options);
  EXPECT_FALSE(bool(wrong));
  llvm::consumeError(wrong.takeError());
}

//===----------------------------------------------------------------------===//
// Transfers beside what computes
//===----------------------------------------------------------------------===//

static std::vector<int32_t> overlap(const PlanProblem &problem, std::vector<int32_t> order) {
  llvm::Expected<std::vector<int32_t>> found = overlapTransfers(problem, std::move(order));
  if (!found) {
    ADD_FAILURE() << llvm::toString(found.takeError());
    return {};
  }
  return *found;
}

/// A gradient is made, sent and used by an update elsewhere; then come two ops, `next` bytes and at
/// last the most.
static PlanProblem sentGradient(int64_t next) {
  PlanProblem problem = twoSpaces({op(100, 10, {}), op(100, 10, {0}), op(0, 0, {}), op(0, 1, {1}),
                                   op(next, 10, {}), op(500, 10, {})});
  problem.ops[1].results[0].space = 1;
  problem.ops[1].resource = 1;
  problem.ops[2].results.clear();
  problem.ops[2].waitsFor = 1;
  return problem;
}

/// What follows from a value, `bytes` of it; behind that a gradient of 100 bytes that follows from the same
/// value, its transfer and an update.
static PlanProblem lateGradient(int64_t bytes) {
  PlanProblem problem = twoSpaces({op(10, 10, {}), op(bytes, 20, {0}), op(100, 5, {0}),
                                   op(100, 10, {2}), op(0, 0, {}), op(0, 1, {3, 1})});
  problem.ops[3].results[0].space = 1;
  problem.ops[3].resource = 1;
  problem.ops[4].results.clear();
  problem.ops[4].waitsFor = 3;
  return problem;
}

TEST(Transfer, GradientsAreComputedEarlyToBeSentEarly) {
  const std::vector<int32_t> given = {0, 1, 2, 3, 4, 5};
  PlanProblem problem = lateGradient(0);
  int64_t peak = measure(problem, given).peak;
  auto getCost = [&](int64_t room, double early) {
    std::vector<int32_t> order = llvm::cantFail(overlapTransfers(problem, given, room, early));
    EXPECT_LE(measure(problem, order).peak, std::max(peak, room));
    return measure(problem, order).cost;
  };
  EXPECT_EQ(getCost(peak, 0), 10 + 20 + 5 + 10 + 1);
  EXPECT_EQ(getCost(peak, 1), 10 + 5 + 20 + 1);
  // A gradient that is computed early takes the place of what it follows from.
  problem = lateGradient(50);
  problem.ops[0].results[0].bytes = 70;
  peak = measure(problem, given).peak;
  EXPECT_EQ(getCost(peak, 1), 10 + 5 + 20 + 1);
}

TEST(Transfer, WaitsAreForTransfersThatHaveEnded) {
  PlanProblem problem = sentGradient(50);
  EXPECT_EQ(measure(problem, {0, 1, 2, 3, 4, 5}).cost, 10 + 10 + 1 + 10 + 10);
  std::vector<int32_t> order = overlap(problem, {0, 1, 2, 3, 4, 5});
  EXPECT_EQ(order, (std::vector<int32_t>{0, 1, 4, 2, 3, 5}));
  EXPECT_EQ(measure(problem, order).cost, 10 + 10 + 1 + 10);
}

/// The gradient's bytes are held for longer only where no peak rises, and where nothing needs what
/// is put off.
TEST(Transfer, WaitsComeWhenTheirBytesAreWanted) {
  PlanProblem problem = sentGradient(450);
  EXPECT_EQ(overlap(problem, {0, 1, 2, 3, 4, 5}), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  problem = sentGradient(50);
  problem.ops[4].after = {3};
  EXPECT_EQ(overlap(problem, {0, 1, 2, 3, 4, 5}), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
}

TEST(Transfer, StartsComeBeforeTheWorkThatHidesThem) {
  PlanProblem problem =
      twoSpaces({op(50, 10, {}), op(100, 10, {}), op(0, 0, {}), op(0, 5, {1}), op(500, 10, {})});
  problem.ops[1].resource = 2;
  problem.ops[2].results.clear();
  problem.ops[2].waitsFor = 1;
  EXPECT_EQ(overlap(problem, {0, 1, 2, 3, 4}), (std::vector<int32_t>{1, 0, 2, 3, 4}));
  problem.ops[0].results[0].bytes = 450; // no room for both
  EXPECT_EQ(overlap(problem, {0, 1, 2, 3, 4}), (std::vector<int32_t>{0, 1, 2, 3, 4}));
  problem.ops[0].results[0].bytes = 50;
  problem.ops[1].after = {0};
  EXPECT_EQ(overlap(problem, {0, 1, 2, 3, 4}), (std::vector<int32_t>{0, 1, 2, 3, 4}));
}

/// A shard of a variable is cast, gathered and used; the product in front hides both.
TEST(Transfer, WhatIsMadeOfVariablesStartsEarlyWithItsTransfer) {
  PlanProblem problem = twoSpaces({op(0, 0, {}), op(50, 10, {}), op(5, 1, {}), op(100, 10, {2}),
                                   op(0, 0, {}), op(0, 5, {3}), op(500, 10, {})});
  problem.ops[0].results.clear();
  problem.ops[1].after = problem.ops[2].after = {0}; // what a step begins with
  problem.ops[3].resource = 1;
  problem.ops[4].results.clear();
  problem.ops[4].waitsFor = 3;
  EXPECT_EQ(overlap(problem, {0, 1, 2, 3, 4, 5, 6}), (std::vector<int32_t>{0, 2, 3, 1, 4, 5, 6}));
}

/// A gather behind the sum of a gradient starts in front of the product that makes the gradient.
TEST(Transfer, StartsThatNeedNothingPassThoseThatDo) {
  PlanProblem problem = twoSpaces({op(50, 20, {}), op(10, 10, {0}), op(50, 10, {}), op(0, 0, {}),
                                   op(0, 5, {2}), op(0, 0, {}), op(0, 1, {1}), op(500, 10, {})});
  for (int32_t start : {1, 2})
    problem.ops[start].resource = 1;
  for (auto [wait, start] : {std::pair(3, 2), {5, 1}}) {
    problem.ops[wait].results.clear();
    problem.ops[wait].waitsFor = start;
  }
  std::vector<int32_t> given{0, 1, 2, 3, 4, 5, 6, 7}, order = overlap(problem, given);
  EXPECT_EQ(order.front(), 2);
  EXPECT_LT(measure(problem, order).cost, measure(problem, given).cost);
}

/// The plan stays one, no slower and no higher in any space.
TEST(Transfer, OverlapOnRandomProblems) {
  SearchRandom random(11);
  int faster = 0;
  for (int round = 0; round < 3000; ++round) {
    PlanProblem problem =
        randomProblem(random, 3 + random.below(20), /*withRegions=*/round % 8 == 0);
    std::vector<int32_t> given = getGivenOrder(problem), order = overlap(problem, given);
    PlanMeasure before = measure(problem, given), after = measure(problem, order);
    EXPECT_LE(after.peak, before.peak);
    EXPECT_LE(after.cost, before.cost);
    EXPECT_LE(after.otherPeaks[0], std::max(before.otherPeaks[0], problem.spaces[1].budget));
    faster += after.cost < before.cost;
  }
  EXPECT_GT(faster, 100);
}
