//===- ArenaTest.cpp - arena layouts against brute force ---------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Arena/Arena.h"

#include "memopt/Planning/Utils/SearchRandom.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>

using namespace memopt::planning;

static ArenaBuffer buffer(int64_t size, int64_t lower, int64_t upper) {
  ArenaBuffer result;
  result.size = size;
  result.lower = lower;
  result.upper = upper;
  return result;
}

static ArenaSolution solve(const ArenaProblem &problem, ArenaOptions options = {}) {
  llvm::Expected<ArenaSolution> solution = solveArena(problem, options);
  if (!solution) {
    ADD_FAILURE() << llvm::toString(solution.takeError());
    return {};
  }
  if (llvm::Error error = verifyArena(problem, *solution))
    ADD_FAILURE() << llvm::toString(std::move(error));
  return std::move(*solution);
}

static std::string refusal(const ArenaProblem &problem) {
  return llvm::toString(checkArena(problem));
}

static std::string complaint(const ArenaProblem &problem, const ArenaSolution &solution) {
  return llvm::toString(verifyArena(problem, solution));
}

static ArenaProblem randomProblem(SearchRandom &random, int count) {
  ArenaProblem problem;
  for (int i = 0; i < count; ++i) {
    int64_t lower = random.below(8);
    int64_t upper = lower + random.below(6);
    problem.buffers.push_back(buffer(random.below(9), lower, upper));
  }
  return problem;
}

