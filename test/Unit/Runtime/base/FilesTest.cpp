//===- FilesTest.cpp - reading and writing files safely -------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/base/Files.h"
#include "TestSupport.h"
#include "memopt-runtime/base/ScratchFolder.h"
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace memopt;
using namespace memopt::testing;

TEST(FilesTest, AnUncommittedFileLeavesTheOldOne) {
  TemporaryFolder folder;
  std::string path = folder / "file";
  ASSERT_TRUE(writeFileAtomically(path, "old").isOk());
  {
    auto writer = AtomicFileWriter::create(path);
    ASSERT_TRUE(writer.isOk());
    ASSERT_TRUE(writer->write("new", 3).isOk());
  }
  EXPECT_EQ(readFile(path), "old");
  EXPECT_EQ(listFolder(folder.path)->size(), 1u);
  EXPECT_EQ(AtomicFileWriter::create(folder / "absent/file").getCode(), StatusCode::Environment);
}

TEST(FilesTest, GzipIsReadAndItsDamageSeen) {
  TemporaryFolder folder;
  std::string path = folder / "text.gz", text(100000, 'a');
  writeGzip(path, text);
  auto content = readMaybeGzip(path, 1 << 20);
  ASSERT_TRUE(content.isOk());
  EXPECT_EQ(content->size(), text.size());
  EXPECT_FALSE(readMaybeGzip(path, 1000).isOk()); // unpacks to more than the limit
  std::string packed = readFile(path);
  writeFile(path, packed.substr(0, packed.size() / 2));
  expectMessage(readMaybeGzip(path, 1 << 20).getMessage(), {"too early"});
  packed[packed.size() - 6] ^= 1; // the checksum
  writeFile(path, packed);
  EXPECT_FALSE(readMaybeGzip(path, 1 << 20).isOk());
  writeFile(path, "plain");
  EXPECT_EQ(readMaybeGzip(path, 100)->size(), 5u);
}

// A megabyte says how large a file is; what comes behind its end is not unpacked.
TEST(FilesTest, GzipIsUnpackedAsFarAsItsHeaderSays) {
  TemporaryFolder folder;
  std::string path = folder / "text.gz";
  writeGzip(path, std::string(64 << 20, 'a'));
  auto content = readMaybeGzip(path, size_t(1) << 30, [](const auto &) { return size_t(3 << 20); });
  ASSERT_TRUE(content.isOk()) << content.getMessage();
  EXPECT_GT(content->size(), size_t(3 << 20));
  EXPECT_LE(content->size(), size_t(5 << 20));
}

TEST(FilesTest, AFileThatBecomesShorterIsAFailure) {
  TemporaryFolder folder;
  writeFile(folder / "file", std::string(10000, 'a'));
  auto file = InputFile::open(folder / "file");
  ASSERT_TRUE(file.isOk());
  std::filesystem::resize_file(folder / "file", 5000);
  std::string target(10000, 'b');
  EXPECT_TRUE(file->read(0, target.data(), 5000).isOk());
  expectMessage(file->read(4000, target.data(), 2000).getMessage(),
                {"file': it became shorter meanwhile"});
}

TEST(FilesTest, AFolderOfAKilledProcessIsRemovedByTheNext) {
  TemporaryFolder folder;
  std::string prefix = folder / "work-";
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  pid_t child = ::fork();
  if (child == 0) {
    auto made = ScratchFolder::create(prefix);
    writeFile(made->getPath() + "/weights", "large");
    (void)!::write(ends[1], "x", 1);
    ::pause();
  }
  char word;
  ASSERT_EQ(::read(ends[0], &word, 1), 1);
  {
    auto beside = ScratchFolder::create(prefix);
    ASSERT_TRUE(beside.isOk()) << beside.getMessage();
    EXPECT_EQ(listFolder(folder.path)->size(), 2u) << "one that lives keeps its folder";
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  writeFile(folder / "work-mine", "somebody's file");
  EXPECT_EQ(listFolder(folder.path)->size(), 2u);
  auto next = ScratchFolder::create(prefix);
  ASSERT_TRUE(next.isOk()) << next.getMessage();
  EXPECT_EQ(listFolder(folder.path)->size(), 2u) << "its own, and the file";
}

TEST(FilesTest, AFolderWithoutProgramsIsExplained) {
  EXPECT_EQ(explainNoExec(TEST_PROGRAMS), "");
  for (const char *folder : {"/proc", "/sys", "/dev/shm"}) {
    struct statvfs facts;
    if (::statvfs(folder, &facts) == 0 && facts.f_flag & ST_NOEXEC)
      return expectMessage(explainNoExec(folder), {folder, "noexec", "TMPDIR"});
  }
  GTEST_SKIP() << "nothing is mounted noexec here";
}

TEST(FilesTest, WritingFollowsLinks) {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder / "real");
  writeFile(folder / "real/file", "old");
  std::filesystem::create_symlink("real/file", folder / "link");
  std::filesystem::create_symlink("link", folder / "chain");
  ASSERT_TRUE(writeFileAtomically(folder / "chain", "new").isOk());
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "chain"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(readFile(folder / "real/file"), "new");
  // Where a link leads to nothing the file is made there.
  std::filesystem::create_symlink("real/fresh", folder / "dangling");
  ASSERT_TRUE(writeFileAtomically(folder / "dangling", "made").isOk());
  EXPECT_EQ(readFile(folder / "real/fresh"), "made");
  EXPECT_EQ(listFolder(folder / "real")->size(), 2u); // and nothing besides
  std::filesystem::create_symlink("circle", folder / "circle");
  Status circle = writeFileAtomically(folder / "circle", "x");
  EXPECT_EQ(circle.getCode(), StatusCode::Environment);
  expectMessage(circle.getMessage(), {"circle", "levels of symbolic links"});
}

