//===- CudaRanksTest.cpp - what NCCL is asked for -------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Against fakes of the driver and of NCCL, which note what they are given (test/fake-cuda). One
// rank of three is here; its hosts' communicator says what the test wants.
//
//===----------------------------------------------------------------------===//

#include "FakeLibraries.h"
#include "TestSupport.h"
#include "memopt-runtime/device/DeviceCommunicator.h"
#include "memopt-runtime/device/cuda/CudaDriver.h"
#include "memopt-runtime/devices/OpenDevice.h"
#include <cstdlib>
#include <cstring>

using namespace memopt;
using namespace memopt::testing;

namespace {

/// Rank 1 of 3, whose others say the same as it does, but for the first.
class LoneHost final : public Communicator {
public:
  LoneHost() : Communicator(1, 3) {}

  Status allReduce(DType, const char *, char *, int64_t, ThreadPool &) override { return refuse(); }
  Status reduceScatter(DType, const char *, int64_t, char *, int64_t, ThreadPool &) override {
    return refuse();
  }
  Status allGather(const char *, int64_t, char *, int64_t, ThreadPool &) override {
    return refuse();
  }
  Status barrier() override { return Status::ok(); }
  Status exchange(const void *mine, int64_t bytes, void *all) override {
    for (int64_t other = 0; other < ranks; ++other)
      std::memcpy(static_cast<char *>(all) + other * bytes, mine, size_t(bytes));
    if (bytes == sizeof(cuda::CUuuid)) { // which device it has
      if (!isDeviceShared)
        static_cast<char *>(all)[0] = static_cast<char *>(all)[2 * bytes] = 'x';
      return Status::ok();
    }
    std::strcpy(static_cast<char *>(all), "the first rank's");
    return Status::ok();
  }
  Status collect(const char *, int64_t, char *) override { return refuse(); }
  bool isAskedToStop() const override { return false; }
  Status getFailure() const override {
    return isOtherGone ? environmentError("rank 2: its process was ended") : Status::ok();
  }
  Status findClosed() const override {
    return isOtherClosed ? environmentError("waits for rank 2, which has closed its session")
                         : Status::ok();
  }
  void leave(const Status &status) override { reason = status.getMessage(); }
  bool close() override { return true; }

  bool isOtherGone = false, isOtherClosed = false, isDeviceShared = false;
  std::string reason;

private:
  static Status refuse() { return badInput("the hosts exchange no tensors"); }
};

class CudaRanksTest : public ::testing::Test {
protected:
  void SetUp() override {
    setError(0);
    setBusy(false);
    setVersion(23203);
    setStuck(false);
    auto opened = openDevice("cuda");
    ASSERT_TRUE(opened.isOk()) << opened.getMessage();
    device = *std::move(opened);
    auto made = device->createComputeStream();
    ASSERT_TRUE(made.isOk()) << made.getMessage();
    stream = *std::move(made);
    takeLog();
  }

  StatusOr<std::unique_ptr<DeviceCommunicator>> join(double seconds = 60) {
    return device->joinRanks(host, seconds);
  }

  /// What a collective on memory at 0x1000, with the result at 0x8000, asks for.
  std::string start(DeviceCommunicator &ranks, CollectiveKind kind, DType type, int64_t elements,
                    int64_t results) {
    CollectiveSpec spec{kind, type, 0, 0, elements, results};
    takeLog();
    Status status = ranks.start(*stream, spec, reinterpret_cast<const char *>(0x1000),
                                reinterpret_cast<char *>(0x8000));
    return status.isOk() ? takeLog() : status.getMessage();
  }

  static std::string takeLog() {
    return findFake<const char *()>("libnccl.so.2", "fakeNcclTakeLog")();
  }
  static void setError(int result) {
    findFake<void(int)>("libnccl.so.2", "fakeNcclSetError")(result);
  }
  static void setStuck(bool isStuck) {
    findFake<void(bool)>("libnccl.so.2", "fakeNcclSetStuck")(isStuck);
  }
  static void setVersion(int number) {
    findFake<void(int)>("libnccl.so.2", "fakeNcclSetVersion")(number);
  }
  static void setBusy(bool isBusy) {
    findFake<void(int)>("libcuda.so.1", "fakeDriverSetBusy")(isBusy);
  }

