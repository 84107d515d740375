//===- CommunicatorTest.cpp - transports, and the suite that all pass -----===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CommunicatorConformance.h"
#include "TestSupport.h"
#include "memopt-runtime/device/RankDevice.h"
#include "memopt-runtime/ranks/SharedRanks.h"
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <functional>
#include <optional>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace memopt;
using namespace memopt::testing;

namespace memopt::testing {
struct SharedGroup {
  static StatusOr<std::unique_ptr<SharedGroup>> create(int64_t ranks, int64_t bytes,
                                                       double seconds) {
    auto group = std::make_unique<SharedGroup>();
    MEMOPT_ASSIGN_OR_RETURN(group->ranks, SharedRanks::create(ranks, bytes, false, seconds));
    group->bytes = bytes;
    return group;
  }
  std::unique_ptr<Communicator> join(int64_t rank) { return ranks->join(rank); }
  std::unique_ptr<Arena> allocate(int64_t rank) {
    return *openRankDevice(*ranks, rank)->allocate(MEMOPT_SPACE_DEVICE, bytes, false);
  }

  std::unique_ptr<SharedRanks> ranks;
  int64_t bytes = 0;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Shared, CommunicatorConformance, SharedGroup);

/// Ranks that each map the memory for themselves, as processes of a launcher do.
struct AttachedGroup {
  static StatusOr<std::unique_ptr<AttachedGroup>> create(int64_t ranks, int64_t bytes,
                                                         double seconds) {
    auto group = std::make_unique<AttachedGroup>();
    MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<SharedRanks> first,
                            SharedRanks::create(ranks, bytes, false, seconds));
    group->bytes = bytes;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      MEMOPT_ASSIGN_OR_RETURN(
          std::unique_ptr<SharedRanks> own,
          SharedRanks::attach(Descriptor(::dup(first->getMemory())), ranks, bytes, false, seconds));
      group->ranks.push_back(std::move(own));
    }
    return group;
  }
  std::unique_ptr<Communicator> join(int64_t rank) { return ranks[size_t(rank)]->join(rank); }
  std::unique_ptr<Arena> allocate(int64_t rank) {
    return *openRankDevice(*ranks[size_t(rank)], rank)->allocate(MEMOPT_SPACE_DEVICE, bytes, false);
  }

  std::vector<std::unique_ptr<SharedRanks>> ranks;
  int64_t bytes = 0;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Attached, CommunicatorConformance, AttachedGroup);
} // namespace memopt::testing

TEST(SharedRanksTest, MoreMemoryThanThereIsIsRefused) {
  auto group = SharedRanks::create(1 << 10, int64_t(1) << 40, false, 1);
  EXPECT_EQ(group.getCode(), StatusCode::Environment);
  expectMessage(group.getMessage(), {"1024 ranks take 1099511627776 bytes each"});
  EXPECT_EQ(SharedRanks::create(0, 64, false, 1).getCode(), StatusCode::BadInput);
}

TEST(SharedRanksTest, ARankHasTheArenaThatItsProgramAsksFor) {
  auto group = SharedRanks::create(2, 4096, true, 1);
  ASSERT_TRUE(group.isOk()) << group.getMessage();
  std::unique_ptr<Device> device = openRankDevice(**group, 1);
  EXPECT_EQ(device->allocate(MEMOPT_SPACE_DEVICE, 64, true).getCode(), StatusCode::BadInput);
  EXPECT_EQ(device->allocate(MEMOPT_SPACE_DEVICE, 4096, false).getCode(), StatusCode::BadInput);
  auto arena = device->allocate(MEMOPT_SPACE_DEVICE, 4096, true);
  ASSERT_TRUE(arena.isOk()) << arena.getMessage();
  (*arena)->base()[100] = 0;
  EXPECT_TRUE((*arena)->updateMark().isOk());
  EXPECT_EQ((*arena)->usedPeakBytes(), 101);
  EXPECT_TRUE((*arena)->isGuard((*arena)->base() + 4096));
  auto host = device->allocate(MEMOPT_SPACE_HOST, 128, false); // that of any cpu
  ASSERT_TRUE(host.isOk()) << host.getMessage();
  EXPECT_EQ((*host)->size(), 128);
}

