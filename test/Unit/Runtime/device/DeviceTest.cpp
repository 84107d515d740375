//===- DeviceTest.cpp - devices, and the suite that all pass --------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DeviceConformance.h"
#include "memopt-runtime/devices/OpenDevice.h"

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
