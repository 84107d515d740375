//===- main.cpp - the executor --------------------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Loads a package, or compiles a model into one, and trains or evaluates it. Links the runtime
// only.
//
//===----------------------------------------------------------------------===//

#include "memopt-run/Signals.h"
#include "memopt-run/options/CompileFirst.h"
#include "memopt-run/options/OptionRules.h"
#include "memopt-run/ranks/LaunchedRanks.h"
#include "memopt-run/ranks/NetworkDescription.h"
#include "memopt-run/ranks/Ranks.h"
#include "memopt-run/run/Run.h"
#include "memopt-run/run/Validation.h"
#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/devices/OpenDevice.h"
#include "memopt-runtime/ranks/MessageRank.h"
#include "memopt-runtime/ranks/Placement.h"
#include "memopt-runtime/threads/FloatControls.h"
#include "options/OptionTable.h"
#include <algorithm>
#include <cstdio>

using namespace memopt;

/// The mode asked for must be the one that was compiled, and the options ones of that mode.
static Status checkUse(const RunOptions &options, const Manifest &manifest) {
  if (!options.diskFolder.empty() && manifest.arenaBytes[diskSpace] == 0)
    return badInput("--disk-folder is for what lies on disk, and of " + quote(options.model) +
                    " nothing does; compile it with --disk=DIR:BYTES");
  if (!options.mode.empty() && options.mode != manifest.mode)
    return badInput("--mode=" + options.mode + ", but " + quote(options.model) +
                    " was compiled for mode " + quote(manifest.mode) +
                    "; compile the model with --mode=" + options.mode);
  return checkMode(options, manifest.mode);
}

/// What torchrun sets unasked takes most threads away.
static void tellOfOpenMp(Sharers sharers, int64_t planned) {
  std::optional<int> wanted = getThreadsOfOpenMp(sharers);
  if (wanted && *wanted < planned)
    notice("note: OMP_NUM_THREADS=" + std::to_string(*wanted) + " lets the run use " +
           std::to_string(*wanted) + " of the " + std::to_string(planned) +
           " threads that were planned; torchrun sets it to 1 where it is not set. Set it to the "
           "threads that each process shall have");
}

/// The programs of a package by which --eval-data is evaluated, each for batches of its shapes.
static StatusOr<std::vector<size_t>> findEvaluations(const ProgramSet &programs, bool isAveraged) {
  std::vector<size_t> found;
  for (size_t number = 0; number < programs.count(); ++number) {
    const Manifest &manifest = programs[number].getManifest();
    if (manifest.mode == "eval" && manifest.isAveraged == isAveraged)
      found.push_back(number);
  }
  if (found.empty() && isAveraged)
    return badInput("--averaged needs a package with a program that evaluates averages, or "
                    "--eval-package=NAME.memopt, the model compiled with --mode=eval");
  if (found.empty())
    return badInput("--eval-data needs --eval-package=NAME.memopt, the model compiled with "
                    "--mode=eval, or a package with a program that evaluates");
  return found;
}

