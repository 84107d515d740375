//===- DeviceConformance.h - what every device must pass --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A device joins with a type that opens it,
//
//   struct OpenCpu { static StatusOr<std::unique_ptr<Device>> open(); };
//   INSTANTIATE_TYPED_TEST_SUITE_P(Cpu, DeviceConformance, OpenCpu);
//
// and where it is not there, and says so by an Environment error, its tests are skipped. The host
// touches memory of the host's space alone; what lies elsewhere is copied there and back.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TEST_RUNTIME_DEVICECONFORMANCE_H
#define MEMOPT_TEST_RUNTIME_DEVICECONFORMANCE_H

#include "memopt-runtime/device/Device.h"
#include "memopt-runtime/interface/ProgramInterface.h"
#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <thread>
#include <vector>

namespace memopt::testing {

template <typename Opener> class DeviceConformance : public ::testing::Test {
protected:
  void SetUp() override {
    auto opened = Opener::open();
    if (!opened.isOk() && opened.getCode() == StatusCode::Environment)
      GTEST_SKIP() << opened.getMessage();
    ASSERT_TRUE(opened.isOk()) << opened.getMessage();
    device = *std::move(opened);
  }

  std::unique_ptr<Arena> allocate(int space, int64_t bytes, bool isChecked = false) {
    auto arena = device->allocate(space, bytes, isChecked);
    EXPECT_TRUE(arena.isOk()) << arena.getMessage();
    return arena.isOk() ? *std::move(arena) : nullptr;
  }
  std::unique_ptr<Stream> createStream(int64_t capacity = 64) {
    auto stream = device->createStream(capacity);
    EXPECT_TRUE(stream.isOk()) << stream.getMessage();
    return stream.isOk() ? *std::move(stream) : nullptr;
  }
  std::unique_ptr<Event> createEvent() {
    auto event = device->createEvent();
    EXPECT_TRUE(event.isOk()) << event.getMessage();
    return event.isOk() ? *std::move(event) : nullptr;
  }

  static void expectOk(const Status &status) { EXPECT_TRUE(status.isOk()) << status.getMessage(); }

  /// Bytes that differ from place to place and from one `seed` to the next.
  static char getByte(int64_t position, int seed) {
    return char(position * 31 + (position >> 8) * 7 + seed * 101 + 1);
  }
  static void fill(Arena &host, int seed) {
    for (int64_t i = 0; i < host.size(); ++i)
      host.base()[i] = getByte(i, seed);
  }
  static void expectFilled(const Arena &host, int seed) {
    for (int64_t i = 0; i < host.size(); ++i)
      ASSERT_EQ(host.base()[i], getByte(i, seed)) << "byte " << i;
  }

  std::unique_ptr<Device> device;
};

TYPED_TEST_SUITE_P(DeviceConformance);

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

TYPED_TEST_P(DeviceConformance, MemoryOfEachSpaceIsAlignedAndZero) {
  for (int space : {MEMOPT_SPACE_DEVICE, MEMOPT_SPACE_HOST})
    for (int64_t bytes : {int64_t(1), int64_t(64), int64_t(1000), int64_t(1) << 20}) {
      auto arena = this->allocate(space, bytes);
      ASSERT_TRUE(arena);
      EXPECT_EQ(arena->size(), bytes);
      EXPECT_GE(arena->residentBytes(), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->base()) % 64, 0u);
      auto host = this->allocate(MEMOPT_SPACE_HOST, bytes);
      ASSERT_TRUE(host && host->isHostAccessible());
      this->fill(*host, 1);
      auto stream = this->createStream();
      this->expectOk(stream->copy(*host, 0, *arena, 0, bytes));
      this->expectOk(stream->synchronize());
      EXPECT_EQ(std::count(host->base(), host->base() + bytes, 0), bytes);
    }
}

TYPED_TEST_P(DeviceConformance, NoBytesAreNoMemory) {
  auto arena = this->allocate(MEMOPT_SPACE_DEVICE, 0);
  ASSERT_TRUE(arena);
  EXPECT_EQ(arena->base(), nullptr);
  EXPECT_EQ(arena->size(), 0);
}

