//===- DiskTest.cpp - what lies on disk, and disks that fail --------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestSupport.h"
#include "memopt-runtime/device/DiskArena.h"
#include "memopt-runtime/device/HostEvent.h"
#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <linux/io_uring.h>
#include <numeric>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace memopt;
using namespace memopt::testing;

namespace {

constexpr int64_t block = diskBlockBytes;

DiskArena &asDisk(const std::unique_ptr<Arena> &arena) { return static_cast<DiskArena &>(*arena); }

std::unique_ptr<Arena> openDisk(const std::string &folder, int64_t bytes,
                                DiskFileLimits limits = {}) {
  auto arena = DiskArena::allocate(folder, bytes, limits);
  EXPECT_TRUE(arena.isOk()) << arena.getMessage();
  return arena.isOk() ? *std::move(arena) : nullptr;
}

std::vector<char> makeBytes(int64_t count, int seed) {
  std::vector<char> bytes(static_cast<size_t>(count));
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = char((i * 2654435761u + size_t(seed)) >> 7);
  return bytes;
}

/// With io_uring and without, around the system's cache and through it.
class Disk : public ::testing::TestWithParam<std::pair<bool, bool>> {
protected:
  DiskFileLimits getLimits() const { return {GetParam().first, GetParam().second}; }
  std::unique_ptr<Arena> open(int64_t bytes) { return openDisk(folder.path, bytes, getLimits()); }
  TemporaryFolder folder;
};

INSTANTIATE_TEST_SUITE_P(Ways, Disk,
                         ::testing::Values(std::pair(true, true), std::pair(true, false),
                                           std::pair(false, true), std::pair(false, false)));

} // namespace

TEST_P(Disk, BytesOfAnyPlaceComeBackAndLeaveTheirNeighbours) {
  auto arena = open(5 << 20);
  ASSERT_TRUE(arena);
  std::vector<char> all = makeBytes(5 << 20, 1);
  ASSERT_TRUE(arena->write(0, all.data(), int64_t(all.size())).isOk());
  for (auto [offset, size] : {std::pair<int64_t, int64_t>{1, 1},
                              {block - 1, 2},
                              {block, block},
                              {(1 << 20) - 3, 7},
                              {5, 3 << 20},
                              {(5 << 20) - 1, 1},
                              {77, 0}}) {
    std::vector<char> part = makeBytes(size, int(offset));
    ASSERT_TRUE(arena->write(offset, part.data(), size).isOk());
    std::copy(part.begin(), part.end(), all.begin() + offset);
    std::vector<char> found(part.size());
    ASSERT_TRUE(arena->read(offset, found.data(), size).isOk());
    EXPECT_EQ(found, part);
  }
  std::vector<char> found(all.size());
  ASSERT_TRUE(arena->read(0, found.data(), int64_t(found.size())).isOk());
  EXPECT_EQ(found, all);
}

TEST_P(Disk, WhatWasWrittenCountsAsUsedInWholeBlocks) {
  auto arena = open(16 * block);
  EXPECT_EQ(arena->usedPeakBytes(), 0);
  ASSERT_TRUE(arena->write(2 * block + 1, "x", 1).isOk());
  EXPECT_EQ(arena->usedPeakBytes(), 3 * block);
  ASSERT_TRUE(arena->write(0, "x", 1).isOk());
  EXPECT_EQ(arena->usedPeakBytes(), 3 * block);
  ASSERT_TRUE(arena->reset().isOk());
  EXPECT_EQ(arena->usedPeakBytes(), 0);
  EXPECT_EQ(arena->residentBytes(), 0);
}