/// What one rank does, or the run as a whole.
static Status runSession(const RunOptions &options, std::shared_ptr<const Package> package,
                         double compileSeconds, Device &device, Communicator *communicator,
                         CheckpointFolder *target, std::shared_ptr<const Package> evaluation) {
  bool isTraining = package->getManifest().mode == "train";
  if (options.areDenormalsZero)
    FloatControls::get().withoutDenormals().set();
  SessionOptions sessionOptions{options.isMemoryChecked, options.isStoppedOnNan};
  sessionOptions.communicator = isTraining ? communicator : nullptr; // evaluations are of one rank
  sessionOptions.rankSeconds = options.rankTimeout;
  sessionOptions.diskFolder = options.diskFolder;
  Sharers sharers;
  if (communicator) {
    MEMOPT_ASSIGN_OR_RETURN(sharers, countSharers(*communicator));
    sessionOptions.threads = getAllowedThreads(sharers);
  }
  if (!options.isQuiet)
    tellOfOpenMp(sharers, package->getManifest().threads);
  sessionOptions.onThreadStart = catchFaultsOfThread;
  sessionOptions.isReplayed = options.isReplayed.value_or(true);
  MEMOPT_ASSIGN_OR_RETURN(
      std::unique_ptr<ProgramSet> programs,
      ProgramSet::create(std::move(package), device, &LibraryCall::create, sessionOptions));
  Session *session = &programs->first();
  MEMOPT_RETURN_IF_ERROR(programs->enter(0).takeStatus());
  explainFaults(*session);
  if (!session->getReplayRefusal().empty())
    notice("note: steps are not replayed from a graph: " + session->getReplayRefusal());
  for (const std::string &text : device.getNotices())
    notice("note: " + text);
  for (const std::string &text : session->getNotices())
    if (!options.isQuiet)
      std::fprintf(stderr, "remark: %s\n", text.c_str());
  Run run{options, *session, target, communicator, {}, nullptr};
  run.programs = programs.get();
  MEMOPT_RETURN_IF_ERROR(run.listPrograms());
  if (run.hasSeveral() && !options.trace.empty())
    return badInput("--trace draws the steps of one program, and the package has " +
                    std::to_string(run.trained.size()));
  run.report.compileSeconds = compileSeconds;
  std::unique_ptr<Validation> validation;
  if (evaluation) {
    MEMOPT_ASSIGN_OR_RETURN(validation, Validation::create(options, evaluation, *session, device,
                                                           communicator, sessionOptions.threads));
  } else if (!options.evalData.empty()) {
    MEMOPT_ASSIGN_OR_RETURN(std::vector<size_t> numbers,
                            findEvaluations(*programs, options.isAveraged));
    MEMOPT_ASSIGN_OR_RETURN(
        validation, Validation::create(options, *programs, std::move(numbers), communicator));
  }
  Status status = run.awaitReason(isTraining ? train(run, validation.get()) : evaluate(run));
  if (validation)
    run.report.stepsOf.insert(validation->getSteps().begin(), validation->getSteps().end());
  run.report.notePrograms(*programs);
  // An interrupted run has results too.
  if (run.hasResults && !options.report.empty()) {
    KeepAlive::Work work(run.keepAlive);
    run.noteSideFailure(run.report.write(options.report, *session, options.isMemoryChecked));
  }
  if (run.hasResults && run.isFirst())
    std::fputs(run.report.summarize(*session, options.isMemoryChecked).c_str(), stdout);
  if (status.isOk() && !run.sideFailure.isOk())
    return Status(run.sideFailure.getCode(), run.sideFailure.getMessage() + run.left);
  if (!run.sideFailure.isOk())
    notice(run.sideFailure.getMessage());
  return status;
}

/// What ranks but the first do not do: they tell nothing, and write nothing alone.
static RunOptions getOptionsOfOthers(RunOptions options) {
  options.isQuiet = true;
  for (std::string *file : {&options.report, &options.trace, &options.log})
    file->clear();
  return options;
}

static Status checkRanks(const RunOptions &options, const Manifest &manifest) {
  std::string asked = std::to_string(options.countRanks()),
              compiled = std::to_string(manifest.ranks);
  if (manifest.ranks == options.countRanks() || manifest.mode == "eval")
    return Status::ok(); // any number of ranks shares out the batches of an evaluation
  return badInput(quote(options.model) + " was compiled for " + compiled +
                  " ranks, but --ranks is " + asked + "; give --ranks=" + compiled +
                  ", or compile the model with --ranks=" + asked);
}

namespace {
/// Packages that a process has loaded for a run, the second null without evaluations.
struct LoadedRun {
  std::shared_ptr<const Package> package, evaluation;
  double compileSeconds;
};
} // namespace

/// What each rank does with packages; only the first has a `target`.
static RankWork getRankWork(const RunOptions &options, const LoadedRun &loaded,
                            CheckpointFolder *target) {
  return [=, others = getOptionsOfOthers(options)](Communicator &communicator, Device &own) {
    bool isFirst = communicator.getRank() == 0;
    return runSession(isFirst ? options : others, loaded.package, loaded.compileSeconds, own,
                      &communicator, isFirst ? target : nullptr, loaded.evaluation);
  };
}

