//===- RunTest.cpp - whole runs of memopt-run -----------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestSupport.h"
#include "memopt-runtime/Checkpoint.h"
#include <cmath>
#include <filesystem>
#include <sys/resource.h>
#include <sys/stat.h>

using namespace memopt;
using namespace memopt::testing;
using nlohmann::json;

namespace {
class RunTest : public ::testing::Test {
protected:
  void SetUp() override {
    package = writePackage(folder, getTinyManifest());
    batches = writeBatches(folder, 7);
  }

  /// Runs the package on the batches.
  ProcessResult run(std::vector<std::string> options, const ProcessOptions &process = {}) {
    options.insert(options.begin(), {MEMOPT_RUN, package, "--data=" + batches});
    return runProcess(options, process);
  }

  void expectSameCheckpoint(const std::string &a, const std::string &b) {
    for (const char *name : {"/model.safetensors", "/optimizer.safetensors"})
      EXPECT_EQ(readFile(folder / a + name), readFile(folder / b + name)) << name;
  }

  TemporaryFolder folder;
  std::string package, batches;
};
} // namespace

TEST_F(RunTest, TheReportSaysWhatHappened) {
  std::string report = folder / "report.json";
  ProcessResult result = run({"--steps=5", "--check-memory", "--report=" + report});
  ASSERT_EQ(result.exitCode, 0) << result.errors;
  json told = json::parse(readFile(report));
  EXPECT_EQ(told["format"], "memopt-run-report");
  EXPECT_EQ(told["version"], 1);
  EXPECT_EQ(told["losses"].size(), 5u);
  EXPECT_EQ(told["step_seconds"].size(), 5u);
  EXPECT_EQ(told["compile_seconds"], 0.0);
  EXPECT_EQ(told["predicted_peak_bytes"], (json{{"device", TINY_ARENA}, {"host", 0}, {"disk", 0}}));
  EXPECT_EQ(told["used_peak_bytes"], told["predicted_peak_bytes"]);
  EXPECT_EQ(told["hot_path_allocations"], 0);
  EXPECT_GT(told["overhead_bytes"]["host"], 0);
  EXPECT_NE(result.output.find("step 5/5  loss "), std::string::npos) << result.output;
  EXPECT_EQ(run({"--steps=1", "--report=" + report}).exitCode, 0);
  EXPECT_FALSE(json::parse(readFile(report)).contains("used_peak_bytes"));
}

TEST_F(RunTest, TwoRunsGiveTheSameBitsOnAnyNumberOfThreads) {
  ASSERT_EQ(run({"--steps=6", "--save=" + (folder / "a")}).exitCode, 0);
  ProcessOptions oneThread;
  oneThread.environment = "OMP_NUM_THREADS=1";
  ASSERT_EQ(run({"--steps=6", "--save=" + (folder / "b")}, oneThread).exitCode, 0);
  expectSameCheckpoint("a", "b");
}

TEST_F(RunTest, AResumedRunGivesTheSameBitsAsOneThatNeverStopped) {
  std::vector<std::string> schedule = {"--lr=0.2", "--lr-schedule=cosine", "--warmup-steps=2",
                                       "--schedule-steps=10", "--seed=3"};
  auto with = [&](std::vector<std::string> options) {
    options.insert(options.end(), schedule.begin(), schedule.end());
    return options;
  };
  ASSERT_EQ(run(with({"--steps=10", "--save=" + (folder / "whole")})).exitCode, 0);
  ASSERT_EQ(run(with({"--steps=4", "--save=" + (folder / "half")})).exitCode, 0);
  // The rest is in the checkpoint: step, position in the data, seed and schedule.
  ProcessResult result =
      run({"--steps=6", "--load=" + (folder / "half"), "--save=" + (folder / "joined")});
  ASSERT_EQ(result.exitCode, 0) << result.errors;
  EXPECT_NE(result.output.find("step 5/10"), std::string::npos) << result.output;
  expectSameCheckpoint("whole", "joined");
  EXPECT_EQ(readFile(folder / "whole/state.json"), readFile(folder / "joined/state.json"));
  ASSERT_EQ(run({"--steps=10", "--seed=4", "--save=" + (folder / "other")}).exitCode, 0);
  EXPECT_NE(readFile(folder / "whole/model.safetensors"),
            readFile(folder / "other/model.safetensors"));
}

