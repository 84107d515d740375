//===- CompileFirst.cpp - from a model to a package -----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-run/options/CompileFirst.h"
#include "memopt-run/Signals.h"
#include "memopt-run/run/Report.h"
#include "memopt-runtime/base/Clock.h"
#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/base/Text.h"
#include "memopt-runtime/device/Device.h"
#include "memopt-runtime/ranks/RankMeeting.h"
#include "memopt-runtime/threads/ThreadPool.h"
#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace memopt;

static const std::string packageFolder = "/model.memopt", deviceFile = "/device.json",
                         helpFile = "/help.txt", programsFile = "/programs.json";

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

/// What a new process does until it is another program. It ends with this one, which may be killed,
/// and does not inherit what we ignore (Signals.cpp).
[[noreturn]] static void becomeCommand(char *const *arguments, pid_t parent, const char *outputFile,
                                       int failure) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent)
    ::_exit(int(StatusCode::Environment)); // it died before the line above
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGXFSZ, SIG_DFL);
  int output = *outputFile ? ::open(outputFile, O_WRONLY | O_CREAT | O_TRUNC, 0600) : STDOUT_FILENO;
  if (output >= 0 && ::dup2(output, STDOUT_FILENO) >= 0)
    ::execv(arguments[0], arguments);
  int error = errno;
  (void)!::write(failure, &error, sizeof error);
  ::_exit(127);
}

/// Its output goes where ours goes, or into a file.
static StatusOr<pid_t> startCommand(const std::vector<std::string> &command,
                                    const std::string &outputFile) {
  std::vector<char *> arguments;
  for (const std::string &argument : command)
    arguments.push_back(const_cast<char *>(argument.c_str()));
  arguments.push_back(nullptr);
  int ends[2]; // of a pipe that closes when the program begins
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return environmentError(describeErrno("running", command[0], errno));
  Descriptor reader(ends[0]), writer(ends[1]);
  pid_t parent = ::getpid(), child = ::fork();
  if (child == 0)
    becomeCommand(arguments.data(), parent, outputFile.c_str(), writer.get());
  int error = child < 0 ? errno : 0;
  writer = Descriptor();
  if (child > 0 && ::read(reader.get(), &error, sizeof error) > 0)
    ::waitpid(child, nullptr, 0);
  if (error)
    return environmentError(describeErrno("running", command[0], error));
  return child;
}

/// Waits for its end; its exit code.
static StatusOr<int> runAndWait(const std::vector<std::string> &command,
                                const std::function<void()> &whileWaiting,
                                const std::string &outputFile = "") {
  MEMOPT_ASSIGN_OR_RETURN(pid_t child, startCommand(command, outputFile));
  int status = 0;
  // Its end and a signal are heard at once; whoever waits for us hears of us as often.
  constexpr int milliseconds = 20, withoutDescriptor = 2;
  Descriptor end(int(::syscall(SYS_pidfd_open, child, 0)));
  pollfd watched{end.get(), POLLIN, 0};
  for (pid_t ended = 0; ended != child; ended = ::waitpid(child, &status, WNOHANG)) {
    if (ended < 0 && errno != EINTR)
      return environmentError(describeErrno("waiting for", command[0], errno));
    if (isInterrupted())
      ::kill(child, SIGTERM); // who stops us by name does not know it
    whileWaiting();
    ::poll(&watched, 1, watched.fd >= 0 ? milliseconds : withoutDescriptor);
  }
  if (isInterrupted())
    return Status(StatusCode::Cancelled, "stopped while compiling");
  if (WIFSIGNALED(status))
    return environmentError("memopt-compile was ended by signal " +
                            std::to_string(WTERMSIG(status)) + " (" +
                            ::strsignal(WTERMSIG(status)) + ")");
  return WEXITSTATUS(status);
}

//===----------------------------------------------------------------------===//
// Where the package is made
//===----------------------------------------------------------------------===//

Status CompiledPackage::makeFolder() {
  const char *folder = std::getenv("TMPDIR");
  std::string prefix = std::string(folder && *folder ? folder : "/tmp") + "/memopt-run-";
  MEMOPT_ASSIGN_OR_RETURN(temporaryFolder, ScratchFolder::create(prefix));
  return Status::ok();
}

/// A package that is kept is made beside its place, another one in the temporary folder.
StatusOr<std::string> CompiledPackage::choosePlace(const std::string &kept) {
  std::string place = temporaryFolder.getPath() + packageFolder;
  path = kept.empty() ? place : kept;
  if (!kept.empty()) {
    MEMOPT_ASSIGN_OR_RETURN(PackageInMaking begun, PackageInMaking::begin(kept));
    place = begun.getPath();
    making.emplace(std::move(begun));
  }
  // An hour of compiling is better known before to be in vain.
  if (std::string text = explainNoExec(getFolder(place)); !text.empty())
    return environmentError(std::move(text));
  return place;
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
  std::string file = temporaryFolder.getPath() + deviceFile;
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
  std::string file = temporaryFolder.getPath() + helpFile;
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

/// Options of memopt-compile that change an evaluation in the course of the training that they are
/// given for, with their other names. Where variables lie, and in which form, it has of that.
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
                                           "--dim",
                                           "--dropout",
                                           "--efficient-conv-bn-eval",
                                           "--instrument",
                                           "--loss",
                                           "--machine-profile",
                                           "--master-weights",
                                           "--matmul-precision",
                                           "--precision",
                                           "--quiet",
                                           "--reference",
                                           "--run-threads",
                                           "--target",
                                           "--target-features",
                                           "--threads"};