TEST_P(Disk, AStreamCopiesInOrderBetweenWindowsAndTheDisk) {
  constexpr int64_t bytes = 9 * (1 << 20) + block;
  auto disk = open(2 * bytes);
  auto host = *HostArena::allocate(3 * bytes, false);
  std::vector<char> first = makeBytes(bytes, 1), second = makeBytes(bytes, 2);
  ASSERT_TRUE(host->write(0, first.data(), bytes).isOk());
  ASSERT_TRUE(host->write(bytes, second.data(), bytes).isOk());
  auto stream = *createDiskStream(asDisk(disk), 3);
  auto event = std::make_unique<HostEvent>();
  ASSERT_TRUE(event->synchronize().isOk()); // never recorded
  ASSERT_TRUE(stream->copy(*disk, bytes, *host, 0, bytes).isOk());
  ASSERT_TRUE(stream->copy(*host, 2 * bytes, *disk, bytes, bytes).isOk());
  ASSERT_TRUE(stream->record(*event).isOk());
  ASSERT_TRUE(stream->copy(*disk, bytes, *host, bytes, bytes).isOk());
  ASSERT_TRUE(event->synchronize().isOk());
  EXPECT_TRUE(std::equal(first.begin(), first.end(), host->base() + 2 * bytes));
  ASSERT_TRUE(stream->synchronize().isOk());
  std::vector<char> found(bytes);
  ASSERT_TRUE(disk->read(bytes, found.data(), bytes).isOk());
  EXPECT_EQ(found, second);
}

TEST_P(Disk, AFileThatBecameShorterFailsTheTransferAndAllBehindIt) {
  auto disk = open(4 * block);
  auto host = *HostArena::allocate(4 * block, false);
  ASSERT_EQ(::ftruncate(asDisk(disk).getFile()->getDescriptor(), block), 0);
  auto stream = *createDiskStream(asDisk(disk), 4);
  auto event = std::make_unique<HostEvent>();
  ASSERT_TRUE(stream->copy(*host, 0, *disk, 0, 2 * block).isOk());
  ASSERT_TRUE(stream->copy(*host, 0, *disk, 0, block).isOk());
  ASSERT_TRUE(stream->record(*event).isOk());
  Status status = event->synchronize();
  EXPECT_EQ(status.getCode(), StatusCode::Environment);
  expectMessage(status.getMessage(), {"reading 4096 bytes at offset 4096", folder.path, "it ends"});
  EXPECT_EQ(event->synchronize().getMessage(), status.getMessage());
}

TEST_P(Disk, AFailedWriteSaysWhereAndWhy) {
  auto disk = open(4 * block);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit low{rlim_t(2 * block), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  std::vector<char> bytes = makeBytes(block, 3);
  Status fine = disk->write(block, bytes.data(), block),
         refused = disk->write(3 * block, bytes.data(), block);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_TRUE(fine.isOk()) << fine.getMessage();
  EXPECT_EQ(refused.getCode(), StatusCode::Environment);
  expectMessage(refused.getMessage(),
                {"writing 4096 bytes at offset 12288", folder.path, "File too large"});
}

TEST_P(Disk, RoomThatIsNotThereIsKnownBeforeAnythingIsWritten) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit low{rlim_t(2 * block), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  auto arena = DiskArena::allocate(folder.path, 3 * block, getLimits());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_FALSE(arena.isOk());
  EXPECT_EQ(arena.getCode(), StatusCode::Environment);
  expectMessage(arena.getMessage(), {"taking 12288 bytes of disk in '" + folder.path, "--disk"});
}

/// Containers forbid io_uring, and some file systems direct transfers.
static bool allowsRing() {
  io_uring_params facts{};
  auto ring = int(::syscall(SYS_io_uring_setup, 1, &facts));
  if (ring >= 0)
    ::close(ring);
  return ring >= 0;
}
static bool allowsDirect(const std::string &folder) {
  int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_DIRECT, 0600);
  if (file >= 0)
    ::close(file);
  return file >= 0;
}

TEST_P(Disk, WhatIsNotUsedIsSaidOnce) {
  auto disk = open(block);
  const std::vector<std::string> &notices = asDisk(disk).getFile()->getNotices();
  bool isDirect = GetParam().first && allowsDirect(folder.path),
       hasRing = GetParam().second && allowsRing();
  EXPECT_EQ(notices.size(), size_t(!isDirect) + size_t(!hasRing));
}

