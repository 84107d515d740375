//===- LaunchedRankTest.cpp - what launchers say of a process -------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/ranks/LaunchedRank.h"
#include "TestSupport.h"

using namespace memopt;
using namespace memopt::testing;

using Variables = std::map<std::string, std::string>;

static StatusOr<std::optional<LaunchedRank>> findIn(const Variables &variables) {
  return findLaunchedRank([&](const char *name) -> const char * {
    auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

static LaunchedRank expectRank(const Variables &variables) {
  auto found = findIn(variables);
  EXPECT_TRUE(found.isOk()) << found.getMessage();
  EXPECT_TRUE(found.isOk() && found->has_value());
  return found.isOk() && *found ? **found : LaunchedRank();
}

static void expectRefusal(const Variables &variables, StatusCode code,
                          const std::vector<std::string> &parts) {
  auto found = findIn(variables);
  EXPECT_EQ(found.getCode(), code);
  expectMessage(found.getMessage(), parts);
}

static const Variables torchrun = {{"RANK", "1"},
                                   {"WORLD_SIZE", "4"},
                                   {"LOCAL_RANK", "1"},
                                   {"LOCAL_WORLD_SIZE", "4"},
                                   {"MASTER_ADDR", "127.0.0.1"},
                                   {"MASTER_PORT", "29500"}};

static Variables with(Variables variables, const std::string &name, const std::string &value) {
  variables[name] = value;
  return variables;
}

static Variables without(Variables variables, const std::string &name) {
  variables.erase(name);
  return variables;
}

TEST(LaunchedRankTest, EachLauncherSaysWhichRankAProcessIs) {
  Variables openMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                       {"OMPI_COMM_WORLD_SIZE", "3"},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                       {"PMIX_NAMESPACE", "1751187457"}};
  Variables mpich = {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}};
  Variables slurm = {{"SLURM_PROCID", "5"},
                     {"SLURM_STEP_NUM_TASKS", "6"},
                     {"SLURM_STEP_TASKS_PER_NODE", "6"},
                     {"SLURM_JOB_ID", "17"},
                     {"SLURM_STEP_ID", "0"}};
  struct {
    Variables variables;
    std::string launcher;
    int64_t rank, ranks;
  } cases[] = {{torchrun, "torchrun", 1, 4},
               {openMpi, "mpirun", 2, 3},
               {mpich, "mpirun", 0, 2},
               {slurm, "srun", 5, 6}};
  for (const auto &expected : cases) {
    LaunchedRank found = expectRank(expected.variables);
    EXPECT_EQ(found.launcher, expected.launcher);
    EXPECT_EQ(found.rank, expected.rank);
    EXPECT_EQ(found.ranks, expected.ranks);
    EXPECT_FALSE(found.start.empty());
  }
}

TEST(LaunchedRankTest, AloneIsNoRank) {
  for (const Variables &variables :
       {Variables(), with(torchrun, "WORLD_SIZE", "1"), without(torchrun, "WORLD_SIZE"),
        without(torchrun, "RANK"),
        // A job's own script.
        Variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "17"}}}) {
    auto found = findIn(variables);
    EXPECT_TRUE(found.isOk() && !found->has_value()) << found.getMessage();
  }
}

TEST(LaunchedRankTest, RanksOfOneStartShareItsNameAndOthersDoNot) {
  std::string start = expectRank(torchrun).start;
  EXPECT_EQ(expectRank(with(torchrun, "RANK", "0")).start, start);
  EXPECT_NE(expectRank(with(torchrun, "MASTER_PORT", "29501")).start, start);
  // torchrun begins again after a failure, with the same port.
  EXPECT_NE(expectRank(with(torchrun, "TORCHELASTIC_RESTART_COUNT", "1")).start, start);
}

TEST(LaunchedRankTest, WhatIsNoRankIsRefused) {
  expectRefusal(with(torchrun, "RANK", "4"), StatusCode::BadInput,
                {"RANK should be an integer from 0 to 3, and is '4'"});
  expectRefusal(with(torchrun, "RANK", "one"), StatusCode::BadInput, {"and is 'one'"});
  expectRefusal(with(torchrun, "RANK", ""), StatusCode::BadInput, {"and is ''"});
  expectRefusal(with(torchrun, "WORLD_SIZE", "5000"), StatusCode::BadInput,
                {"WORLD_SIZE should be an integer from 1 to 4096, and is '5000'"});
  expectRefusal(without(torchrun, "MASTER_PORT"), StatusCode::BadInput,
                {"MASTER_PORT is not set, but WORLD_SIZE is: torchrun sets both"});
}

TEST(LaunchedRankTest, LaunchersSayThatThereAreSeveralHosts) {
  EXPECT_EQ(expectRank(torchrun).spread, "");
  LaunchedRank spread = expectRank(with(torchrun, "LOCAL_WORLD_SIZE", "2"));
  expectMessage(spread.spread,
                {"torchrun started 4 processes on several hosts (LOCAL_WORLD_SIZE is '2')"});
  EXPECT_FALSE(spread.startsMpi);
  LaunchedRank slurm = expectRank({{"SLURM_PROCID", "5"},
                                   {"SLURM_STEP_NUM_TASKS", "6"},
                                   {"SLURM_STEP_TASKS_PER_NODE", "2(x3)"},
                                   {"SLURM_JOB_ID", "17"},
                                   {"SLURM_STEP_ID", "0"}});
  EXPECT_EQ(slurm.rank, 5);
  expectMessage(slurm.spread, {"srun started 6 processes on several hosts",
                               "SLURM_STEP_TASKS_PER_NODE is '2(x3)'"});
  LaunchedRank mpich = expectRank({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "2"}});
  expectMessage(mpich.spread, {"mpirun started 4 processes on several hosts"});
}

/// Kubernetes, Ray and others set torchrun's variables but for this one, on any number of hosts.
TEST(LaunchedRankTest, WhereNobodySaysHowManyAreOnThisHostTheUserHasTo) {
  Variables pod = without(torchrun, "LOCAL_WORLD_SIZE");
  expectRefusal(pod, StatusCode::BadInput,
                {"RANK and WORLD_SIZE say that this process is one of 4", "set LOCAL_WORLD_SIZE",
                 "--transport=shared", "--launcher=none"});
  auto found = findLaunchedRank(
      [&](const char *name) -> const char * {
        auto variable = pod.find(name);
        return variable == pod.end() ? nullptr : variable->second.c_str();
      },
      /*isOneHost=*/true);
  ASSERT_TRUE(found.isOk()) << found.getMessage();
  EXPECT_EQ((*found)->rank, 1);
}
