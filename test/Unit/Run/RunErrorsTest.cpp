//===- RunErrorsTest.cpp - what memopt-run refuses ------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestSupport.h"
#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/checkpoint/Checkpoint.h"
#include <unistd.h>

using namespace memopt;
using namespace memopt::testing;
using nlohmann::json;

namespace {
struct BadUse {
  std::vector<std::string> options;
  const char *message;
};
} // namespace

static const BadUse badUses[] = {
    {{"--stpes=3"}, "option '--stpes' is unknown"},
    {{"--optimizer=sgd"}, "An option of memopt-compile comes too late"},
    {{"-o", "x"}, "option '-o' is unknown"},
    {{"--steps"}, "--steps needs a value: --steps=N"},
    {{"--steps=-1"}, "--steps: expected an integer of at least 0, found '-1'"},
    {{"--steps=3x"}, "found '3x'"},
    {{"--steps=99999999999999999999"}, "expected an integer"},
    {{"--steps=1", "--epochs=1"}, "give one"},
    {{"--quiet=yes"}, "--quiet takes no value"},
    {{"--rank-timeout=0"}, "--rank-timeout: expected a number above 0"},
    {{"--resme=a"}, "did you mean '--resume', which is '--load'?"},
    {{"--lr=nan"}, "--lr: expected a number"},
    {{"--lr-schedule=wave"}, "'wave' is unknown"},
    {{"--init=magic"}, "--init: expected 'random' or 'weights'"},
    {{"--save-every=2"}, "--save-every needs --save=DIR"},
    {{"--init=random", "--load=x"}, "give one"},
    {{"--mode=eval"}, "was compiled for mode 'train'"},
    {{"another.memopt"}, "there are two models"},
    {{"--report="}, "--report: expected a value"},
    {{"--load=/absent/checkpoint"}, "No such file"},
};

TEST(RunErrorsTest, BadUseIsNamed) {
  TemporaryFolder folder;
  std::string package = writePackage(folder, getTinyManifest());
  std::string data = "--data=" + writeBatches(folder, 2);
  for (const BadUse &bad : badUses) {
    std::vector<std::string> command = {MEMOPT_RUN, package, data};
    command.insert(command.end(), bad.options.begin(), bad.options.end());
    ProcessResult result = runProcess(command);
    EXPECT_EQ(result.exitCode, 1) << bad.message;
    expectMessage(result.errors, {"memopt-run: error: ", bad.message});
  }
  EXPECT_EQ(runProcess({MEMOPT_RUN}).exitCode, 1);
  ProcessResult help = runProcess({MEMOPT_RUN, "--help"});
  EXPECT_EQ(help.exitCode, 0);
  expectMessage(help.output, {"--check-memory", "Exit codes", "5 stopped by a signal"});
}

TEST(RunErrorsTest, MissingDataIsNamed) {
  TemporaryFolder folder;
  std::string package = writePackage(folder, getTinyManifest());
  expectMessage(runProcess({MEMOPT_RUN, package}).errors,
                {"the model takes input 'x'; give batches with --data=SOURCE"});
  float x[12] = {};
  ASSERT_TRUE(
      writeSafetensors(folder / "half.safetensors", {{"step0.x", DType::F32, {4, 3}, x}}).isOk());
  ProcessResult result =
      runProcess({MEMOPT_RUN, package, "--data=" + (folder / "half.safetensors")});
  EXPECT_EQ(result.exitCode, 1);
  expectMessage(result.errors, {"half.safetensors", "lacks 'step0.label'"});
}

TEST(RunErrorsTest, ALabelOutOfRangeNamesItsStep) {
  TemporaryFolder folder;
  std::string package = writePackage(folder, getTinyManifest());
  float x[12] = {};
  int64_t good[4] = {0, 1, 2, 3}, bad[4] = {0, 1, 2, 12};
  ASSERT_TRUE(writeSafetensors(folder / "bad.safetensors", {{"step0.x", DType::F32, {4, 3}, x},
                                                            {"step0.label", DType::I64, {4}, good},
                                                            {"step1.x", DType::F32, {4, 3}, x},
                                                            {"step1.label", DType::I64, {4}, bad}})
                  .isOk());
  ProcessResult result =
      runProcess({MEMOPT_RUN, package, "--data=" + (folder / "bad.safetensors")});
  EXPECT_EQ(result.exitCode, 1);
  expectMessage(result.errors, {"step 2: input 'label' holds 12 at index [3], expected 0 to 4 "
                                "(classes of net.loss)"});
}

TEST(RunErrorsTest, ALossThatIsNotFiniteNamesStepAndModuleAndKeepsTheCheckpoint) {
  TemporaryFolder folder;
  std::string package = writePackage(folder, getTinyManifest());
  std::string data = "--data=" + writeBatches(folder, 3), checkpoint = folder / "checkpoint";
  ASSERT_EQ(runProcess({MEMOPT_RUN, package, data, "--steps=2", "--save=" + checkpoint}).exitCode,
            0);
  std::string before = readFile(checkpoint + "/model.safetensors");
  // So large a rate makes the loss overflow after some steps; updates stay finite for one more.
  ProcessResult result = runProcess({MEMOPT_RUN, package, data, "--load=" + checkpoint,
                                     "--save=" + checkpoint, "--steps=100", "--lr=1e18"});
  EXPECT_EQ(result.exitCode, 4);
  expectMessage(result.errors, {"step ", "the loss is inf", "module 'net."});
  // The steps before it count, unless they have left numbers that are not finite.
  int64_t step = parseTrainingState(readFile(checkpoint + "/state.json"))->step;
  if (step == 2)
    EXPECT_EQ(readFile(checkpoint + "/model.safetensors"), before);
  else
    expectMessage(result.errors, {"; the checkpoint of step " + std::to_string(step) + " is in '"});
  result = runProcess({MEMOPT_RUN, package, data, "--steps=100", "--lr=1e18", "--stop-on-nan=off"});
  EXPECT_EQ(result.exitCode, 0) << result.errors;
}