TEST(FilesTest, WritingKeepsPermissions) {
  TemporaryFolder folder;
  auto modeOf = [](const std::string &path) {
    struct stat facts{};
    ::stat(path.c_str(), &facts);
    return facts.st_mode & 07777;
  };
  mode_t old = ::umask(027);
  ASSERT_TRUE(writeFileAtomically(folder / "new", "x").isOk());
  EXPECT_EQ(modeOf(folder / "new"), 0640u);
  ::chmod((folder / "new").c_str(), 0604);
  ASSERT_TRUE(writeFileAtomically(folder / "new", "y").isOk());
  EXPECT_EQ(modeOf(folder / "new"), 0604u);
  ::umask(old);
}

TEST(FilesTest, WhatIsNoRegularFileIsWrittenTo) {
  TemporaryFolder folder;
  std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink("pipe", folder / "link");
  std::string received;
  std::thread reader([&] { received = readFile(pipe); });
  EXPECT_TRUE(writeFileAtomically(folder / "link", "through").isOk());
  reader.join();
  EXPECT_EQ(received, "through");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  // A device that is always full says so.
  std::filesystem::create_symlink("/dev/full", folder / "full");
  Status full = writeFileAtomically(folder / "full", "x");
  EXPECT_EQ(full.getCode(), StatusCode::Environment);
  expectMessage(full.getMessage(), {"No space left"});
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST(FilesTest, ANameOfAnOpenFileMeansThatFile) {
  TemporaryFolder folder;
  int descriptor = ::open((folder / "log").c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_EQ(::write(descriptor, "before ", 7), 7);
  std::string name = "/dev/fd/" + std::to_string(descriptor);
  ASSERT_TRUE(writeFileAtomically(name, "report").isOk());
  ASSERT_EQ(::write(descriptor, " after", 6), 6);
  ::close(descriptor);
  EXPECT_EQ(readFile(folder / "log"), "before report after");
}

TEST(FilesTest, NewFilesAreNeverThroughLinksOrOverOthers) {
  TemporaryFolder folder;
  writeFile(folder / "there", "old");
  std::filesystem::create_symlink("elsewhere", folder / "link");
  EXPECT_FALSE(createNewFile(folder / "there").isOk());
  EXPECT_FALSE(createNewFile(folder / "link").isOk());
  EXPECT_FALSE(fileExists(folder / "elsewhere"));
  auto one = createNewFolder(folder / "x-"), two = createNewFolder(folder / "x-");
  ASSERT_TRUE(one.isOk() && two.isOk());
  EXPECT_NE(*one, *two);
}

TEST(FilesTest, ReadingTakesNoDeviceAndWaitsForNoPipe) {
  TemporaryFolder folder;
  std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expectMessage(memopt::readFile(pipe, 10).getMessage(), {"not a regular file"});
  expectMessage(MappedFile::open(pipe).getMessage(), {"not a regular file"});
  for (const char *device : {"/dev/zero", "/dev/tty0"}) {
    EXPECT_EQ(memopt::readFile(device, 10).getCode(), StatusCode::BadInput) << device;
    EXPECT_EQ(readMaybeGzip(device, 10).getCode(), StatusCode::BadInput) << device;
  }
  writeFile(folder / "large", "0123456789x");
  expectMessage(memopt::readFile(folder / "large", 10).getMessage(), {"11 bytes, at most 10"});
  EXPECT_EQ(*memopt::readFile(folder / "large", 11), "0123456789x");
  // A stream may come through a pipe.
  std::thread writer([&] { writeFile(pipe, "text"); });
  auto content = readMaybeGzip(pipe, 100);
  writer.join();
  ASSERT_TRUE(content.isOk()) << content.getMessage();
  EXPECT_EQ(content->size(), 4u);
}
