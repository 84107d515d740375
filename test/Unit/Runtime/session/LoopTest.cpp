//===- LoopTest.cpp - repeats, transfers and faults of a step -------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestSupport.h"
#include "memopt-runtime/session/Session.h"
#include <cmath>
#include <cstring>
#include <limits>

using namespace memopt;
using namespace memopt::testing;
using nlohmann::json;

/// Numbers 1, 2, ... in the order of samples; one of them, if asked for, is another.
static BatchFiller countSamples(int changed = -1, float value = 0) {
  return [=](int64_t iteration, const std::vector<char *> &targets) {
    auto *x = reinterpret_cast<float *>(targets[0]);
    for (int row = 0; row < LOOP_ROWS; ++row) {
      int sample = int(iteration) * LOOP_ROWS + row;
      x[row] = sample == changed ? value : float(sample + 1);
    }
    return Status::ok();
  };
}

/// Sum of the squares of 1 to 6.
static constexpr float lossOfAStep = 91;

static std::unique_ptr<Session> openLoop(const TemporaryFolder &folder,
                                         const std::string &program = "TinyLoop") {
  auto session = openSession(writePackage(folder, getLoopManifest(), program), {true, true});
  if (!session)
    return nullptr;
  EXPECT_TRUE(session->initializeFromWeights([](const auto &) { return false; }).isOk());
  session->setBatches(countSamples());
  return session;
}

static float getState(Session &session) {
  return float(readElement(
      DType::F32, session.getAddress(*session.getManifest().findVariable("optimizer.state")), 0));
}

TEST(LoopTest, EachIterationGetsItsSamplesAndTheirPlaceInTheStep) {
  TemporaryFolder folder;
  auto session = openLoop(folder);
  ASSERT_TRUE(session);
  for (int step = 1; step <= 3; ++step) {
    Status status = session->runStep();
    ASSERT_TRUE(status.isOk()) << status.getMessage();
    EXPECT_EQ(session->readScalar(session->getManifest().outputs[0]), lossOfAStep);
    // Fetched from the host's memory, added to, and stored there again.
    EXPECT_EQ(getState(*session), float(step) * lossOfAStep);
  }
  EXPECT_EQ(session->getUsedPeakBytes()[MEMOPT_SPACE_HOST], 4);
}

TEST(LoopTest, ASampleOutOfRangeNamesItsBatch) {
  TemporaryFolder folder;
  json manifest = getLoopManifest();
  json &input = manifest["inputs"][0];
  input["dtype"] = "i32";
  input["valid_range"] = {{"min", 0}, {"max", 9}};
  auto session = openSession(writePackage(folder, manifest, "TinyLoop"));
  ASSERT_TRUE(session);
  session->setBatches([](int64_t iteration, const std::vector<char *> &targets) {
    int32_t values[LOOP_ROWS] = {0, iteration == 1 ? 12 : 3};
    std::memcpy(targets[0], values, sizeof values);
    return Status::ok();
  });
  expectMessage(session->runStep().getMessage(),
                {"batch 2 of 3: input 'x' holds 12 at index [1], expected 0 to 9"});
}

TEST(LoopTest, AFailureToReadSamplesEndsTheStep) {
  TemporaryFolder folder;
  auto session = openLoop(folder);
  ASSERT_TRUE(session);
  session->setBatches([](int64_t iteration, const std::vector<char *> &) {
    return iteration == 2 ? environmentError("the disk is gone") : Status::ok();
  });
  Status status = session->runStep();
  EXPECT_EQ(status.getCode(), StatusCode::Environment);
  expectMessage(status.getMessage(), {"batch 3 of 3: the disk is gone"});
  EXPECT_EQ(getState(*session), 0);
}

TEST(LoopTest, ABadLossIsSearchedForOnTheSameSamples) {
  TemporaryFolder folder;
  auto session = openLoop(folder);
  ASSERT_TRUE(session);
  // Only the second batch is bad: the search has to give all three again.
  session->setBatches(countSamples(3, std::numeric_limits<float>::quiet_NaN()));
  expectMessage(session->runStep().getMessage(),
                {"the loss is", "nan", "not a number comes from instruction"});
  EXPECT_EQ(getState(*session), 0);
  session->setBatches(countSamples());
  EXPECT_TRUE(session->runStep().isOk());
  EXPECT_EQ(getState(*session), lossOfAStep);
}