/// Every layout pushed down is one where, in some order, each buffer lies on the highest that it
/// meets.
static int64_t bruteForceHeight(const ArenaProblem &problem) {
  size_t count = problem.buffers.size();
  std::vector<int> order(count);
  std::iota(order.begin(), order.end(), 0);
  int64_t best = INT64_MAX;
  do {
    std::vector<int64_t> end(count, 0);
    int64_t height = 0;
    for (size_t i = 0; i < count; ++i) {
      const ArenaBuffer &mine = problem.buffers[order[i]];
      if (!mine.size || mine.lower >= mine.upper)
        continue;
      int64_t offset = 0;
      for (size_t j = 0; j < i; ++j) {
        const ArenaBuffer &other = problem.buffers[order[j]];
        if (mine.lower < other.upper && other.lower < mine.upper && other.size)
          offset = std::max(offset, end[order[j]]);
      }
      end[order[i]] = offset + mine.size;
      height = std::max(height, end[order[i]]);
    }
    best = std::min(best, height);
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

TEST(Arena, PlacesNothing) {
  EXPECT_EQ(solve({}).height, 0);
  ArenaProblem empty;
  empty.buffers = {buffer(0, 0, 5), buffer(7, 3, 3)};
  EXPECT_EQ(solve(empty).height, 0);
}

TEST(Arena, SharesBytesOverTime) {
  ArenaProblem problem;
  problem.buffers = {buffer(10, 0, 2), buffer(10, 2, 4), buffer(6, 1, 3)};
  ArenaSolution solution = solve(problem);
  EXPECT_EQ(solution.height, 16);
  EXPECT_EQ(solution.lowerBound, 16);
  EXPECT_EQ(solution.gap(), 0);
}

TEST(Arena, RefusesBrokenProblems) {
  ArenaProblem problem;
  problem.buffers = {buffer(-1, 0, 1)};
  EXPECT_EQ(refusal(problem), "arena buffer 0: size is -1, expected at least 0");
  problem.buffers = {buffer(1, 2, 1)};
  EXPECT_EQ(refusal(problem), "arena buffer 0: lower 2 is above upper 1");
  problem.buffers = {buffer(1, 0, 1)};
  problem.buffers[0].alignment = 0;
  EXPECT_EQ(refusal(problem), "arena buffer 0: alignment is 0, expected 1 to 2^30");
  problem.buffers[0].alignment = 8;
  problem.buffers[0].fixedOffset = 12;
  EXPECT_EQ(refusal(problem), "arena buffer 0: fixed offset 12 is no multiple of its alignment 8");
  problem.buffers[0] = buffer(1, 0, 1);
  problem.buffers[0].inPlaceOf = 0;
  EXPECT_EQ(refusal(problem),
            "arena buffer 0: in place of buffer 0, expected another of 1 buffers, or -1 for none");
  problem.buffers = {buffer(int64_t(1) << 62, 0, 1), buffer(1, 0, 1)};
  EXPECT_NE(refusal(problem).find("do not fit 62 bits"), std::string::npos);
  problem.buffers = {buffer(4, 0, 2), buffer(4, 1, 3)};
  problem.buffers[0].fixedOffset = 0;
  problem.buffers[1].fixedOffset = 2;
  EXPECT_EQ(refusal(problem), "arena buffers with fixed offsets share bytes");
  problem.buffers = {buffer(4, 0, 2), buffer(4, 1, 3), buffer(4, 1, 3)};
  problem.buffers[1].inPlaceOf = problem.buffers[2].inPlaceOf = 0;
  EXPECT_EQ(refusal(problem),
            "arena buffer 2: in place of buffer 0, whose bytes buffer 1 may take already");
  problem.buffers = {buffer(4, 0, 2)};
  problem.loops = {{3, 3}};
  EXPECT_EQ(refusal(problem), "arena loop [3, 3) is empty or too large");
  EXPECT_FALSE(bool(solveArena(problem)) ? true : false);
}

TEST(Arena, ValidatorCatchesMutations) {
  SearchRandom random(3);
  int caught = 0;
  for (int round = 0; round < 300; ++round) {
    ArenaProblem problem = randomProblem(random, 2 + random.below(8));
    ArenaSolution solution = solve(problem);
    if (!solution.height)
      continue;
    // One byte less than the load cannot hold it: moving everything down by one must be caught.
    for (size_t i = 0; i < solution.offsets.size(); ++i) {
      const ArenaBuffer &mine = problem.buffers[i];
      if (!mine.size || mine.lower >= mine.upper)
        continue;
      ArenaSolution mutated = solution;
      mutated.offsets[i] += 1 + random.below(4);
      bool overlaps = false;
      int64_t height = 0;
      for (size_t j = 0; j < solution.offsets.size(); ++j) {
        const ArenaBuffer &other = problem.buffers[j];
        if (!other.size || other.lower >= other.upper)
          continue;
        height = std::max(height, mutated.offsets[j] + other.size);
        overlaps |= j != i && mine.lower < other.upper && other.lower < mine.upper &&
                    mutated.offsets[i] < mutated.offsets[j] + other.size &&
                    mutated.offsets[j] < mutated.offsets[i] + mine.size;
      }
      mutated.height = height;
      EXPECT_EQ(complaint(problem, mutated).empty(), !overlaps);
      caught += overlaps;
    }
    ArenaSolution wrong = solution;
    ++wrong.height;
    EXPECT_FALSE(complaint(problem, wrong).empty());
    wrong = solution;
    wrong.lowerBound = wrong.height + 1;
    EXPECT_FALSE(complaint(problem, wrong).empty());
    wrong = solution;
    wrong.offsets.pop_back();
    EXPECT_FALSE(complaint(problem, wrong).empty());
    wrong = solution;
    wrong.offsets[0] = -1;
    EXPECT_FALSE(complaint(problem, wrong).empty());
  }
  EXPECT_GT(caught, 100);
}

TEST(Arena, MatchesBruteForceOnTinyProblems) {
  SearchRandom random(11);
  for (int round = 0; round < 400; ++round) {
    ArenaProblem problem = randomProblem(random, 1 + random.below(6));
    int64_t optimum = bruteForceHeight(problem);
    ArenaSolution solution = solve(problem);
    EXPECT_EQ(solution.height, optimum) << "round " << round;
    EXPECT_LE(solution.lowerBound, optimum);
  }
}

TEST(Arena, TheOrderInWhichBuffersAreListedDoesNotMatter) {
  SearchRandom random(6);
  for (int round = 0; round < 50; ++round) {
    ArenaProblem problem;
    for (int64_t i = 0; i < 60; ++i) {
      int64_t lower = random.below(40);
      problem.buffers.push_back(
          buffer(100 * random.below(9) + i, lower, lower + 1 + random.below(9)));
      if (i && random.below(3) == 0) {
        problem.buffers[i].lower = problem.buffers[i - 1].upper - 1;
        problem.buffers[i].upper = std::max(problem.buffers[i].upper, problem.buffers[i].lower + 1);
        problem.buffers[i].inPlaceOf = static_cast<int32_t>(i - 1);
      }
    }
    ArenaProblem reversed = problem;
    std::reverse(reversed.buffers.begin(), reversed.buffers.end());
    for (ArenaBuffer &mine : reversed.buffers)
      if (mine.inPlaceOf >= 0)
        mine.inPlaceOf = static_cast<int32_t>(reversed.buffers.size()) - 1 - mine.inPlaceOf;
    ArenaOptions options;
    options.iterations = 20000;
    std::vector<int64_t> offsets = solve(reversed, options).offsets;
    std::reverse(offsets.begin(), offsets.end());
    EXPECT_EQ(solve(problem, options).offsets, offsets);
  }
}

TEST(Arena, EveryFeatureOnRandomProblems) {
  SearchRandom random(5);
  for (int round = 0; round < 300; ++round) {
    ArenaProblem problem = randomProblem(random, 2 + random.below(20));
    int64_t fixed = 0;
    for (size_t i = 0; i < problem.buffers.size(); ++i) {
      ArenaBuffer &mine = problem.buffers[i];
      mine.alignment = 1 + random.below(4);
      uint32_t kind = random.below(8);
      if (kind == 0) {
        mine.alignment = 1;
        mine.fixedOffset = fixed;
        fixed += mine.size;
      } else if (kind == 1) {
        mine.pinnedAtBottom = true;
      } else if (kind < 4 && i && problem.buffers[i - 1].upper > 0) {
        mine.inPlaceOf = i - 1;
        mine.lower = problem.buffers[i - 1].upper - 1;
        mine.upper = std::max(mine.upper, mine.lower);
      }
    }
    if (random.below(2))
      problem.loops = {{3, 6}, {2, 9}};
    ArenaOptions options;
    options.iterations = 100000;
    solve(problem, options);
  }
}

TEST(Arena, TakesBytesOverInPlace) {
  ArenaProblem problem;
  problem.buffers = {buffer(8, 0, 3), buffer(8, 2, 5), buffer(4, 4, 6)};
  EXPECT_EQ(solve(problem).height, 16);
  problem.buffers[1].inPlaceOf = 0;
  problem.buffers[2].inPlaceOf = 1;
  ArenaSolution solution = solve(problem);
  EXPECT_EQ(solution.height, 8);
  EXPECT_EQ(arenaLoad(problem), 8);
  EXPECT_EQ(solution.offsets[0], solution.offsets[1]);
  // Permission holds for one shared step only.
  problem.buffers[1].lower = 1;
  EXPECT_EQ(solve(problem).height, 16);
}

TEST(Arena, KeepsLoopsAlive) {
  // Made before the loop, read inside it: the next iteration reads it again, so buffer 1 cannot
  // follow it.
  ArenaProblem problem;
  problem.buffers = {buffer(8, 0, 4), buffer(8, 4, 6)};
  EXPECT_EQ(solve(problem).height, 8);
  problem.loops = {{2, 6}};
  EXPECT_EQ(solve(problem).height, 16);
  // Stretched to the end of the inner loop it lies in the outer one too.
  problem.buffers = {buffer(8, 0, 4), buffer(8, 7, 9)};
  problem.loops = {{1, 9}, {2, 6}};
  EXPECT_EQ(solve(problem).height, 16);
}

TEST(Arena, PinsAtTheBottom) {
  ArenaProblem problem;
  problem.buffers = {buffer(100, 0, 4), buffer(8, 2, 3), buffer(16, 5, 6)};
  problem.buffers[1].pinnedAtBottom = true;
  problem.buffers[2].fixedOffset = 64;
  ArenaSolution solution = solve(problem);
  EXPECT_EQ(solution.offsets[1], 0);
  EXPECT_EQ(solution.offsets[2], 64);
  EXPECT_EQ(solution.height, 108);
}

TEST(Arena, StopsAtTheCapacity) {
  SearchRandom random(9);
  ArenaProblem problem;
  for (int i = 0; i < 200; ++i) {
    int64_t lower = random.below(100);
    int64_t upper = lower + 1 + random.below(40);
    problem.buffers.push_back(buffer(1 + random.below(1000), lower, upper));
  }
  ArenaOptions none;
  none.iterations = 0;
  int64_t greedy = solve(problem, none).height;
  ArenaOptions easy;
  easy.capacity = greedy;
  EXPECT_EQ(solve(problem, easy).height, greedy);
  EXPECT_LE(solve(problem).height, greedy);
}

TEST(Arena, SameAnswerEachTime) {
  SearchRandom random(13);
  ArenaProblem problem;
  for (int i = 0; i < 900; ++i) {
    int64_t lower = random.below(400);
    int64_t upper = lower + 1 + random.below(60);
    problem.buffers.push_back(buffer(1 + random.below(1000), lower, upper));
  }
  ArenaOptions options;
  options.iterations = 5000000;
  ArenaSolution first = solve(problem, options), second = solve(problem, options);
  EXPECT_EQ(first.offsets, second.offsets);
  EXPECT_LT(double(first.height), 1.1 * double(first.lowerBound));
}

TEST(Arena, NamesWhatBinds) {
  ArenaProblem problem;
  problem.buffers = {buffer(5, 0, 2), buffer(9, 1, 3), buffer(7, 2, 4), buffer(1, 3, 5)};
  EXPECT_EQ(arenaLoad(problem), 16);
  EXPECT_EQ(arenaBindingBuffers(problem), (std::vector<int32_t>{1, 2}));
}