TEST_F(RunTest, GradientsOfTheFirstStepAreSaved) {
  std::string path = folder / "gradients.safetensors";
  ASSERT_EQ(run({"--steps=3", "--save-gradients=" + path}).exitCode, 0);
  auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.isOk()) << file.getMessage();
  ASSERT_TRUE(file->find("net.fc.weight"));
  EXPECT_EQ(file->find("net.fc.weight")->shape, (Shape{TINY_CLASSES, TINY_FEATURES}));
  std::string first = readFile(path);
  ASSERT_EQ(run({"--steps=1", "--save-gradients=" + path}).exitCode, 0);
  EXPECT_EQ(readFile(path), first);
}

TEST_F(RunTest, ATraceHasAnEventForEachInstruction) {
  std::string path = folder / "trace.json";
  ASSERT_EQ(run({"--steps=3", "--trace=" + path}).exitCode, 0);
  json trace = json::parse(readFile(path));
  int instructions = 0, counters = 0;
  for (const json &event : trace["traceEvents"]) {
    instructions += event["ph"] == "X";
    counters += event["ph"] == "C" && event["args"]["device"] == TINY_ARENA;
  }
  EXPECT_EQ(instructions, 3 * TINY_INSTRUCTIONS);
  EXPECT_EQ(counters, 3 * TINY_INSTRUCTIONS);
}

TEST_F(RunTest, AStepWithARepeatTakesItsBatchesOneAfterAnother) {
  writePackage(folder, getLoopManifest(), "TinyLoop");
  // Numbers 1 to 12 in batches of two: two steps of three batches, then again from the begin.
  std::vector<float> numbers;
  for (int i = 1; i <= 12; ++i)
    numbers.push_back(float(i));
  std::vector<TensorToWrite> tensors;
  for (int batch = 0; batch < 6; ++batch)
    tensors.push_back(
        {"step" + std::to_string(batch) + ".x", DType::F32, {2}, &numbers[2 * batch]});
  ASSERT_TRUE(writeSafetensors(folder / "numbers", tensors).isOk());
  std::string report = folder / "report.json", data = "--data=" + (folder / "numbers");
  ProcessResult result = runProcess({MEMOPT_RUN, package, data, "--steps=3", "--check-memory",
                                     "--report=" + report, "--save=" + (folder / "whole")});
  ASSERT_EQ(result.exitCode, 0) << result.errors;
  json told = json::parse(readFile(report));
  // Number times its place in the step: 1 * 1 + ... + 6 * 6, then 7 * 1 + ... + 12 * 6.
  EXPECT_EQ(told["losses"], (json{91.0, 217.0, 91.0}));
  EXPECT_EQ(told["used_peak_bytes"]["host"], 4);
  EXPECT_EQ(told["hot_path_allocations"], 0);
  EXPECT_EQ(parseTrainingState(readFile(folder / "whole/state.json"))->dataPosition, 9);
  // An epoch is as many steps as have all their batches.
  result = runProcess({MEMOPT_RUN, package, data, "--epochs=2", "--report=" + report});
  EXPECT_EQ(json::parse(readFile(report))["losses"].size(), 4u);
  ASSERT_EQ(
      runProcess({MEMOPT_RUN, package, data, "--steps=1", "--save=" + (folder / "half")}).exitCode,
      0);
  result = runProcess({MEMOPT_RUN, package, data, "--steps=2", "--load=" + (folder / "half"),
                       "--save=" + (folder / "joined")});
  ASSERT_EQ(result.exitCode, 0) << result.errors;
  expectSameCheckpoint("whole", "joined");
}

TEST_F(RunTest, HiddenAllocationsAreCountedAndAddedToWhatIsUsed) {
  writePackage(folder, getTinyManifest(), "TinyAllocates");
  std::string report = folder / "report.json";
  ASSERT_EQ(run({"--steps=3", "--check-memory", "--report=" + report}).exitCode, 0);
  json told = json::parse(readFile(report));
  EXPECT_EQ(told["hot_path_allocations"], 3);
  EXPECT_EQ(told["used_peak_bytes"]["device"], TINY_ARENA + 3 * 8192);
}

