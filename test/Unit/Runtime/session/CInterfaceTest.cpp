//===- CInterfaceTest.cpp - the runtime behind C ---------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs the shared library, with nothing but its header.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/CInterface.h"
#include "TestSupport.h"
#include <cmath>
#include <cstring>
#include <limits>

using namespace memopt::testing;
using nlohmann::json;

namespace {
struct SessionCloser {
  void operator()(memopt_session *session) const { memopt_session_close(session); }
};
using Handle = std::unique_ptr<memopt_session, SessionCloser>;

/// The message of a failure, with its code; empty after success.
struct Outcome {
  int code;
  std::string message;
  int64_t step;
  bool isLossRefused;
};

template <typename Call> Outcome run(Call call) {
  memopt_error error;
  int32_t code = call(&error);
  EXPECT_EQ(code, error.code);
  Outcome outcome{code, error.message ? error.message : "", error.step, error.is_loss_refused != 0};
  memopt_error_clear(&error);
  return outcome;
}

void expectFailure(const Outcome &outcome, const std::vector<std::string> &parts) {
  EXPECT_EQ(outcome.code, MEMOPT_BAD_INPUT);
  expectMessage(outcome.message, parts);
}

Handle open(const std::string &package) {
  memopt_session *session = nullptr;
  Outcome outcome = run(
      [&](memopt_error *e) { return memopt_session_open(package.c_str(), nullptr, &session, e); });
  EXPECT_EQ(outcome.message, "");
  return Handle(session);
}

void initialize(const Handle &session) {
  EXPECT_EQ(memopt_session_initialize(session.get(), MEMOPT_INIT_WEIGHTS, 0, nullptr), MEMOPT_OK);
}

/// A batch of the tiny model.
struct Batch {
  float x[TINY_BATCH * TINY_FEATURES];
  int64_t labels[TINY_BATCH] = {0, 1, 2, 4};
  int64_t shape[2] = {TINY_BATCH, TINY_FEATURES};
  memopt_view views[2] = {{x, "f32", shape, nullptr, 2}, {labels, "i64", shape, nullptr, 1}};

  explicit Batch(int number = 0) {
    for (int i = 0; i < TINY_BATCH * TINY_FEATURES; ++i)
      x[i] = float((i * 5 + number * 3) % 11) / 11;
  }
};

Outcome runStep(const Handle &session, const Batch &batch, int64_t batches = 1) {
  return run([&](memopt_error *e) {
    return memopt_session_run_step(session.get(), batch.views, batches, e);
  });
}

template <typename T = float>
std::vector<T> read(const Handle &session, memopt_kind kind, const char *name, size_t count) {
  std::vector<T> values(count);
  Outcome outcome = run([&](memopt_error *e) {
    return memopt_session_read(session.get(), kind, name, values.data(), int64_t(count * sizeof(T)),
                               e);
  });
  EXPECT_EQ(outcome.message, "");
  return values;
}

std::vector<float> readWeight(const Handle &session) {
  return read(session, MEMOPT_VARIABLE, "net.fc.weight", TINY_CLASSES * TINY_FEATURES);
}

Outcome write(const Handle &session, const char *name, const memopt_view &view) {
  return run([&](memopt_error *e) { return memopt_session_write(session.get(), name, &view, e); });
}
} // namespace

TEST(CInterfaceTest, StepsHaveTheBitsOfASession) {
  TemporaryFolder folder;
  std::string package = writePackage(folder, getTinyManifest());
  auto reference = openSession(package);
  ASSERT_TRUE(reference);
  ASSERT_TRUE(reference->initializeFromWeights([](const auto &) { return false; }).isOk());
  Handle session = open(package);
  initialize(session);
  for (int step = 1; step <= 5; ++step) {
    Batch batch(step);
    std::memcpy(reference->getAddress(reference->getManifest().inputs[0]), batch.x, sizeof batch.x);
    std::memcpy(reference->getAddress(reference->getManifest().inputs[1]), batch.labels,
                sizeof batch.labels);
    reference->setHyperparameters(0.1, step, 0); // the rate that was compiled
    ASSERT_TRUE(reference->runStep().isOk());
    EXPECT_EQ(runStep(session, batch).message, "");
    EXPECT_EQ(read(session, MEMOPT_OUTPUT, "loss", 1)[0],
              float(reference->readScalar(reference->getManifest().outputs[0])));
  }
  EXPECT_EQ(memopt_session_get_step(session.get()), 5);
  EXPECT_GT(memopt_session_get_step_seconds(session.get()), 0);
  EXPECT_EQ(std::memcmp(readWeight(session).data(),
                        reference->getAddress(reference->getManifest().variables[0]), 60),
            0);
}

