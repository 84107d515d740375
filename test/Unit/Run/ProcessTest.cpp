//===- ProcessTest.cpp - memopt-run among signals and limits --------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestSupport.h"
#include "memopt-runtime/threads/ThreadPool.h"
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

using namespace memopt;
using namespace memopt::testing;

namespace {
class ProcessTest : public ::testing::Test {
protected:
  ProcessResult run(const std::string &program, std::vector<std::string> options,
                    const ProcessOptions &process = {}) {
    options.insert(options.begin(), {MEMOPT_RUN, writePackage(folder, getTinyManifest(), program),
                                     "--data=" + writeBatches(folder, 3)});
    return runProcess(options, process);
  }

  TemporaryFolder folder;
};
} // namespace

TEST_F(ProcessTest, AskingToStopEndsAfterAWholeStep) {
  for (int signal : {SIGTERM, SIGHUP, SIGINT}) {
    ProcessOptions process;
    process.waitFor = "step 2/";
    process.then = [signal](pid_t child) { ::kill(child, signal); };
    ProcessResult result = run("TinyModel", {"--steps=100000000"}, process);
    EXPECT_EQ(result.exitCode, 5) << signal;
    expectMessage(result.errors, {"stopped after step "});
  }
}

TEST_F(ProcessTest, WhatWasIgnoredAtTheStartStaysSo) {
  ProcessOptions process;
  process.ignoredSignal = SIGHUP; // nohup
  process.waitFor = "step 2/";
  process.then = [](pid_t child) { ::kill(child, SIGHUP); };
  EXPECT_EQ(run("TinyModel", {"--steps=2000"}, process).exitCode, 0);
}

/// Waits until a process sleeps in a system call.
static void waitUntilAsleep(pid_t process) {
  for (std::string word, state; state != "S"; std::this_thread::yield()) {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    file >> word >> word >> state;
  }
}

TEST_F(ProcessTest, ARunThatWaitsForItsDataCanBeStopped) {
  std::string pipe = folder / "images",
              package = writePackage(folder, getEvalManifest(), "TinyEval");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  int writer = -1;
  pid_t child = ::fork();
  if (child == 0) {
    std::string data = "--data=idx:" + pipe + "," + pipe;
    int null = ::open("/dev/null", O_RDWR);
    ::dup2(null, STDOUT_FILENO);
    ::dup2(null, STDERR_FILENO);
    ::execl(MEMOPT_RUN, MEMOPT_RUN, package.c_str(), data.c_str(), nullptr);
    ::_exit(127);
  }
  while (writer < 0) // until the child has opened it
    writer = ::open(pipe.c_str(), O_WRONLY | O_NONBLOCK);
  waitUntilAsleep(child);
  ::kill(child, SIGTERM);
  int status = 0;
  ::waitpid(child, &status, 0);
  ::close(writer);
  ASSERT_TRUE(WIFSIGNALED(status)); // nothing was trained that could be kept
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST_F(ProcessTest, APipeIsNoSafetensorsFile) {
  std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ProcessResult result = runProcess(
      {MEMOPT_RUN, writePackage(folder, getTinyManifest()), "--data=" + pipe}); // does not wait
  EXPECT_EQ(result.exitCode, 1);
  expectMessage(result.errors, {"not a regular file"});
}

TEST_F(ProcessTest, ADivisionByZeroNamesTheInstruction) {
  ProcessResult result = run("TinyDivides", {"--steps=1"});
  EXPECT_EQ(result.exitCode, 1);
  expectMessage(result.errors,
                {"an integer was divided by zero", "in instruction 'loss' of module 'net.loss'"});
}

TEST_F(ProcessTest, AStackThatEndsNamesTheInstruction) {
  for (const char *threads : {"OMP_NUM_THREADS=1", "OMP_NUM_THREADS=2"}) {
    ProcessOptions process;
    process.environment = threads;
    ProcessResult result = run("TinyRecurses", {"--steps=1"}, process);
    EXPECT_EQ(result.exitCode, 3) << result.errors;
    expectMessage(result.errors,
                  {"a thread's stack is too small", "in instruction 'logits' of module 'net.fc'"});
  }
}

TEST_F(ProcessTest, AFileThatBecomesShorterIsNamed) {
  ProcessOptions process;
  process.waitFor = "step 2/";
  process.then = [&](pid_t) { std::filesystem::resize_file(folder / "batches.safetensors", 0); };
  ProcessResult result = run("TinyModel", {"--steps=100000000"}, process);
  EXPECT_EQ(result.exitCode, 1);
  expectMessage(result.errors, {"batches.safetensors': it became shorter meanwhile"});
}

TEST_F(ProcessTest, AProcessWithoutDescriptorsSaysSo) {
  ProcessOptions process;
  process.limits[RLIMIT_NOFILE] = 4; // one for the loader
  ProcessResult result = run("TinyModel", {"--steps=1", "--save=" + (folder / "ck")}, process);
  EXPECT_EQ(result.exitCode, 3);
  expectMessage(result.errors, {"Too many open files"});
}

TEST_F(ProcessTest, ThreadsThatCannotStartAreCounted) {
  EXPECT_EQ(countStartableThreads(3), 3);
  auto countWithLittleRoom = [] {
    rlimit limit;
    limit.rlim_cur = limit.rlim_max = 64 << 20; // a stack takes 8 MiB
    ::setrlimit(RLIMIT_AS, &limit);
    std::_Exit(countStartableThreads(64) < 64 ? 0 : 1);
  };
  EXPECT_EXIT(countWithLittleRoom(), ::testing::ExitedWithCode(0), "");
}