  LoneHost host;
  std::unique_ptr<Device> device;
  std::unique_ptr<ComputeStream> stream;
};

} // namespace

TEST_F(CudaRanksTest, TheCommunicatorIsThatOfTheFirstRankAndDoesNotBlock) {
  auto ranks = join();
  ASSERT_TRUE(ranks.isOk()) << ranks.getMessage();
  EXPECT_EQ(takeLog(),
            "init 1 of 3 with the first rank's, version 21700, blocking 0, at most 16 blocks\n");
  EXPECT_EQ((*ranks)->getTakenBytes(), 4096);
  ranks->reset();
  EXPECT_EQ(takeLog(), "finalize\ndestroy\n");
}

/// 10 elements in shards of 4: the last has 2.
TEST_F(CudaRanksTest, OneDeviceIsNotForTwoRanks) {
  host.isDeviceShared = true;
  auto ranks = join();
  EXPECT_EQ(ranks.getCode(), StatusCode::Environment);
  expectMessage(ranks.getMessage(), {"ranks 0 and 1 have the same device", "CUDA_VISIBLE_DEVICES"});
}

TEST_F(CudaRanksTest, ShardsAreSentToAllAndNothingOfThePadding) {
  auto ranks = join();
  ASSERT_TRUE(ranks.isOk()) << ranks.getMessage();
  EXPECT_EQ(start(**ranks, CollectiveKind::AllGather, DType::F32, 4, 10),
            "group\nsend 0x1000 16 of type 0 to 0\nreceive 0x8000 16 of type 0 from 0\n"
            "send 0x1000 16 of type 0 to 2\nreceive 0x8020 8 of type 0 from 2\nend\n");
}

TEST_F(CudaRanksTest, EqualShardsAreGatheredByTheLibrary) {
  auto ranks = join();
  ASSERT_TRUE(ranks.isOk()) << ranks.getMessage();
  EXPECT_EQ(start(**ranks, CollectiveKind::AllGather, DType::F32, 4, 12),
            "all_gather 0x1000 to 0x8000 16 of type 0\n");
}

TEST_F(CudaRanksTest, TermsOfASumGoToTheRankThatAddsThemUp) {
  auto ranks = join();
  ASSERT_TRUE(ranks.isOk()) << ranks.getMessage();
  EXPECT_EQ(start(**ranks, CollectiveKind::AllToAll, DType::F32, 10, 12),
            "group\nsend 0x1000 16 of type 0 to 0\nreceive 0x8000 16 of type 0 from 0\n"
            "send 0x1020 8 of type 0 to 2\nreceive 0x8020 16 of type 0 from 2\nend\n");
  // The second of three shards begins behind the last of five elements.
  EXPECT_EQ(start(**ranks, CollectiveKind::AllToAll, DType::F64, 5, 24),
            "group\nsend 0x1000 40 of type 0 to 0\nend\n");
}

TEST_F(CudaRanksTest, AShardOfOnesOwnIsNotSent) {
  auto ranks = join();
  ASSERT_TRUE(ranks.isOk()) << ranks.getMessage();
  EXPECT_EQ(start(**ranks, CollectiveKind::OwnShard, DType::BF16, 10, 4), "");
}

TEST_F(CudaRanksTest, SumsThatTheLibraryMakesAreCallsOfIt) {
  auto ranks = join();
  ASSERT_TRUE(ranks.isOk()) << ranks.getMessage();
  EXPECT_EQ(start(**ranks, CollectiveKind::AllReduce, DType::F32, 10, 10),
            "all_reduce 0x1000 to 0x8000 10 of type 7 by 0\n");
  EXPECT_EQ(start(**ranks, CollectiveKind::ReduceScatter, DType::I64, 12, 4),
            "reduce_scatter 0x1000 to 0x8000 4 of type 4 by 0\n");
}

