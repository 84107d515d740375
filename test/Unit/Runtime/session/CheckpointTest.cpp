//===- CheckpointTest.cpp - checkpoints stay whole ------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/checkpoint/Checkpoint.h"
#include "TestSupport.h"
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <limits>
#include <sys/stat.h>
#include <unistd.h>

using namespace memopt;
using namespace memopt::testing;

namespace {
class CheckpointTest : public ::testing::Test {
protected:
  void SetUp() override {
    package = writePackage(folder, getTinyManifest());
    session = openSession(package);
    ASSERT_TRUE(session);
    ASSERT_TRUE(session->initializeFromWeights([](const auto &) { return false; }).isOk());
    state.step = 12;
    state.dataPosition = 34;
    state.seed = 56;
    state.schedule.rate = 0.1 + 0.2; // not short in decimal
    state.schedule.kind = ScheduleKind::Cosine;
    state.optimizer = "sgd";
  }

  void save(const std::string &path) {
    auto target = CheckpointFolder::open(path);
    ASSERT_TRUE(target.isOk()) << target.getMessage();
    Status status = target->save(*session, state);
    ASSERT_TRUE(status.isOk()) << status.getMessage();
  }

  /// The step of a checkpoint that loads, or -1.
  int64_t loadedStep(const std::string &path) {
    auto loaded = loadCheckpoint(path, *session);
    EXPECT_TRUE(loaded.isOk()) << loaded.getMessage();
    return loaded.isOk() ? loaded->step : -1;
  }

  /// Expects everything that a step changes to come back.
  void expectSameVariables(Session &other) {
    for (const VariableSpec &variable : session->getManifest().variables)
      if (variable.role != "hyperparameter") {
        EXPECT_EQ(std::memcmp(session->getAddress(variable), other.getAddress(variable),
                              size_t(variable.bytes)),
                  0)
            << variable.name;
      }
  }

  TemporaryFolder folder;
  std::string package;
  std::unique_ptr<Session> session;
  TrainingState state;
};
} // namespace

TEST_F(CheckpointTest, WhatWasSavedIsLoaded) {
  for (const VariableSpec &variable : session->getManifest().variables)
    std::memset(session->getAddress(variable), 7, size_t(variable.bytes));
  std::string path = folder / "checkpoint/";
  save(path);
  auto other = openSession(package);
  auto read = loadCheckpoint(path, *other);
  ASSERT_TRUE(read.isOk()) << read.getMessage();
  EXPECT_EQ(read->step, 12);
  EXPECT_EQ(read->dataPosition, 34);
  EXPECT_EQ(read->seed, 56);
  EXPECT_EQ(read->optimizer, "sgd");
  EXPECT_EQ(read->schedule.rate, 0.1 + 0.2);
  EXPECT_EQ(read->schedule.kind, ScheduleKind::Cosine);
  expectSameVariables(*other);
  auto model = SafetensorsFile::open(path + "model.safetensors");
  ASSERT_TRUE(model.isOk());
  EXPECT_TRUE(model->find("net.fc.weight"));
  EXPECT_TRUE(model->find("net.tied.weight")); // tied names stand there too
  EXPECT_TRUE(model->find("net.counter"));
  EXPECT_EQ(model->entries().size(), 4u);
}

static const std::vector<std::string> plainFiles = {"model.safetensors", "optimizer.safetensors",
                                                    "state.json"};

TEST_F(CheckpointTest, SavingReplacesThreeFilesAndTouchesNoOther) {
  std::string path = folder / "checkpoint";
  save(path);
  EXPECT_EQ(*listFolder(path), plainFiles);
  writeFile(path + "/log.txt", "mine");
  state.step = 13;
  save(path);
  EXPECT_EQ(loadedStep(path), 13);
  EXPECT_EQ(readFile(path + "/log.txt"), "mine");
  EXPECT_EQ(listFolder(path)->size(), 4u);
  EXPECT_EQ(*listFolder(folder.path), (std::vector<std::string>{"checkpoint", "tiny.memopt"}));
}