TYPED_TEST_P(DeviceConformance, ImpossibleSizesAreRefused) {
  for (int space : {MEMOPT_SPACE_DEVICE, MEMOPT_SPACE_HOST}) {
    auto huge = this->device->allocate(space, int64_t(1) << 60, false);
    EXPECT_EQ(huge.getCode(), StatusCode::Environment);
    EXPECT_NE(huge.getMessage().find("1152921504606846976"), std::string::npos)
        << huge.getMessage();
    EXPECT_FALSE(this->device->allocate(space, std::numeric_limits<int64_t>::max(), false).isOk());
    EXPECT_EQ(this->device->allocate(space, -1, false).getCode(), StatusCode::BadInput);
  }
  // And the device is none the worse for it.
  EXPECT_TRUE(this->allocate(MEMOPT_SPACE_DEVICE, 4096));
}

//===----------------------------------------------------------------------===//
// What is used
//===----------------------------------------------------------------------===//

TYPED_TEST_P(DeviceConformance, CheckedMemoryKnowsTheHighestByteWritten) {
  auto host = this->allocate(MEMOPT_SPACE_HOST, 1000);
  auto arena = this->allocate(MEMOPT_SPACE_DEVICE, 1000, /*isChecked=*/true);
  auto stream = this->createStream();
  ASSERT_TRUE(host && arena && stream);
  auto write = [&](int64_t offset, int64_t bytes) {
    this->expectOk(stream->copy(*arena, offset, *host, offset, bytes)); // zeros
    this->expectOk(stream->synchronize());
    this->expectOk(arena->updateMark());
    return arena->usedPeakBytes();
  };
  this->expectOk(arena->updateMark());
  EXPECT_EQ(arena->usedPeakBytes(), 0);
  EXPECT_EQ(write(300, 100), 400);
  EXPECT_EQ(write(0, 10), 400);
  arena->noteHandedOut(arena->base() + 500, 50);
  EXPECT_EQ(arena->usedPeakBytes(), 550);
  arena->noteHandedOut(host->base(), 1000); // another's
  EXPECT_EQ(arena->usedPeakBytes(), 550);
  EXPECT_EQ(write(999, 1), 1000);
  this->expectOk(arena->checkSlack());
  this->expectOk(arena->reset());
  this->expectOk(arena->updateMark());
  EXPECT_EQ(arena->usedPeakBytes(), 0);
}