TEST(CInterfaceTest, TheManifestIsThatOfThePackage) {
  TemporaryFolder folder;
  Handle session = open(writePackage(folder, getTinyManifest()));
  EXPECT_EQ(json::parse(memopt_session_get_manifest(session.get())), getTinyManifest());
  EXPECT_EQ(memopt_c_version(), MEMOPT_C_VERSION);
}

TEST(CInterfaceTest, APackageThatIsNoneIsAnErrorWithoutASession) {
  auto *session = reinterpret_cast<memopt_session *>(1);
  memopt_session_options options{};
  options.size = sizeof options;
  options.device = "gpu";
  Outcome outcome =
      run([&](memopt_error *e) { return memopt_session_open("/nowhere", nullptr, &session, e); });
  expectFailure(outcome, {"package '/nowhere'", "not a folder"});
  EXPECT_EQ(session, nullptr);
  TemporaryFolder folder;
  std::string package = writePackage(folder, getTinyManifest());
  outcome = run(
      [&](memopt_error *e) { return memopt_session_open(package.c_str(), &options, &session, e); });
  expectMessage(outcome.message, {"gpu"});
  EXPECT_EQ(memopt_session_open("/nowhere", nullptr, &session, nullptr), MEMOPT_BAD_INPUT);
  memopt_session_close(session);
}

TEST(CInterfaceTest, OptionsHaveTheSizeThatTheCallerKnows) {
  TemporaryFolder folder;
  std::string package = writePackage(folder, getTinyManifest());
  memopt_session *session = nullptr;
  auto openWith = [&](const memopt_session_options *options) {
    return run([&](memopt_error *e) {
      return memopt_session_open(package.c_str(), options, &session, e);
    });
  };
  memopt_session_options none{};
  expectFailure(openWith(&none), {"options have the size 0"});
  // A caller of a later release, with a field that means nothing yet, and with one that does.
  struct {
    memopt_session_options known;
    int64_t later;
  } wide{};
  wide.known.size = sizeof wide;
  wide.known.threads = 1;
  Outcome outcome = openWith(&wide.known);
  EXPECT_EQ(outcome.code, MEMOPT_OK) << outcome.message;
  memopt_session_close(session);
  wide.later = 1;
  expectFailure(openWith(&wide.known), {"fields that this library does not know"});
}

//===----------------------------------------------------------------------===//
// Batches
//===----------------------------------------------------------------------===//

TEST(CInterfaceTest, WhatDoesNotFitAnInputNamesItAndBothShapes) {
  TemporaryFolder folder;
  Handle session = open(writePackage(folder, getTinyManifest()));
  initialize(session);
  Batch batch;
  batch.shape[0] = 3;
  expectFailure(runStep(session, batch), {"input 'x': is f32[3, 3], expected f32[4, 3]"});
  batch.shape[0] = TINY_BATCH;
  batch.views[0].dtype = "f64";
  expectFailure(runStep(session, batch), {"input 'x': is f64[4, 3], expected f32[4, 3]"});
  batch.views[0].dtype = "f99";
  expectFailure(runStep(session, batch), {"input 'x'", "unknown type 'f99'"});
  batch.views[0].dtype = "i32";
  expectFailure(runStep(session, batch), {"input 'x': i32 does not convert to f32"});
  batch.views[0] = {nullptr, "f32", batch.shape, nullptr, 2};
  expectFailure(runStep(session, batch), {"input 'x': has no data"});
  expectFailure(runStep(session, batch, 2), {"takes 1 batches, not 2"});
  EXPECT_EQ(memopt_session_get_step(session.get()), 0);
}