/// What all ranks of one host do, by the process that prepared it; `meeting` may be null.
static Status workTogether(const RunOptions &options, const PreparedRun &prepared,
                           const RankWork &work, RankMeeting *meeting) {
  if (!meeting)
    return runRanks(options, prepared.arenaBytes, work);
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<SharedRanks> group,
                          SharedRanks::create(options.countRanks(), prepared.arenaBytes,
                                              options.isMemoryChecked, options.rankTimeout));
  MEMOPT_RETURN_IF_ERROR(meeting->tell(prepared.write(), group->getMemory()));
  return runOneRank(options, *group, *meeting, work);
}

/// Of each rank's arena. Ranks on devices share what they meet in alone.
static int64_t countSharedBytes(const RunOptions &options, const Package &package) {
  return options.device == "cpu" ? package.getArenaBytes()[MEMOPT_SPACE_DEVICE] : 0;
}

/// A run that is prepared, by the process that did so; `meeting` may be null.
static Status runPackage(const RunOptions &options, const LoadedRun &loaded, PreparedRun prepared,
                         CheckpointFolder *target, RankMeeting *meeting) {
  const Manifest &manifest = loaded.package->getManifest();
  MEMOPT_RETURN_IF_ERROR(checkUse(options, manifest));
  MEMOPT_RETURN_IF_ERROR(checkRanks(options, manifest));
  if (options.countRanks() == 1) {
    MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, openDevice(options.device));
    return runSession(options, loaded.package, loaded.compileSeconds, *device, nullptr, target,
                      loaded.evaluation);
  }
  // From here on there are processes for ranks, of which each opens a device for itself: drivers
  // do not survive a fork.
  prepared.arenaBytes = countSharedBytes(options, *loaded.package);
  return workTogether(options, prepared, getRankWork(options, loaded, target), meeting);
}

/// By another process than the one that has prepared a run.
static StatusOr<LoadedRun> loadPrepared(const PreparedRun &prepared, int64_t rank) {
  LoadedRun loaded{nullptr, nullptr, prepared.compileSeconds};
  MEMOPT_ASSIGN_OR_RETURN(loaded.package, prepared.package.load(rank));
  MEMOPT_ASSIGN_OR_RETURN(loaded.evaluation, prepared.evaluation.load(rank));
  return loaded;
}

static RankWork getNetworkWork(const RunOptions &options) {
  return [path = options.network](Communicator &communicator, Device &own) {
    return measureNetwork(communicator, own, path);
  };
}

/// --describe-network, by a process that is alone or the first of several on its host.
static Status describeNetwork(const RunOptions &options, RankMeeting *meeting) {
  PreparedRun prepared;
  prepared.arenaBytes = getNetworkArenaBytes();
  Status status = checkWritable(options.network).withContext("--describe-network");
  if (status.isOk() && options.countRanks() == 1)
    status = badInput("--describe-network needs --ranks=N with two ranks or more, or processes "
                      "that a launcher starts");
  if (status.isOk())
    status = workTogether(options, prepared, getNetworkWork(options), meeting);
  if (meeting && !status.isOk())
    meeting->refuse(status); // where it has not begun
  return status;
}

/// A run that the first process of a meeting has prepared, by another one.
static Status runPreparedPackage(const RunOptions &options, RankMeeting &meeting) {
  MEMOPT_ASSIGN_OR_RETURN(RankMeeting::Preparation told, meeting.listen());
  MEMOPT_ASSIGN_OR_RETURN(PreparedRun prepared, PreparedRun::read(told.text));
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<SharedRanks> group,
                          SharedRanks::attach(std::move(told.memory), options.countRanks(),
                                              prepared.arenaBytes, options.isMemoryChecked,
                                              options.rankTimeout));
  if (!options.network.empty())
    return runOneRank(options, *group, meeting, getNetworkWork(options));
  return runOneRank(
      options, *group, meeting, [&](Communicator &communicator, Device &own) -> Status {
        MEMOPT_ASSIGN_OR_RETURN(LoadedRun loaded, loadPrepared(prepared, meeting.getRank()));
        return getRankWork(options, loaded, nullptr)(communicator, own);
      });
}

static Status describeDevice(const RunOptions &options) {
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, openDevice(options.device));
  MEMOPT_ASSIGN_OR_RETURN(std::string text, device->describe());
  return writeFileAtomically(options.description, text).withContext("--describe-device");
}