TEST_F(CheckpointTest, TheFolderMayBeALinkOrTheCurrentOne) {
  std::string real = folder / "disk/checkpoint", link = folder / "link";
  std::filesystem::create_directories(real);
  std::filesystem::create_directory_symlink("disk/checkpoint", link);
  save(link);
  state.step = 13;
  save(link + "/");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(*listFolder(real), plainFiles);
  EXPECT_EQ(loadedStep(link), 13);
  // Other files may stand in the current folder: the shell has put the log there, say.
  std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::create_directory(folder / "here");
  std::filesystem::current_path(folder / "here");
  writeFile("log.txt", "mine");
  save(".");
  state.step = 14;
  save(".");
  EXPECT_EQ(loadedStep("."), 14);
  EXPECT_EQ(std::filesystem::current_path(), std::filesystem::canonical(folder / "here"));
  EXPECT_EQ(readFile("log.txt"), "mine");
  std::filesystem::current_path(before);
}

TEST_F(CheckpointTest, AWriterKilledAtAnyMomentLeavesAWholeCheckpoint) {
  std::string path = folder / "checkpoint", other = folder / "other";
  save(path);
  std::filesystem::copy(path, other);
  state.step = 99;
  save(other); // what the killed writer wanted to write
  // Not yet done: whatever it has written does not count.
  std::string saving = path + "/.saving-0123456789abcdef", saved = path + "/.saved";
  std::filesystem::create_directory(saving);
  writeFile(saving + "/model.safetensors", "half");
  EXPECT_EQ(loadedStep(path), 12);
  // Done: it counts wherever its files are by now.
  for (size_t moved = 0; moved <= plainFiles.size(); ++moved) {
    std::filesystem::create_directory(saved);
    for (size_t i = 0; i < plainFiles.size(); ++i)
      std::filesystem::copy_file(other + "/" + plainFiles[i],
                                 (i < moved ? path : saved) + "/" + plainFiles[i],
                                 std::filesystem::copy_options::overwrite_existing);
    EXPECT_EQ(loadedStep(path), 99) << moved;
    {
      auto next = CheckpointFolder::open(path);
      EXPECT_TRUE(next.isOk()) << next.getMessage();
    }
    EXPECT_EQ(*listFolder(path), plainFiles) << moved; // the leftovers are gone
    EXPECT_EQ(loadedStep(path), 99) << moved;
    state.step = 12;
    save(path); // and nothing stands in the way
    EXPECT_EQ(loadedStep(path), 12);
  }
}

TEST_F(CheckpointTest, AKillBeforeTheFirstSaveBlocksNothing) {
  std::string path = folder / "checkpoint";
  std::filesystem::create_directories(path + "/.saving-0123456789abcdef");
  writeFile(path + "/.saving-0123456789abcdef/model.safetensors", "half");
  writeFile(path + "/.lock", "123");
  expectMessage(loadCheckpoint(path, *session).getMessage(), {"state.json", "No such file"});
  save(path);
  EXPECT_EQ(*listFolder(path), plainFiles);
}

TEST_F(CheckpointTest, TwoRunsCannotSaveToOneFolder) {
  std::string path = folder / "checkpoint";
  {
    auto first = CheckpointFolder::open(path);
    ASSERT_TRUE(first.isOk());
    auto second = CheckpointFolder::open(path);
    EXPECT_EQ(second.getCode(), StatusCode::BadInput);
    expectMessage(second.getMessage(),
                  {"another run (process " + std::to_string(::getpid()) + ")"});
    ASSERT_TRUE(first->save(*session, state).isOk());
    EXPECT_EQ(loadedStep(path), 12); // reading is free
  }
  EXPECT_TRUE(CheckpointFolder::open(path).isOk());
}

TEST_F(CheckpointTest, AFolderForNothingGoesAgain) {
  {
    auto unused = CheckpointFolder::open(folder / "checkpoint");
    EXPECT_TRUE(unused.isOk());
  }
  EXPECT_FALSE(fileExists(folder / "checkpoint"));
}