TEST(CInterfaceTest, AFailedStepNamesItsNumberAndChangesNothing) {
  TemporaryFolder folder;
  Handle session = open(writePackage(folder, getTinyManifest()));
  initialize(session);
  EXPECT_EQ(runStep(session, Batch()).message, "");
  std::vector<float> before = readWeight(session);
  Batch wrong;
  wrong.labels[2] = 9;
  Outcome outcome = runStep(session, wrong);
  expectFailure(outcome, {"input 'label' holds 9 at index [2]"});
  EXPECT_EQ(outcome.step, 2);
  EXPECT_FALSE(outcome.isLossRefused);
  Batch bad;
  bad.x[0] = std::numeric_limits<float>::quiet_NaN();
  outcome = runStep(session, bad);
  EXPECT_EQ(outcome.code, MEMOPT_NOT_FINITE);
  expectMessage(outcome.message, {"the loss is nan", "input 'x' holds nan at index [0, 0]"});
  EXPECT_TRUE(outcome.isLossRefused);
  EXPECT_EQ(readWeight(session), before);
  EXPECT_EQ(memopt_session_get_step(session.get()), 1);
  EXPECT_EQ(runStep(session, Batch()).message, "");
}

TEST(CInterfaceTest, BatchesMayHaveAnyStridesAndNarrowerIntegers) {
  TemporaryFolder folder;
  std::string package = writePackage(folder, getTinyManifest());
  Handle plain = open(package), strided = open(package);
  initialize(plain);
  initialize(strided);
  Batch batch;
  EXPECT_EQ(runStep(plain, batch).message, "");
  // Columns first, with a gap behind each; the last label first.
  float columns[TINY_FEATURES * (TINY_BATCH + 1)];
  for (int row = 0; row < TINY_BATCH; ++row)
    for (int column = 0; column < TINY_FEATURES; ++column)
      columns[column * (TINY_BATCH + 1) + row] = batch.x[row * TINY_FEATURES + column];
  int32_t labels[TINY_BATCH] = {4, 2, 1, 0};
  int64_t strides[] = {1, TINY_BATCH + 1}, backwards[] = {-1};
  batch.views[0] = {columns, "f32", batch.shape, strides, 2};
  batch.views[1] = {labels + 3, "i32", batch.shape, backwards, 1};
  EXPECT_EQ(runStep(strided, batch).message, "");
  EXPECT_EQ(readWeight(plain), readWeight(strided));
}

TEST(CInterfaceTest, AStepTakesTheBatchesThatItAccumulates) {
  TemporaryFolder folder;
  Handle session = open(writePackage(folder, getLoopManifest(), "TinyLoop"));
  initialize(session);
  float rows[LOOP_COUNT][LOOP_ROWS];
  int64_t shape[] = {LOOP_ROWS};
  std::vector<memopt_view> views;
  for (int batch = 0; batch < LOOP_COUNT; ++batch) {
    for (int row = 0; row < LOOP_ROWS; ++row)
      rows[batch][row] = float(batch * LOOP_ROWS + row + 1);
    views.push_back({rows[batch], "f32", shape, nullptr, 1});
  }
  ASSERT_EQ(memopt_session_run_step(session.get(), views.data(), LOOP_COUNT, nullptr), MEMOPT_OK);
  // The program weighs samples by their place in the step: the squares of 1 to 6.
  EXPECT_EQ(read(session, MEMOPT_OUTPUT, "loss", 1)[0], 91);
}

TEST(CInterfaceTest, MicroBatchesAreCutFromABatchWhateverItsStrides) {
  TemporaryFolder folder;
  json manifest = getLoopManifest();
  manifest["micro_batches"] = LOOP_COUNT;
  Handle session = open(writePackage(folder, manifest, "TinyLoop"));
  initialize(session);
  constexpr int samples = LOOP_COUNT * LOOP_ROWS;
  float rows[2 * samples];
  for (int sample = 0; sample < samples; ++sample)
    rows[2 * sample] = float(sample + 1);
  int64_t shape[] = {samples}, strides[] = {2};
  memopt_view view{rows, "f32", shape, strides, 1};
  ASSERT_EQ(memopt_session_run_step(session.get(), &view, 1, nullptr), MEMOPT_OK);
  EXPECT_EQ(read(session, MEMOPT_OUTPUT, "loss", 1)[0], 91);
}