/// Looks for what a run reads, which a compilation may be a minute away from.
static Status checkFiles(const RunOptions &options) {
  for (auto [option, sources] :
       {std::pair("--data", &options.data), std::pair("--eval-data", &options.evalData)})
    for (const std::string &source : *sources)
      MEMOPT_RETURN_IF_ERROR(DataSource::checkFiles(source).withContext(option));
  if (!options.weights.empty())
    MEMOPT_RETURN_IF_ERROR(
        SafetensorsFile::open(options.weights).takeStatus().withContext("--weights"));
  if (!options.load.empty())
    MEMOPT_RETURN_IF_ERROR(resolveCheckpoint(options.load).takeStatus().withContext("--load"));
  return Status::ok();
}

/// Whether what a run tells can be written where it is to go.
static Status checkOutputs(const RunOptions &options) {
  for (auto [option, path] : {std::pair("--report", &options.report),
                              {"--trace", &options.trace},
                              {"--save-gradients", &options.saveGradients}})
    if (!path->empty())
      MEMOPT_RETURN_IF_ERROR(checkWritable(*path).withContext(option));
  return options.log.empty() ? Status::ok() : StepLog::check(options.log).withContext("--log");
}

/// What comes before a run: the checkpoint's folder, and packages.
static Status prepareRun(const RunOptions &options, const std::function<void()> &whileWaiting,
                         std::optional<CheckpointFolder> &target, CompiledPackage &package,
                         CompiledPackage &evaluation) {
  bool isCompiled = needsCompilation(options.model);
  // Before compiling and training for hours.
  MEMOPT_RETURN_IF_ERROR(checkOutputs(options));
  if (!options.save.empty()) {
    MEMOPT_ASSIGN_OR_RETURN(
        CheckpointFolder folder,
        CheckpointFolder::open(options.save,
                               {options.keep, options.hasModelNames, options.isBestSaved}));
    target.emplace(std::move(folder));
    for (const std::string &text : target->getNotices())
      notice("note: --save: " + text);
  }
  if (isCompiled)
    MEMOPT_RETURN_IF_ERROR(checkFiles(options));
  package.path = options.model;
  evaluation.path = options.evalPackage;
  if (isCompiled)
    if (Status status = package.compile(options, whileWaiting); !status.isOk())
      return package.exitCode // it said why
                 ? Status(StatusCode(package.exitCode), status.getMessage())
                 : std::move(status);
  MEMOPT_RETURN_IF_ERROR(package.load());
  return evaluation.load();
}

static PreparedRun describePrepared(const CompiledPackage &package,
                                    const CompiledPackage &evaluation) {
  return {PreparedPackage::describe(package.path, package.loaded.get()),
          PreparedPackage::describe(evaluation.path, evaluation.loaded.get()), package.seconds, 0};
}

/// The whole of a run, by a process that is alone or the first of several.
static Status run(const RunOptions &options, RankMeeting *meeting) {
  std::optional<CheckpointFolder> target;
  CompiledPackage package, evaluation;
  auto keepWaiting = [&] {
    if (meeting)
      meeting->keepWaiting();
  };
  Status status = prepareRun(options, keepWaiting, target, package, evaluation);
  if (status.isOk())
    status =
        runPackage(options, {package.loaded, evaluation.loaded, package.seconds},
                   describePrepared(package, evaluation), target ? &*target : nullptr, meeting);
  if (meeting && !status.isOk())
    meeting->refuse(status); // where it has not begun
  return status;
}

/// The device of a rank over messages, whose memory the ranks of its host share unless all were
/// asked to send messages.
static StatusOr<std::unique_ptr<Device>> openMessageDevice(const RunOptions &options,
                                                           MessageRank &self, int64_t arenaBytes) {
  if (options.transport == "auto") {
    MEMOPT_ASSIGN_OR_RETURN(std::string refusal,
                            self.shareMemory(arenaBytes, options.isMemoryChecked));
    if (self.isFirst() && !refusal.empty() && !options.isQuiet)
      notice("note: ranks of one host send each other messages: " + refusal);
  }
  return openDevice(options.device, self.getMemory(), self.getPlace());
}