TEST_F(CheckpointTest, FoldersThatAreNoCheckpointsAreLeftAlone) {
  auto messageFor = [](const std::string &path) {
    return CheckpointFolder::open(path).getMessage();
  };
  writeFile(folder / "thesis.txt", "years of work");
  expectMessage(messageFor(folder.path), {"no checkpoint", "new folder"});
  expectMessage(messageFor(folder / "thesis.txt"), {"not a folder"});
  EXPECT_EQ(CheckpointFolder::open(folder / "absent/checkpoint").getCode(),
            StatusCode::Environment);
  EXPECT_EQ(readFile(folder / "thesis.txt"), "years of work");
  // A model that somebody else saved is no checkpoint, not even in the current folder.
  std::filesystem::create_directory(folder / "pretrained");
  writeFile(folder / "pretrained/model.safetensors", "precious");
  std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder / "pretrained");
  expectMessage(messageFor("."), {"'model.safetensors' and no checkpoint"});
  writeFile("state.json", "{}");
  expectMessage(messageFor("."), {"state.json' is not that of a checkpoint"});
  std::filesystem::current_path(before);
  EXPECT_EQ(readFile(folder / "pretrained/model.safetensors"), "precious");
}

TEST_F(CheckpointTest, StateOfAnotherOptimizerIsRefused) {
  std::string path = folder / "checkpoint";
  save(path);
  nlohmann::json manifest = getTinyManifest();
  manifest["optimizer"]["name"] = "adamw";
  auto other = openSession(writePackage(folder, manifest));
  expectMessage(loadCheckpoint(path, *other).getMessage(),
                {"optimizer 'sgd', the package has 'adamw'", "--optimizer=sgd"});
  // By the same name, but without momentum: state would be dropped without a word.
  manifest = getTinyManifest();
  manifest["variables"].erase(manifest["variables"].begin() + 3, manifest["variables"].begin() + 5);
  other = openSession(writePackage(folder, manifest));
  expectMessage(loadCheckpoint(path, *other).getMessage(),
                {"has 'optimizer.momentum.net.fc.bias', which the package does not have"});
}

TEST_F(CheckpointTest, CheckpointsThatDoNotFitAreNamed) {
  std::string path = folder / "checkpoint";
  save(path);
  nlohmann::json manifest = getTinyManifest();
  manifest["variables"][0]["shape"] = {3, 5};
  auto other = openSession(writePackage(folder, manifest));
  expectMessage(loadCheckpoint(path, *other).getMessage(),
                {"model.safetensors", "'net.fc.weight' as f32[5, 3]", "as f32[3, 5]"});
  manifest = getTinyManifest();
  manifest["variables"][1]["names"] = {"net.head.bias"};
  other = openSession(writePackage(folder, manifest));
  expectMessage(loadCheckpoint(path, *other).getMessage(), {"lacks 'net.head.bias'", "f32[5]"});
  manifest = getTinyManifest();
  manifest["variables"].push_back(manifest["variables"][4]);
  manifest["variables"].back().update(
      {{"name", "optimizer.exp_avg.net.fc.bias"}, {"shape", {0}}, {"bytes", 0}});
  other = openSession(writePackage(folder, manifest));
  expectMessage(loadCheckpoint(path, *other).getMessage(),
                {"optimizer.safetensors", "lacks 'optimizer.exp_avg.net.fc.bias'"});
  expectMessage(loadCheckpoint(folder / "absent", *session).getMessage(), {"No such file"});
}

TEST_F(CheckpointTest, NarrowNumbersAreWidenedAndWideOnesNotRounded) {
  std::vector<float> weight(15, 1.5f);
  std::vector<uint16_t> bias(5, 0x4049); // 3.140625 in bf16
  std::vector<double> wide(5, 0.1);
  int64_t counter = 3;
  auto load = [&](DType type, const void *data) {
    std::string path = folder / "weights.safetensors";
    EXPECT_TRUE(writeSafetensors(path, {{"net.fc.weight", DType::F32, {5, 3}, weight.data()},
                                        {"net.fc.bias", type, {5}, data},
                                        {"net.counter", DType::I64, {}, &counter}})
                    .isOk());
    return loadWeights(path, *session);
  };
  Status status = load(DType::BF16, bias.data());
  ASSERT_TRUE(status.isOk()) << status.getMessage();
  const VariableSpec *variable = session->getManifest().findVariable("net.fc.bias");
  ASSERT_TRUE(variable);
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(readElement(DType::F32, session->getAddress(*variable), i), 3.140625);
  expectMessage(load(DType::F64, wide.data()).getMessage(),
                {"'net.fc.bias' as f64[5], the package has it as f32[5]"});
}