/// Whether it is the largest batch, which is looked for in training alone.
static bool isLargestBatch(const std::vector<std::string> &words, size_t number) {
  const std::string &word = words[number];
  return word.substr(word.find('=') + 1) == "max" ||
         (word.find('=') == std::string::npos && number + 1 < words.size() &&
          words[number + 1] == "max");
}

/// The others are of training, and no option of an evaluation.
static std::vector<std::string> selectForEvaluation(const std::vector<std::string> &given) {
  std::vector<std::string> selected{"--mode=eval"};
  bool isKept = false;
  for (size_t number = 0; number < given.size(); ++number) {
    const std::string &word = given[number];
    if (startsWith(word, "-")) // else it is the value of the word before
      isKept = std::find(std::begin(ofEvaluation), std::end(ofEvaluation),
                         word.substr(0, word.find('='))) != std::end(ofEvaluation) &&
               !isLargestBatch(given, number);
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

/// The package in a folder, if it was made from that, and is whole; else null.
static std::shared_ptr<const Package> findMade(const std::string &folder,
                                               const std::string &origin) {
  constexpr size_t limit = 1 << 20;
  auto isMadeFromThat = [&] {
    StatusOr<std::string> recorded = readFile(folder + "/" + originFile, limit);
    return recorded.isOk() && *recorded == origin;
  };
  StatusOr<OpenFolder> before = OpenFolder::open(folder);
  if (!before.isOk() || !isMadeFromThat())
    return nullptr;
  StatusOr<std::shared_ptr<const Package>> package = Package::load(folder);
  bool isSame = package.isOk() && before->isCurrent() && isMadeFromThat();
  return isSame ? *std::move(package) : nullptr;
}

/// Loads what was made and, where it is kept, gives it its place. In this order: another process
/// may put another package there at any time.
Status CompiledPackage::take(const std::string &place, const std::string &origin) {
  if (making)
    MEMOPT_RETURN_IF_ERROR(writeFileAtomically(place + "/" + originFile, origin));
  MEMOPT_ASSIGN_OR_RETURN(loaded, Package::load(place, path));
  return making ? making->publish() : Status::ok();
}

/// The words for one program that the model is compiled to: those of its own, and of the target.
static std::vector<std::string> listWords(const RunOptions &options,
                                          const std::vector<std::string> &target) {
  std::vector<std::string> words;
  if (!options.mode.empty())
    words.push_back("--mode=" + options.mode);
  if (!options.rateText.empty() && options.mode != "eval")
    words.push_back("--lr=" + options.rateText);
  if (options.isQuiet)
    words.push_back("--quiet");
  if (options.ranks && options.mode != "eval")
    words.push_back("--ranks=" + std::to_string(*options.ranks));
  words.insert(words.end(), target.begin(), target.end());
  words.insert(words.end(), options.compileOptions.begin(), options.compileOptions.end());
  return words;
}

/// Whether evaluations in the course of training are to be a program beside it.
static bool hasEvaluation(const RunOptions &options) {
  return !options.evalData.empty() && options.evalPackage.empty();
}

/// Writes the file of --programs: the training, and its evaluation.
Status CompiledPackage::writePrograms(const std::string &file, const RunOptions &options,
                                      const std::vector<std::string> &training,
                                      const std::vector<std::string> &target) {
  std::vector<std::string> evaluation = selectForEvaluation(options.compileOptions);
  evaluation.insert(evaluation.end(), target.begin(), target.end());
  nlohmann::json programs = {{"programs",
                              {{{"name", "train"}, {"model", options.model}, {"options", training}},
                               {{"name", "evaluate"},
                                {"model", options.model},
                                {"options", evaluation},
                                {"averaged", options.isAveraged}}}}};
  return writeFileAtomically(
      file, programs.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

Status CompiledPackage::compile(const RunOptions &options,
                                const std::function<void()> &whileWaiting) {
  MEMOPT_ASSIGN_OR_RETURN(std::string compiler, findCompiler());
  MEMOPT_RETURN_IF_ERROR(makeFolder());
  const std::string &kept = options.packagePath;
  MEMOPT_ASSIGN_OR_RETURN(std::vector<std::string> target, describeTarget(options));
  std::vector<std::string> words = listWords(options, target);
  std::vector<std::string> command = {compiler, options.model, "-o", ""};
  command.insert(command.end(), words.begin(), words.end());
  if (hasEvaluation(options))
    command.push_back(options.isAveraged ? "evaluates averages" : "evaluates");
  std::string origin = describeOrigin(command);
  if (hasEvaluation(options)) {
    std::string file = temporaryFolder.getPath() + programsFile;
    MEMOPT_RETURN_IF_ERROR(writePrograms(file, options, words, target));
    command = {compiler, "--programs=" + file, "-o", ""};
  }
  if (!kept.empty())
    loaded = findMade(kept, origin);
  if (loaded) {
    path = kept;
    if (!options.isQuiet)
      notice(quote(path) + " is what the model and these options compile to, and stays");
    return Status::ok();
  }
  MEMOPT_ASSIGN_OR_RETURN(command[3], choosePlace(kept));
  int64_t begin = getTime();
  MEMOPT_ASSIGN_OR_RETURN(exitCode, runAndWait(command, whileWaiting));
  seconds = double(getTime() - begin) * 1e-9;
  if (exitCode == int(StatusCode::BadInput))
    return explainRefusal(compiler, options);
  return exitCode ? badInput("") : take(command[3], origin);
}

Status CompiledPackage::load() {
  if (!loaded && !path.empty()) {
    MEMOPT_ASSIGN_OR_RETURN(loaded, Package::load(path));
  }
  return Status::ok();
}