//===----------------------------------------------------------------------===//
// What goes wrong
//===----------------------------------------------------------------------===//

TEST_F(CudaRanksTest, AWaitEndsWhenARankIsGone) {
  auto ranks = join();
  ASSERT_TRUE(ranks.isOk()) << ranks.getMessage();
  EXPECT_TRUE((*ranks)->wait(*stream).isOk());
  takeLog();
  setBusy(true);
  host.isOtherGone = true;
  EXPECT_EQ((*ranks)->wait(*stream).getMessage(), "rank 2: its process was ended");
  EXPECT_EQ(takeLog(), "abort\n");
  EXPECT_EQ(start(**ranks, CollectiveKind::AllGather, DType::F32, 4, 10),
            "the ranks' communicator was given up");
  ranks->reset();
  EXPECT_EQ(takeLog(), ""); // nothing is asked of what was aborted
}

/// It has closed after its last collective, of which something may still be on its way.
TEST_F(CudaRanksTest, AWaitEndsWhenARankHasClosed) {
  auto ranks = join();
  ASSERT_TRUE(ranks.isOk()) << ranks.getMessage();
  host.isOtherClosed = true;
  EXPECT_TRUE((*ranks)->wait(*stream).isOk()); // nothing is waited for
  takeLog();
  setBusy(true);
  Status status = (*ranks)->wait(*stream);
  EXPECT_EQ(status.getCode(), StatusCode::Environment);
  EXPECT_EQ(status.getMessage(), "waits for rank 2, which has closed its session");
  EXPECT_EQ(takeLog(), "abort\n");
  EXPECT_EQ(host.reason, status.getMessage());
}

/// NCCL destroys a communicator when all ranks do so: who closes first does not stay for the others.
TEST_F(CudaRanksTest, ARankThatClosesLeavesOthersBehind) {
  auto ranks = join();
  ASSERT_TRUE(ranks.isOk()) << ranks.getMessage();
  takeLog();
  setStuck(true);
  ranks->reset();
  EXPECT_EQ(takeLog(), "finalize\nabort\n");
  EXPECT_EQ(host.reason, ""); // it is no failure
}

TEST_F(CudaRanksTest, NoWaitIsLongerThanTheLimit) {
  auto ranks = join(/*seconds=*/0.05);
  ASSERT_TRUE(ranks.isOk()) << ranks.getMessage();
  auto event = device->createEvent();
  ASSERT_TRUE(event.isOk());
  takeLog();
  setBusy(true);
  Status status = (*ranks)->wait(**event);
  EXPECT_EQ(status.getCode(), StatusCode::Environment);
  expectMessage(status.getMessage(), {"waited 0 s for the devices of other ranks",
                                      "--rank-timeout=SECONDS gives them longer"});
  EXPECT_EQ(takeLog(), "abort\n");
  EXPECT_EQ(host.reason, status.getMessage()); // the others are told
}

TEST_F(CudaRanksTest, AFailureOfTheLibraryIsNamedAndTheOthersAreTold) {
  auto ranks = join();
  ASSERT_TRUE(ranks.isOk()) << ranks.getMessage();
  takeLog();
  setError(6);
  Status status = (*ranks)->wait(*stream);
  expectMessage(status.getMessage(), {"ncclCommGetAsyncError: this is a fake (result 6)"});
  EXPECT_EQ(takeLog(), "abort\n");
  EXPECT_EQ(host.reason, status.getMessage());
}

TEST_F(CudaRanksTest, AnOldLibraryIsRefused) {
  ::unsetenv("CUDA_HOME"); // another one may be there
  setVersion(21805);
  auto ranks = join();
  EXPECT_EQ(ranks.getCode(), StatusCode::Environment);
  expectMessage(ranks.getMessage(),
                {"NCCL is of version 2.18, memopt needs 2.19 or newer", "nvidia-nccl-cu13"});
}