TEST_F(CheckpointTest, BuffersOutsideTheStateDictMayBeMissing) {
  std::string path = folder / "checkpoint";
  auto loadAs = [&](const char *restore, const char *name) {
    nlohmann::json manifest = getTinyManifest();
    manifest["variables"][1]["restore"] = restore;
    manifest["variables"][1]["names"] = {name};
    auto other = openSession(writePackage(folder, manifest));
    auto loaded = loadCheckpoint(path, *other);
    EXPECT_TRUE(loaded.isOk()) << loaded.getMessage();
    float second;
    std::memcpy(&second, other->getAddress(other->getManifest().variables[1]) + 4, 4);
    return second;
  };
  const VariableSpec &bias = session->getManifest().variables[1];
  const float saved[TINY_CLASSES] = {5, 6};
  std::memcpy(session->getAddress(bias), saved, sizeof saved);
  save(path);
  float packaged = 0.1f; // by writePackage
  EXPECT_EQ(loadAs("required", "net.fc.bias"), 6);
  EXPECT_EQ(loadAs("if_present", "net.fc.bias"), 6);
  EXPECT_EQ(loadAs("if_present", "net.ids"), packaged);
  EXPECT_EQ(loadAs("never", "net.fc.bias"), packaged); // compiled in: another value would be a lie
}

TEST_F(CheckpointTest, AStateThatLiesIsRefused) {
  std::string path = folder / "checkpoint";
  save(path);
  nlohmann::json good = nlohmann::json::parse(readFile(path + "/state.json"));
  auto messageFor = [&](const char *key, const nlohmann::json &value) {
    nlohmann::json changed = good;
    changed[key] = value;
    writeFile(path + "/state.json", changed.dump());
    return loadCheckpoint(path, *session).getMessage();
  };
  expectMessage(messageFor("version", 2), {"version 2, expected 'memopt-checkpoint' version 1"});
  expectMessage(messageFor("format", "x"), {"'x'"});
  expectMessage(messageFor("step", -1), {"'step' is -1, expected 0 to 9007199254740992"});
  expectMessage(messageFor("data_position", INT64_MAX), {"expected 0 to 9007199254740992"});
  expectMessage(messageFor("seed", uint64_t(1) << 63), {"below 2^63"});
  expectMessage(messageFor("step", "many"), {"'step' must be an integer"});
  expectMessage(messageFor("schedule", nlohmann::json::object()), {"'schedule' lacks 'kind'"});
  nlohmann::json schedule = good["schedule"];
  schedule["total_steps"] = INT64_MIN;
  expectMessage(messageFor("schedule", schedule), {"'total_steps' is -9223372036854775808"});
}

TEST_F(CheckpointTest, TheBestIsAFolderOfItsOwn) {
  std::string path = folder / "checkpoint", best = path + "/best";
  auto target = CheckpointFolder::open(path, {1, false, /*keepsBest=*/true});
  ASSERT_TRUE(target.isOk()) << target.getMessage();
  ASSERT_TRUE(target->save(*session, state).isOk());
  ASSERT_TRUE(target->keepBest().isOk());
  EXPECT_EQ(*listFolder(best), plainFiles);
  // Who writes into the newest file does not write into the best.
  std::string before = readFile(best + "/model.safetensors");
  int file = ::open((path + "/model.safetensors").c_str(), O_WRONLY | O_TRUNC);
  EXPECT_EQ(::write(file, "x", 1), 1);
  ::close(file);
  EXPECT_EQ(readFile(best + "/model.safetensors"), before);
  writeFile(best + "/notes.txt", "mine");
  state.step = 13;
  ASSERT_TRUE(target->save(*session, state).isOk());
  EXPECT_EQ(loadedStep(best), 12);
  ASSERT_TRUE(target->keepBest().isOk());
  EXPECT_EQ(loadedStep(best), 13);
  EXPECT_EQ(readFile(best + "/notes.txt"), "mine");
  EXPECT_EQ(listFolder(path)->size(), 5u); // with .lock
}

TEST_F(CheckpointTest, AForeignFolderInThePlaceOfTheBestIsRefused) {
  std::string path = folder / "checkpoint";
  save(path);
  std::filesystem::create_directory(path + "/best");
  writeFile(path + "/best/notes.txt", "mine");
  auto target = CheckpointFolder::open(path, {1, false, /*keepsBest=*/true});
  expectMessage(target.getMessage(), {"--save-best", "best", "'notes.txt' and no checkpoint"});
  EXPECT_EQ(readFile(path + "/best/notes.txt"), "mine");
  EXPECT_TRUE(CheckpointFolder::open(path).isOk());
}

