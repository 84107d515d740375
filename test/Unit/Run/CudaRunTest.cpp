//===- CudaRunTest.cpp - whole runs of memopt-run on a GPU ----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Skipped where the device is not the emulator: test/emulator/sessions.test runs them on it.
//
//===----------------------------------------------------------------------===//

#include "TestSupport.h"
#include "memopt-runtime/checkpoint/Checkpoint.h"

using namespace memopt;
using namespace memopt::testing;
using nlohmann::json;

namespace {
class CudaRunTest : public ::testing::Test {
protected:
  void SetUp() override {
    std::string description = folder / "device.json";
    ProcessResult result =
        runProcess({MEMOPT_RUN, "--device=cuda", "--describe-device=" + description});
    if (result.exitCode != 0)
      GTEST_SKIP() << result.errors;
    if (json::parse(readFile(description))["image"] != "bitcode")
      GTEST_SKIP() << "the kernels of these tests are LLVM IR";
    package = writeCudaPackage(folder, forCuda(getTinyManifest()));
    batches = writeBatches(folder, 7);
  }

  ProcessResult run(std::vector<std::string> options, const std::string &environment = "") {
    options.insert(options.begin(), {MEMOPT_RUN, package, "--data=" + batches, "--device=cuda"});
    ProcessOptions process;
    process.environment = environment;
    return runProcess(options, process);
  }

  TemporaryFolder folder;
  std::string package, batches;
};
} // namespace

TEST_F(CudaRunTest, ARunHasTheLossesOfTheCpuAndUsesWhatIsPredicted) {
  TemporaryFolder onCpu;
  std::string cpu = folder / "cpu.json", gpu = folder / "gpu.json";
  ASSERT_EQ(runProcess({MEMOPT_RUN, writePackage(onCpu, getTinyManifest()), "--data=" + batches,
                        "--steps=5", "--report=" + cpu, "--save-gradients=" + (folder / "c")})
                .exitCode,
            0);
  ProcessResult result = run({"--steps=5", "--check-memory", "--report=" + gpu,
                              "--save-gradients=" + (folder / "g"), "--save=" + (folder / "s")});
  ASSERT_EQ(result.exitCode, 0) << result.errors;
  json told = json::parse(readFile(gpu));
  EXPECT_EQ(told["losses"], json::parse(readFile(cpu))["losses"]);
  EXPECT_EQ(told["predicted_peak_bytes"], forCuda(getTinyManifest())["predicted_peak_bytes"]);
  EXPECT_EQ(told["used_peak_bytes"], told["predicted_peak_bytes"]);
  EXPECT_EQ(told["hot_path_allocations"], 0);
  EXPECT_EQ(readFile(folder / "g"), readFile(folder / "c"));
  // And it goes on from where it was.
  ASSERT_EQ(run({"--steps=2", "--load=" + (folder / "s"), "--save=" + (folder / "s")}).exitCode, 0);
  EXPECT_EQ(parseTrainingState(readFile(folder / "s/state.json"))->step, 7);
}

TEST_F(CudaRunTest, StepsAreReplayedFromGraphsUnlessTheyCannotBe) {
  std::string with = folder / "with.json", without = folder / "without.json";
  ProcessResult result = run({"--steps=5", "--check-memory", "--report=" + with});
  ASSERT_EQ(result.exitCode, 0) << result.errors;
  expectMessage(result.output, {"device memory beside the arena: context ", ", graphs "});
  json told = json::parse(readFile(with));
  EXPECT_EQ(told["device_overhead_bytes"]["steps"], 0);
  EXPECT_GT(told["device_overhead_bytes"]["graphs"], 0);
  // A graph that cannot be launched is a failure, and is none where there are no graphs.
  const std::string noLaunch = "MEMOPT_EMULATOR_FAULTS=cuGraphLaunch:3=719";
  result = run({"--steps=5"}, noLaunch);
  EXPECT_EQ(result.exitCode, 3);
  expectMessage(result.errors, {"step 2: the step: cuGraphLaunch: "});
  result = run({"--steps=5", "--cuda-graph=off", "--report=" + without}, noLaunch);
  ASSERT_EQ(result.exitCode, 0) << result.errors;
  EXPECT_EQ(json::parse(readFile(without))["losses"], told["losses"]);
  EXPECT_EQ(json::parse(readFile(without))["device_overhead_bytes"]["graphs"], 0);
  // What cannot be captured is run by the program, and said.
  result = run({"--steps=5", "--report=" + without},
               "MEMOPT_EMULATOR_FAULTS=cuGraphInstantiateWithFlags:2=2");
  ASSERT_EQ(result.exitCode, 0) << result.errors;
  expectMessage(
      result.errors,
      {"note: steps are not replayed from a graph: cuGraphInstantiateWithFlags: out of memory"});
  EXPECT_EQ(json::parse(readFile(without))["losses"], told["losses"]);
}

TEST_F(CudaRunTest, ADeviceThatIsLostLeavesTheLastCheckpointWhole) {
  std::string checkpoint = folder / "checkpoint";
  // Six kernels a step: the twentieth is in the fourth.
  ProcessResult result = run({"--steps=9", "--save=" + checkpoint, "--save-every=1"},
                             "MEMOPT_EMULATOR_FAULTS=kernel:20=719");
  EXPECT_EQ(result.exitCode, 3);
  expectMessage(result.errors, {"step 4: instruction 1 'loss' (loss) of module 'net.loss'",
                                "CUDA_ERROR_LAUNCH_FAILED"});
  EXPECT_EQ(parseTrainingState(readFile(checkpoint + "/state.json"))->step, 3);
  EXPECT_EQ(run({"--steps=1", "--load=" + checkpoint}).exitCode, 0);
}

TEST_F(CudaRunTest, WhatTheMachineLacksEndsWithThree) {
  ProcessResult result = run({"--steps=1"}, "MEMOPT_EMULATOR_FAULTS=cuInit:1=100");
  EXPECT_EQ(result.exitCode, 3);
  expectMessage(result.errors, {"device 'cuda': cuInit: no CUDA-capable device is detected"});
  result = run({"--steps=1"}, "MEMOPT_EMULATOR_FAULTS=cuMemCreate:1=2");
  EXPECT_EQ(result.exitCode, 3);
  expectMessage(result.errors,
                {"device memory: an arena of 1376 bytes: cuMemCreate: out of memory"});
  json manifest = forCuda(getTinyManifest());
  manifest["target"]["chip"] = "sm_100";
  writeCudaPackage(folder, manifest);
  result = run({"--steps=1"});
  EXPECT_EQ(result.exitCode, 3);
  expectMessage(result.errors, {"was compiled for chip 'sm_100', the device is 'sm_90'"});
}
