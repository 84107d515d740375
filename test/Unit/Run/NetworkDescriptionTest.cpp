//===- NetworkDescriptionTest.cpp -----------------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-run/ranks/NetworkDescription.h"

#include "gtest/gtest.h"

using namespace memopt;

/// What a collective of 4 ranks takes over a link.
static TimedCollective over(const NetworkLink &link, int64_t bytes) {
  return {bytes, link.latency + 0.75 * double(bytes) / link.bytesPerSecond};
}

TEST(NetworkDescriptionTest, ALinkIsFoundFromWhatItTook) {
  for (const NetworkLink &link : {NetworkLink{2e-4, 2.5e7}, NetworkLink{1e-6, 4e11}}) {
    NetworkLink found = fitLink(over(link, 4096), over(link, 8 << 20), 4);
    EXPECT_NEAR(found.latency / link.latency, 1, 1e-6);
    EXPECT_NEAR(found.bytesPerSecond / link.bytesPerSecond, 1, 1e-6);
  }
}

/// Four hosts of two ranks: what a host takes by itself is taken out.
TEST(NetworkDescriptionTest, TheLinkBetweenHostsIsFoundBesideThatInside) {
  const NetworkLink inside{1e-6, 1e10}, between{2e-4, 1.25e7};
  auto overHost = [&](int64_t bytes) {
    return TimedCollective{bytes, inside.latency + 0.5 * double(bytes) / inside.bytesPerSecond};
  };
  auto overAll = [&](int64_t bytes) {
    return TimedCollective{bytes, overHost(bytes).seconds + 2 * between.latency +
                                      0.75 * double(bytes / 2) / between.bytesPerSecond};
  };
  NetworkLink found =
      fitOuterLink({overAll(4096), overAll(8 << 20)}, {overHost(4096), overHost(8 << 20)}, 8, 2);
  EXPECT_NEAR(found.latency / between.latency, 1, 1e-6);
  EXPECT_NEAR(found.bytesPerSecond / between.bytesPerSecond, 1, 1e-6);
}

TEST(NetworkDescriptionTest, NoiseGivesNoNegativeLink) {
  NetworkLink found = fitLink({4096, 2e-3}, {8 << 20, 1e-3}, 4); // more bytes took less
  EXPECT_GE(found.latency, 0);
  EXPECT_GT(found.bytesPerSecond, 0);
  found = fitLink({4096, 1e-9}, {8 << 20, 1}, 4); // no latency is left
  EXPECT_EQ(found.latency, 0);
}