TEST_P(Disk, WhereRoomCannotBeTakenItIsWritten) {
  DiskFileLimits limits = getLimits();
  limits.hasFallocate = false;
  constexpr int64_t bytes = (2 << 20) + block;
  auto arena = openDisk(folder.path, bytes, limits);
  ASSERT_TRUE(arena);
  struct stat found{};
  ASSERT_EQ(::fstat(asDisk(arena).getFile()->getDescriptor(), &found), 0);
  EXPECT_EQ(found.st_size, bytes);
  EXPECT_GE(found.st_blocks * 512, bytes);
  std::vector<char> content(static_cast<size_t>(bytes), 'x');
  ASSERT_TRUE(arena->read(0, content.data(), bytes).isOk());
  EXPECT_EQ(std::count(content.begin(), content.end(), 0), bytes);
}

TEST(DiskArena, TheRoomIsTakenAndTheFileHasNoName) {
  TemporaryFolder folder;
  auto arena = openDisk(folder.path, 100 * block);
  struct stat found{};
  ASSERT_EQ(::fstat(asDisk(arena).getFile()->getDescriptor(), &found), 0);
  EXPECT_EQ(found.st_size, 100 * block);
  EXPECT_GE(found.st_blocks * 512, 100 * block);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path));
}

TEST(DiskArena, NoBytesNeedNoFolder) {
  auto arena = openDisk("/nowhere", 0);
  ASSERT_TRUE(arena);
  EXPECT_EQ(arena->size(), 0);
  EXPECT_EQ(asDisk(arena).getFile(), nullptr);
}

TEST(DiskArena, AFolderThatIsNotThereIsNamed) {
  auto arena = DiskArena::allocate("/nowhere/at all", block);
  ASSERT_FALSE(arena.isOk());
  EXPECT_EQ(arena.getCode(), StatusCode::Environment);
  expectMessage(arena.getMessage(), {"/nowhere/at all", "No such file", "--disk=DIR:N"});
}

TEST(DiskStream, CopiesThatAreNotOfBlocksAreRefused) {
  TemporaryFolder folder;
  auto disk = openDisk(folder.path, 4 * block);
  auto host = *HostArena::allocate(4 * block, false);
  auto stream = *createDiskStream(asDisk(disk), 1);
  for (auto [to, from, bytes] :
       {std::tuple<int64_t, int64_t, int64_t>{64, 0, block}, {0, 64, block}, {0, 0, 64}}) {
    Status status = stream->copy(*disk, to, *host, from, bytes);
    EXPECT_EQ(status.getCode(), StatusCode::BadInput);
    expectMessage(status.getMessage(), {"whole blocks of 4096 bytes"});
  }
  EXPECT_EQ(stream->copy(*disk, 0, *disk, block, block).getCode(), StatusCode::BadInput);
  EXPECT_EQ(stream->copy(*host, 0, *host, block, block).getCode(), StatusCode::BadInput);
  EXPECT_EQ(stream->copy(*disk, 0, *host, 0, 5 * block).getCode(), StatusCode::BadInput);
}

TEST(DiskSession, AVariableOnDiskIsReadAndWrittenThroughCopies) {
  TemporaryFolder folder;
  nlohmann::json manifest = getTinyManifest(), kept = manifest["variables"][0];
  kept.update({{"name", "kept"},
               {"names", nlohmann::json::array({"kept"})},
               {"role", "buffer"},
               {"init", "zeros"}});
  kept.update({{"placement", "disk"}, {"offset", block}});
  manifest["variables"].push_back(kept);
  manifest["arena_bytes"]["disk"] = 2 * block;
  SessionOptions options;
  options.diskFolder = folder.path;
  auto session = openSession(writePackage(folder, manifest), options);
  ASSERT_TRUE(session);
  const VariableSpec &variable = session->getManifest().variables.back();
  EXPECT_EQ(session->getAddress(variable), nullptr);
  std::vector<char> bytes = makeBytes(variable.bytes, 5), found(bytes.size());
  ASSERT_TRUE(session->writeTensor(variable, bytes.data()).isOk());
  ASSERT_TRUE(session->readTensor(variable, found.data()).isOk());
  EXPECT_EQ(found, bytes);
}
