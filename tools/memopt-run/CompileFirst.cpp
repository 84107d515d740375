//===- CompileFirst.cpp - from a model to a package -----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CompileFirst.h"
#include "Report.h"
#include "Signals.h"
#include "memopt-runtime/base/Clock.h"
#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/base/Text.h"
#include "memopt-runtime/device/Device.h"
#include "memopt-runtime/ranks/RankMeeting.h"
#include "memopt-runtime/threads/ThreadPool.h"
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace memopt;

static const std::string packageFolder = "/model.memopt", deviceFile = "/device.json",
                         originFile = "/compiled-from.txt", helpFile = "/help.txt";

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

/// Its output goes where ours goes, or into a file.
static StatusOr<int> runAndWait(const std::vector<std::string> &command,
                                const std::function<void()> &whileWaiting,
                                const std::string &outputFile = "") {
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
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  if (!outputFile.empty())
    ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, outputFile.c_str(),
                                       O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child;
  int error = ::posix_spawn(&child, arguments[0], &actions, &attributes, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
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
    return Status(StatusCode::Cancelled, "stopped while compiling");
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
  std::string file = temporaryFolder + deviceFile;
  // By a process of its own: one that has opened a device cannot fork ranks that do so.
  MEMOPT_ASSIGN_OR_RETURN(exitCode,
                          runAndWait({getRealPath("/proc/self/exe"), "--device=" + options.device,
                                      "--describe-device=" + file},
                                     [] {}));
  if (exitCode)
    return badInput(""); // it said why
  return std::vector<std::string>{"--target=" + options.device, "--target-features=" + file};
}

/// Says of an option that neither program has which of ours may have been meant, where one comes
/// near; the compiler has said that it does not have it.
Status CompiledPackage::explainRefusal(const std::string &compiler, const RunOptions &options) {
  std::string file = temporaryFolder + helpFile;
  constexpr size_t limit = 1 << 20;
  StatusOr<int> code = runAndWait({compiler, "--help"}, [] {}, file);
  StatusOr<std::string> help = readFile(file, limit);
  ::unlink(file.c_str());
  if (!code.isOk() || !help.isOk())
    return badInput("");
  for (const std::string &option : options.compileOptions) {
    std::string name = option.substr(0, option.find('='));
    bool isKnown = help->find(" " + name + "=") != std::string::npos ||
                   help->find(" " + name + " ") != std::string::npos ||
                   help->find(" " + name + "[") != std::string::npos;
    if (std::string hint = suggestOption(name); !isKnown && startsWith(name, "--") && !hint.empty())
      return badInput("option " + quote(name) + " is unknown" + hint + "; see --help");
  }
  return badInput("");
}

/// Options of memopt-compile that change an evaluation beside the training that they are given for,
/// with their other names.
static const char *const ofEvaluation[] = {"--batch",
                                           "--batch-size",
                                           "--per-device-train-batch-size",
                                           "--train-micro-batch-size-per-gpu",
                                           "--cache",
                                           "--conv-precision",
                                           "--deepspeed",
                                           "--deepspeed-config",
                                           "--device-memory",
                                           "--memory",
                                           "--dropout",
                                           "--efficient-conv-bn-eval",
                                           "--instrument",
                                           "--loss",
                                           "--machine-profile",
                                           "--master-weights",
                                           "--matmul-precision",
                                           "--offload-param",
                                           "--precision",
                                           "--quiet",
                                           "--reference",
                                           "--run-threads",
                                           "--target",
                                           "--target-features",
                                           "--threads"};

/// The others are of training, and no option of an evaluation.
static std::vector<std::string> selectForEvaluation(const std::vector<std::string> &given) {
  std::vector<std::string> selected;
  bool isKept = false;
  for (const std::string &word : given) {
    if (startsWith(word, "-")) // else it is the value of the word before
      isKept = std::find(std::begin(ofEvaluation), std::end(ofEvaluation),
                         word.substr(0, word.find('='))) != std::end(ofEvaluation);
    if (isKept)
      selected.push_back(word);
  }
  return selected;
}

/// Everything that a package follows from, by name and by what tells one file from another: the
/// same text means the same package. The fourth word is where that is to be.
static std::string describeOrigin(const std::vector<std::string> &command) {
  const char *profile = std::getenv("MEMOPT_MACHINE_PROFILE");
  std::vector<std::string> words = command;
  words[3] = profile ? profile : "";
  words.push_back(std::to_string(countProcessors()) + " processors");
  std::string text;
  for (const std::string &word : words)
    if (word != "--quiet")
      text += word + " " + describeFile(word.substr(word.find('=') + 1)) + "\n";
  return text;
}

/// Whether the package in a folder was made from that, and is whole.
static bool isMadeFrom(const std::string &folder, const std::string &origin) {
  constexpr size_t limit = 1 << 20;
  StatusOr<std::string> recorded = readFile(folder + originFile, limit);
  return recorded.isOk() && *recorded == origin && fileExists(folder + "/manifest.json");
}

Status CompiledPackage::compile(const RunOptions &options, const std::string &mode,
                                const std::function<void()> &whileWaiting) {
  MEMOPT_ASSIGN_OR_RETURN(std::string compiler, findCompiler());
  MEMOPT_RETURN_IF_ERROR(makeFolder());
  bool isBeside = mode != options.mode; // the evaluation of a training
  path = isBeside ? "" : options.packagePath;
  if (path.empty())
    path = temporaryFolder + packageFolder;
  std::vector<std::string> command = {compiler, options.model, "-o", path};
  if (!mode.empty())
    command.push_back("--mode=" + mode);
  if (!options.rateText.empty() && mode != "eval")
    command.push_back("--lr=" + options.rateText);
  if (options.isQuiet)
    command.push_back("--quiet");
  if (options.ranks && mode != "eval")
    command.push_back("--ranks=" + std::to_string(*options.ranks));
  MEMOPT_ASSIGN_OR_RETURN(std::vector<std::string> target, describeTarget(options));
  command.insert(command.end(), target.begin(), target.end());
  std::vector<std::string> rest =
      isBeside ? selectForEvaluation(options.compileOptions) : options.compileOptions;
  command.insert(command.end(), rest.begin(), rest.end());
  bool isKept = !isBeside && !options.packagePath.empty();
  std::string origin = describeOrigin(command), record = path + originFile;
  if (isKept && isMadeFrom(path, origin)) {
    if (!options.isQuiet)
      notice(quote(path) + " is what the model and these options compile to, and stays");
    return Status::ok();
  }
  ::unlink(record.c_str());
  int64_t begin = getTime();
  MEMOPT_ASSIGN_OR_RETURN(exitCode, runAndWait(command, whileWaiting));
  seconds = double(getTime() - begin) * 1e-9;
  if (exitCode == int(StatusCode::BadInput))
    return explainRefusal(compiler, options);
  if (exitCode)
    return badInput("");
  return isKept ? writeFileAtomically(record, origin) : Status::ok();
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
