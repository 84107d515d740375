//===- CacheTest.cpp - results found again on disk ---------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Support/Cache.h"
#include "memopt/Planning/Order/PlanSolver.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <thread>

using namespace memopt;
using namespace memopt::planning;

namespace {
/// A folder of its own for each test, and what lies in it.
class CacheTest : public testing::Test {
protected:
  CacheTest() {
    EXPECT_FALSE(llvm::sys::fs::createUniqueDirectory("memopt-cache", folder));
    cache = llvm::cantFail(Cache::open(folder));
  }
  ~CacheTest() override { llvm::sys::fs::remove_directories(folder); }

  std::string getPath(llvm::StringRef name) const {
    llvm::SmallString<128> path(folder);
    llvm::sys::path::append(path, name);
    return path.str().str();
  }
  std::string read(const Cache::Key &key) const {
    return (*llvm::MemoryBuffer::getFile(getPath(key.name)))->getBuffer().str();
  }
  void write(const Cache::Key &key, llvm::StringRef content) const {
    std::error_code code;
    llvm::raw_fd_ostream(getPath(key.name), code) << content;
    EXPECT_FALSE(code);
  }
  /// The names of all files, of one kind where one is given.
  std::vector<std::string> list(llvm::StringRef kind = "") const {
    std::vector<std::string> names;
    std::error_code code;
    for (llvm::sys::fs::directory_iterator it(folder, code), end; it != end; it.increment(code))
      if (llvm::StringRef name = llvm::sys::path::filename(it->path());
          kind.empty() || name.starts_with(("llvmcache-" + kind + "-").str()))
        names.push_back(name.str());
    return names;
  }
  void expectComplaint(llvm::StringRef what) {
    std::vector<std::string> complaints = cache->takeComplaints();
    ASSERT_EQ(complaints.size(), 1u);
    EXPECT_NE(complaints[0].find(what.str()), std::string::npos) << complaints[0];
  }

  llvm::SmallString<128> folder;
  Cache *cache;
};
} // namespace

TEST_F(CacheTest, FindsWhatWasStored) {
  Cache::Key key = Cache::getKey("code", "a question");
  EXPECT_FALSE(cache->find(key));
  std::string answer("zero \0 and more\n", 16);
  cache->store(key, answer);
  EXPECT_EQ(cache->find(key), answer);
  cache->store(key, "");
  EXPECT_EQ(cache->find(key), "");
  EXPECT_EQ(cache->getCounts()["code"].found, 2);
  EXPECT_EQ(cache->getCounts()["code"].made, 2);
  EXPECT_TRUE(cache->takeComplaints().empty());
  EXPECT_EQ(list().size(), 1u);
}

TEST_F(CacheTest, TellsQuestionsAndKindsApart) {
  cache->store(Cache::getKey("code", "a"), "1");
  EXPECT_FALSE(cache->find(Cache::getKey("code", "b")));
  EXPECT_FALSE(cache->find(Cache::getKey("plan", "a")));
  EXPECT_NE(Cache::getKey("a", "bc").name, Cache::getKey("ab", "c").name);
}

/// Entries are code: a folder that others may write to is none of ours.
TEST_F(CacheTest, OthersMayNotWrite) {
  for (unsigned mode : {0777u, 0770u}) {
    EXPECT_EQ(::chmod(folder.c_str(), mode), 0);
    std::string message = llvm::toString(Cache::open(folder).takeError());
    EXPECT_NE(message.find("may be written by others"), std::string::npos) << message;
    EXPECT_NE(message.find("chmod go-w"), std::string::npos) << message;
  }
  EXPECT_EQ(::chmod(folder.c_str(), 0755), 0);
  EXPECT_EQ(llvm::cantFail(Cache::open(folder)), cache);
  llvm::SmallString<128> made(folder);
  llvm::sys::path::append(made, "made");
  llvm::cantFail(Cache::open(made));
  struct stat facts;
  EXPECT_EQ(::stat(made.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700u);
}

/// Any byte that is changed, cut off or added, and a file under another one's name.
TEST_F(CacheTest, DamagedEntriesAreNone) {
  Cache::Key key = Cache::getKey("code", "a question"), other = Cache::getKey("code", "another");
  cache->store(key, "the answer");
  std::string whole = read(key);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] ^= 0x10;
    write(key, changed);
    EXPECT_FALSE(cache->find(key)) << i;
    expectComplaint("is damaged; it is made anew");
    write(key, llvm::StringRef(whole).take_front(i));
    EXPECT_FALSE(cache->find(key)) << i;
    expectComplaint("is damaged");
  }
  write(key, whole + "x");
  EXPECT_FALSE(cache->find(key));
  expectComplaint("is damaged");
  write(other, whole);
  EXPECT_FALSE(cache->find(other));
  expectComplaint("is damaged");
  write(key, whole);
  EXPECT_EQ(cache->find(key), "the answer");
}

TEST_F(CacheTest, WhatCannotBeReadOrWrittenIsAComplaint) {
  Cache::Key key = Cache::getKey("code", "a question");
  EXPECT_FALSE(llvm::sys::fs::create_directory(getPath(key.name)));
  EXPECT_FALSE(cache->find(key));
  expectComplaint("cannot be read");
  cache->store(key, "the answer");
  expectComplaint("cannot be written");
  EXPECT_EQ(list().size(), 1u) << "nothing is left beside it";
}

TEST_F(CacheTest, AFolderThatCannotBeMadeIsAnError) {
  write({"code", "file"}, "");
  llvm::Expected<Cache *> below = Cache::open(getPath("file") + "/folder");
  ASSERT_FALSE(bool(below));
  EXPECT_NE(llvm::toString(below.takeError()).find("cannot make the cache's folder"),
            std::string::npos);
}

