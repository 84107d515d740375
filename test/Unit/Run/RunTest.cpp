//===- RunTest.cpp - whole runs of memopt-run -----------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestSupport.h"
#include "memopt-runtime/checkpoint/Checkpoint.h"
#include <cmath>
#include <cstring>
#include <filesystem>
#include <sstream>
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

TEST_F(RunTest, AnOptionsValueMayFollowIt) {
  ProcessResult result = run({"--steps", "3", "--save", folder / "a", "--lr", "0.25"});
  ASSERT_EQ(result.exitCode, 0) << result.errors;
  ASSERT_EQ(run({"--steps=3", "--save=" + (folder / "b"), "--lr=0.25"}).exitCode, 0);
  expectSameCheckpoint("a", "b");
  EXPECT_NE(run({"--steps"}).errors.find("--steps needs a value: --steps=N"), std::string::npos);
  EXPECT_NE(run({"--stesp=3"}).errors.find("'--stesp' is unknown, did you mean '--steps'?"),
            std::string::npos);
}

TEST_F(RunTest, ALogGrowsWithEachStep) {
  std::string table = folder / "log.csv", lines = folder / "log.jsonl";
  ASSERT_EQ(run({"--steps=2", "--lr=0.5", "--log=" + table, "--save=" + (folder / "a")}).exitCode,
            0);
  // A run that goes on adds to it.
  ASSERT_EQ(run({"--steps=1", "--log=" + table, "--load=" + (folder / "a")}).exitCode, 0);
  std::istringstream text(readFile(table));
  std::string line;
  ASSERT_TRUE(std::getline(text, line));
  EXPECT_EQ(line, "step,epoch,loss,learning_rate,seconds,samples_per_second");
  for (int step = 1; step <= 3; ++step) {
    ASSERT_TRUE(std::getline(text, line));
    EXPECT_EQ(line.substr(0, 2), std::to_string(step) + ",");
    EXPECT_NE(line.find(",0.5,"), std::string::npos) << line;
  }
  EXPECT_FALSE(std::getline(text, line));

  std::string report = folder / "report.json";
  ASSERT_EQ(run({"--steps=7", "--log=" + lines, "--report=" + report}).exitCode, 0);
  json losses = json::parse(readFile(report))["losses"];
  text = std::istringstream(readFile(lines));
  for (size_t step = 0; step < 7; ++step) {
    ASSERT_TRUE(std::getline(text, line));
    json entry = json::parse(line);
    EXPECT_EQ(entry["step"], step + 1);
    EXPECT_EQ(entry["loss"], losses[step]);
    EXPECT_NEAR(entry["epoch"].get<double>(), double(step + 1) / 7, 1e-12);
  }
  EXPECT_NE(run({"--log=x.txt"}).errors.find("expected FILE.csv, FILE.jsonl or tensorboard:DIR"),
            std::string::npos);
}