TEST(RunErrorsTest, ADeviceThatIsNotThereIsAnEnvironmentError) {
  TemporaryFolder folder;
  ProcessResult result =
      runProcess({MEMOPT_RUN, writePackage(folder, getTinyManifest()), "--device=cuda"});
  EXPECT_EQ(result.exitCode, 3);
  expectMessage(result.errors, {"device 'cuda'", "--device=cpu"});
}

TEST(RunErrorsTest, AProgramThatLeavesItsArenaIsCaughtByAGuardPage) {
  TemporaryFolder folder;
  std::string package = writePackage(folder, getTinyManifest(), "TinyLeavesArena");
  ProcessResult result = runProcess(
      {MEMOPT_RUN, package, "--data=" + writeBatches(folder, 1), "--steps=1", "--check-memory"});
  EXPECT_EQ(result.exitCode, 1);
  expectMessage(result.errors,
                {"the program left its arena in instruction 'loss' of module 'net.loss'"});
}

TEST(RunErrorsTest, AReportThatCannotBeWrittenIsAnEnvironmentError) {
  TemporaryFolder folder;
  std::string package = writePackage(folder, getTinyManifest());
  std::string data = "--data=" + writeBatches(folder, 1);
  ProcessResult result =
      runProcess({MEMOPT_RUN, package, data, "--report=" + (folder / "absent/report.json")});
  EXPECT_EQ(result.exitCode, 3);
  expectMessage(result.errors, {"--report", "absent/report.json"});
}

TEST(RunErrorsTest, OutputsAreLookedAtBeforeTheFirstStep) {
  TemporaryFolder folder;
  std::string package = writePackage(folder, getTinyManifest());
  std::string data = "--data=" + writeBatches(folder, 1);
  for (const char *option : {"--report=", "--trace=", "--save-gradients=", "--log=", "--save="}) {
    std::string name = option == std::string("--log=") ? "absent/x.csv" : "absent/x";
    ProcessResult result = runProcess({MEMOPT_RUN, package, data, option + (folder / name)});
    EXPECT_EQ(result.exitCode, 3) << option;
    EXPECT_EQ(result.output, "") << option;
    expectMessage(result.errors, {name});
  }
  EXPECT_EQ(listFolder(folder.path)->size(), 2u);
}

/// A side output that fails costs no step: /dev/full can be opened, and takes nothing.
TEST(RunErrorsTest, AFullDiskUnderASideOutputLeavesTheCheckpoint) {
  TemporaryFolder folder;
  std::string package = writePackage(folder, getTinyManifest());
  std::string data = "--data=" + writeBatches(folder, 1);
  for (const char *option : {"--report=", "--trace=", "--save-gradients=", "--log="}) {
    std::string path = folder / "full.csv", saved = folder / ("saved" + std::string(option));
    if (!fileExists(path))
      ASSERT_EQ(::symlink("/dev/full", path.c_str()), 0);
    ProcessResult result =
        runProcess({MEMOPT_RUN, package, data, "--steps=5", "--save=" + saved, option + path});
    EXPECT_EQ(result.exitCode, 3) << option;
    expectMessage(result.errors, {"No space left", "; the checkpoint of step 5 is in '" + saved});
    EXPECT_EQ(parseTrainingState(readFile(saved + "/state.json"))->step, 5) << option;
  }
}

TEST(RunErrorsTest, TheStepsBeforeABadSampleAreSaved) {
  TemporaryFolder folder;
  std::string package = writePackage(folder, getTinyManifest()), saved = folder / "saved";
  float x[12] = {};
  int64_t good[4] = {0, 1, 2, 3}, bad[4] = {0, 1, 2, 12};
  std::vector<TensorToWrite> batches;
  for (int i = 0; i < 4; ++i) {
    std::string front = "step" + std::to_string(i);
    batches.push_back({front + ".x", DType::F32, {4, 3}, x});
    batches.push_back({front + ".label", DType::I64, {4}, i == 3 ? bad : good});
  }
  ASSERT_TRUE(writeSafetensors(folder / "bad.safetensors", batches).isOk());
  ProcessResult result = runProcess(
      {MEMOPT_RUN, package, "--data=" + (folder / "bad.safetensors"), "--save=" + saved});
  EXPECT_EQ(result.exitCode, 1);
  expectMessage(result.errors, {"step 4: input 'label' holds 12",
                                "; the checkpoint of step 3 is in '" + saved + "'"});
  EXPECT_EQ(parseTrainingState(readFile(saved + "/state.json"))->step, 3);
}