/// The whole of a run, by each of the processes that reach each other over MPI or UCX.
static Status runMessageRank(const RunOptions &options, const LaunchedRank &launched,
                             const RankTask &task, MessageRank &self) {
  MEMOPT_RETURN_IF_ERROR(self.compare(task));
  if (!options.network.empty()) {
    MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<Device> device,
                            openMessageDevice(options, self, getNetworkArenaBytes()));
    return measureNetwork(self.getCommunicator(), *device, options.network);
  }
  std::optional<CheckpointFolder> target;
  CompiledPackage package, evaluation;
  auto keepWaiting = [&] { self.keepWaiting(); };
  if (self.isFirst()) {
    MEMOPT_RETURN_IF_ERROR(checkShared(options, launched));
    MEMOPT_RETURN_IF_ERROR(prepareRun(options, keepWaiting, target, package, evaluation));
  }
  MEMOPT_ASSIGN_OR_RETURN(std::string told,
                          self.share(describePrepared(package, evaluation).write()));
  MEMOPT_ASSIGN_OR_RETURN(PreparedRun prepared, PreparedRun::read(told));
  LoadedRun loaded{package.loaded, evaluation.loaded, package.seconds};
  if (!needsCompilation(options.model)) {
    // Nobody runs code from a place that another host names.
    prepared.package.path = options.model;
    prepared.evaluation.path = options.evalPackage;
  }
  if (!self.isFirst()) {
    MEMOPT_ASSIGN_OR_RETURN(loaded, loadPrepared(prepared, self.getCommunicator().getRank()));
  }
  MEMOPT_RETURN_IF_ERROR(checkUse(options, loaded.package->getManifest()));
  MEMOPT_RETURN_IF_ERROR(checkRanks(options, loaded.package->getManifest()));
  MEMOPT_ASSIGN_OR_RETURN(
      std::unique_ptr<Device> device,
      openMessageDevice(options, self, countSharedBytes(options, *loaded.package)));
  RankWork work = getRankWork(options, loaded, target ? &*target : nullptr);
  return work(self.getCommunicator(), *device);
}

static void say(const Status &status) {
  std::fflush(stdout);
  if (!status.getMessage().empty()) // else it has been said
    std::fprintf(stderr, "memopt-run: error: %s\n", status.getMessage().c_str());
}

static Status runOverMessages(const RunOptions &options, const LaunchedRank &launched,
                              const std::vector<std::string> &arguments) {
  RankTask task = describeTask(options, arguments, describeContent);
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<MessageRank> self,
                          MessageRank::join(launched, {options.rankTimeout, isInterrupted}));
  Status status;
  try {
    status = runMessageRank(options, launched, task, *self);
  } catch (const std::bad_alloc &) {
    status = environmentError("this machine is out of memory");
  }
  return self->end(status, say);
}

static int runTool(const std::vector<std::string> &arguments) {
  auto finish = [](const Status &status) {
    say(status);
    if (status.getCode() == StatusCode::Cancelled)
      endByInterrupt();
    return int(status.getCode());
  };
  StatusOr<RunOptions> options = parseOptions(arguments);
  if (!options.isOk())
    return finish(options.takeStatus());
  if (options->isHelp) {
    std::fputs((getHelp() + describeCompileOptions()).c_str(), stdout);
    return 0;
  }
  if (options->isVersion) {
    std::fputs(options::describeVersion("memopt-run").c_str(), stdout);
    return 0;
  }
  if (!options->description.empty())
    return finish(describeDevice(*options));
  catchFaults();
  catchInterrupts();
  StatusOr<std::optional<LaunchedRank>> self = findRank(*options);
  if (!self.isOk())
    return finish(self.takeStatus());
  StatusOr<bool> isOverMessages = usesMessages(*options, *self);
  if (!isOverMessages.isOk())
    return finish(isOverMessages.takeStatus());
  if (*isOverMessages)
    return finish(runOverMessages(*options, **self, arguments));
  StatusOr<std::unique_ptr<RankMeeting>> meeting = meetOtherRanks(*options, *self, arguments);
  if (!meeting.isOk())
    return finish(meeting.takeStatus());
  if (*meeting && !(*meeting)->isFirst())
    return finish(runPreparedPackage(*options, **meeting));
  return finish(options->network.empty() ? run(*options, meeting->get())
                                         : describeNetwork(*options, meeting->get()));
}

int main(int argc, char **argv) {
  try {
    return runTool(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::bad_alloc &) {
    std::fputs("memopt-run: error: this machine is out of memory\n", stderr);
    return 3;
  }
}
