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