/// The format is that of TensorFlow's record files: length, its checksum, content, its checksum.
TEST_F(RunTest, TensorBoardReadsTheLog) {
  ASSERT_EQ(run({"--steps=2", "--log=tensorboard:" + (folder / "board")}).exitCode, 0);
  std::string file;
  for (const auto &entry : std::filesystem::directory_iterator(folder / "board"))
    file = readFile(entry.path());
  std::vector<std::string> records;
  for (size_t at = 0; at + 12 <= file.size();) {
    uint64_t length;
    std::memcpy(&length, file.data() + at, sizeof length);
    ASSERT_LE(at + 16 + length, file.size());
    records.push_back(file.substr(at + 12, length));
    at += 16 + length;
  }
  ASSERT_EQ(records.size(), 3u);
  EXPECT_NE(records[0].find("brain.Event:2"), std::string::npos);
  EXPECT_NE(records[2].find("learning_rate"), std::string::npos);
  // CRC-32C of the eight bytes 24, 0, ..., 0, masked: the length of the first record.
  EXPECT_EQ(file.substr(0, 8), std::string("\x18\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(file.substr(8, 4), std::string("\xa3\x7f\x4b\x22", 4));
}

TEST_F(RunTest, OlderCheckpointsStay) {
  std::string path = folder / "kept";
  ASSERT_EQ(run({"--steps=5", "--save=" + path, "--save-every=1", "--keep=3"}).exitCode, 0);
  EXPECT_TRUE(std::filesystem::exists(path + "/step-4/state.json"));
  EXPECT_TRUE(std::filesystem::exists(path + "/step-3/state.json"));
  EXPECT_FALSE(std::filesystem::exists(path + "/step-2"));
  ASSERT_EQ(
      run({"--steps=2", "--load=" + path + "/step-3", "--save=" + (folder / "again")}).exitCode, 0);
  expectSameCheckpoint("kept", "again");
  // Later runs count on.
  ASSERT_EQ(
      run({"--steps=1", "--load=" + path, "--save=" + path, "--save-every=1", "--keep=2"}).exitCode,
      0);
  EXPECT_TRUE(std::filesystem::exists(path + "/step-5/state.json"));
  EXPECT_FALSE(std::filesystem::exists(path + "/step-4"));
  EXPECT_NE(run({"--keep=2"}).errors.find("--keep needs --save=DIR"), std::string::npos);
}

TEST_F(RunTest, ARunThatGoesBackKeepsItsOwnCheckpoints) {
  std::string path = folder / "kept", other = folder / "other";
  ASSERT_EQ(run({"--steps=5", "--save=" + path, "--save-every=1", "--keep=3"}).exitCode, 0);
  std::filesystem::copy(path + "/step-3", folder / "three");
  ASSERT_EQ(
      run({"--steps=2", "--lr=9", "--load=" + (folder / "three"), "--save=" + other}).exitCode, 0);
  ASSERT_EQ(run({"--steps=3", "--lr=9", "--load=" + path + "/step-3", "--save=" + path,
                 "--save-every=1", "--keep=2"})
                .exitCode,
            0);
  EXPECT_EQ(parseTrainingState(readFile(path + "/state.json"))->step, 6);
  expectSameCheckpoint("kept/step-5", "other");
  EXPECT_FALSE(std::filesystem::exists(path + "/step-4"));
  EXPECT_FALSE(std::filesystem::exists(path + "/step-3"));
}

TEST_F(RunTest, ALogThatIsGoneOnWithHasEachStepOnce) {
  std::string path = folder / "kept";
  for (const std::string &log : {folder / "log.csv", folder / "log.jsonl"}) {
    ASSERT_EQ(
        run({"--steps=5", "--save=" + path, "--save-every=1", "--keep=3", "--log=" + log}).exitCode,
        0);
    std::string whole = readFile(log);
    // A line that a kill has cut off goes, too.
    writeFile(log, whole + whole.substr(whole.rfind('\n', whole.size() - 2) + 1, 9));
    ASSERT_EQ(run({"--steps=2", "--load=" + path + "/step-3", "--log=" + log}).exitCode, 0);
    std::string steps, line;
    for (std::istringstream text(readFile(log)); std::getline(text, line);)
      if (size_t digit = line.find_first_of("0123456789"); digit <= 8 && line[0] != 's')
        steps += line.substr(digit, 1);
    EXPECT_EQ(steps, "12345") << readFile(log);
  }
}

TEST_F(RunTest, NamesMayBeThoseOfTheModel) {
  std::string path = folder / "named";
  ASSERT_EQ(run({"--steps=3", "--save=" + path, "--names=model"}).exitCode, 0);
  ASSERT_EQ(run({"--steps=3", "--save=" + (folder / "plain")}).exitCode, 0);
  auto file = SafetensorsFile::open(path + "/model.safetensors");
  ASSERT_TRUE(file.isOk()) << file.getMessage();
  EXPECT_TRUE(file->find("fc.weight"));
  EXPECT_FALSE(file->find("net.fc.weight"));
  for (const std::string &from : {std::string("named"), std::string("plain")})
    ASSERT_EQ(run({"--steps=2", "--load=" + (folder / from), "--save=" + (folder / from + "-on")})
                  .exitCode,
              0);
  expectSameCheckpoint("named-on", "plain-on");
}

TEST_F(RunTest, AStateDictBeginsARun) {
  ASSERT_EQ(run({"--steps=3", "--save=" + (folder / "first"), "--names=model"}).exitCode, 0);
  std::string weights = folder / "first/model.safetensors";
  std::string report = folder / "report.json";
  ASSERT_EQ(run({"--steps=1", "--lr=0", "--weights=" + weights, "--save=" + (folder / "second")})
                .exitCode,
            0);
  auto before = SafetensorsFile::map(weights);
  auto after = SafetensorsFile::map(folder / "second/model.safetensors");
  const SafetensorsEntry *a = before->find("fc.weight"), *b = after->find("net.fc.weight");
  ASSERT_TRUE(a && b);
  EXPECT_EQ(std::memcmp(before->getData(*a), after->getData(*b),
                        TINY_CLASSES * TINY_FEATURES * sizeof(float)),
            0);
  // Only the model's variables come from it: the run begins at step 1.
  EXPECT_EQ(json::parse(readFile(folder / "second/state.json"))["step"], 1);
  ProcessResult wrong = run({"--weights=" + batches});
  EXPECT_EQ(wrong.exitCode, 1);
  EXPECT_NE(wrong.errors.find("lacks 'net.fc.weight'"), std::string::npos) << wrong.errors;
  EXPECT_NE(run({"--weights=" + weights, "--init=random"})
                .errors.find("--weights and --init=random both give first values"),
            std::string::npos);
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
  EXPECT_EQ(result.exitCode, 5);
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
  expectMessage(result.errors, {"training goes on, and it is tried again behind step 5"});
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

TEST_F(RunTest, TrainingEvaluatesNowAndThen) {
  TemporaryFolder other;
  std::string evaluation = writePackage(other, getEvalManifest(), "TinyEval");
  writeFile(folder / "images", makeIdx({5, 2, 2}, std::string(20, '\x07')));
  writeFile(folder / "labels", makeIdx({5}, std::string("\0\1\2\3\1", 5)));
  std::string data = "--eval-data=idx:" + (folder / "images") + "," + (folder / "labels");
  std::string report = folder / "report.json", log = folder / "log.jsonl";
  ProcessResult result =
      run({"--steps=5", "--eval-every=2", data, "--eval-package=" + evaluation,
           "--report=" + report, "--log=" + log, "--save=" + (folder / "saved"), "--save-best"});
  ASSERT_EQ(result.exitCode, 0) << result.errors;
  json told = json::parse(readFile(report))["evaluations"];
  ASSERT_EQ(told.size(), 3u); // the last at the end
  EXPECT_EQ(told[0]["step"], 2);
  EXPECT_EQ(told[2]["step"], 5);
  EXPECT_EQ(told[0]["samples"], 5);
  EXPECT_NEAR(told[0]["outputs"]["loss"].get<double>(), 1.4, 1e-6);
  EXPECT_NE(readFile(log).find("\"evaluation\""), std::string::npos);
  EXPECT_NE(result.errors.find("evaluation after step 4: accuracy"), std::string::npos);
  // The loss never gets smaller than at first.
  EXPECT_EQ(json::parse(readFile(folder / "saved/best/state.json"))["step"], 2);
  EXPECT_EQ(json::parse(readFile(folder / "saved/state.json"))["step"], 5);
  result = run({"--steps=50", "--eval-every=1", data, "--eval-package=" + evaluation,
                "--report=" + report, "--patience=3"});
  EXPECT_EQ(json::parse(readFile(report))["losses"].size(), 4u) << result.errors;
  EXPECT_NE(result.errors.find("3 evaluations without a smaller loss"), std::string::npos);
  // A step that is due, the best and the last is saved once: nothing older is kept beside it.
  result = run({"--steps=1", "--save-every=1", "--eval-every=1", data, "--keep=3",
                "--eval-package=" + evaluation, "--save=" + (folder / "once"), "--save-best"});
  ASSERT_EQ(result.exitCode, 0) << result.errors;
  EXPECT_TRUE(isFolder(folder / "once/best"));
  EXPECT_FALSE(isFolder(folder / "once/step-1"));
}

TEST_F(RunTest, EvaluationsThatCannotBeAreRefused) {
  auto expectRefused = [&](const std::vector<std::string> &options, const std::string &message) {
    ProcessResult result = run(options);
    EXPECT_EQ(result.exitCode, 1);
    EXPECT_NE(result.errors.find(message), std::string::npos) << result.errors;
  };
  expectRefused({"--patience=2"}, "--patience needs --eval-data=SOURCE");
  expectRefused({"--eval-data=x.safetensors", "--eval-package=" + package},
                "is compiled with --mode=eval");
  expectRefused({"--eval-every=2"}, "--eval-every needs --eval-data=SOURCE");
  expectRefused({"--eval-data=x.safetensors", "--eval-package=p", "--save-best"},
                "--save-best needs --save=DIR");
}

TEST_F(RunTest, AModelIsCompiledByTheCompilerBeside) {
  std::string tool = installBesideCompiler(folder, "echo \"$@\" > " + (folder / "arguments") +
                                                       "\ncp -rT " + package + " \"$3\"\n");
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
  ProcessResult kept =
      runProcess({tool, model, "--data=" + batches, "--steps=1", "-o", folder / "kept"});
  ASSERT_EQ(kept.exitCode, 0) << kept.errors;
  EXPECT_TRUE(isFolder(folder / "kept"));
}

TEST_F(RunTest, WhatHasNotChangedIsNotCompiledAgain) {
  std::string tool = installBesideCompiler(folder, "echo x >> " + (folder / "calls") + "\ncp -rT " +
                                                       package + " \"$3\"\n");
  std::string model = folder / "model.pt2";
  writeFile(model, "one");
  auto countCalls = [&](std::vector<std::string> options) {
    options.insert(options.begin(),
                   {tool, model, "--data=" + batches, "--steps=1", "-o", folder / "kept.memopt"});
    ProcessResult result = runProcess(options);
    EXPECT_EQ(result.exitCode, 0) << result.errors;
    return readFile(folder / "calls").size() / 2;
  };
  EXPECT_EQ(countCalls({}), 1u);
  EXPECT_EQ(countCalls({"--quiet"}), 1u);
  EXPECT_EQ(countCalls({"--momentum=0.9"}), 2u);
  EXPECT_EQ(countCalls({"--momentum=0.9"}), 2u);
  writeFile(model, "another");
  EXPECT_EQ(countCalls({"--momentum=0.9"}), 3u);
  std::filesystem::remove(folder / "kept.memopt/manifest.json"); // a compilation that was killed
  EXPECT_EQ(countCalls({"--momentum=0.9"}), 4u);
}

TEST_F(RunTest, DataIsLookedForBeforeAModelIsCompiled) {
  std::string tool = installBesideCompiler(folder, "touch " + (folder / "called") + "\nexit 1\n");
  writeFile(folder / "broken.safetensors", "not tensors");
  for (const char *option : {"--data=", "--eval-data=", "--weights="})
    for (const char *name : {"absent.safetensors", "broken.safetensors"}) {
      ProcessResult result = runProcess({tool, folder / "model.pt2", option + (folder / name)});
      EXPECT_EQ(result.exitCode, 1);
      expectMessage(result.errors, {std::string(option, std::strlen(option) - 1) + ": ", name});
    }
  expectMessage(runProcess({tool, folder / "model.pt2", "--load=" + (folder / "gone")}).errors,
                {"--load: ", "gone"});
  EXPECT_FALSE(std::filesystem::exists(folder / "called"));
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