//===----------------------------------------------------------------------===//
// Variables
//===----------------------------------------------------------------------===//

TEST(CInterfaceTest, NothingRunsOnVariablesWithoutAValue) {
  TemporaryFolder folder;
  json manifest = getTinyManifest();
  manifest["variables"][1]["init"] = "absent";
  Handle session = open(writePackage(folder, manifest));
  expectFailure(runStep(session, Batch()), {"has no value as yet, nor have 4 others"});
  initialize(session);
  expectFailure(runStep(session, Batch()), {"variable 'net.fc.bias' has no value as yet"});
  int64_t shape[] = {TINY_CLASSES};
  uint16_t bias[TINY_CLASSES] = {0, 0x3800}; // 0.5
  memopt_view view{bias, "f16", shape, nullptr, 1};
  EXPECT_EQ(write(session, "net.fc.bias", view).message, "");
  EXPECT_EQ(read(session, MEMOPT_VARIABLE, "net.fc.bias", TINY_CLASSES)[1], 0.5f);
  EXPECT_EQ(runStep(session, Batch()).message, "");
  // A copy that stops at a value has written others.
  int64_t counters[] = {1 << 8}, none = 0;
  json narrow = getTinyManifest();
  narrow["variables"][2].update({{"dtype", "u8"}, {"bytes", 1}});
  session = open(writePackage(folder, narrow));
  initialize(session);
  expectFailure(write(session, "net.counter", {counters, "i64", &none, nullptr, 0}),
                {"variable 'net.counter': element 0 is 256"});
  expectFailure(runStep(session, Batch()), {"variable 'net.counter' has no value as yet"});
}

TEST(CInterfaceTest, VariablesAreWrittenAndReadByNameAlone) {
  TemporaryFolder folder;
  Handle session = open(writePackage(folder, getTinyManifest()));
  initialize(session);
  int64_t shape[] = {TINY_CLASSES, TINY_FEATURES};
  float values[TINY_CLASSES * TINY_FEATURES] = {};
  memopt_view view{values, "f32", shape, nullptr, 2};
  expectFailure(write(session, "net.fc.bias", view), {"is f32[5, 3], expected f32[5]"});
  expectFailure(write(session, "nobody", view), {"no variable 'nobody'"});
  expectFailure(write(session, "lr", view), {"'lr' is written anew in each step"});
  memopt_session *handle = session.get();
  auto readInto = [&](int32_t kind, const char *name, int64_t bytes) {
    return run(
        [&](memopt_error *e) { return memopt_session_read(handle, kind, name, values, bytes, e); });
  };
  expectFailure(readInto(MEMOPT_VARIABLE, "net.fc.bias", 60), {"has 20 bytes, not 60"});
  expectFailure(readInto(MEMOPT_OUTPUT, "x", 48), {"no output 'x'"});
  expectFailure(readInto(9, "x", 48), {"no kind 9"});
  EXPECT_EQ(readInto(MEMOPT_INPUT, "x", 48).message, "");
}

TEST(CInterfaceTest, RatesOfGroupsAndOfTheRestAreSetByName) {
  TemporaryFolder folder;
  Handle session = open(writePackage(folder, getTinyManifest()));
  initialize(session);
  std::vector<float> before = readWeight(session);
  EXPECT_EQ(memopt_session_set_rate(session.get(), "lr", 0, nullptr), MEMOPT_OK);
  EXPECT_EQ(runStep(session, Batch()).message, "");
  EXPECT_EQ(readWeight(session), before);
  expectFailure(
      run([&](memopt_error *e) { return memopt_session_set_rate(session.get(), "step", 1, e); }),
      {"'step' is neither a learning rate nor another number of the optimizer"});
  json manifest = getTinyManifest();
  manifest["variables"][5]["name"] = "lr.1";
  manifest["variables"][5]["init_value"] = 0.5;
  session = open(writePackage(folder, manifest));
  initialize(session);
  EXPECT_EQ(read(session, MEMOPT_VARIABLE, "lr.1", 1)[0], 0.5f);
  EXPECT_EQ(memopt_session_set_rate(session.get(), "lr.1", 0.25, nullptr), MEMOPT_OK);
  EXPECT_EQ(read(session, MEMOPT_VARIABLE, "lr.1", 1)[0], 0.25f);
}

