//===- CudnnPlans.cpp - cuDNN's plans, asked of a child ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudnnPlans.h"

#include "memopt/Support/InputFile.h"
#include "memopt/Support/Toolkit.h"
#include "memopt/Target/Cuda/CudaTarget.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"

#include <atomic>
#include <csignal>
#include <cstring>
#include <mutex>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace llvm;
using namespace mlir::memopt;

static Error fail(const Twine &message) {
  return createStringError(inconvertibleErrorCode(), message);
}

static std::string print(json::Value value) { return formatv("{0}", value).str(); }

//===----------------------------------------------------------------------===//
// The child
//===----------------------------------------------------------------------===//

namespace {
/// A process that answers a line with a line.
class Child {
public:
  ~Child() { end(); }

  bool isRunning() const { return process > 0; }
  Error start(const std::string &program);
  /// Answers nothing after an error: the process has ended.
  Expected<std::string> ask(std::string line);
  /// Ends it, and says how it ended.
  std::string end();

private:
  /// No plan takes so long; those that cuDNN compiles, which are not asked for, take seconds.
  static constexpr int kMostMilliseconds = 300'000;

  Error send(StringRef text);

  pid_t process = 0;
  int channel = -1;
  std::string unread;
};
} // namespace

Error Child::start(const std::string &program) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return fail("cannot make a channel to " + program + ": " + std::strerror(errno));
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  char *arguments[] = {const_cast<char *>(program.c_str()), nullptr};
  int error = ::posix_spawn(&process, program.c_str(), &actions, nullptr, arguments, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  channel = ends[0];
  if (error == 0)
    return Error::success();
  process = 0;
  end();
  return fail(program + " cannot be started: " + std::strerror(error));
}

std::string Child::end() {
  if (channel >= 0)
    ::close(channel);
  channel = -1;
  unread.clear();
  if (process <= 0)
    return "";
  // It ends with its input; what hangs does not.
  ::kill(process, SIGTERM);
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR)
    ;
  process = 0;
  if (WIFSIGNALED(status))
    return ("ended by signal " + Twine(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")")
        .str();
  return ("ended with exit code " + Twine(WEXITSTATUS(status))).str();
}

Error Child::send(StringRef text) {
  while (!text.empty()) {
    ssize_t sent = ::send(channel, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent < 0)
      return fail("memopt-cudnn, which asks cuDNN for plans, " + end());
    text = text.drop_front(size_t(sent));
  }
  return Error::success();
}

Expected<std::string> Child::ask(std::string line) {
  line += '\n';
  if (Error error = send(line))
    return std::move(error);
  size_t length;
  while ((length = unread.find('\n')) == std::string::npos) {
    pollfd wait{channel, POLLIN, 0};
    int ready = ::poll(&wait, 1, kMostMilliseconds);
    if (ready < 0 && errno == EINTR)
      continue;
    if (ready <= 0)
      return fail("memopt-cudnn, which asks cuDNN for plans, gave no answer within " +
                  Twine(kMostMilliseconds / 1000) + " seconds and was " + end());
    char piece[1 << 16];
    ssize_t count = ::recv(channel, piece, sizeof piece, 0);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return fail("memopt-cudnn, which asks cuDNN for plans, " + end());
    unread.append(piece, size_t(count));
  }
  std::string answer = unread.substr(0, length);
  unread.erase(0, length + 1);
  return answer;
}

//===----------------------------------------------------------------------===//
// Answers
//===----------------------------------------------------------------------===//

/// An object without an error in it.
static Expected<json::Object> readAnswer(StringRef text) {
  Expected<json::Value> value = ::memopt::parseInputJson(text);
  if (!value)
    return fail("memopt-cudnn gave an answer that is no JSON: " + toString(value.takeError()));
  json::Object *object = value->getAsObject();
  if (!object)
    return fail("memopt-cudnn gave an answer that is no object");
  if (std::optional<StringRef> error = object->getString("error"))
    return fail(*error);
  return std::move(*object);
}

static Expected<CudnnPlan> readPlan(const json::Value &value) {
  const json::Object *object = value.getAsObject();
  std::optional<StringRef> name = object ? object->getString("name") : std::nullopt;
  std::optional<StringRef> text = object ? object->getString("text") : std::nullopt;
  std::optional<int64_t> bytes = object ? object->getInteger("workspace_bytes") : std::nullopt;
  if (!name || !text || !bytes || *bytes < 0)
    return fail("memopt-cudnn gave a plan without a name, text or workspace");
  return CudnnPlan{name->str(), *bytes, text->str()};
}