TEST_F(RunTest, OutputsGoWhereLinksAndDevicesLead) {
  const std::pair<const char *, const char *> outputs[] = {{"report", "memopt-run-report"},
                                                           {"trace", "traceEvents"},
                                                           {"save-gradients", "net.fc.weight"}};
  for (auto [name, content] : outputs) {
    std::string link = folder / name + ".link", option = "--" + std::string(name) + "=";
    std::filesystem::create_symlink(name, link);
    ProcessResult result = run({"--steps=1", option + link});
    ASSERT_EQ(result.exitCode, 0) << result.errors;
    EXPECT_TRUE(std::filesystem::is_symlink(link)) << name;
    expectMessage(readFile(folder / name), {content});
    // Standard output is a pipe here.
    result = run({"--steps=1", option + "/dev/stdout"});
    ASSERT_EQ(result.exitCode, 0) << result.errors;
    expectMessage(result.output, {"step 1/1", content, "memory: predicted"});
  }
}

TEST_F(RunTest, ASecondRunThatSavesToTheSameFolderIsRefusedAtOnce) {
  auto first = CheckpointFolder::open(folder / "checkpoint");
  ASSERT_TRUE(first.isOk());
  ProcessResult second = run({"--steps=1", "--save=" + (folder / "checkpoint")});
  EXPECT_EQ(second.exitCode, 1);
  EXPECT_EQ(second.output, "");
  expectMessage(second.errors, {"another run (process ", "saves to this folder"});
}

TEST_F(RunTest, CtrlCFinishesTheStepAndSaves) {
  ProcessOptions process;
  process.waitFor = "step 3/";
  std::string report = folder / "report.json";
  ProcessResult result =
      run({"--steps=100000000", "--save=" + (folder / "stopped"), "--report=" + report}, process);
  EXPECT_EQ(result.exitCode, 130);
  expectMessage(result.errors, {"stopped after step ", "the checkpoint is in"});
  auto state = parseTrainingState(readFile(folder / "stopped/state.json"));
  ASSERT_TRUE(state.isOk()) << state.getMessage();
  EXPECT_EQ(json::parse(readFile(report))["losses"].size(), size_t(state->step));
  // The checkpoint is that of a run that did just so many steps.
  ASSERT_EQ(
      run({"--steps=" + std::to_string(state->step), "--save=" + (folder / "straight")}).exitCode,
      0);
  expectSameCheckpoint("stopped", "straight");
}

TEST_F(RunTest, AFullDiskLeavesTheOldCheckpoint) {
  std::string checkpoint = folder / "checkpoint";
  ASSERT_EQ(run({"--steps=2", "--save=" + checkpoint}).exitCode, 0);
  std::string before = readFile(checkpoint + "/model.safetensors");
  ProcessOptions process;
  process.limits[RLIMIT_FSIZE] = 300; // less than the model's file takes
  ProcessResult result =
      run({"--steps=5", "--load=" + checkpoint, "--save=" + checkpoint, "--save-every=2"}, process);
  EXPECT_EQ(result.exitCode, 3);
  expectMessage(result.errors,
                {"saving checkpoint", "the one before is intact", "model.safetensors"});
  EXPECT_EQ(readFile(checkpoint + "/model.safetensors"), before);
  EXPECT_EQ(parseTrainingState(readFile(checkpoint + "/state.json"))->step, 2);
  EXPECT_EQ(listFolder(checkpoint)->size(), 3u);
}

