//===- AssemblerTest.cpp - what ptxas says, and what follows --------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Threads/Nvvm/DeviceCode.h"

#include "gtest/gtest.h"

using namespace mlir::memopt;

TEST(AssemblerTest, ReadsWhatKernelsTake) {
  auto kernels =
      parseResources("ptxas info    : Compiling entry function 'scale' for 'sm_90'\n"
                     "    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n"
                     "ptxas info    : Used 128 registers, used 1 barriers, 64 bytes smem\n");
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].name, "scale");
  EXPECT_EQ(kernels[0].registers, 128);
  EXPECT_EQ(kernels[0].stackBytes, 8);
  EXPECT_EQ(kernels[0].spillBytes, 16);
  EXPECT_EQ(kernels[0].sharedBytes, 64);
}

TEST(AssemblerTest, CountsBlocksThatRunAtOnce) {
  MultiprocessorLimits h100{2048, 32, 65536, 233472, 1024}, ada{1536, 24, 65536, 102400, 1024};
  auto count = [](const MultiprocessorLimits &limits, int64_t registers, int64_t threads,
                  int64_t staticBytes = 0, int64_t dynamicBytes = 0) {
    KernelResources kernel{"kernel", registers};
    kernel.sharedBytes = staticBytes;
    return limits.countResidentBlocks(kernel, {"kernel", 0, 1, threads, dynamicBytes});
  };
  EXPECT_EQ(count(h100, 32, 256), 8);
  EXPECT_EQ(count(h100, 38, 256), 6); // 40 registers, 12 warps in each part
  EXPECT_EQ(count(h100, 128, 256), 2);
  EXPECT_EQ(count(h100, 255, 256), 1);
  EXPECT_EQ(count(h100, 16, 32), 32);
  EXPECT_EQ(count(h100, 32, 256, 40000, 36000), 3);
  EXPECT_EQ(count(ada, 32, 256), 6);
  EXPECT_EQ(count(ada, 255, 1024), 1); // less than what it asks for
}

TEST(AssemblerTest, GivesAllRegistersToWhoSpills) {
  std::string ptx = ".visible .entry first(\n)\n.maxntid 256\n.minnctapersm 2\n{\n}\n"
                    ".visible .entry first_too(\n)\n.maxntid 256\n.minnctapersm 2\n{\n}\n"
                    ".visible .entry whole(\n)\n.maxntid 256\n.minnctapersm 1\n{\n}\n";
  KernelResources fits{"first", 128}, spills{"first_too", 128}, hasAll{"whole", 255};
  spills.spillBytes = 8;
  hasAll.stackBytes = 8;
  std::string before = ptx;
  EXPECT_FALSE(giveAllRegisters(ptx, {fits, hasAll}));
  EXPECT_EQ(ptx, before);
  EXPECT_TRUE(giveAllRegisters(ptx, {fits, spills, hasAll}));
  EXPECT_EQ(ptx, ".visible .entry first(\n)\n.maxntid 256\n.minnctapersm 2\n{\n}\n"
                 ".visible .entry first_too(\n)\n.maxntid 256\n.minnctapersm 1\n{\n}\n"
                 ".visible .entry whole(\n)\n.maxntid 256\n.minnctapersm 1\n{\n}\n");
}
