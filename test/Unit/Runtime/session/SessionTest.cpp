//===- SessionTest.cpp - steps and what is seen of them -------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/session/Session.h"
#include "TestSupport.h"
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

using namespace memopt;
using namespace memopt::testing;
using nlohmann::json;

static void fillInputs(Session &session) {
  std::vector<float> x(TINY_BATCH * TINY_FEATURES, 0.5f);
  std::vector<int64_t> labels = {0, 1, 2, 4};
  const Manifest &manifest = session.getManifest();
  std::memcpy(session.getAddress(manifest.inputs[0]), x.data(), x.size() * 4);
  std::memcpy(session.getAddress(manifest.inputs[1]), labels.data(), labels.size() * 8);
}

static void initialize(Session &session) {
  Status status = session.initializeFromWeights([](const auto &) { return false; });
  ASSERT_TRUE(status.isOk()) << status.getMessage();
  fillInputs(session);
  session.setHyperparameters(0.1, 1, 0);
}

static float *getFloats(Session &session, const char *name) {
  return reinterpret_cast<float *>(session.getAddress(*session.getManifest().findVariable(name)));
}

//===----------------------------------------------------------------------===//
// Arena
//===----------------------------------------------------------------------===//

TEST(ArenaTest, TheMarkIsTheEndOfTheHighestByteWritten) {
  auto allocated = HostArena::allocate(1000, /*isChecked=*/true);
  ASSERT_TRUE(allocated.isOk());
  Arena *arena = allocated->get();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->base()) % 64, 0u);
  EXPECT_TRUE(arena->updateMark().isOk());
  EXPECT_EQ(arena->usedPeakBytes(), 0);
  arena->base()[99] = 0;
  EXPECT_TRUE(arena->updateMark().isOk());
  EXPECT_EQ(arena->usedPeakBytes(), 100);
  arena->noteHandedOut(arena->base() + 200, 50);
  EXPECT_EQ(arena->usedPeakBytes(), 250);
  arena->base()[999] = 0;
  EXPECT_TRUE(arena->updateMark().isOk());
  EXPECT_EQ(arena->usedPeakBytes(), 1000);
  EXPECT_TRUE(arena->checkSlack().isOk());
  arena->base()[1000] = 0; // inside the rounding to 64
  expectMessage(arena->checkSlack().getMessage(), {"wrote behind", "at offset 1000"});
}

TEST(ArenaTest, GuardPagesStandAround) {
  auto allocated = HostArena::allocate(4096, /*isChecked=*/true);
  ASSERT_TRUE(allocated.isOk());
  Arena *arena = allocated->get();
  EXPECT_TRUE(arena->isGuard(arena->base() + 4096));
  EXPECT_TRUE(arena->isGuard(arena->base() - 1));
  EXPECT_FALSE(arena->isGuard(arena->base() + 4095));
  EXPECT_FALSE(arena->isGuard(&arena));
  EXPECT_EQ((*HostArena::allocate(0, true))->base(), nullptr);
}