TEST_F(RunTest, EvaluationAveragesOverEverySample) {
  writePackage(folder, getEvalManifest(), "TinyEval");
  // Ten 2 x 2 images, centred in 4 x 4: rows 1 and 2 hold pixels. Image i is bright in its second
  // row when i is odd, so the prediction is 1 + i % 2; the label is i % 4.
  std::string pixels, labels;
  for (int i = 0; i < 10; ++i) {
    pixels += i % 2 ? std::string("\x01\x01\xff\xff") : std::string("\xff\xff\x01\x01");
    labels += char(i % 4);
  }
  writeFile(folder / "images", makeIdx({10, 2, 2}, pixels));
  writeFile(folder / "labels", makeIdx({10}, labels));
  std::string report = folder / "report.json";
  ProcessResult result =
      runProcess({MEMOPT_RUN, package, "--mode=eval", "--report=" + report, "--check-memory",
                  "--data=idx:" + (folder / "images") + "," + (folder / "labels")});
  ASSERT_EQ(result.exitCode, 0) << result.errors;
  json told = json::parse(readFile(report));
  EXPECT_EQ(told["samples"], 10);
  // Predictions 1 2 1 2 1 2 1 2 1 2, labels 0 1 2 3 0 1 2 3 0 1: none is right.
  EXPECT_EQ(told["outputs"]["accuracy"], 0.0);
  // The mean label of all ten samples, two of which stand in a batch that is not full.
  EXPECT_NEAR(told["outputs"]["loss"].get<double>(), 1.3, 1e-6);
  expectMessage(result.output, {"accuracy 0 over 10 samples", "loss 1.3 over 10 samples"});
  for (char &label : labels)
    label = 1;
  writeFile(folder / "labels", makeIdx({10}, labels));
  result = runProcess({MEMOPT_RUN, package, "--report=" + report,
                       "--data=idx:" + (folder / "images") + "," + (folder / "labels")});
  EXPECT_EQ(json::parse(readFile(report))["outputs"]["accuracy"], 0.5);
}

//===----------------------------------------------------------------------===//
// Compiling first
//===----------------------------------------------------------------------===//

/// A copy of memopt-run beside a memopt-compile that is a shell script.
static std::string installBesideCompiler(const TemporaryFolder &folder, const std::string &script) {
  std::filesystem::create_directory(folder / "bin");
  std::string run = folder / "bin/memopt-run", compile = folder / "bin/memopt-compile";
  std::filesystem::copy_file(MEMOPT_RUN, run);
  if (!script.empty()) {
    writeFile(compile, "#!/bin/sh\n" + script);
    ::chmod(compile.c_str(), 0755);
  }
  return run;
}

TEST_F(RunTest, AModelIsCompiledByTheCompilerBeside) {
  std::string tool = installBesideCompiler(folder, "echo \"$@\" > " + (folder / "arguments") +
                                                       "\ncp -r " + package + " \"$3\"\n");
  std::string report = folder / "report.json", model = folder / "model.pt2";
  ProcessOptions process;
  process.environment = "TMPDIR=" + folder.path;
  ProcessResult result =
      runProcess({tool, model, "--data=" + batches, "--steps=2", "--optimizer=sgd", "--lr=0.5",
                  "--momentum=0.9", "--report=" + report},
                 process);
  ASSERT_EQ(result.exitCode, 0) << result.errors;
  EXPECT_GT(json::parse(readFile(report))["compile_seconds"], 0.0);
  std::string arguments = readFile(folder / "arguments");
  expectMessage(arguments, {model + " -o ", "--optimizer=sgd --momentum=0.9"});
  EXPECT_EQ(arguments.find("--steps"), std::string::npos);
  for (const std::string &name : *listFolder(folder.path))
    EXPECT_EQ(name.find("memopt-run-"), std::string::npos); // the package was a temporary one
  ASSERT_EQ(
      runProcess({tool, model, "--data=" + batches, "--steps=1", "-o", folder / "kept"}).exitCode,
      0);
  EXPECT_TRUE(isFolder(folder / "kept"));
}

TEST_F(RunTest, TheCompilersExitCodeIsForwarded) {
  std::string tool =
      installBesideCompiler(folder, "echo 'memopt-compile: error: too small' >&2\nexit 2\n");
  ProcessResult result = runProcess({tool, folder / "model.pt2", "--steps=2"});
  EXPECT_EQ(result.exitCode, 2);
  EXPECT_EQ(result.errors, "memopt-compile: error: too small\n");
}

TEST_F(RunTest, AMissingCompilerIsAnEnvironmentError) {
  std::string tool = installBesideCompiler(folder, "");
  ProcessResult result = runProcess({tool, folder / "model.pt2", "--steps=2"});
  EXPECT_EQ(result.exitCode, 3);
  expectMessage(result.errors, {"memopt-compile", "No such file"});
}