static Expected<std::vector<CudnnPlan>> readPlans(StringRef answer) {
  Expected<json::Object> object = readAnswer(answer);
  if (!object)
    return object.takeError();
  const json::Array *list = object->getArray("plans");
  if (!list || list->empty())
    return fail("memopt-cudnn gave an answer without plans");
  std::vector<CudnnPlan> plans;
  for (const json::Value &value : *list) {
    Expected<CudnnPlan> plan = readPlan(value);
    if (!plan)
      return plan.takeError();
    plans.push_back(std::move(*plan));
  }
  return plans;
}

//===----------------------------------------------------------------------===//
// Planning
//===----------------------------------------------------------------------===//

/// The machine's fault: cuDNN is not there or too old, or its process ended.
static std::atomic<bool> isUnavailable = false;

namespace {
class Planner {
public:
  Expected<CudnnPlans> plan(const json::Object &properties, const json::Object &descriptor);

private:
  /// `printed` are the properties as they are compared.
  Error open(const json::Object &properties, const std::string &printed);

  std::mutex mutex;
  Child child;
  std::string openFor; ///< properties of the device that the child plans for
  std::string version;
  bool isDeviceAtHand = false;
  StringMap<CudnnPlans> known; ///< by properties and description
};
} // namespace

/// memopt-cudnn beside the running program.
static std::string findProgram() {
  SmallString<128> path(
      sys::fs::getMainExecutable(nullptr, reinterpret_cast<void *>(&planWithCudnn)));
  sys::path::remove_filename(path);
  sys::path::append(path, "memopt-cudnn");
  return path.str().str();
}

static std::string findLibrary() {
  for (StringRef name : {"lib/libcudnn.so.9", "lib64/libcudnn.so.9"})
    if (std::string path = ::memopt::findToolkitFile(name, "cudnn"); !path.empty())
      return path;
  return "";
}

Error Planner::open(const json::Object &properties, const std::string &printed) {
  std::string library = findLibrary();
  if (library.empty())
    return fail("cuDNN, which plans it, is not found in $CUDA_HOME, the build's environment or "
                "/usr/local/cuda; tools/install.sh --with-cuda installs it");
  child.end();
  if (Error error = child.start(findProgram()))
    return error;
  Expected<std::string> answer = child.ask(
      print(json::Object{{"library", library}, {"properties", json::Object(properties)}}));
  if (!answer)
    return answer.takeError();
  Expected<json::Object> opened = readAnswer(*answer);
  if (!opened) {
    child.end();
    return fail(library + ": " + toString(opened.takeError()));
  }
  version = opened->getString("version").value_or("").str();
  isDeviceAtHand = opened->getBoolean("device_at_hand").value_or(false);
  openFor = printed;
  return Error::success();
}

Expected<CudnnPlans> Planner::plan(const json::Object &properties, const json::Object &descriptor) {
  std::lock_guard<std::mutex> lock(mutex);
  std::string device = print(json::Object(properties)), call = print(json::Object(descriptor));
  auto [entry, isNew] = known.try_emplace(device + call);
  if (!isNew)
    return entry->second;
  auto ask = [&]() -> Expected<std::vector<CudnnPlan>> {
    isUnavailable = true;
    if (!child.isRunning() || openFor != device)
      if (Error error = open(properties, device))
        return std::move(error);
    Expected<std::string> answer = child.ask(call);
    if (!answer)
      return answer.takeError();
    isUnavailable = false;
    return readPlans(*answer);
  };
  Expected<std::vector<CudnnPlan>> plans = ask();
  if (!plans) {
    known.erase(entry);
    return plans.takeError();
  }
  entry->second = {version, isDeviceAtHand, std::move(*plans)};
  return entry->second;
}

bool mlir::memopt::isCudnnUnavailable() { return isUnavailable; }

Expected<CudnnPlans> mlir::memopt::planWithCudnn(const json::Object &properties,
                                                 const json::Object &descriptor) {
  static Planner planner;
  return planner.plan(properties, descriptor);
}
