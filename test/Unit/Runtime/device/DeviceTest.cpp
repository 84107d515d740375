//===- DeviceTest.cpp - devices, and the suite that all pass --------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DeviceConformance.h"
#include "memopt-runtime/devices/OpenDevice.h"
#include <algorithm>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

using namespace memopt;

namespace memopt::testing {
struct OpenCpu {
  static StatusOr<std::unique_ptr<Device>> open() { return openDevice("cpu"); }
};
struct OpenCuda {
  static StatusOr<std::unique_ptr<Device>> open() { return openDevice("cuda"); }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Cpu, DeviceConformance, OpenCpu);
INSTANTIATE_TYPED_TEST_SUITE_P(Cuda, DeviceConformance, OpenCuda);
} // namespace memopt::testing

TEST(DeviceTest, AMissingDeviceIsAnEnvironmentError) {
  EXPECT_TRUE(openDevice("cpu").isOk());
  EXPECT_EQ(openDevice("cuda").getCode(), StatusCode::Environment);
  EXPECT_EQ(openDevice("abacus").getCode(), StatusCode::BadInput);
}

/// Bytes of these pages that are in memory.
static int64_t countResident(const char *begin, int64_t bytes) {
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> isThere(size_t((bytes + page - 1) / page));
  EXPECT_EQ(::mincore(const_cast<char *>(begin), size_t(bytes), isThere.data()), 0);
  return page * std::count_if(isThere.begin(), isThere.end(),
                              [](unsigned char flags) { return flags & 1; });
}

/// A page lies near the thread that first writes to it, and an arena may have many gigabytes of
/// them: they come once, from the threads of the run.
TEST(DeviceTest, PagesOfAnArenaComeFromTheThreadsThatResetIt) {
  constexpr int64_t bytes = 9 << 20;
  auto arena = HostArena::allocate(bytes, false);
  ASSERT_TRUE(arena.isOk()) << arena.getMessage();
  const char *base = (*arena)->base();
  EXPECT_LT(countResident(base, bytes), bytes / 4);
  auto runPieces = [&](int64_t count, const PieceWork &work) {
    EXPECT_EQ(count, 5); // of two MiB, the last one half
    for (int64_t piece = 0; piece < count; ++piece)
      work(piece, piece + 1);
  };
  ASSERT_TRUE((*arena)->reset(runPieces).isOk());
  EXPECT_EQ(countResident(base, bytes), bytes);
}
