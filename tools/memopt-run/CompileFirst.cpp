//===- CompileFirst.cpp - from a model to a package -----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CompileFirst.h"
#include "Signals.h"
#include "memopt-runtime/Device.h"
#include "memopt-runtime/Files.h"
#include "memopt-runtime/Text.h"
#include "memopt-runtime/Trace.h"
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace memopt;

static const std::string packageFolder = "/model.memopt", deviceFile = "/device.json";

static StatusOr<std::string> findCompiler() {
  char self[PATH_MAX];
  ssize_t length = ::readlink("/proc/self/exe", self, sizeof self - 1);
  if (length < 0)
    return environmentError(describeErrno("reading", "/proc/self/exe", errno));
  std::string path(self, size_t(length));
  path = path.substr(0, path.find_last_of('/')) + "/memopt-compile";
  if (::access(path.c_str(), X_OK) != 0)
    return environmentError("a model is compiled by the memopt-compile beside memopt-run, but " +
                            describeErrno("running", path, errno));
  return path;
}

static StatusOr<int> runAndWait(const std::vector<std::string> &command,
                                const std::function<void()> &whileWaiting) {
  std::vector<char *> arguments;
  for (const std::string &argument : command)
    arguments.push_back(const_cast<char *>(argument.c_str()));
  arguments.push_back(nullptr);
  // What we ignore (Signals.cpp), the compiler should not inherit.
  sigset_t defaults;
  ::sigemptyset(&defaults);
  ::sigaddset(&defaults, SIGPIPE);
  ::sigaddset(&defaults, SIGXFSZ);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child;
  int error = ::posix_spawn(&child, arguments[0], nullptr, &attributes, arguments.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  if (error)
    return environmentError(describeErrno("running", command[0], error));
  int status = 0;
  for (pid_t ended = 0; ended != child; ended = ::waitpid(child, &status, WNOHANG)) {
    if (ended < 0 && errno != EINTR)
      return environmentError(describeErrno("waiting for", command[0], errno));
    if (isInterrupted())
      ::kill(child, SIGTERM); // who stops us by name does not know it
    whileWaiting();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (isInterrupted())
    return Status(StatusCode::Interrupted, "stopped while compiling");
  if (WIFSIGNALED(status))
    return environmentError("memopt-compile was ended by signal " +
                            std::to_string(WTERMSIG(status)) + " (" +
                            ::strsignal(WTERMSIG(status)) + ")");
  return WEXITSTATUS(status);
}

Status CompiledPackage::makeFolder() {
  const char *folder = std::getenv("TMPDIR");
  temporaryFolder = std::string(folder && *folder ? folder : "/tmp") + "/memopt-run-XXXXXX";
  if (::mkdtemp(temporaryFolder.data()))
    return Status::ok();
  std::string name = std::exchange(temporaryFolder, "");
  return environmentError(describeErrno("creating folder", name, errno));
}

/// What tells the compiler of the device at hand, where another is not asked for; the processor at
/// hand it knows by itself.
StatusOr<std::vector<std::string>> CompiledPackage::describeTarget(const RunOptions &options) {
  auto isFeature = [](const std::string &option) {
    return startsWith(option, "--target-features");
  };
  const std::vector<std::string> &given = options.compileOptions;
  if (options.device == "cpu" || std::any_of(given.begin(), given.end(), isFeature))
    return std::vector<std::string>();
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, Device::open(options.device));
  MEMOPT_ASSIGN_OR_RETURN(std::string text, device->describe());
  std::string file = temporaryFolder + deviceFile;
  MEMOPT_RETURN_IF_ERROR(writeFileAtomically(file, text));
  return std::vector<std::string>{"--target=" + options.device, "--target-features=" + file};
}

Status CompiledPackage::compile(const RunOptions &options, const std::string &mode,
                                const std::function<void()> &whileWaiting) {
  MEMOPT_ASSIGN_OR_RETURN(std::string compiler, findCompiler());
  MEMOPT_RETURN_IF_ERROR(makeFolder());
  path = mode == options.mode ? options.packagePath : "";
  if (path.empty())
    path = temporaryFolder + packageFolder;
  std::vector<std::string> command = {compiler, options.model, "-o", path};
  if (!mode.empty())
    command.push_back("--mode=" + mode);
  if (!options.rateText.empty())
    command.push_back("--lr=" + options.rateText);
  if (options.isQuiet)
    command.push_back("--quiet");
  if (options.countRanks() > 1)
    command.push_back("--ranks=" + std::to_string(options.countRanks()));
  MEMOPT_ASSIGN_OR_RETURN(std::vector<std::string> target, describeTarget(options));
  command.insert(command.end(), target.begin(), target.end());
  command.insert(command.end(), options.compileOptions.begin(), options.compileOptions.end());
  int64_t begin = getTime();
  MEMOPT_ASSIGN_OR_RETURN(exitCode, runAndWait(command, whileWaiting));
  seconds = double(getTime() - begin) * 1e-9;
  return exitCode ? badInput("") : Status::ok();
}

CompiledPackage::~CompiledPackage() {
  if (temporaryFolder.empty())
    return;
  // A package is a folder of plain files; one that stays is elsewhere.
  std::string package = temporaryFolder + packageFolder;
  StatusOr<std::vector<std::string>> names = listFolder(package);
  for (const std::string &name : names.isOk() ? *names : std::vector<std::string>())
    ::unlink((package + "/" + name).c_str());
  ::rmdir(package.c_str());
  ::unlink((temporaryFolder + deviceFile).c_str());
  ::rmdir(temporaryFolder.c_str());
}