TEST_F(CacheTest, IsKeptWithinItsBytes) {
  for (int i = 0; i < 8; ++i)
    cache->store(Cache::getKey("code", std::to_string(i)), std::string(10000, 'x'));
  write({"code", "foreign"}, std::string(10000, 'x'));
  cache->prune(1 << 20);
  EXPECT_EQ(list("code").size(), 8u);
  cache->prune(35000);
  EXPECT_EQ(list("code").size(), 3u);
  EXPECT_TRUE(llvm::sys::fs::exists(getPath("foreign"))) << "what is no entry stays";
}

/// Readers see an entry whole or not at all, while others write it.
TEST_F(CacheTest, ManyAtOnce) {
  Cache::Key key = Cache::getKey("code", "a question");
  std::string answer(100000, 'x');
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        cache->store(key, answer);
        wrong += cache->find(key) != answer;
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(cache->takeComplaints().empty());
  EXPECT_EQ(list().size(), 1u);
}

//===----------------------------------------------------------------------===//
// Solutions
//===----------------------------------------------------------------------===//

/// Each op reads the one before it, and what its mirror image in the first half made.
static PlanProblem makeTraining(int32_t layers) {
  PlanProblem problem;
  for (int32_t i = 0; i < 2 * layers; ++i) {
    PlanOp &op = problem.ops.emplace_back();
    op.results = {{10 + i % 3}};
    op.cost = 1 + i % 4;
    if (i)
      op.inputs.push_back({i - 1, 0});
    if (i >= layers)
      op.inputs.push_back({2 * layers - 1 - i, 0});
  }
  return problem;
}

TEST_F(CacheTest, SolutionsAreThoseOfTheSolver) {
  PlanProblem problem = makeTraining(20);
  PlanOptions one;
  one.budget = 100;
  PlanFrontierOptions all;
  ArenaProblem arena;
  for (int64_t i = 0; i < 30; ++i)
    arena.buffers.push_back({10 + i % 7, i, i + 1 + i % 5});
  PlanSolution plan = llvm::cantFail(solvePlan(problem, one));
  PlanFrontier frontier = llvm::cantFail(solvePlanFrontier(problem, all));
  ArenaSolution layout = llvm::cantFail(solveArena(arena));
  ArenaOptions cached;
  one.cache = all.cache = cached.cache = cache;
  for (int round = 0; round < 2; ++round) {
    PlanSolution plan2 = llvm::cantFail(solvePlan(problem, one));
    EXPECT_EQ(std::tie(plan2.order, plan2.peak, plan2.cost, plan2.feasible, plan2.method),
              std::tie(plan.order, plan.peak, plan.cost, plan.feasible, plan.method));
    EXPECT_EQ(plan2.binding, plan.binding);
    PlanFrontier frontier2 = llvm::cantFail(solvePlanFrontier(problem, all));
    ASSERT_EQ(frontier2.points.size(), frontier.points.size());
    for (size_t i = 0; i < frontier.points.size(); ++i)
      EXPECT_EQ(frontier2.points[i].order, frontier.points[i].order);
    EXPECT_EQ(frontier2.peakLowerBound, frontier.peakLowerBound);
    ArenaSolution layout2 = llvm::cantFail(solveArena(arena, cached));
    EXPECT_EQ(layout2.offsets, layout.offsets);
    EXPECT_EQ(layout2.lowerBound, layout.lowerBound);
  }
  for (const char *kind : {"plan", "frontier", "arena"}) {
    EXPECT_EQ(cache->getCounts()[kind].made, 1) << kind;
    EXPECT_EQ(cache->getCounts()[kind].found, 1) << kind;
  }
}

TEST_F(CacheTest, OtherQuestionsHaveOtherAnswers) {
  PlanProblem problem = makeTraining(20);
  PlanFrontierOptions options;
  options.cache = cache;
  options.iterations = 1000;
  auto solve = [&] { llvm::cantFail(solvePlanFrontier(problem, options)); };
  solve();
  ++options.iterations;
  solve();
  ++options.seed;
  solve();
  ++problem.ops[3].cost;
  solve();
  problem.ops[4].pinned = true;
  solve();
  problem.residents.push_back({5});
  solve();
  options.threads = 2; // for speed only
  solve();
  EXPECT_EQ(cache->getCounts()["frontier"].made, 6);
  EXPECT_EQ(cache->getCounts()["frontier"].found, 1);
}

/// Entries that are whole, and no solutions.
TEST_F(CacheTest, SolutionsAreJudgedBeforeTheyAreUsed) {
  PlanProblem problem = makeTraining(20);
  PlanFrontierOptions options;
  options.cache = cache;
  PlanFrontier frontier = llvm::cantFail(solvePlanFrontier(problem, options));
  Cache::Key key{"frontier", list("frontier").front()};
  std::string whole = *cache->find(key);
  auto expectAnew = [&](const std::string &answer, llvm::StringRef reason) {
    cache->store(key, answer);
    PlanFrontier again = llvm::cantFail(solvePlanFrontier(problem, options));
    ASSERT_EQ(again.points.size(), frontier.points.size());
    EXPECT_EQ(again.points.front().order, frontier.points.front().order);
    expectComplaint(reason);
    EXPECT_EQ(cache->find(key), whole);
  };
  expectAnew("", "is wrong (its fields are not those of a frontier); it is made anew");
  expectAnew(whole.substr(0, whole.size() - 8), "not those of a frontier");
  expectAnew(whole + std::string(8, '\0'), "not those of a frontier");
  expectAnew(std::string(whole.size(), '\x7f'), "not those of a frontier");
  // The first field of the first order is the number of the op that runs first.
  std::string changed = whole;
  changed[16] = 5;
  expectAnew(changed, "is wrong");
}