TEST(LoopTest, AnIndexOutOfRangeNamesItsSiteAndChangesNothing) {
  TemporaryFolder folder;
  auto session = openLoop(folder);
  ASSERT_TRUE(session);
  session->setBatches(countSamples(4, 123456));
  Status status = session->runStep();
  EXPECT_EQ(status.getCode(), StatusCode::BadInput);
  expectMessage(status.getMessage(), {"index 123456 is out of range in 'embedding' of module "
                                      "'net.table', expected -100 to 100 (rows of the table)"});
  EXPECT_EQ(getState(*session), 0);
  // Signs come back from 48 bits.
  session->setBatches(countSamples(0, -5000));
  expectMessage(session->runStep().getMessage(), {"index -5000 is out of range"});
  session->setBatches(countSamples());
  EXPECT_TRUE(session->runStep().isOk());
}

TEST(LoopTest, ProgramsThatMisuseTransfersOrRepeatsAreNamed) {
  const std::pair<const char *, const char *> misuses[] = {
      {"LoopWaitsFirst", "the program waits for transfer 1, which it did not start"},
      {"LoopStartsTwice", "the program starts transfer 0 again before its wait"},
      {"LoopRunsOn", "asks for the samples of iteration 3, its manifest knows 3"},
      {"LoopLeaves", "ended its step with code 9 in instruction 2 'fetch'"},
      {"LoopFaultsLate", "after the state has changed: index 7 is out of range in 'embedding'"},
  };
  for (auto [program, message] : misuses) {
    TemporaryFolder folder;
    auto session = openLoop(folder, program);
    ASSERT_TRUE(session);
    // Whatever was in flight is out of it again: a second step goes just as far.
    for (int step = 0; step < 2; ++step)
      expectMessage(session->runStep().getMessage(), {message});
  }
}

//===----------------------------------------------------------------------===//
// Transfers that fail
//===----------------------------------------------------------------------===//

namespace {
/// The cpu, but for copies out of the host's arena, which fail when they are waited for.
class FailingDevice : public Device {
public:
  std::string getName() const override { return "cpu"; }
  StatusOr<std::unique_ptr<Arena>> allocate(int space, int64_t bytes, bool isChecked) override {
    return getCpu().allocate(space, bytes, isChecked);
  }
  StatusOr<std::unique_ptr<Stream>> createStream(int64_t) override {
    return std::unique_ptr<Stream>(std::make_unique<FailingStream>());
  }
  StatusOr<std::unique_ptr<Event>> createEvent() override {
    return std::unique_ptr<Event>(std::make_unique<FailingEvent>());
  }

private:
  struct FailingEvent : Event {
    Status synchronize() override { return environmentError("the cable was pulled"); }
  };
  struct FailingStream : Stream {
    Status copy(Arena &, int64_t, const Arena &, int64_t, int64_t) override { return Status::ok(); }
    Status record(Event &) override { return Status::ok(); }
    Status waitFor(Event &) override { return Status::ok(); }
    Status synchronize() override { return Status::ok(); }
  };
};
} // namespace

TEST(LoopTest, ATransferThatFailsEndsTheStepAtItsWait) {
  TemporaryFolder folder;
  auto package = Package::load(writePackage(folder, getLoopManifest(), "TinyLoop"));
  ASSERT_TRUE(package.isOk()) << package.getMessage();
  FailingDevice device;
  auto session = Session::create(*std::move(package), device, refuseCalls, {});
  ASSERT_TRUE(session.isOk()) << session.getMessage();
  (*session)->setBatches(countSamples());
  Status status = (*session)->runStep();
  EXPECT_EQ(status.getCode(), StatusCode::Environment);
  expectMessage(status.getMessage(),
                {"instruction 3 'update'", "transfer 0 by 'copy_in': the cable was pulled"});
}