TEST(ArenaTest, MoreThanTheMachineHasIsAnEnvironmentError) {
  auto arena = HostArena::allocate(int64_t(1) << 60, /*isChecked=*/false);
  EXPECT_EQ(arena.getCode(), StatusCode::Environment);
  expectMessage(arena.getMessage(), {"1152921504606846976 bytes"});
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

TEST(SessionTest, AStepTrainsAndUsesWhatThePlanSays) {
  TemporaryFolder folder;
  auto session = openSession(writePackage(folder, getTinyManifest()), {true, true});
  ASSERT_TRUE(session);
  initialize(*session);
  ASSERT_TRUE(session->captureGradients().isOk());
  const OutputSpec &loss = session->getManifest().outputs[0];
  double before = 0, after = 0;
  for (int step = 1; step <= 30; ++step) {
    session->setHyperparameters(0.1, step, 0);
    Status status = session->runStep();
    ASSERT_TRUE(status.isOk()) << status.getMessage();
    (step == 1 ? before : after) = session->readScalar(loss);
  }
  EXPECT_LT(after, before / 10);
  EXPECT_EQ(session->getUsedPeakBytes()[MEMOPT_SPACE_DEVICE], TINY_ARENA);
  // The first step's gradient: mean over the batch of (logit - 1), for class 3, which no label has,
  // zero.
  std::vector<TensorToWrite> gradients = *session->getCapturedGradients();
  ASSERT_EQ(gradients.size(), 2u);
  const auto *bias = static_cast<const float *>(gradients[1].data);
  EXPECT_EQ(bias[3], 0);
  EXPECT_NEAR(bias[0], (0.5 * (-0.02 - 0.01 + 0) - 1) / 4, 1e-6);
}

TEST(SessionTest, ResultsDoNotDependOnTheNumberOfThreads) {
  std::string bits[2];
  for (int threads : {1, 2}) {
    TemporaryFolder folder;
    SessionOptions options;
    options.threads = threads;
    auto session = openSession(writePackage(folder, getTinyManifest()), options);
    ASSERT_TRUE(session);
    initialize(*session);
    for (int step = 0; step < 5; ++step)
      ASSERT_TRUE(session->runStep().isOk());
    bits[threads - 1].assign(session->getAddress(session->getManifest().variables[0]), 60);
  }
  EXPECT_EQ(bits[0], bits[1]);
}

TEST(SessionTest, ALabelOutOfRangeIsNamed) {
  TemporaryFolder folder;
  json manifest = getTinyManifest();
  manifest["inputs"][1]["valid_range"]["ignore"] = -100;
  auto session = openSession(writePackage(folder, manifest));
  ASSERT_TRUE(session);
  initialize(*session);
  EXPECT_TRUE(session->runStep().isOk());
  int64_t label = 5;
  std::memcpy(session->getAddress(session->getManifest().inputs[1]) + 2 * 8, &label, 8);
  expectMessage(
      session->runStep().getMessage(),
      {"input 'label' holds 5 at index [2], expected 0 to 4 or -100 (classes of net.loss)"});
}

TEST(SessionTest, StateStartsFromItsConstantAndGroupsFollowTheSchedule) {
  TemporaryFolder folder;
  nlohmann::json manifest = getTinyManifest();
  manifest["variables"][3]["init"] = "constant";
  manifest["variables"][3]["init_value"] = 0.25;
  manifest["variables"][5]["name"] = "lr.1";
  manifest["variables"][5]["init_value"] = 0.5;
  auto session = openSession(writePackage(folder, manifest), {true, true});
  ASSERT_TRUE(session);
  initialize(*session);
  const float *momentum = getFloats(*session, "optimizer.momentum.net.fc.weight");
  for (int i = 0; i < TINY_CLASSES * TINY_FEATURES; ++i)
    EXPECT_EQ(momentum[i], 0.25f);
  LearningRateSchedule schedule;
  schedule.rate = 0.1;
  schedule.warmupSteps = 4;
  session->setGroupRates(schedule, 1, {});
  EXPECT_EQ(*getFloats(*session, "lr.1"), 0.125f);
  session->setGroupRates(schedule, 9, {});
  EXPECT_EQ(*getFloats(*session, "lr.1"), 0.5f);
  session->setGroupRates(schedule, 9, {{"lr.1", 0.75}});
  EXPECT_EQ(*getFloats(*session, "lr.1"), 0.75f);
}

TEST(SessionTest, OtherNumbersOfTheOptimizerFollowNoSchedule) {
  TemporaryFolder folder;
  nlohmann::json manifest = getTinyManifest();
  manifest["variables"][5]["name"] = "hyperparameter.momentum";
  manifest["variables"][5]["init_value"] = 0.75;
  auto session = openSession(writePackage(folder, manifest), {true, true});
  ASSERT_TRUE(session);
  initialize(*session);
  LearningRateSchedule schedule;
  schedule.rate = 0.1;
  schedule.warmupSteps = 4;
  session->setGroupRates(schedule, 1, {});
  EXPECT_EQ(*getFloats(*session, "hyperparameter.momentum"), 0.75f);
}

TEST(SessionTest, ALossThatIsNotFiniteStopsBeforeTheUpdateAndNamesItsOrigin) {
  TemporaryFolder folder;
  auto session = openSession(writePackage(folder, getTinyManifest()));
  ASSERT_TRUE(session);
  initialize(*session);
  float *bias = getFloats(*session, "net.fc.bias"), *weight = getFloats(*session, "net.fc.weight");
  bias[4] = std::numeric_limits<float>::quiet_NaN();
  float before = weight[0];
  Status status = session->runStep();
  ASSERT_FALSE(status.isOk());
  expectMessage(status.getMessage(),
                {"the loss is", "nan", "parameter 'net.fc.bias' is no longer finite",
                 "the first output that is not a number comes from instruction 0 'logits' "
                 "(logits) of module 'net.fc'"});
  EXPECT_EQ(weight[0], before);
  // An overflow inside the step itself: the loss is infinite, and so is nothing before it.
  bias[4] = 3e38f;
  expectMessage(session->runStep().getMessage(),
                {"the first output that is infinite comes from instruction 1 'loss'", "net.loss"});
  auto tolerant = openSession(writePackage(folder, getTinyManifest()), {false, false});
  initialize(*tolerant);
  getFloats(*tolerant, "net.fc.bias")[4] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(tolerant->runStep().isOk());
}

TEST(SessionTest, NotFiniteInputsAreNamed) {
  TemporaryFolder folder;
  auto session = openSession(writePackage(folder, getTinyManifest()));
  ASSERT_TRUE(session);
  initialize(*session);
  float infinity = std::numeric_limits<float>::infinity();
  std::memcpy(session->getAddress(session->getManifest().inputs[0]) + 4 * 4, &infinity, 4);
  expectMessage(session->runStep().getMessage(), {"input 'x' holds inf at index [1, 1]"});
}

TEST(SessionTest, AProgramThatFailsOrLeavesItsMemoryIsNamed) {
  TemporaryFolder fails, writesBehind;
  auto session = openSession(writePackage(fails, getTinyManifest(), "TinyFails"));
  ASSERT_TRUE(session);
  initialize(*session);
  expectMessage(session->runStep().getMessage(), {"code 7", "instruction 1 'loss'"});
  session =
      openSession(writePackage(writesBehind, getTinyManifest(), "TinyWritesBehind"), {true, true});
  initialize(*session);
  expectMessage(session->runStep().getMessage(), {"wrote behind its arena of 776 bytes"});
}

TEST(SessionTest, APackageForAnotherTargetIsRefused) {
  TemporaryFolder folder;
  json manifest = getTinyManifest();
  manifest["target"] = {
      {"name", "cuda"}, {"chip", "sm_90"}, {"sms", 132}, {"image", "kernels.cubin"}};
  std::string path = writePackage(folder, manifest);
  writeFile(path + "/kernels.cubin", "code of a device");
  auto package = Package::load(path);
  ASSERT_TRUE(package.isOk()) << package.getMessage();
  auto session = Session::create(*std::move(package), getCpu(), refuseCalls, {});
  expectMessage(session.getMessage(), {"was compiled for target 'cuda', the device is 'cpu'"});
}

TEST(SessionTest, AProgramForTheCpuLaunchesNothing) {
  TemporaryFolder folder;
  auto session = openSession(writePackage(folder, getTinyManifest(), "TinyLaunches"));
  ASSERT_TRUE(session);
  initialize(*session);
  expectMessage(session->runStep().getMessage(),
                {"instruction 1 'loss'", "launches kernel 0 of 0",
                 "target 'cpu' runs its kernels in the program itself"});
}

TEST(SessionTest, AProgramThatDoesNotReportItsInstructionsIsWatchedByItsLossAlone) {
  TemporaryFolder folder;
  json manifest = getTinyManifest();
  manifest["instrumented"] = false;
  auto session = openSession(writePackage(folder, manifest, "TinySilent"), {true, true});
  ASSERT_TRUE(session);
  initialize(*session);
  expectMessage(session->captureGradients().getMessage(), {"gradients", "--instrument=on"});
  Trace trace(session->getManifest(), 1);
  expectMessage(session->setTrace(&trace).getMessage(), {"timelines", "--instrument=on"});
  EXPECT_TRUE(session->runStep().isOk());
  EXPECT_EQ(session->getUsedPeakBytes()[MEMOPT_SPACE_DEVICE], TINY_ARENA);
  float *bias = getFloats(*session, "net.fc.bias"),
        before = getFloats(*session, "net.fc.weight")[0];
  bias[4] = std::numeric_limits<float>::quiet_NaN();
  expectMessage(session->runStep().getMessage(),
                {"the loss is", "'net.fc.bias' is no longer finite", "--instrument=on"});
  EXPECT_EQ(getFloats(*session, "net.fc.weight")[0], before);
}

TEST(SessionTest, AProgramThatBreaksTheOrderOfAStepIsNamed) {
  TemporaryFolder forgets, repeats;
  auto session = openSession(writePackage(forgets, getTinyManifest(), "TinyForgetsCommit"));
  ASSERT_TRUE(session);
  initialize(*session);
  expectMessage(session->runStep().getMessage(), {"without asking whether to go on (commit)"});
  session = openSession(writePackage(repeats, getTinyManifest(), "TinyReportsTwice"));
  ASSERT_TRUE(session);
  initialize(*session);
  expectMessage(session->runStep().getMessage(), {"reports instruction 1 of 4 where 2 comes next"});
}

//===----------------------------------------------------------------------===//
// Several sessions
//===----------------------------------------------------------------------===//

/// Bytes of all state after some steps of training.
static std::string train(const std::shared_ptr<const Package> &package, int64_t seed) {
  auto session = Session::create(package, getCpu(), refuseCalls, {true, true});
  EXPECT_TRUE(session.isOk()) << session.getMessage();
  initialize(**session);
  for (int64_t step = 1; step <= 20; ++step) {
    (*session)->setHyperparameters(0.1, step, seed);
    Status status = (*session)->runStep();
    EXPECT_TRUE(status.isOk()) << status.getMessage();
  }
  std::string state;
  for (const VariableSpec &variable : (*session)->getManifest().variables)
    if (variable.isState())
      state.append((*session)->getAddress(variable), size_t(variable.bytes));
  return state;
}

TEST(SessionsTest, SessionsAtTheSameTimeGiveTheBitsOfOneAlone) {
  TemporaryFolder first, second;
  auto one = Package::load(writePackage(first, getTinyManifest()));
  auto other = Package::load(writePackage(second, getTinyManifest()));
  ASSERT_TRUE(one.isOk() && other.isOk());
  std::string expected[] = {train(*one, 0), train(*one, 1)};
  EXPECT_NE(expected[0], expected[1]);
  std::atomic<int> wrong{0};
  std::vector<std::thread> users;
  for (int user = 0; user < 6; ++user)
    users.emplace_back([&, user] {
      for (int round = 0; round < 3; ++round)
        wrong += train(user < 4 ? *one : *other, user % 2) != expected[user % 2];
    });
  for (std::thread &user : users)
    user.join();
  EXPECT_EQ(wrong, 0);
}

TEST(SessionsTest, AFaultFindsItsSession) {
  TemporaryFolder first, second;
  auto one = openSession(writePackage(first, getTinyManifest()));
  const void *behind = one->getAddress(one->getManifest().inputs[0]) + 4096;
  {
    auto two = openSession(writePackage(second, getTinyManifest()));
    const void *behindTwo = two->getAddress(two->getManifest().inputs[0]) + 4096;
    EXPECT_EQ(Session::findGuarding(behind), one.get());
    EXPECT_EQ(Session::findGuarding(behindTwo), two.get());
    EXPECT_EQ(Session::findGuarding(&first), nullptr);
    two.reset();
    EXPECT_EQ(Session::findGuarding(behindTwo), nullptr);
  }
  EXPECT_EQ(Session::findGuarding(behind), one.get());
  // A thread works for the session whose step it runs.
  EXPECT_EQ(Session::getCurrent(), nullptr);
  const Session *during = nullptr;
  initialize(*one);
  one->setBatches([&](int64_t, const std::vector<char *> &) {
    during = Session::getCurrent();
    return Status::ok();
  });
  ASSERT_TRUE(one->runStep().isOk());
  EXPECT_EQ(during, one.get());
  EXPECT_EQ(Session::getCurrent(), nullptr);
}

TEST(SessionsTest, EachThreadOfASessionSaysThatItBegins) {
  TemporaryFolder folder;
  json manifest = getTinyManifest();
  manifest["threads"] = 4;
  std::atomic<int> begun{0};
  SessionOptions options;
  options.threads = 3;
  options.onThreadStart = [&] { ++begun; };
  openSession(writePackage(folder, manifest), options); // and ends, with its threads
  EXPECT_EQ(begun, 2);                                  // and the caller's
}

TEST(SessionsTest, AllocationsCountForTheSessionOfTheirThread) {
  AllocationCounter one, two;
  constexpr size_t large = AllocationCounter::threshold, small = large - 1;
  AllocationCounter::note(large); // nobody counts
  {
    CountAllocations counting(one);
    AllocationCounter::note(large);
    AllocationCounter::note(small);
    std::thread([&] {
      CountAllocations counting(two);
      AllocationCounter::note(2 * large);
    }).join();
    EXPECT_EQ(one.count, 1);
    // A thread that works for no session counts for those that count meanwhile.
    std::thread([&] { AllocationCounter::note(3 * large); }).join();
  }
  AllocationCounter::note(large);
  EXPECT_EQ(one.count, 2);
  EXPECT_EQ(one.bytes, int64_t(4 * large));
  EXPECT_EQ(two.count, 1);
  EXPECT_EQ(two.bytes, int64_t(2 * large));
}

//===----------------------------------------------------------------------===//
// Library calls
//===----------------------------------------------------------------------===//

namespace {
/// Zero logits; or a failure, when asked for.
class TinyCall : public LibraryCall {
public:
  TinyCall(int64_t workspace, bool fails) : workspace(workspace), fails(fails) {}
  int64_t workspaceBytes() const override { return workspace; }
  std::string implementation() const override { return "test"; }
  Status run(void *const *buffers, ThreadPool &) override {
    std::memset(buffers[3], 0, 4 * TINY_BATCH * TINY_CLASSES);
    static_cast<char *>(buffers[4])[0] = 0;
    return fails ? badInput("out of luck") : Status::ok();
  }

private:
  int64_t workspace;
  bool fails;
};
} // namespace

static StatusOr<std::unique_ptr<LibraryCall>> createTinyCall(const json &descriptor, int threads) {
  EXPECT_EQ(threads, 2);
  return std::unique_ptr<LibraryCall>(std::make_unique<TinyCall>(descriptor["needs"].get<int64_t>(),
                                                                 descriptor.value("fails", false)));
}

static json getLibraryManifest() {
  json manifest = getTinyManifest();
  manifest["arena_bytes"]["device"] = TINY_WORKSPACE + TINY_WORKSPACE_BYTES;
  manifest["library_calls"] = {
      {{"kind", "test"}, {"needs", 80}, {"workspace_bytes", TINY_WORKSPACE_BYTES}, {"buffers", 4}}};
  return manifest;
}

TEST(LibraryCallTest, AWorkspaceHandedOutCountsAsUsed) {
  TemporaryFolder folder;
  auto session = openSession(writePackage(folder, getLibraryManifest(), "TinyCallsLibrary"),
                             {true, true}, createTinyCall);
  ASSERT_TRUE(session);
  initialize(*session);
  ASSERT_TRUE(session->runStep().isOk());
  EXPECT_EQ(session->readScalar(session->getManifest().outputs[0]), 0.5); // (0 - 1)^2 / 2
  EXPECT_EQ(session->getUsedPeakBytes()[MEMOPT_SPACE_DEVICE],
            TINY_WORKSPACE + TINY_WORKSPACE_BYTES);
}

/// Why a session on the package cannot begin.
static std::string refuseSession(const TemporaryFolder &folder, const json &manifest) {
  auto package = Package::load(writePackage(folder, manifest));
  EXPECT_TRUE(package.isOk()) << package.getMessage();
  return Session::create(*std::move(package), getCpu(), createTinyCall, {}).getMessage();
}

TEST(LibraryCallTest, ALargerWorkspaceThanPlannedIsRefusedAtLoad) {
  TemporaryFolder folder;
  json manifest = getLibraryManifest();
  manifest["library_calls"][0]["needs"] = 129;
  expectMessage(refuseSession(folder, manifest),
                {"library_calls[0] was planned with a workspace of 128 bytes, but needs 129"});
  manifest["library_calls"][0].erase("buffers");
  expectMessage(refuseSession(folder, manifest), {"'library_calls[0]' lacks 'buffers'"});
  manifest["library_calls"][0]["buffers"] = 1000;
  expectMessage(refuseSession(folder, manifest), {"has 1000 buffers, expected 1 to 64"});
  manifest["library_calls"][0]["workspace_bytes"] = 100;
  expectMessage(refuseSession(folder, manifest), {"100 bytes, expected a multiple of 64"});
}

TEST(LibraryCallTest, AFailingCallEndsTheStep) {
  TemporaryFolder folder;
  json manifest = getLibraryManifest();
  manifest["library_calls"][0]["fails"] = true;
  auto session =
      openSession(writePackage(folder, manifest, "TinyCallsLibrary"), {}, createTinyCall);
  ASSERT_TRUE(session);
  initialize(*session);
  expectMessage(session->runStep().getMessage(),
                {"instruction 0 'logits'", "library_calls[0]: out of luck"});
}

//===----------------------------------------------------------------------===//
// First values
//===----------------------------------------------------------------------===//

TEST(InitializationTest, AbsentVariablesNeedASource) {
  TemporaryFolder folder;
  json manifest = getTinyManifest();
  manifest["variables"][0]["init"] = "absent";
  auto session = openSession(writePackage(folder, manifest));
  ASSERT_TRUE(session);
  expectMessage(session->initializeFromWeights([](const auto &) { return false; }).getMessage(),
                {"exported without 'net.fc.weight'", "--load=DIR", "--init=random"});
  EXPECT_TRUE(session->initializeRandomly(1).isOk());
  manifest["variables"][2]["init"] = "absent"; // the counter: nobody can guess it
  session = openSession(writePackage(folder, manifest));
  expectMessage(session->initializeRandomly(1).getMessage(), {"buffer 'net.counter'"});
}

TEST(InitializationTest, RandomValuesFollowFromSeedAndName) {
  TemporaryFolder folder;
  json manifest = getTinyManifest();
  manifest["variables"][0]["init_scale"] = 0.5;
  manifest["variables"][1]["init_value"] = 1.0;
  auto session = openSession(writePackage(folder, manifest));
  ASSERT_TRUE(session);
  auto draw = [&](int64_t seed) {
    EXPECT_TRUE(session->initializeRandomly(seed).isOk());
    return std::string(session->getAddress(session->getManifest().variables[0]), 60);
  };
  std::string first = draw(3);
  EXPECT_EQ(getFloats(*session, "net.fc.bias")[4], 1);
  EXPECT_NE(draw(4), first);
  EXPECT_EQ(draw(3), first);
  double squares = 0;
  for (int i = 0; i < 15; ++i)
    squares += std::pow(getFloats(*session, "net.fc.weight")[i], 2);
  EXPECT_GT(squares, 15 * 0.25 * 0.2);
  EXPECT_LT(squares, 15 * 0.25 * 3);
}

TEST(InitializationTest, WeightsMustHaveTheManifestsShape) {
  TemporaryFolder folder;
  std::string package = writePackage(folder, getTinyManifest());
  float value = 0;
  ASSERT_TRUE(writeSafetensors(package + "/weights.safetensors",
                               {{"net.fc.weight", DType::F32, {1}, &value}})
                  .isOk());
  auto session = openSession(package);
  expectMessage(session->initializeFromWeights([](const auto &) { return false; }).getMessage(),
                {"'net.fc.weight' as f32[1], expected f32[5, 3]"});
}