TEST(CInterfaceTest, OtherNumbersOfTheOptimizerKeepTheirFirstValueUntilTheyAreSet) {
  TemporaryFolder folder;
  json manifest = getTinyManifest();
  manifest["variables"][5]["name"] = "hyperparameter.beta1.1";
  manifest["variables"][5]["init_value"] = 0.5;
  Handle session = open(writePackage(folder, manifest));
  initialize(session);
  EXPECT_EQ(read(session, MEMOPT_VARIABLE, "hyperparameter.beta1.1", 1)[0], 0.5f);
  for (float value : {0.0f, 0.25f}) {
    EXPECT_EQ(memopt_session_set_rate(session.get(), "hyperparameter.beta1.1", value, nullptr),
              MEMOPT_OK);
    EXPECT_EQ(runStep(session, Batch()).message, "");
    EXPECT_EQ(read(session, MEMOPT_VARIABLE, "hyperparameter.beta1.1", 1)[0], value);
  }
}

TEST(CInterfaceTest, RandomValuesFollowFromTheSeed) {
  TemporaryFolder folder;
  Handle session = open(writePackage(folder, getTinyManifest()));
  std::vector<float> drawn[3];
  for (int64_t i : {0, 1, 2}) {
    ASSERT_EQ(memopt_session_initialize(session.get(), MEMOPT_INIT_RANDOM, i / 2, nullptr),
              MEMOPT_OK);
    drawn[i] = readWeight(session);
  }
  EXPECT_EQ(drawn[0], drawn[1]);
  EXPECT_NE(drawn[0], drawn[2]);
  EXPECT_EQ(memopt_session_initialize(session.get(), 7, 0, nullptr), MEMOPT_BAD_INPUT);
}

//===----------------------------------------------------------------------===//
// Checkpoints
//===----------------------------------------------------------------------===//

TEST(CInterfaceTest, ACheckpointGoesOnWithTheSameBits) {
  TemporaryFolder folder;
  std::string package = writePackage(folder, getTinyManifest()), saved = folder / "saved";
  Handle session = open(package), resumed = open(package);
  initialize(session);
  EXPECT_EQ(memopt_session_set_rate(session.get(), "lr", 0.05, nullptr), MEMOPT_OK);
  for (int step = 0; step < 3; ++step)
    EXPECT_EQ(runStep(session, Batch(step)).message, "");
  ASSERT_EQ(memopt_session_save(session.get(), saved.c_str(), nullptr), MEMOPT_OK);
  ASSERT_EQ(memopt_session_load(resumed.get(), saved.c_str(), nullptr), MEMOPT_OK);
  EXPECT_EQ(memopt_session_get_step(resumed.get()), 3);
  for (const Handle *each : {&session, &resumed})
    EXPECT_EQ(runStep(*each, Batch(3)).message, "");
  EXPECT_EQ(readWeight(session), readWeight(resumed));
  json state = json::parse(readFile(saved + "/state.json"));
  EXPECT_EQ(state["data_position"], 3);
  EXPECT_EQ(state["batch_size"], TINY_BATCH);
  EXPECT_EQ(state["schedule"]["rate"], 0.05);
}

TEST(CInterfaceTest, ALoadThatFailsLeavesNothingToRunOn) {
  TemporaryFolder folder;
  Handle session = open(writePackage(folder, getTinyManifest()));
  initialize(session);
  expectFailure(run([&](memopt_error *e) {
                  return memopt_session_load(session.get(), (folder / "none").c_str(), e);
                }),
                {"none'", "No such file"});
  expectFailure(runStep(session, Batch()), {"has no value as yet"});
}

