//===- CheckpointTest.cpp - checkpoints stay whole ------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/Checkpoint.h"
#include "TestSupport.h"
#include <cstring>
#include <filesystem>

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
  ASSERT_TRUE(checkCheckpointTarget(path).isOk());
  Status status = saveCheckpoint(path, *session, state);
  ASSERT_TRUE(status.isOk()) << status.getMessage();
  auto read = readTrainingState(path);
  ASSERT_TRUE(read.isOk()) << read.getMessage();
  EXPECT_EQ(read->step, 12);
  EXPECT_EQ(read->dataPosition, 34);
  EXPECT_EQ(read->seed, 56);
  EXPECT_EQ(read->schedule.rate, 0.1 + 0.2);
  EXPECT_EQ(read->schedule.kind, ScheduleKind::Cosine);
  auto other = openSession(package);
  status = loadCheckpoint(path, *other);
  ASSERT_TRUE(status.isOk()) << status.getMessage();
  expectSameVariables(*other);
  auto model = SafetensorsFile::open(path + "model.safetensors");
  ASSERT_TRUE(model.isOk());
  EXPECT_TRUE(model->find("net.fc.weight"));
  EXPECT_TRUE(model->find("net.tied.weight")); // tied names stand there too
  EXPECT_TRUE(model->find("net.counter"));
  EXPECT_EQ(model->entries().size(), 4u);
}

TEST_F(CheckpointTest, SavingReplacesTheOldOneAndKeepsOtherFiles) {
  std::string path = folder / "checkpoint";
  ASSERT_TRUE(saveCheckpoint(path, *session, state).isOk());
  writeFile(path + "/log.txt", "mine");
  state.step = 13;
  ASSERT_TRUE(checkCheckpointTarget(path).isOk());
  Status status = saveCheckpoint(path, *session, state);
  ASSERT_TRUE(status.isOk()) << status.getMessage();
  EXPECT_EQ(readTrainingState(path)->step, 13);
  EXPECT_EQ(readFile(path + "/log.txt"), "mine");
  EXPECT_EQ(*listFolder(folder.path), (std::vector<std::string>{"checkpoint", "tiny.memopt"}));
}

TEST_F(CheckpointTest, AKilledWriterLeavesTheOldOne) {
  std::string path = folder / "checkpoint";
  ASSERT_TRUE(saveCheckpoint(path, *session, state).isOk());
  // What a kill in the middle leaves behind.
  std::filesystem::create_directory(path + ".writing");
  writeFile(path + ".writing/model.safetensors", "half");
  writeFile(path + ".writing/optimizer.safetensors.writing-123", "less");
  EXPECT_TRUE(loadCheckpoint(path, *session).isOk());
  state.step = 99;
  Status status = saveCheckpoint(path, *session, state);
  ASSERT_TRUE(status.isOk()) << status.getMessage();
  EXPECT_EQ(readTrainingState(path)->step, 99);
  // A kill between two renames, where folders cannot be exchanged.
  std::filesystem::rename(path, path + ".old");
  EXPECT_EQ(readTrainingState(path)->step, 99);
  EXPECT_TRUE(loadCheckpoint(path, *session).isOk());
}

TEST_F(CheckpointTest, FoldersThatAreNoCheckpointsAreLeftAlone) {
  writeFile(folder / "thesis.txt", "years of work");
  expectMessage(checkCheckpointTarget(folder.path).getMessage(), {"no checkpoint", "new folder"});
  expectMessage(checkCheckpointTarget(folder / "thesis.txt").getMessage(), {"not a folder"});
  Status status = checkCheckpointTarget(folder / "absent/checkpoint");
  EXPECT_EQ(status.getCode(), StatusCode::Environment);
  EXPECT_EQ(readFile(folder / "thesis.txt"), "years of work");
}

TEST_F(CheckpointTest, CheckpointsThatDoNotFitAreNamed) {
  std::string path = folder / "checkpoint";
  ASSERT_TRUE(saveCheckpoint(path, *session, state).isOk());
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
  manifest["variables"][3]["name"] = "optimizer.exp_avg.net.fc.weight";
  other = openSession(writePackage(folder, manifest));
  expectMessage(loadCheckpoint(path, *other).getMessage(),
                {"optimizer.safetensors", "lacks 'optimizer.exp_avg.net.fc.weight'"});
  expectMessage(loadCheckpoint(folder / "absent", *session).getMessage(), {"No such file"});
}

TEST_F(CheckpointTest, BuffersOutsideTheStateDictMayBeMissing) {
  std::string path = folder / "checkpoint";
  auto loadAs = [&](const char *restore, const char *name) {
    nlohmann::json manifest = getTinyManifest();
    manifest["variables"][1]["restore"] = restore;
    manifest["variables"][1]["names"] = {name};
    auto other = openSession(writePackage(folder, manifest));
    Status status = loadCheckpoint(path, *other);
    EXPECT_TRUE(status.isOk()) << status.getMessage();
    float second;
    std::memcpy(&second, other->getAddress(other->getManifest().variables[1]) + 4, 4);
    return second;
  };
  const VariableSpec &bias = session->getManifest().variables[1];
  const float saved[TINY_CLASSES] = {5, 6};
  std::memcpy(session->getAddress(bias), saved, sizeof saved);
  ASSERT_TRUE(saveCheckpoint(path, *session, state).isOk());
  float packaged = 0.1f; // by writePackage
  EXPECT_EQ(loadAs("required", "net.fc.bias"), 6);
  EXPECT_EQ(loadAs("if_present", "net.fc.bias"), 6);
  EXPECT_EQ(loadAs("if_present", "net.ids"), packaged);
  EXPECT_EQ(loadAs("never", "net.fc.bias"), packaged); // compiled in: another value would be a lie
}

TEST_F(CheckpointTest, AStateThatLiesIsRefused) {
  std::string path = folder / "checkpoint";
  ASSERT_TRUE(saveCheckpoint(path, *session, state).isOk());
  nlohmann::json good = nlohmann::json::parse(readFile(path + "/state.json"));
  auto messageFor = [&](const char *key, const nlohmann::json &value) {
    nlohmann::json changed = good;
    changed[key] = value;
    writeFile(path + "/state.json", changed.dump());
    return readTrainingState(path).getMessage();
  };
  expectMessage(messageFor("version", 2), {"version 2, expected 'memopt-checkpoint' version 1"});
  expectMessage(messageFor("format", "x"), {"'x'"});
  expectMessage(messageFor("step", -1), {"negative"});
  expectMessage(messageFor("step", "many"), {"'step' must be an integer"});
  expectMessage(messageFor("schedule", nlohmann::json::object()), {"'schedule' lacks 'kind'"});
}
