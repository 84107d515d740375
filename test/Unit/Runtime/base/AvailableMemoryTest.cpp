//===- AvailableMemoryTest.cpp - limits of control groups -----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/memory/AvailableMemory.h"
#include "TestSupport.h"
#include "memopt-runtime/base/ControlGroups.h"
#include <climits>
#include <filesystem>

using namespace memopt;
using namespace memopt::testing;

namespace {
/// A machine's proc and sys file systems, as far as they are looked at.
class AvailableMemoryTest : public ::testing::Test {
protected:
  void SetUp() override {
    write("proc/meminfo", "MemTotal: 9000 kB\nMemFree: 1 kB\nMemAvailable:    8000 kB\n");
  }

  void write(const std::string &name, const std::string &content) {
    std::filesystem::create_directories(getFolder(folder / name));
    writeFile(folder / name, content);
  }

  /// A group of version 2 that uses `used` bytes, `cache` of them for files.
  void writeGroup(const std::string &name, const std::string &limit, int used, int cache) {
    write(name + "/memory.max", limit + "\n");
    write(name + "/memory.current", std::to_string(used) + "\n");
    write(name + "/memory.stat", "anon 1\ninactive_file " + std::to_string(cache - 1) +
                                     "\nactive_file 1\nunevictable 7\n");
  }

  int64_t available() { return getAvailableMemory(folder.path); }

  TemporaryFolder folder;
};
} // namespace

TEST_F(AvailableMemoryTest, WithoutGroupsItIsTheMachines) {
  EXPECT_EQ(available(), 8000 * 1024);
  EXPECT_GT(getAvailableMemory(), 0);
  std::filesystem::remove(folder / "proc/meminfo");
  EXPECT_GT(available(), int64_t(1) << 40); // nothing known: no more than an address space
}

TEST_F(AvailableMemoryTest, TheTightestGroupAboveCountsWithWhatItUses) {
  write("proc/self/cgroup", "0::/user.slice/job/step\n");
  write("proc/self/mountinfo",
        "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
  writeGroup("sys/fs/cgroup/user.slice", "max", 500, 1);
  writeGroup("sys/fs/cgroup/user.slice/job", "100000", 70000, 20000);
  writeGroup("sys/fs/cgroup/user.slice/job/step", "90000", 10000, 2);
  EXPECT_EQ(available(), 100000 - (70000 - 20000));
  writeGroup("sys/fs/cgroup/user.slice/job/step", "60000", 40000, 10);
  EXPECT_EQ(available(), 60000 - (40000 - 10));
  writeGroup("sys/fs/cgroup/user.slice/job/step", "60000", 70000, 1); // over its limit already
  EXPECT_EQ(available(), 0);
}

TEST_F(AvailableMemoryTest, AContainerSeesItsGroupAsTheTop) {
  write("proc/self/cgroup", "0::/docker/0123/inner\n");
  write("proc/self/mountinfo", "29 23 0:26 /docker/0123 /sys/fs/cgroup rw - cgroup2 cgroup rw\n");
  writeGroup("sys/fs/cgroup", "5000", 1000, 1);
  writeGroup("sys/fs/cgroup/inner", "7000", 1000, 1);
  EXPECT_EQ(available(), 5000 - 999);
  // Another group than ours is mounted: what is seen there is all that is known.
  write("proc/self/cgroup", "0::/elsewhere\n");
  EXPECT_EQ(available(), 5000 - 999);
}

TEST_F(AvailableMemoryTest, TheOldVersionHasOtherNames) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/other\n4:memory:/job\n0::/unified\n");
  write("proc/self/mountinfo",
        "30 23 0:27 / /sys/fs/cgroup/cpu rw shared:1 - cgroup cgroup rw,cpu,cpuacct\n"
        "31 23 0:28 / /sys/fs/cgroup/memory rw shared:2 master:3 - cgroup cgroup rw,memory\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "40000\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "30000\n");
  write("sys/fs/cgroup/memory/job/memory.stat",
        "inactive_file 9\ntotal_inactive_file 5000\ntotal_active_file 1000\n");
  EXPECT_EQ(available(), 40000 - (30000 - 6000));
}

TEST_F(AvailableMemoryTest, TheTightestQuotaOfProcessorsCounts) {
  EXPECT_EQ(getProcessorQuota(folder.path), INT_MAX);
  write("proc/self/cgroup", "0::/pod/container\n");
  write("proc/self/mountinfo", "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  write("sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  EXPECT_EQ(getProcessorQuota(folder.path), INT_MAX);
  write("sys/fs/cgroup/pod/cpu.max", "350000 100000\n"); // three and a half: four would be stopped
  EXPECT_EQ(getProcessorQuota(folder.path), 3);
  write("sys/fs/cgroup/pod/container/cpu.max", "20000 100000\n");
  EXPECT_EQ(getProcessorQuota(folder.path), 1);
}

TEST_F(AvailableMemoryTest, TheOldVersionHasQuotasToo) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/job\n4:memory:/other\n");
  write("proc/self/mountinfo",
        "30 23 0:27 / /sys/fs/cgroup/cpu rw shared:1 - cgroup cgroup rw,cpu,cpuacct\n");
  write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(getProcessorQuota(folder.path), INT_MAX);
  write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "200000\n");
  EXPECT_EQ(getProcessorQuota(folder.path), 2);
}