TEST(CInterfaceTest, StateThatIsNotFiniteIsNotSaved) {
  TemporaryFolder folder;
  Handle session = open(writePackage(folder, getTinyManifest()));
  initialize(session);
  int64_t shape[] = {TINY_CLASSES};
  float bias[TINY_CLASSES] = {INFINITY};
  EXPECT_EQ(write(session, "net.fc.bias", {bias, "f32", shape, nullptr, 1}).message, "");
  std::string saved = folder / "saved";
  Outcome outcome =
      run([&](memopt_error *e) { return memopt_session_save(session.get(), saved.c_str(), e); });
  EXPECT_EQ(outcome.code, MEMOPT_NOT_FINITE);
  expectMessage(outcome.message, {"'net.fc.bias'", "not finite", "the checkpoint was not written"});
}

TEST(CInterfaceTest, TensorsOfNoSessionAreACheckpointToo) {
  TemporaryFolder folder;
  std::string path = folder / "written";
  float weight[6] = {1, 2, 3, 4, 5, 6};
  int64_t shape[2] = {3, 2}, strides[2] = {1, 3}, other[1] = {6};
  memopt_named_view model[] = {{"fc.weight", {weight, "f32", shape, strides, 2}}},
                    optimizer[] = {
                        {"optimizer.momentum.fc.weight", {weight, "f32", other, nullptr, 1}}};
  json state = {{"format", "memopt-checkpoint"},
                {"version", 1},
                {"step", 3},
                {"data_position", 0},
                {"seed", 0},
                {"optimizer", "sgd"}};
  state["schedule"] = {{"kind", "constant"}, {"rate", 0.1},      {"min_rate", 0.0},
                       {"warmup_steps", 0},  {"total_steps", 0}, {"step_size", 1},
                       {"gamma", 0.1}};
  std::string text = state.dump();
  auto write = [&](const std::string &stateText) {
    return run([&](memopt_error *e) {
      return memopt_checkpoint_write(path.c_str(), model, 1, optimizer, 1, stateText.c_str(), e);
    });
  };
  EXPECT_EQ(write(text).message, "");
  EXPECT_EQ(json::parse(readFile(path + "/state.json"))["step"], 3);
  const float rows[6] = {1, 4, 2, 5, 3, 6};
  std::string file = readFile(path + "/model.safetensors");
  ASSERT_GT(file.size(), sizeof rows);
  EXPECT_EQ(std::memcmp(file.data() + file.size() - sizeof rows, rows, sizeof rows), 0);
  // Nothing changes where something is wrong.
  expectFailure(write("{}"), {"the state", "lacks 'format'"});
  model[0].view.dtype = "f8";
  expectFailure(write(text), {"tensor 'fc.weight'", "unknown type 'f8'"});
  EXPECT_EQ(readFile(path + "/model.safetensors"), file);
}

TEST(CInterfaceTest, WordsThatAreWatchedAreSeenToChange) {
  int64_t words[2] = {3, 0x105};
  int64_t *places[2] = {words, words + 1};
  auto readSum = [](void *table, void *key) -> void * {
    return reinterpret_cast<void *>(*static_cast<int64_t *>(table) +
                                    reinterpret_cast<intptr_t>(key));
  };
  void *tables[] = {words, words + 1}, *pointers[] = {places, places + 1};
  void *keys[] = {reinterpret_cast<void *>(1), reinterpret_cast<void *>(2)};
  uintptr_t plain[] = {3, 0x105}, sums[] = {4, 0x107}, low[] = {3, 0x05};
  memopt_watched parts[] = {{nullptr, tables, nullptr, plain, ~uintptr_t(0), 2, 0},
                            {readSum, tables, keys, sums, ~uintptr_t(0), 2, 0},
                            {readSum, pointers, nullptr, low, 0xff, 2, 1}};
  EXPECT_EQ(memopt_are_unchanged(parts, 3), 1);
  EXPECT_EQ(memopt_are_unchanged(parts, 0), 1);
  words[1] = 0x205; // the last part looks at the lowest byte alone
  EXPECT_EQ(memopt_are_unchanged(parts, 3), 0);
  EXPECT_EQ(memopt_are_unchanged(parts + 1, 1), 0);
  EXPECT_EQ(memopt_are_unchanged(parts + 2, 1), 1);
  places[1] = words; // another table
  EXPECT_EQ(memopt_are_unchanged(parts + 2, 1), 0);
}
