//===- PlanTest.cpp - plans against brute force -----------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Order/PlanSolver.h"

#include "memopt/Planning/Order/PlanStarts.h"
#include "memopt/Planning/Utils/SearchRandom.h"

#include <gtest/gtest.h>

#include <functional>
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

/// A forward chain and its gradients: gradient i reads the value before layer i and the gradient
/// behind.
static PlanProblem chain(int layers, int64_t bytes = 10) {
  PlanProblem problem;
  problem.ops.push_back(op(bytes, 1, {}));
  for (int i = 1; i < layers; ++i)
    problem.ops.push_back(op(bytes, 1, {i - 1}));
  int32_t gradient = layers - 1;
  for (int i = layers - 1; i > 0; --i) {
    problem.ops.push_back(op(bytes, 2, {i - 1, gradient}));
    gradient = problem.ops.size() - 1;
  }
  return problem;
}

static std::vector<int32_t> givenOrder(const PlanProblem &problem) {
  std::vector<int32_t> order(problem.ops.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  return order;
}

static PlanMeasure measure(const PlanProblem &problem, llvm::ArrayRef<int32_t> order) {
  llvm::Expected<PlanMeasure> result = measurePlan(problem, order);
  if (!result) {
    ADD_FAILURE() << llvm::toString(result.takeError());
    return {};
  }
  return *result;
}

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

static PlanOptions options(int64_t budget, int64_t iterations = 20000) {
  PlanOptions result;
  result.budget = budget;
  result.iterations = iterations;
  return result;
}

static std::string refusal(const PlanProblem &problem) {
  return llvm::toString(checkPlanProblem(problem));
}

/// Some of the permissions that there may be.
static void permitInPlace(SearchRandom &random, const PlanProblem &problem, PlanOp &op) {
  for (size_t result = 0; result < op.results.size(); ++result)
    for (PlanValue input : op.inputs)
      if (problem.ops[input.op].results[input.result].bytes >= op.results[result].bytes &&
          random.below(2))
        op.inPlace.push_back({int32_t(result), input});
}

static PlanProblem randomProblem(SearchRandom &random, int count, bool features) {
  PlanProblem problem;
  problem.residents = {{features ? random.below(5) : 0}};
  for (int i = 0; i < count; ++i) {
    PlanOp op;
    int results = features ? random.below(3) : 1;
    for (int r = 0; r < results; ++r)
      op.results.push_back({random.below(10)});
    op.cost = random.below(10);
    for (int tries = random.below(4); tries && i; --tries) {
      int32_t from = random.below(i);
      if (int many = problem.ops[from].results.size())
        op.inputs.push_back({from, int32_t(random.below(many))});
    }
    if (features) {
      op.workspaces = {{random.below(4) ? 0 : random.below(10)}};
      op.pinned = random.below(5) == 0;
      if (i && random.below(6) == 0)
        op.after.push_back(random.below(i));
      permitInPlace(random, problem, op);
    }
    problem.ops.push_back(op);
  }
  return problem;
}

namespace {

/// All there is to know of a tiny problem, by a plain search over (ops that have run, results
/// held). It drops any set of results at any time, so it shares no idea with the solver.
class BruteForce {
public:
  explicit BruteForce(const PlanProblem &problem) : problem(problem) {
    for (const PlanOp &op : problem.ops) {
      first.push_back(values);
      values += op.results.size();
      for (const PlanBuffer &result : op.results)
        bytes.push_back(result.bytes);
    }
  }

  /// Least cost within a budget, or -1.
  int64_t cost(int64_t budget, bool recompute = true) const {
    using State = std::pair<unsigned, unsigned>;
    std::map<State, int64_t> best{{{0, 0}, 0}};
    std::priority_queue<std::pair<int64_t, State>> open;
    open.push({0, {0, 0}});
    unsigned all = (1u << problem.ops.size()) - 1;
    while (!open.empty()) {
      auto [negative, state] = open.top();
      open.pop();
      if (best[state] < -negative)
        continue;
      if (state.first == all)
        return -negative;
      auto go = [&](State next, int64_t cost) {
        auto [known, fresh] = best.try_emplace(next, cost);
        if (!fresh && known->second <= cost)
          return;
        known->second = cost;
        open.push({-cost, next});
      };
      for (int value = 0; value < values; ++value)
        if (state.second >> value & 1)
          go({state.first, state.second & ~(1u << value)}, -negative);
      for (size_t i = 0; i < problem.ops.size(); ++i)
        if (unsigned held = state.second; mayRun(i, state.first, held, recompute)) {
          for (size_t r = 0; r < problem.ops[i].results.size(); ++r)
            held |= 1u << (first[i] + r);
          int64_t alive = alwaysAlive(i);
          for (int value = 0; value < values; ++value)
            if (held >> value & 1)
              alive += bytes[value];
          unsigned operands = 0;
          for (const PlanInPlace &pair : problem.ops[i].inPlace)
            operands |= 1u << (first[pair.operand.op] + pair.operand.result);
          for (unsigned ended = 0; ended <= operands; ++ended)
            if (!(ended & ~operands) && alive - takenOver(i, ended) <= budget)
              go({state.first | 1u << i, held & ~ended}, -negative + problem.ops[i].cost);
        }
    }
    return -1;
  }

  int64_t smallestPeak(int64_t low, int64_t high, bool recompute = true) const {
    while (low < high) {
      int64_t middle = (low + high) / 2;
      if (cost(middle, recompute) >= 0)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }

private:
  /// Residents, and the workspaces of the op that runs.
  int64_t alwaysAlive(size_t i) const {
    int64_t sum = 0;
    for (const PlanBuffer &resident : problem.residents)
      sum += resident.bytes;
    for (const PlanBuffer &workspace : problem.ops[i].workspaces)
      sum += workspace.bytes;
    return sum;
  }
  /// Each result in turn takes the first of the operands in `ended` that it may have.
  int64_t takenOver(size_t i, unsigned ended) const {
    const PlanOp &op = problem.ops[i];
    int64_t sum = 0;
    for (int32_t result = 0; result < int32_t(op.results.size()); ++result)
      for (const PlanInPlace &pair : op.inPlace) {
        unsigned operand = 1u << (first[pair.operand.op] + pair.operand.result);
        if (pair.result != result || !(ended & operand))
          continue;
        ended &= ~operand;
        sum += op.results[result].bytes;
        break;
      }
    return sum;
  }
  bool mayRun(size_t i, unsigned done, unsigned held, bool recompute) const {
    const PlanOp &op = problem.ops[i];
    if ((done >> i & 1) && (op.pinned || !recompute))
      return false;
    for (PlanValue input : op.inputs)
      if (!(held >> (first[input.op] + input.result) & 1))
        return false;
    for (int32_t earlier : op.after)
      if (!(done >> earlier & 1))
        return false;
    for (size_t j = 0; j < problem.ops.size(); ++j)
      for (int32_t earlier : problem.ops[j].after)
        if (size_t(earlier) == i && (done >> j & 1))
          return false;
    return true;
  }

  const PlanProblem &problem;
  std::vector<int> first;
  std::vector<int64_t> bytes;
  int values = 0;
};

} // namespace

TEST(Plan, MeasuresAsStated) {
  // While op 2 runs, results 0, 1 and 2 are alive; result 3 is unused and dies at once.
  PlanProblem problem;
  problem.ops = {op(10, 1, {}), op(20, 2, {0}), op(30, 3, {0, 1}), op(1, 4, {2})};
  PlanMeasure given = measure(problem, givenOrder(problem));
  EXPECT_EQ(given.peak, 60);
  EXPECT_EQ(given.position, 2);
  EXPECT_EQ(given.cost, 10);
  // An operand is the latest earlier instance.
  EXPECT_EQ(measure(problem, {0, 1, 0, 2, 3}).cost, 11);
}

TEST(Plan, EachResultHasItsOwnLife) {
  PlanProblem problem;
  PlanOp two = op(100, 1, {});
  two.results = {{100}, {1}};
  problem.ops = {two, op(1, 1, {0}), op(50, 1, {1}), op(1, 1, {2})};
  problem.ops[3].inputs.push_back({0, 1});
  // The large result dies with op 1; the small one lives on.
  EXPECT_EQ(measure(problem, givenOrder(problem)).peak, 102);
}

TEST(Plan, WorkspaceAndResidentsCount) {
  PlanProblem problem;
  problem.ops = {op(10, 1, {}), op(5, 1, {0})};
  problem.ops[1].workspaces = {{4}, {3}};
  problem.residents = {{60}, {40}};
  EXPECT_EQ(measure(problem, givenOrder(problem)).peak, 122);
}

/// A value and its twin, of which a later op wants the first again: computed anew, it makes way.
TEST(Plan, ResultsTakeOverTheBytesOfOperands) {
  PlanProblem problem;
  problem.ops = {op(5, 1, {}), op(100, 3, {0}), op(100, 1, {1}), op(1, 1, {2}), op(1, 1, {1, 3})};
  problem.ops[0].pinned = true;
  EXPECT_EQ(measure(problem, givenOrder(problem)).peak, 201);
  problem.ops[2].inPlace = {{0, {1, 0}}};
  // Nothing changes while op 4 reads the operand.
  EXPECT_EQ(measure(problem, givenOrder(problem)).peak, 201);
  EXPECT_EQ(measure(problem, {0, 1, 2, 3, 1, 4}).peak, 106);
  EXPECT_EQ(planPeakLowerBound(problem), 106);
  PlanSolution solution = solve(problem, options(106));
  EXPECT_TRUE(solution.feasible);
  EXPECT_EQ(solution.cost, 10);
  EXPECT_FALSE(solve(problem, options(105)).feasible);
}

TEST(Plan, OneOperandServesOneResult) {
  PlanProblem problem;
  problem.ops = {op(10, 1, {}), op(10, 1, {0}), op(1, 1, {1})};
  problem.ops[1].results = {{10}, {10}};
  problem.ops[1].inPlace = {{0, {0, 0}}, {1, {0, 0}}};
  problem.ops[2].inputs.push_back({1, 1});
  EXPECT_EQ(measure(problem, givenOrder(problem)).peak, 21);
}

/// Greedy plans and annealing must meet what the exact search finds by giving operands up.
TEST(Plan, LargeProblemsEvictBehindResultsInPlace) {
  PlanProblem problem;
  problem.ops = {op(1, 1, {})};
  for (int i = 0; i < 40; ++i) {
    int32_t last = problem.ops.size() - 1;
    problem.ops.push_back(op(100, 5, {last}));
    problem.ops.push_back(op(100, 1, {last + 1}));
    problem.ops.back().inPlace = {{0, {last + 1, 0}}};
    problem.ops.push_back(op(1, 1, {last + 2}));
  }
  int32_t gradient = problem.ops.size() - 1;
  for (int i = 39; i >= 0; --i) {
    problem.ops.push_back(op(1, 1, {3 * i + 1, gradient}));
    gradient = problem.ops.size() - 1;
  }
  int64_t given = measure(problem, givenOrder(problem)).peak;
  PlanSolution solution = solve(problem, options(given / 20, 400000));
  EXPECT_TRUE(solution.feasible) << solution.peak << " of " << given;
}

/// Two residents below, the operand of op 1 written over, and a clone with a life of its own.
TEST(Plan, OrdersLeaveArenaProblems) {
  PlanProblem problem;
  problem.residents = {{64, 64}, {8, 8}};
  problem.ops = {op(100, 1, {}), op(90, 1, {0}), op(1, 1, {1}), op(1, 1, {0, 2})};
  problem.ops[0].results[0].alignment = 32;
  problem.ops[1].inPlace = {{0, {0, 0}}};
  problem.ops[2].workspaces = {{7, 4}};
  llvm::Expected<ArenaProblem> arena = buildArenaProblem(problem, {0, 1, 2, 0, 3});
  ASSERT_TRUE(bool(arena));
  struct Expected {
    int64_t size, lower, upper, alignment;
    bool pinned;
    int32_t inPlaceOf;
  };
  std::vector<Expected> expected = {{64, 0, 5, 64, true, -1},   {8, 0, 5, 8, true, -1},
                                    {100, 0, 2, 32, false, -1}, {90, 1, 3, 1, false, 2},
                                    {1, 2, 5, 1, false, -1},    {7, 2, 3, 4, false, -1},
                                    {100, 3, 5, 32, false, -1}, {1, 4, 5, 1, false, -1}};
  ASSERT_EQ(arena->buffers.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const ArenaBuffer &buffer = arena->buffers[i];
    EXPECT_EQ(std::tie(buffer.size, buffer.lower, buffer.upper, buffer.alignment,
                       buffer.pinnedAtBottom, buffer.inPlaceOf),
              std::tie(expected[i].size, expected[i].lower, expected[i].upper,
                       expected[i].alignment, expected[i].pinned, expected[i].inPlaceOf))
        << "buffer " << i;
  }
  llvm::Expected<ArenaProblem> refused = buildArenaProblem(problem, {1});
  ASSERT_FALSE(bool(refused));
  EXPECT_EQ(llvm::toString(refused.takeError()), "position 0: op 1 uses op 0, which has not run");
}

/// The bytes alive at once in the arena problem of an order are what the order was measured at.
TEST(Plan, ArenaProblemsHaveThePeakOfTheirOrder) {
  SearchRandom random(23);
  int cloned = 0;
  for (int round = 0; round < 200; ++round) {
    PlanProblem problem = randomProblem(random, 3 + random.below(30), /*features=*/true);
    PlanOptions wanted = options(measure(problem, givenOrder(problem)).peak * 8 / 10, 500);
    PlanSolution solution = solve(problem, wanted);
    llvm::Expected<ArenaProblem> arena = buildArenaProblem(problem, solution.order);
    ASSERT_TRUE(bool(arena));
    EXPECT_FALSE(bool(checkArena(*arena)));
    EXPECT_EQ(arenaLoad(*arena), solution.peak) << "round " << round;
    cloned += solution.order.size() > problem.ops.size();
  }
  EXPECT_GT(cloned, 30);
}

TEST(Plan, RefusesBrokenProblems) {
  PlanProblem problem;
  problem.ops = {op(1, 1, {0})};
  EXPECT_EQ(refusal(problem), "op 0: input is op 0, expected an earlier one");
  problem.ops = {op(-1, 1, {})};
  EXPECT_EQ(refusal(problem), "op 0: bytes is -1, expected at least 0");
  problem.ops = {op(1, 1, {}), op(1, 1, {0})};
  problem.ops[1].inputs[0].result = 1;
  EXPECT_EQ(refusal(problem), "op 1: input is result 1 of op 0, which has 1");
  problem.ops = {op(1, int64_t(1) << 62, {}), op(1, 1, {})};
  EXPECT_EQ(refusal(problem), "op 1: the sum of cost up to here does not fit 62 bits");
  problem.ops = {op(INT64_MAX, 1, {})};
  EXPECT_EQ(refusal(problem), "op 0: the sum of bytes up to here does not fit 62 bits");
  problem.ops = {op(4, 1, {}), op(6, 1, {0})};
  problem.ops[1].inPlace = {{0, {0, 0}}};
  EXPECT_EQ(refusal(problem), "op 1: result 0 has 6 bytes, in place of 4");
  problem.ops[1].inPlace = {{1, {0, 0}}};
  EXPECT_EQ(refusal(problem), "op 1: result 1 in place, expected one of 1 results");
  problem.ops[1].inPlace = {{0, {1, 0}}};
  EXPECT_EQ(refusal(problem), "op 1: in place of result 0 of op 1, expected one of its inputs");
  problem.ops = {op(4, 1, {}), op(2, 1, {0})};
  problem.ops[1].results = {{1}, {2}};
  problem.ops[1].inPlace = {{1, {0, 0}}, {0, {0, 0}}};
  EXPECT_EQ(refusal(problem), "op 1: results in place, expected in ascending order");
  problem.ops = {op(1, 1, {})};
  problem.ops[0].after = {3};
  EXPECT_EQ(refusal(problem), "op 0: comes after op 3, expected an earlier one");
  llvm::Expected<PlanSolution> solution = solvePlan(problem, options(10));
  EXPECT_FALSE(bool(solution));
  llvm::consumeError(solution.takeError());
}

TEST(Plan, ValidatorCatchesBrokenOrders) {
  PlanProblem problem = chain(4);
  auto why = [&](std::vector<int32_t> order) {
    llvm::Expected<PlanMeasure> result = measurePlan(problem, order);
    return result ? std::string() : llvm::toString(result.takeError());
  };
  EXPECT_EQ(why({1}), "position 0: op 1 uses op 0, which has not run");
  EXPECT_EQ(why({9}), "position 0: there is no action 9");
  EXPECT_EQ(why({-1}), "position 0: there is no action -1");
  EXPECT_EQ(why({0, 1}), "op 2 never runs");
  problem.ops[0].pinned = true;
  EXPECT_EQ(why({0, 0}), "position 1: pinned op 0 runs again");
  problem.ops[0].pinned = false;
  problem.ops[2].after = {0};
  EXPECT_EQ(why({0, 1, 2, 0}), "position 3: op 0 runs after an op that must come after it");
}

TEST(Plan, ValidatorCatchesMutatedPlans) {
  SearchRandom random(21);
  int invalid = 0;
  for (int round = 0; round < 100; ++round) {
    PlanProblem problem = chain(6 + random.below(6), 10);
    PlanOptions wanted = options(measure(problem, givenOrder(problem)).peak * 7 / 10, 3000);
    PlanSolution solution = solve(problem, wanted);
    auto complains = [&](PlanSolution mutated) {
      llvm::Error error = verifyPlan(problem, wanted, mutated);
      bool wrong = bool(error);
      llvm::consumeError(std::move(error));
      return wrong;
    };
    PlanSolution mutated = solution;
    ++mutated.peak;
    EXPECT_TRUE(complains(mutated));
    mutated = solution;
    --mutated.cost;
    EXPECT_TRUE(complains(mutated));
    mutated = solution;
    mutated.feasible = !mutated.feasible;
    EXPECT_TRUE(complains(mutated));
    mutated = solution;
    mutated.peakLowerBound = mutated.peak + 1;
    EXPECT_TRUE(complains(mutated));
    mutated = solution;
    mutated.order.push_back(0); // costs more than the plan says
    EXPECT_TRUE(complains(mutated));
    mutated = solution;
    mutated.order.erase(mutated.order.begin() + random.below(mutated.order.size()));
    EXPECT_TRUE(complains(mutated));
    mutated = solution;
    std::swap(mutated.order[0], mutated.order[1 + random.below(mutated.order.size() - 1)]);
    invalid += complains(mutated);
  }
  EXPECT_GT(invalid, 50);
}

TEST(Plan, OptimalOnTinyProblems) {
  SearchRandom random(31);
  int constrained = 0;
  for (int round = 0; round < 400; ++round) {
    PlanProblem problem = randomProblem(random, 1 + random.below(6), round % 2);
    int64_t given = measure(problem, givenOrder(problem)).peak;
    BruteForce brute(problem);
    int64_t smallest = brute.smallestPeak(0, given);
    int64_t bound = planPeakLowerBound(problem);
    EXPECT_LE(bound, smallest) << "round " << round;
    for (int64_t budget : {smallest - 1, smallest, (smallest + given) / 2, given - 1, given}) {
      PlanSolution solution = solve(problem, options(budget));
      int64_t optimum = brute.cost(budget);
      EXPECT_EQ(solution.feasible, optimum >= 0) << "round " << round << " budget " << budget;
      if (optimum >= 0) {
        EXPECT_EQ(solution.cost, optimum) << "round " << round << " budget " << budget;
        EXPECT_EQ(solution.costLowerBound, optimum);
      } else {
        EXPECT_EQ(solution.peak, smallest) << "round " << round;
        EXPECT_EQ(solution.peakLowerBound, smallest);
      }
      constrained += budget < given && budget >= smallest;
    }
  }
  EXPECT_GT(constrained, 100);
}

TEST(Plan, OrdersTinyProblemsOptimally) {
  SearchRandom random(41);
  int tight = 0;
  for (int round = 0; round < 300; ++round) {
    PlanProblem problem = randomProblem(random, 2 + random.below(6), round % 2);
    int64_t given = measure(problem, givenOrder(problem)).peak;
    llvm::Expected<PlanSolution> solution = solveOrder(problem, options(0));
    ASSERT_TRUE(bool(solution));
    EXPECT_EQ(solution->order.size(), problem.ops.size());
    int64_t smallest = BruteForce(problem).smallestPeak(0, given, /*recompute=*/false);
    EXPECT_EQ(solution->peak, smallest) << "round " << round;
    EXPECT_LE(orderPeakLowerBound(problem), smallest) << "round " << round;
    tight += orderPeakLowerBound(problem) == smallest;
  }
  EXPECT_GT(tight, 150);
}

/// At the turn from forward to backward all values are alive, whatever the order: what the bound
/// proves nobody searches for. More ops than one stretch of the bound.
TEST(Plan, BoundsEndTheSearchForAnOrder) {
  PlanProblem problem = chain(800);
  llvm::Expected<PlanSolution> solution = solveOrder(problem);
  ASSERT_TRUE(bool(solution));
  EXPECT_EQ(solution->peak, 8010);
  EXPECT_EQ(solution->peakLowerBound, 8010);
  EXPECT_EQ(solution->method, "the given order");
}

/// Two gradients (ops 1, 2) whose updates (3, 4) need not wait for both; what frees the most, here
/// op 5 the input of both, goes first.
TEST(Plan, TidiesOrders) {
  PlanProblem problem;
  problem.ops = {op(100, 1, {}), op(10, 1, {0}), op(10, 1, {0}),
                 op(0, 1, {1}),  op(0, 1, {2}),  op(0, 1, {0})};
  llvm::Expected<std::vector<int32_t>> early = tidyOrder(problem, givenOrder(problem));
  ASSERT_TRUE(bool(early));
  EXPECT_EQ(*early, (std::vector<int32_t>{0, 1, 3, 2, 5, 4}));
  // What an op only waits for counts too.
  problem.ops[3].after = {2};
  early = tidyOrder(problem, givenOrder(problem));
  ASSERT_TRUE(bool(early));
  EXPECT_EQ(*early, (std::vector<int32_t>{0, 1, 2, 5, 3, 4}));
  llvm::Expected<std::vector<int32_t>> refused = tidyOrder(problem, {0, 1, 2, 3, 4, 5, 0});
  ASSERT_FALSE(bool(refused));
  EXPECT_EQ(llvm::toString(refused.takeError()),
            "order has 7 instances; expected each of 6 ops once");
}

/// Updates (ops 4 and 5) of two gradients (1, 2) read a scalar (3) that stands behind both: it runs
/// first, so that each gradient is gone at once.
TEST(Plan, TidyingRunsScalarsEarly) {
  PlanProblem problem;
  problem.ops = {op(100000, 1, {}), op(100000, 1, {0}), op(100000, 1, {0}),
                 op(4, 1, {}),      op(0, 1, {1, 3}),   op(0, 1, {2, 3})};
  llvm::Expected<std::vector<int32_t>> early = tidyOrder(problem, givenOrder(problem));
  ASSERT_TRUE(bool(early));
  EXPECT_EQ(*early, (std::vector<int32_t>{3, 0, 1, 4, 2, 5}));
}

TEST(Plan, TidyingNeverRaisesThePeak) {
  SearchRandom random(45);
  int changed = 0;
  for (int round = 0; round < 300; ++round) {
    PlanProblem problem = randomProblem(random, 5 + random.below(40), true);
    std::vector<int32_t> given = givenOrder(problem);
    llvm::Expected<std::vector<int32_t>> early = tidyOrder(problem, given);
    ASSERT_TRUE(bool(early));
    PlanMeasure before = measure(problem, given), after = measure(problem, *early);
    EXPECT_LE(after.peak, before.peak) << "round " << round;
    EXPECT_EQ(after.cost, before.cost);
    changed += *early != given;
  }
  EXPECT_GT(changed, 50);
}

/// Values 1 and 2 are computed again together; each can be had where it is read (ops 5 and 6).
TEST(Plan, TidiesInstances) {
  PlanProblem problem;
  problem.ops = {op(10, 1, {}), op(50, 1, {0}), op(50, 1, {0}), op(0, 1, {1}),
                 op(0, 1, {2}), op(0, 1, {1}),  op(0, 1, {2})};
  search::Graph graph(problem);
  search::Plan plan = search::planOf(graph, {0, 1, 3, 2, 4, 1, 2, 5, 6});
  EXPECT_EQ(plan.peak, 110);
  search::Plan tidied = search::tidied(problem, graph, plan);
  EXPECT_EQ(tidied.order, (std::vector<int32_t>{0, 1, 3, 2, 4, 1, 5, 2, 6}));
  EXPECT_EQ(tidied.peak, 60);
  EXPECT_EQ(tidied.cost, plan.cost);
}

/// Greedy plans, tidied: valid, of the same instances, and never higher.
TEST(Plan, TidyingInstancesNeverRaisesThePeak) {
  SearchRandom random(46);
  int lower = 0;
  for (int round = 0; round < 200; ++round) {
    PlanProblem problem = randomProblem(random, 20 + random.below(60), true);
    search::Graph graph(problem);
    search::Plan given = search::planOf(graph, graph.givenOrder());
    int64_t budget = given.peak * (50 + random.below(40)) / 100;
    search::Plan evicted = search::evictGreedily(graph, given, budget, {});
    search::Plan tidied = search::tidied(problem, graph, evicted);
    PlanMeasure found = measure(problem, tidied.order);
    EXPECT_EQ(found.peak, tidied.peak);
    EXPECT_LE(found.peak, evicted.peak) << "round " << round;
    EXPECT_EQ(found.cost, evicted.cost) << "round " << round;
    lower += found.peak < evicted.peak;
  }
  EXPECT_GT(lower, 10);
}

/// The annealing and the greedy plans without the exact search: larger problems, every rule on.
TEST(Plan, ValidOnRandomProblems) {
  SearchRandom random(51);
  for (int round = 0; round < 150; ++round) {
    PlanProblem problem = randomProblem(random, 70 + random.below(80), true);
    int64_t given = measure(problem, givenOrder(problem)).peak;
    PlanOptions wanted = options(given * (3 + random.below(7)) / 10, 4000);
    wanted.keepOrder = random.below(3) == 0;
    wanted.recompute = random.below(4) != 0;
    wanted.seed = round;
    PlanSolution solution = solve(problem, wanted);
    EXPECT_LE(solution.peak, given);
  }
}

/// Every point is what it says, none is cheaper than the optimum for its peak, and on problems this
/// small the ends are exact.
TEST(Plan, FrontiersOfTinyProblems) {
  SearchRandom random(61);
  int64_t points = 0;
  for (int round = 0; round < 150; ++round) {
    PlanProblem problem = randomProblem(random, 2 + random.below(5), /*features=*/true);
    llvm::Expected<PlanFrontier> frontier = solvePlanFrontier(problem);
    ASSERT_TRUE(bool(frontier));
    EXPECT_FALSE(bool(verifyPlanFrontier(problem, *frontier)));
    BruteForce brute(problem);
    int64_t given = measure(problem, givenOrder(problem)).peak;
    EXPECT_EQ(frontier->points.front().peak, brute.smallestPeak(0, given)) << "round " << round;
    EXPECT_EQ(frontier->points.back().cost, measure(problem, givenOrder(problem)).cost);
    for (const PlanFrontier::Point &point : frontier->points)
      EXPECT_GE(point.cost, brute.cost(point.peak));
    points += frontier->points.size();
  }
  EXPECT_GT(points, 150);
}

TEST(Plan, FrontierValidatorCatchesMutations) {
  PlanProblem problem = chain(12);
  llvm::Expected<PlanFrontier> frontier = solvePlanFrontier(problem);
  ASSERT_TRUE(bool(frontier));
  ASSERT_GT(frontier->points.size(), 2u);
  auto complains = [&](PlanFrontier mutated) {
    llvm::Error error = verifyPlanFrontier(problem, mutated);
    bool wrong = bool(error);
    llvm::consumeError(std::move(error));
    return wrong;
  };
  EXPECT_FALSE(complains(*frontier));
  PlanFrontier mutated = *frontier;
  ++mutated.points[1].cost;
  EXPECT_TRUE(complains(mutated));
  mutated = *frontier;
  std::swap(mutated.points[0], mutated.points[1]);
  EXPECT_TRUE(complains(mutated));
  mutated = *frontier;
  mutated.points[1].order.pop_back();
  EXPECT_TRUE(complains(mutated));
  mutated = *frontier;
  mutated.peakLowerBound = mutated.points[0].peak + 1;
  EXPECT_TRUE(complains(mutated));
  mutated.points.clear();
  EXPECT_TRUE(complains(mutated));
}

/// One search for all budgets is nearly as good as a search for each.
TEST(Plan, FrontiersComeNearSingleBudgets) {
  PlanProblem problem = chain(80);
  int64_t given = measure(problem, givenOrder(problem)).peak;
  llvm::Expected<PlanFrontier> frontier = solvePlanFrontier(problem);
  ASSERT_TRUE(bool(frontier));
  for (int percent : {80, 50, 30}) {
    int64_t budget = given * percent / 100;
    PlanSolution single = solve(problem, options(budget, 400000));
    int64_t cost = 0;
    for (const PlanFrontier::Point &point : frontier->points)
      if (point.peak <= budget)
        cost = point.cost;
    EXPECT_LE(cost, single.cost + single.cost / 50) << percent;
  }
}

/// A forward graph of residual blocks of any depth, and gradients that read what their op read;
/// the first `forward` ops of the problem are the forward ones.
static PlanProblem residualTraining(SearchRandom &random, int32_t forward) {
  PlanProblem problem;
  std::vector<std::vector<int32_t>> reads{{}}, readers(forward);
  while (int32_t(reads.size()) < forward) {
    auto start = int32_t(reads.size()) - 1;
    for (uint32_t depth = 1 + random.below(4); depth; --depth)
      reads.push_back({int32_t(reads.size()) - 1});
    reads.push_back({start, int32_t(reads.size()) - 1});
  }
  reads.resize(forward);
  for (int32_t i = 0; i < forward; ++i) {
    problem.ops.push_back(op(10 + random.below(100), 5 + random.below(200), reads[i]));
    for (int32_t read : reads[i])
      readers[read].push_back(i);
  }
  std::vector<int32_t> gradient(forward);
  for (int32_t i = forward; i-- > 0;) {
    std::vector<int32_t> inputs = reads[i];
    for (int32_t reader : readers[i])
      inputs.push_back(gradient[reader]);
    if (inputs.empty() || random.below(2))
      inputs.push_back(i);
    gradient[i] = problem.ops.size();
    problem.ops.push_back(
        op(problem.ops[i].results[0].bytes, 2 * problem.ops[i].cost, std::move(inputs)));
  }
  return problem;
}

/// Segments as users place them, written anew: what is inside of one runs again when it is read
/// behind the forward ops.
static std::vector<int32_t> repeatSegments(const PlanProblem &problem, int32_t forward,
                                           const std::function<int32_t(int32_t)> &segmentOf) {
  int32_t ops = problem.ops.size();
  std::vector<uint8_t> kept(ops, false), again(ops, false);
  for (int32_t op = 0; op < forward; ++op)
    for (PlanValue input : problem.ops[op].inputs)
      kept[input.op] |= segmentOf(input.op) != segmentOf(op);
  std::vector<int32_t> order;
  std::function<void(int32_t)> repeatFor = [&](int32_t op) {
    for (PlanValue input : problem.ops[op].inputs)
      if (segmentOf(input.op) >= 0 && !kept[input.op] && !again[input.op]) {
        again[input.op] = true;
        repeatFor(input.op);
        order.push_back(input.op);
      }
  };
  for (int32_t op = 0; op < ops; ++op) {
    if (op >= forward)
      repeatFor(op);
    order.push_back(op);
  }
  return order;
}

/// `count` equal ones, the last one not repeated.
static std::vector<int32_t> equalSegments(const PlanProblem &problem, int32_t forward,
                                          int32_t count) {
  return repeatSegments(problem, forward, [&](int32_t op) {
    int32_t segment = op < forward ? op * count / forward : -1;
    return segment + 1 < count ? segment : -1;
  });
}

/// The least cost of a point of at most `bytes`.
static int64_t costWithin(const PlanFrontier &frontier, int64_t bytes) {
  int64_t best = std::numeric_limits<int64_t>::max();
  for (const PlanFrontier::Point &point : frontier.points)
    if (point.peak <= bytes)
      best = std::min(best, point.cost);
  return best;
}

/// Neither is it above blocks of the model, of which the problem says where they are. There are no
/// moves, so that it is candidates that meet them.
TEST(Plan, FrontiersAreNowhereAboveBlocks) {
  SearchRandom random(17);
  PlanFrontierOptions noSearch;
  noSearch.iterations = 0;
  for (int32_t forward : {30, 100, 700}) {
    PlanProblem problem = residualTraining(random, forward);
    std::vector<int32_t> blockOf(problem.ops.size(), -1);
    for (int32_t op = 3, block = 0; op < forward; block += random.below(4) == 0)
      blockOf[op++] = block;
    for (size_t op = 0; op < problem.ops.size(); ++op)
      problem.ops[op].block = blockOf[op];
    llvm::Expected<PlanFrontier> frontier = solvePlanFrontier(problem, noSearch);
    ASSERT_TRUE(bool(frontier));
    for (int32_t width : {1, 2, 3}) {
      PlanMeasure byHand = measure(problem, repeatSegments(problem, forward, [&](int32_t op) {
                                     return blockOf[op] < 0 ? -1 : blockOf[op] / width;
                                   }));
      EXPECT_LE(costWithin(*frontier, byHand.peak), byHand.cost)
          << width << " blocks of " << forward << " ops together";
    }
  }
}

TEST(Plan, BlocksAreNoMoreThanOps) {
  PlanProblem problem = chain(10);
  problem.ops[3].block = static_cast<int32_t>(problem.ops.size());
  EXPECT_NE(llvm::toString(checkPlanProblem(problem)).find("op 3: block is 19"), std::string::npos);
  problem.ops[3].block = 0;
  EXPECT_FALSE(bool(checkPlanProblem(problem)));
}

/// For as many bytes as any number of equal segments takes, the frontier has a plan that costs no
/// more.
TEST(Plan, FrontiersAreNowhereAboveEqualSegments) {
  SearchRandom random(91);
  for (int32_t forward : {12, 30, 60, 100, 150}) {
    for (bool isChain : {true, false}) {
      PlanProblem problem = isChain ? chain(forward) : residualTraining(random, forward);
      llvm::Expected<PlanFrontier> frontier = solvePlanFrontier(problem);
      ASSERT_TRUE(bool(frontier));
      for (int32_t count = 2; count <= forward; ++count) {
        PlanMeasure byHand = measure(problem, equalSegments(problem, forward, count));
        EXPECT_LE(costWithin(*frontier, byHand.peak), byHand.cost)
            << count << " segments of " << forward << " ops" << (isChain ? ", a chain" : "");
      }
    }
  }
}

TEST(Plan, BudgetsAtTheEdges) {
  PlanProblem problem = chain(20);
  int64_t peak = measure(problem, givenOrder(problem)).peak;
  for (int64_t budget : {int64_t(0), int64_t(1)}) {
    PlanSolution none = solve(problem, options(budget));
    EXPECT_FALSE(none.feasible);
    EXPECT_GE(none.peakLowerBound, 30);
    EXPECT_FALSE(none.binding.empty());
    EXPECT_GE(none.bindingOp, 0);
  }
  PlanSolution less = solve(problem, options(peak - 1));
  EXPECT_TRUE(less.feasible);
  EXPECT_LT(less.peak, peak);
  PlanSolution same = solve(problem, options(peak));
  EXPECT_EQ(same.order, givenOrder(problem));
  EXPECT_EQ(same.cost, same.costLowerBound);
}

TEST(Plan, NoFreedomAtAll) {
  EXPECT_TRUE(solve({}, options(0)).feasible);
  PlanProblem problem = chain(10);
  for (PlanOp &op : problem.ops)
    op.pinned = true;
  for (size_t i = 1; i < problem.ops.size(); ++i)
    problem.ops[i].after = {int32_t(i - 1)};
  int64_t peak = measure(problem, givenOrder(problem)).peak;
  PlanSolution solution = solve(problem, options(peak - 1));
  EXPECT_FALSE(solution.feasible);
  EXPECT_EQ(solution.order, givenOrder(problem));
  EXPECT_EQ(solution.peakLowerBound, peak);
}

TEST(Plan, HugeCostsDoNotOverflow) {
  PlanProblem problem = chain(80);
  for (PlanOp &op : problem.ops)
    op.cost = (int64_t(1) << 62) / int64_t(problem.ops.size());
  int64_t peak = measure(problem, givenOrder(problem)).peak;
  PlanSolution solution = solve(problem, options(peak / 3, 20000));
  EXPECT_GT(solution.cost, 0);
}

TEST(Plan, ReadersComeBeforeTheWrite) {
  // Op 1 reads a variable that op 3 overwrites: it may be computed again only before.
  PlanProblem problem;
  problem.ops = {op(10, 1, {}), op(10, 1, {0}), op(50, 1, {}), op(0, 1, {2}), op(1, 1, {1})};
  problem.ops[3].after = {1};
  problem.ops[3].pinned = true;
  PlanSolution solution = solve(problem, options(0));
  int64_t last = -1, write = -1;
  for (size_t i = 0; i < solution.order.size(); ++i) {
    if (solution.order[i] == 1)
      last = i;
    if (solution.order[i] == 3)
      write = i;
  }
  EXPECT_LT(last, write);
}

TEST(Plan, ThreadsDoNotChangeTheAnswer) {
  SearchRandom random(61);
  for (int round = 0; round < 10; ++round) {
    PlanProblem problem = chain(70 + random.below(50), 10);
    for (PlanOp &op : problem.ops)
      op.results[0].bytes += random.below(30);
    PlanOptions wanted =
        options(measure(problem, givenOrder(problem)).peak * (3 + round % 5) / 10, 40000);
    PlanSolution first = solve(problem, wanted);
    for (int32_t threads : {1, 2, 7}) {
      wanted.threads = threads;
      EXPECT_EQ(solve(problem, wanted).order, first.order);
    }
  }
}

TEST(Plan, ThreadsDoNotChangeOrdersAndFrontiers) {
  SearchRandom random(67);
  PlanProblem problem = randomProblem(random, 120, true);
  llvm::Expected<PlanSolution> first = solveOrder(problem);
  PlanFrontierOptions wanted;
  wanted.iterations = 100000;
  llvm::Expected<PlanFrontier> points = solvePlanFrontier(problem, wanted);
  ASSERT_TRUE(bool(first) && bool(points));
  wanted.threads = 3;
  PlanOptions threaded;
  threaded.threads = 3;
  llvm::Expected<PlanSolution> again = solveOrder(problem, threaded);
  llvm::Expected<PlanFrontier> same = solvePlanFrontier(problem, wanted);
  ASSERT_TRUE(bool(again) && bool(same));
  EXPECT_EQ(again->order, first->order);
  ASSERT_EQ(same->points.size(), points->points.size());
  for (size_t i = 0; i < same->points.size(); ++i)
    EXPECT_EQ(same->points[i].order, points->points[i].order);
}

TEST(Plan, ChainsReachRootOfTheirLength) {
  // 200 layers: keeping every k-th needs about 2 * sqrt(200) values at less than one more forward
  // pass.
  PlanProblem problem = chain(200, 1);
  PlanSolution solution = solve(problem, options(40, 300000));
  EXPECT_TRUE(solution.feasible);
  EXPECT_LE(solution.cost, measure(problem, givenOrder(problem)).cost + 200);
}

TEST(Plan, ChainsReachFewBytesByNesting) {
  // Each value once evicted leaves 54 of 800 alive.
  PlanProblem problem = chain(800, 1);
  PlanSolution solution = solve(problem, options(3, 0));
  EXPECT_LE(solution.peak, 10);
  EXPECT_LE(solution.order.size(), 8 * problem.ops.size() + 64);
}

/// Loops over the parts of a sequence: each reads a part of one cast of the input, hands two small
/// values on and keeps three large ones for its gradient.
static PlanProblem loopsOverACast(int loops) {
  PlanProblem problem;
  problem.ops = {op(4096, 0, {}), op(4096, 10, {0})};
  problem.ops[0].pinned = true;
  std::vector<int32_t> forward;
  for (int i = 0; i < loops; ++i) {
    problem.ops.push_back(op(1024, 20, {1}));
    PlanOp loop = op(64, 80, {static_cast<int32_t>(problem.ops.size()) - 1});
    loop.results = {{64}, {64}, {256}, {1024}, {256}};
    if (i > 0)
      for (int32_t carried : {0, 1})
        loop.inputs.push_back({forward.back(), carried});
    forward.push_back(static_cast<int32_t>(problem.ops.size()));
    problem.ops.push_back(loop);
  }
  for (int i = loops; i-- > 0;) {
    PlanOp gradient = op(8, 80, {});
    for (int32_t kept : {2, 3, 4})
      gradient.inputs.push_back({forward[i], kept});
    if (i > 0)
      gradient.inputs.push_back({forward[i - 1], 0});
    if (i < loops - 1)
      gradient.inputs.push_back({static_cast<int32_t>(problem.ops.size()) - 1, 0});
    problem.ops.push_back(gradient);
  }
  return problem;
}

/// What all segments read is no part of what nesting keeps for each of them: input and cast, one
/// loop's values and the carried ones fit, and no loop runs more than twice.
TEST(Plan, ChainsCountWhatAllSegmentsReadOnce) {
  PlanProblem problem = loopsOverACast(31);
  search::Graph graph(problem);
  search::Plan given = search::planOf(graph, graph.givenOrder());
  constexpr int64_t kBudget = 2 * 4096 + 2 * 2560 + 31 * 128;
  search::Plan plan = search::segmentChain(graph, given, kBudget);
  EXPECT_LE(plan.peak, kBudget);
  EXPECT_LE(plan.cost, given.cost + 31 * 100);
}

/// The problem whose given order is `order`.
static PlanProblem renumbered(const PlanProblem &problem, llvm::ArrayRef<int32_t> order) {
  std::vector<int32_t> numbers(order.size());
  for (auto [number, op] : llvm::enumerate(order))
    numbers[op] = static_cast<int32_t>(number);
  PlanProblem shuffled;
  for (int32_t op : order) {
    shuffled.ops.push_back(problem.ops[op]);
    for (PlanValue &input : shuffled.ops.back().inputs)
      input.op = numbers[input.op];
  }
  return shuffled;
}

/// An order for few bytes may tear segments apart: all parts of the input are cut off it at once.
/// The program's order beside it has them.
TEST(Plan, SegmentsBeginWithTheProgramsOrderToo) {
  PlanProblem program = loopsOverACast(31);
  std::vector<int32_t> order = givenOrder(program);
  std::stable_partition(order.begin(), order.end(),
                        [&](int32_t op) { return op < 2 || program.ops[op].cost == 20; });
  PlanProblem shuffled = renumbered(program, order);
  std::vector<int32_t> back(order.size());
  for (auto [number, op] : llvm::enumerate(order))
    back[op] = static_cast<int32_t>(number);
  PlanFrontierOptions options;
  options.iterations = 0;
  PlanFrontier without = llvm::cantFail(solvePlanFrontier(shuffled, options));
  options.orders = {back};
  PlanFrontier with = llvm::cantFail(solvePlanFrontier(shuffled, options));
  EXPECT_LT(with.points.front().peak, without.points.front().peak);

  options.orders = {{0, 1}};
  llvm::Expected<PlanFrontier> wrong = solvePlanFrontier(shuffled, options);
  ASSERT_FALSE(bool(wrong));
  EXPECT_EQ(llvm::toString(wrong.takeError()),
            "order 0 has 2 actions; expected each of the 95 that must be there once");
}