TEST_F(CheckpointTest, AKillWhileOlderFilesAreKeptLosesNeither) {
  std::string path = folder / "checkpoint", other = folder / "other", keeping = path + "/.keeping";
  for (size_t moved = 0; moved <= plainFiles.size(); ++moved) {
    std::filesystem::remove_all(path);
    std::filesystem::remove_all(other);
    state.step = 12;
    save(path);
    state.step = 13;
    save(other);
    std::filesystem::rename(other, path + "/.saved");
    std::filesystem::create_directory(keeping);
    for (size_t i = 0; i < moved; ++i)
      std::filesystem::rename(path + "/" + plainFiles[i], keeping + "/" + plainFiles[i]);
    EXPECT_EQ(loadedStep(path), 13) << moved;
    EXPECT_TRUE(CheckpointFolder::open(path).isOk());
    EXPECT_EQ(loadedStep(path), 13) << moved;
    EXPECT_EQ(loadedStep(path + "/step-12"), 12) << moved;
    EXPECT_EQ(listFolder(path)->size(), 4u) << moved;
  }
}

TEST_F(CheckpointTest, PointerFilesLeadToFolders) {
  std::string path = folder / "checkpoint";
  save(path + "-7");
  std::filesystem::create_directory(path);
  std::filesystem::rename(path + "-7", path + "/step-7");
  writeFile(path + "/best", "step-7\n");
  EXPECT_EQ(loadedStep(path + "/best"), 12);
  writeFile(path + "/latest", "best");
  EXPECT_EQ(loadedStep(path), 12);
  for (const char *bad : {"../step-7", "/etc", "", "..", "a\nb"}) {
    writeFile(path + "/best", bad);
    expectMessage(loadCheckpoint(path + "/best", *session).getMessage(),
                  {"no checkpoint: expected a folder"});
  }
  writeFile(path + "/best", "latest");
  expectMessage(loadCheckpoint(path, *session).getMessage(), {"lead in a circle"});
}

TEST_F(CheckpointTest, TheStateAloneMayChange) {
  std::string path = folder / "checkpoint";
  auto target = CheckpointFolder::open(path);
  ASSERT_TRUE(target->save(*session, state).isOk());
  std::string model = readFile(path + "/model.safetensors");
  EXPECT_EQ(readFile(path + "/state.json").find("evaluation"), std::string::npos);
  EXPECT_TRUE(state.best.note(0.5, 12));
  EXPECT_FALSE(state.best.note(std::numeric_limits<double>::quiet_NaN(), 13));
  EXPECT_FALSE(state.best.note(0.5, 14));
  EXPECT_FALSE(state.best.note(std::nullopt, 15));
  ASSERT_TRUE(target->updateState(state).isOk());
  auto read = parseTrainingState(readFile(path + "/state.json"));
  ASSERT_TRUE(read.isOk()) << read.getMessage();
  EXPECT_EQ(read->best.loss, 0.5);
  EXPECT_EQ(read->best.step, 12);
  EXPECT_EQ(read->best.worse, 3);
  EXPECT_EQ(readFile(path + "/model.safetensors"), model);
  EXPECT_EQ(listFolder(path)->size(), 4u);
}

TEST_F(CheckpointTest, NumbersThatWereSetStay) {
  EXPECT_EQ(printTrainingState(state).find("numbers"), std::string::npos);
  state.numbers = {{"hyperparameter.beta1", 0.1}, {"lr.1", 1e-3}};
  std::string text = printTrainingState(state);
  auto read = parseTrainingState(text);
  ASSERT_TRUE(read.isOk()) << read.getMessage();
  EXPECT_EQ(read->numbers, state.numbers);
  text.replace(text.find("0.001"), 5, "\"no\"");
  expectMessage(parseTrainingState(text).getMessage(), {"numbers.lr.1", "number"});
}

TEST_F(CheckpointTest, NobodyElseMayHoldTheLock) {
  std::string path = folder / "checkpoint";
  auto target = CheckpointFolder::open(path);
  struct stat facts{};
  ASSERT_EQ(::stat((path + "/.lock").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
}