TYPED_TEST_P(DeviceConformance, WritesBesideAnArenaAreFound) {
  auto arena = this->allocate(MEMOPT_SPACE_DEVICE, 1000, /*isChecked=*/true);
  ASSERT_TRUE(arena);
  char zero = 0;
  this->expectOk(arena->write(1000, &zero, 1)); // inside the rounding to 64
  EXPECT_NE(arena->checkSlack().getMessage().find("at offset 1000"), std::string::npos);
  EXPECT_TRUE(arena->isGuard(arena->base() + 1024));
  EXPECT_FALSE(arena->isGuard(arena->base() + 999));
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

TYPED_TEST_P(DeviceConformance, BytesGoThereAndBackThroughEverySpace) {
  constexpr int64_t bytes = (1 << 20) + 13;
  auto from = this->allocate(MEMOPT_SPACE_HOST, bytes),
       to = this->allocate(MEMOPT_SPACE_HOST, bytes);
  auto first = this->allocate(MEMOPT_SPACE_DEVICE, bytes + 1),
       second = this->allocate(MEMOPT_SPACE_DEVICE, bytes + 100);
  auto stream = this->createStream();
  ASSERT_TRUE(from && to && first && second && stream);
  this->fill(*from, 1);
  this->expectOk(stream->copy(*first, 1, *from, 0, bytes));
  this->expectOk(stream->copy(*second, 50, *first, 1, bytes));
  this->expectOk(stream->copy(*to, 0, *second, 50, bytes));
  this->expectOk(stream->synchronize());
  this->expectFilled(*to, 1);
}

TYPED_TEST_P(DeviceConformance, TheHostReadsAndWritesEverySpace) {
  constexpr int64_t bytes = (3 << 20) + 5; // more than goes there at once
  std::vector<char> from(bytes), to(bytes);
  for (int64_t i = 0; i < bytes; ++i)
    from[size_t(i)] = this->getByte(i, 5);
  for (int space : {MEMOPT_SPACE_DEVICE, MEMOPT_SPACE_HOST}) {
    auto arena = this->allocate(space, bytes + 7);
    ASSERT_TRUE(arena);
    this->expectOk(arena->write(7, from.data(), bytes));
    this->expectOk(arena->read(7, to.data(), bytes));
    EXPECT_EQ(from, to);
    this->expectOk(arena->read(0, to.data(), 7));
    EXPECT_EQ(std::count(to.begin(), to.begin() + 7, 0), 7);
    this->expectOk(arena->read(0, to.data(), 0));
  }
}

TYPED_TEST_P(DeviceConformance, CopiesOfAStreamAreDoneInOrder) {
  constexpr int64_t bytes = 4096;
  constexpr int hops = 200;
  auto host = this->allocate(MEMOPT_SPACE_HOST, bytes);
  auto ring = this->allocate(MEMOPT_SPACE_DEVICE, 2 * bytes);
  auto stream = this->createStream(/*capacity=*/4); // more than fits waits for room
  ASSERT_TRUE(host && ring && stream);
  this->fill(*host, 2);
  this->expectOk(stream->copy(*ring, 0, *host, 0, bytes));
  for (int hop = 0; hop < hops; ++hop)
    this->expectOk(stream->copy(*ring, (hop + 1) % 2 * bytes, *ring, hop % 2 * bytes, bytes));
  this->expectOk(stream->copy(*host, 0, *ring, hops % 2 * bytes, bytes));
  this->expectOk(stream->synchronize());
  this->expectFilled(*host, 2);
}

TYPED_TEST_P(DeviceConformance, CopiesThatLeaveAnArenaAreRefused) {
  auto host = this->allocate(MEMOPT_SPACE_HOST, 100);
  auto arena = this->allocate(MEMOPT_SPACE_DEVICE, 100);
  auto stream = this->createStream();
  ASSERT_TRUE(host && arena && stream);
  this->fill(*host, 3);
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  const int64_t bad[][3] = {{0, 0, 101}, {1, 0, 100}, {0, 1, 100},  {-1, 0, 10},  {0, -1, 10},
                            {0, 0, -1},  {101, 0, 0}, {most, 0, 1}, {0, most, 1}, {1, 1, most}};
  for (const auto &[to, from, bytes] : bad)
    EXPECT_EQ(stream->copy(*arena, to, *host, from, bytes).getCode(), StatusCode::BadInput)
        << to << " " << from << " " << bytes;
  this->expectOk(stream->copy(*arena, 100, *host, 100, 0));
  this->expectOk(stream->copy(*host, 0, *arena, 0, 100));
  this->expectOk(stream->synchronize());
  EXPECT_EQ(std::count(host->base(), host->base() + 100, 0), 100); // nothing had been copied
}

//===----------------------------------------------------------------------===//
// Events
//===----------------------------------------------------------------------===//

TYPED_TEST_P(DeviceConformance, AnEventIsReachedWithWhatStandsBeforeIt) {
  constexpr int64_t bytes = 1 << 20;
  auto host = this->allocate(MEMOPT_SPACE_HOST, bytes);
  auto arena = this->allocate(MEMOPT_SPACE_DEVICE, bytes);
  auto stream = this->createStream();
  auto event = this->createEvent();
  ASSERT_TRUE(host && arena && stream && event);
  this->expectOk(event->synchronize()); // never recorded
  for (int round = 0; round < 20; ++round) {
    this->fill(*host, round);
    this->expectOk(stream->copy(*arena, 0, *host, 0, bytes));
    this->expectOk(stream->record(*event));
    this->expectOk(event->synchronize());
    std::memset(host->base(), 0, size_t(bytes)); // the copy has read it
    this->expectOk(stream->copy(*host, 0, *arena, 0, bytes));
    this->expectOk(stream->record(*event));
    this->expectOk(event->synchronize());
    this->expectFilled(*host, round);
  }
}

TYPED_TEST_P(DeviceConformance, AStreamWaitsForAnEventOfAnother) {
  constexpr int64_t bytes = 1 << 18;
  auto host = this->allocate(MEMOPT_SPACE_HOST, bytes),
       back = this->allocate(MEMOPT_SPACE_HOST, bytes);
  auto arena = this->allocate(MEMOPT_SPACE_DEVICE, bytes);
  auto in = this->createStream(), out = this->createStream();
  auto filled = this->createEvent(), emptied = this->createEvent();
  ASSERT_TRUE(host && back && arena && in && out && filled && emptied);
  for (int round = 0; round < 20; ++round) {
    this->fill(*host, round);
    this->expectOk(in->waitFor(*emptied));
    this->expectOk(in->copy(*arena, 0, *host, 0, bytes));
    this->expectOk(in->record(*filled));
    this->expectOk(out->waitFor(*filled));
    this->expectOk(out->copy(*back, 0, *arena, 0, bytes));
    this->expectOk(out->record(*emptied));
    this->expectOk(out->synchronize());
    this->expectFilled(*back, round);
  }
}

TYPED_TEST_P(DeviceConformance, ThreadsUseStreamsOfTheirOwn) {
  std::vector<std::thread> users;
  for (int user = 0; user < 4; ++user)
    users.emplace_back([this, user] {
      auto host = this->allocate(MEMOPT_SPACE_HOST, 5000);
      auto arena = this->allocate(MEMOPT_SPACE_DEVICE, 5000);
      auto stream = this->createStream();
      for (int round = 0; round < 20; ++round) {
        this->fill(*host, user * 20 + round);
        this->expectOk(stream->copy(*arena, 0, *host, 0, 5000));
        this->expectOk(stream->synchronize());
        std::memset(host->base(), 0, 5000);
        this->expectOk(stream->copy(*host, 0, *arena, 0, 5000));
        this->expectOk(stream->synchronize());
        this->expectFilled(*host, user * 20 + round);
      }
    });
  for (std::thread &user : users)
    user.join();
}

TYPED_TEST_P(DeviceConformance, WhatIsInAStreamIsFinishedBeforeItEnds) {
  constexpr int64_t bytes = 1 << 20;
  auto host = this->allocate(MEMOPT_SPACE_HOST, bytes),
       back = this->allocate(MEMOPT_SPACE_HOST, bytes);
  ASSERT_TRUE(host && back);
  this->fill(*host, 4);
  auto stream = this->createStream();
  this->expectOk(stream->copy(*back, 0, *host, 0, bytes));
  stream.reset();
  this->expectFilled(*back, 4);
}

REGISTER_TYPED_TEST_SUITE_P(DeviceConformance, MemoryOfEachSpaceIsAlignedAndZero,
                            NoBytesAreNoMemory, ImpossibleSizesAreRefused,
                            CheckedMemoryKnowsTheHighestByteWritten, WritesBesideAnArenaAreFound,
                            BytesGoThereAndBackThroughEverySpace, TheHostReadsAndWritesEverySpace,
                            CopiesOfAStreamAreDoneInOrder, CopiesThatLeaveAnArenaAreRefused,
                            AnEventIsReachedWithWhatStandsBeforeIt, AStreamWaitsForAnEventOfAnother,
                            ThreadsUseStreamsOfTheirOwn, WhatIsInAStreamIsFinishedBeforeItEnds);

} // namespace memopt::testing

#endif // MEMOPT_TEST_RUNTIME_DEVICECONFORMANCE_H