TEST(SharedRanksTest, OnlyMemoryOfTheSameNumbersIsAttached) {
  auto group = SharedRanks::create(2, 4096, false, 1);
  ASSERT_TRUE(group.isOk()) << group.getMessage();
  auto attach = [&](int file, int64_t ranks) {
    return SharedRanks::attach(Descriptor(::dup(file)), ranks, 4096, false, 1);
  };
  EXPECT_TRUE(attach((*group)->getMemory(), 2).isOk());
  auto other = attach((*group)->getMemory(), 3);
  EXPECT_EQ(other.getCode(), StatusCode::Environment);
  expectMessage(other.getMessage(), {"the memory of 3 ranks with 4096 bytes each"});
  // Of the right size, but it may become shorter.
  Descriptor loose(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(loose.get(), ::lseek((*group)->getMemory(), 0, SEEK_END)), 0);
  EXPECT_EQ(attach(loose.get(), 2).getCode(), StatusCode::Environment);
  EXPECT_EQ(attach(-1, 2).getCode(), StatusCode::Environment);
}

TEST(SharedRanksTest, TheReasonIsToldOnce) {
  auto group = SharedRanks::create(2, 64, false, 1);
  ASSERT_TRUE(group.isOk()) << group.getMessage();
  auto other = SharedRanks::attach(Descriptor(::dup((*group)->getMemory())), 2, 64, false, 1);
  ASSERT_TRUE(other.isOk()) << other.getMessage();
  (*group)->leave(1, badInput("its data is damaged"));
  EXPECT_EQ((*other)->getReason().getMessage(), "rank 1: its data is damaged");
  EXPECT_TRUE((*other)->claimReason());
  EXPECT_FALSE((*group)->claimReason());
}

// Sanitizers make thousands of instructions of each.
#if !defined(__has_feature)
#define __has_feature(feature) 0
#endif
#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)

/// Runs `work` in a process that is killed after so many instructions; whether it did its work
/// before. Nothing where processes cannot be watched.
static std::optional<bool> killAfter(int64_t instructions, const std::function<void()> &work) {
  pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0)
      ::_exit(1);
    ::raise(SIGSTOP);
    work();
    ::_exit(0);
  }
  int status = 0;
  bool isStopped = ::waitpid(child, &status, 0) == child && WIFSTOPPED(status);
  if (!isStopped)
    return std::nullopt;
  for (int64_t i = 0; i < instructions && WIFSTOPPED(status); ++i)
    if (::ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) != 0 ||
        ::waitpid(child, &status, 0) != child)
      break;
  bool isDone = WIFEXITED(status);
  if (!isDone) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
  }
  return isDone;
}

/// Wherever in leave() a rank is killed: the others neither wait for its reason nor lose theirs.
TEST(SharedRanksTest, WhoIsKilledWhileItLeavesKeepsNobodyWaiting) {
  const Status reason = badInput(std::string(1500, 'r'));
  std::optional<bool> isDone = false;
  int64_t told = 0, untold = 0;
  for (int64_t instructions = 0; !*isDone; instructions += 1 + instructions / 20) {
    auto group = SharedRanks::create(2, 64, false, 1);
    ASSERT_TRUE(group.isOk()) << group.getMessage();
    isDone = killAfter(instructions, [&] { (*group)->leave(1, reason); });
    if (!isDone)
      GTEST_SKIP() << "no process may watch another here";
    if ((*group)->getReason().isOk())
      (*group)->leave(1, badInput("its process was ended"));
    Status found = (*group)->getReason();
    bool isTold = found.getMessage() == "rank 1: " + reason.getMessage();
    (isTold ? told : untold) += 1;
    EXPECT_TRUE(isTold || found.getMessage() == "rank 1: its process was ended")
        << instructions << ": " << found.getMessage();
  }
  EXPECT_GT(told, 0);
  EXPECT_GT(untold, 10);
}

#endif

TEST(SharedRanksTest, ARankWritesItsOwnArenaAlone) {
  auto group = SharedRanks::create(2, 64, false, 1);
  ASSERT_TRUE(group.isOk()) << group.getMessage();
  auto own = openRankDevice(**group, 0)->allocate(MEMOPT_SPACE_DEVICE, 64, false);
  ASSERT_TRUE(own.isOk()) << own.getMessage();
  (*own)->base()[0] = 'x';
  // The system says whether memory may be written without a fault.
  Descriptor zeros(::open("/dev/zero", O_RDONLY));
  char *other = (*group)->getRegion(1) + ((*own)->base() - (*group)->getRegion(0));
  EXPECT_EQ(::read(zeros.get(), (*own)->base(), 1), 1);
  EXPECT_EQ(other[0], 0);
  EXPECT_EQ(::read(zeros.get(), other, 1), -1);
  EXPECT_EQ(errno, EFAULT);
}
