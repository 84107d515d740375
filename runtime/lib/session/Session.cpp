//===- Session.cpp - a program at work ------------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/session/Session.h"
#include "SessionParts.h"
#include "memopt-runtime/base/Clock.h"
#include <algorithm>
#include <utility>

using namespace memopt;

//===----------------------------------------------------------------------===//
// Beginning
//===----------------------------------------------------------------------===//

Session::Session() = default;
Session::~Session() = default;

StatusOr<std::unique_ptr<Session>> Session::create(std::shared_ptr<const Package> package,
                                                   Device &device,
                                                   const LibraryCallFactory &createCall,
                                                   const SessionOptions &options) {
  std::unique_ptr<Session> session(new Session());
  session->package = std::move(package);
  session->options = options;
  if (Status status = session->prepare(device, createCall); !status.isOk())
    return status.withContext("package " + quote(session->package->getFolder()));
  return session;
}

Status Session::prepare(Device &onDevice, const LibraryCallFactory &createCall) {
  const Manifest &manifest = getManifest();
  device = &onDevice;
  MEMOPT_RETURN_IF_ERROR(DeviceProgram::checkTarget(manifest.target, *device));
  int64_t ranks = options.communicator ? options.communicator->getRanks() : 1;
  if (ranks != manifest.ranks)
    return badInput("was compiled for " + std::to_string(manifest.ranks) + " ranks, not " +
                    std::to_string(ranks));
  if (!manifest.target.image.empty() && manifest.arenaBytes[diskSpace])
    return badInput("keeps values on disk, where programs of device " + quote(device->getName()) +
                    " cannot have any");
  if (options.partner) {
    MEMOPT_ASSIGN_OR_RETURN(arenas, options.partner->arenas.share(manifest));
  } else {
    MEMOPT_ASSIGN_OR_RETURN(
        arenas,
        Arenas::allocate(*device, manifest, options.leastBytes, options.isMemoryChecked,
                         options.diskFolder.empty() ? manifest.diskFolder : options.diskFolder));
  }
  parts = std::make_unique<Parts>(this, manifest, arenas, options.communicator, getRank());
  if (options.communicator)
    parts->feed.goOnWithoutSamples();
  MEMOPT_RETURN_IF_ERROR(prepareProgram(createCall));
  MEMOPT_RETURN_IF_ERROR(readConstants());
  if (!options.partner) {
    MEMOPT_RETURN_IF_ERROR(arenas.reset(*pool));
    MEMOPT_RETURN_IF_ERROR(clearUnits());
  }
  return parts->device && options.isReplayed ? captureStep() : Status::ok();
}

/// All that a step needs, each measured for itself.
Status Session::prepareProgram(const LibraryCallFactory &createCall) {
  const Manifest &manifest = getManifest();
  overhead.context = device->getContextBytes();
  MEMOPT_ASSIGN_OR_RETURN(takenBytes, device->getTakenBytes());
  takenBefore = takenBytes;
  if (!manifest.target.image.empty()) {
    const DeviceProgram *partner = options.partner ? options.partner->parts->device.get() : nullptr;
    MEMOPT_ASSIGN_OR_RETURN(parts->device,
                            DeviceProgram::create(*package, arenas, *device, partner));
    parts->feed.setDevice(parts->device.get());
  }
  ComputeStream *compute = parts->device ? &parts->device->getStream() : nullptr;
  MEMOPT_ASSIGN_OR_RETURN(parts->transfers, Transfers::create(manifest, arenas, *device, compute));
  frame.session = this;
  frame.runtime = &ProgramCalls::table;
  for (int space = 0; space < MEMOPT_SPACE_COUNT; ++space)
    frame.arena[space] = arenas[space].base();
  MEMOPT_RETURN_IF_ERROR(noteTaken(overhead.modules));
  MEMOPT_RETURN_IF_ERROR(prepareCalls(createCall));
  MEMOPT_RETURN_IF_ERROR(noteTaken(overhead.libraryCalls));
  if (!parts->device)
    MEMOPT_RETURN_IF_ERROR(parts->collectives.prepare([this] { joinThread(); }));
  return parts->device && options.communicator ? joinDevices() : Status::ok();
}

/// The other ranks' devices. A library makes connections when it first needs them, which must not
/// be in a step: so each collective is done once, on whatever there is.
Status Session::joinDevices() {
  MEMOPT_ASSIGN_OR_RETURN(parts->ranks,
                          device->joinRanks(*options.communicator, options.rankSeconds));
  DeviceCommunicator &ranks = *parts->ranks;
  Arena &memory = arenas[MEMOPT_SPACE_DEVICE];
  MEMOPT_RETURN_IF_ERROR(ranks.registerMemory(memory));
  parts->device->setRanks(&ranks);
  for (size_t number = 0; number < getManifest().collectives.size(); ++number)
    MEMOPT_RETURN_IF_ERROR(parts->device->runCollective(int64_t(number)));
  MEMOPT_RETURN_IF_ERROR(parts->device->synchronize());
  MEMOPT_RETURN_IF_ERROR(noteTaken(overhead.ranks));
  overhead.ranks = std::max(overhead.ranks, ranks.getTakenBytes());
  return Status::ok();
}

/// The library calls and the threads that they need.
Status Session::prepareCalls(const LibraryCallFactory &createCall) {
  const Manifest &manifest = getManifest();
  MEMOPT_ASSIGN_OR_RETURN(parts->calls, parts->device
                                            ? PreparedCalls::create(manifest, createCall, *device,
                                                                    parts->device->getStream())
                                            : PreparedCalls::create(manifest, createCall));
  int most = options.threads ? options.threads : getAllowedThreads();
  MEMOPT_ASSIGN_OR_RETURN(pool,
                          ThreadPool::create(std::min(int(manifest.threads), most),
                                             parts->calls.getTeam(), [this] { joinThread(); }));
  return parts->calls.warmUp(arenas, *pool);
}

/// Measures what has been taken of the device since the last time.
Status Session::noteTaken(int64_t &part) {
  MEMOPT_ASSIGN_OR_RETURN(int64_t now, device->getTakenBytes());
  part = now - std::exchange(takenBytes, now);
  return Status::ok();
}

StatusOr<DeviceOverhead> Session::measureDeviceOverhead() const {
  MEMOPT_ASSIGN_OR_RETURN(int64_t now, device->getTakenBytes());
  DeviceOverhead measured = overhead;
  measured.steps = now - takenBytes;
  return measured;
}

void Session::addPreparationTo(DeviceOverhead &whole) const {
  whole.modules += overhead.modules;
  whole.libraryCalls += overhead.libraryCalls;
  whole.ranks += overhead.ranks;
  whole.graphs += overhead.graphs;
  whole.steps -= takenBytes - takenBefore;
}

/// Runs the program once to write down what it puts into streams; nothing of it is done. A step
/// that cannot be written down is run by the program each time, which is no failure.
Status Session::captureStep() {
  auto graphs = std::make_unique<StepGraphs>(*parts->device, *parts->transfers);
  parts->capture = graphs.get();
  Status status = graphs->begin();
  if (int32_t code = status.isOk() ? package->step(&frame) : 0; code != 0)
    status = parts->failure.isOk() ? badInput("the program ends with code " + std::to_string(code))
                                   : std::exchange(parts->failure, Status::ok());
  status = graphs->end(std::move(status));
  parts->capture = nullptr;
  parts->hasCommitted = false;
  parts->position.reset();
  if (status.isOk())
    parts->graphs = std::move(graphs);
  else
    replayRefusal = status.getMessage();
  return noteTaken(overhead.graphs);
}

/// A thread of the pool begins.
void Session::joinThread() {
  WorkFor::current = this;
  AllocationCounter::ofThread = &allocations;
  if (options.onThreadStart)
    options.onThreadStart();
}

void Session::setBatches(BatchFiller filler, bool isAhead) {
  parts->feed.setFiller(std::move(filler), isAhead);
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

Status Session::runStep() {
  WorkFor here(this);
  parts->isSearching = parts->isLossRefused = false;
  int64_t begin = getTime();
  parts->isTorn = true; // by what is thrown, too
  Status ran = runProgram();
  parts->isTorn = !ran.isOk() && parts->hasCommitted;
  if (!ran.isOk()) {
    parts->feed.forgetAhead();
    return ran;
  }
  parts->seconds = double(getTime() - begin) * 1e-9 - parts->feed.getSeconds();
  parts->gradients.end();
  parts->isLossRefused = parts->isLossBad;
  if (parts->isLossRefused && onLossRefused)
    onLossRefused();
  return parts->isLossRefused ? explainLoss() : Status::ok();
}

Status Session::runProgram() {
  parts->hasCommitted = parts->hasAgreed = parts->isLossBad = false;
  parts->failure = Status::ok();
  parts->refusal = Status::ok();
  parts->refusing.reset();
  parts->indices.reset();
  bool isReplayed = parts->graphs && !isWatched();
  if (parts->device && !isReplayed)
    MEMOPT_RETURN_IF_ERROR(parts->device->beginStep());
  MEMOPT_RETURN_IF_ERROR(hold(parts->feed.beginStep()));
  int32_t code = isReplayed ? replayStep() : package->step(&frame);
  parts->transfers->abandon();
  parts->collectives.abandon();
  Status status = finishProgram(code);
  parts->position.reset();
  return status;
}

/// Whether somebody looks at the step while it runs, which needs the program's reports.
bool Session::isWatched() const {
  return parts->isSearching || parts->trace || parts->gradients.isKeeping();
}

/// What the program would do, and answer.
int32_t Session::replayStep() {
  for (const StepGraphs::Piece &piece : parts->graphs->getPieces()) {
    parts->failure = parts->device->getStream().replay(*piece.graph);
    if (parts->failure.isOk() && piece.stop == StepGraphs::Stop::Batch)
      parts->failure = hold(parts->feed.beginIteration(piece.iteration));
    if (parts->failure.isOk() && piece.stop == StepGraphs::Stop::Commit) {
      parts->feed.fillAhead();
      parts->failure = parts->device->synchronize();
    }
    if (!parts->failure.isOk() || (piece.stop == StepGraphs::Stop::Commit && !mayCommit()))
      return 1;
  }
  return 0;
}

/// Whether the step is one of several ranks, which know of no search for a bad loss.
bool Session::goesTogether() const { return options.communicator && !parts->isSearching; }

/// A rank that lacks samples makes the step on others, up to where nothing has changed as yet and
/// all ranks meet: so its shard of the state is not lost with it. Where that cannot be, or there is
/// nobody to tell, the failure comes back.
Status Session::hold(Status failure) {
  if (failure.isOk() || !goesTogether() || parts->hasAgreed)
    return failure;
  if (parts->refusal.isOk())
    parts->refusal = std::move(failure);
  return Status::ok();
}

/// Ranks commit all, or none of them does.
bool Session::agree() {
  parts->hasAgreed = true;
  if (parts->refusal.isOk())
    parts->refusal = parts->indices.check();
  if (!goesTogether())
    return parts->refusal.isOk();
  parts->collectives.land();
  parts->refusal = options.communicator->agree(std::move(parts->refusal), parts->refusing);
  return parts->refusal.isOk();
}

/// Decides whether a step goes on, when all that the host looks at for that is there.
bool Session::mayCommit() {
  if (!agree())
    return false;
  // A step with a scale of the loss finds out by itself, and skips its update.
  bool isLossWatched = options.isStoppedOnNan && !getManifest().findLossScale();
  parts->isLossBad = isLossWatched && !parts->loss.isFinite();
  return parts->hasCommitted = !parts->isLossBad;
}

/// What there is to say after a step, whether it reached its end or not.
Status Session::finishProgram(int32_t code) {
  const Manifest &manifest = getManifest();
  int64_t last = parts->position.getInstruction();
  bool isLeftOnPurpose = parts->isLossBad || parts->isSearching;
  // Of a replayed step the last graph has brought it back.
  if (parts->device && parts->failure.isOk() && (!parts->graphs || isWatched()))
    parts->failure = parts->device->bringBack();
  if (parts->device && parts->failure.isOk())
    parts->failure = parts->device->synchronize();
  if (!parts->failure.isOk()) {
    int64_t at = parts->device ? parts->device->findFailure(last) : last;
    return std::move(parts->failure).withContext(manifest.describeInstruction(at));
  }
  if (!parts->isSearching && !parts->hasAgreed)
    agree(); // what changes nothing may end without asking
  if (!parts->refusal.isOk())
    return std::exchange(parts->refusal, Status::ok());
  if (Status status = parts->indices.check(); !status.isOk())
    return parts->hasCommitted ? std::move(status).withContext("after the state has changed")
                               : std::move(status);
  if (code != 0 && !isLeftOnPurpose)
    return badInput("the program ended its step with code " + std::to_string(code) + " in " +
                    manifest.describeInstruction(last));
  if (!isLeftOnPurpose && !parts->hasCommitted && manifest.mode == "train")
    return badInput("the program ended its step without asking whether to go on (commit)");
  if (!options.isMemoryChecked)
    return Status::ok();
  if (parts->device) // the next samples may be on their way
    MEMOPT_RETURN_IF_ERROR(parts->device->beginFill());
  MEMOPT_RETURN_IF_ERROR(arenas.observe());
  noteUsed();
  return Status::ok();
}

void Session::noteUsed() {
  BytesBySpace now = arenas.getUsedPeakBytes();
  for (size_t space = 0; space < now.size(); ++space)
    usedBytes[space] = std::max(usedBytes[space], now[space]);
}

/// Runs the forward part again to see where a loss that is not finite comes from.
Status Session::explainLoss() {
  parts->feed.forgetAhead();
  const std::string end = "; parameters were left as they were before this step";
  std::string cause = parts->loss.describeCause(), message = parts->loss.describeLoss() + cause;
  if (!getManifest().isInstrumented) {
    MEMOPT_RETURN_IF_ERROR(chooseTeller(!cause.empty()));
    return notFinite(message +
                     "; a package compiled with --instrument=on would say where it began" + end);
  }
  parts->isSearching = true;
  parts->loss.beginSearch();
  Trace *kept = std::exchange(parts->trace, nullptr);
  Status status = runProgram();
  parts->trace = kept;
  MEMOPT_RETURN_IF_ERROR(std::move(status).withContext(message));
  MEMOPT_RETURN_IF_ERROR(chooseTeller(!cause.empty()));
  return notFinite(message + parts->loss.describeOrigin() + end);
}

/// Of ranks whose loss is one, that with the cause says what it is: on the others it arrives with a
/// collective.
Status Session::chooseTeller(bool hasCause) {
  if (!options.communicator)
    return Status::ok();
  std::vector<char> all(size_t(options.communicator->getRanks()));
  char mine = hasCause;
  MEMOPT_RETURN_IF_ERROR(options.communicator->exchange(&mine, 1, all.data()));
  auto first = std::find(all.begin(), all.end(), 1);
  parts->refusing = first == all.end() ? 0 : first - all.begin();
  return Status::ok();
}

bool Session::isLossRefused() const { return parts->isLossRefused; }
bool Session::isStateWhole() const { return !parts->isTorn; }
std::optional<int64_t> Session::getRefusingRank() const { return parts->refusing; }

double Session::getStepSeconds() const { return parts->seconds; }
double Session::getDataSeconds() const { return parts->feed.getSeconds(); }

//===----------------------------------------------------------------------===//
// What is seen of a step
//===----------------------------------------------------------------------===//

Status Session::checkInstrumented(const std::string &what) const {
  if (getManifest().isInstrumented)
    return Status::ok();
  return badInput(what + " need a program that reports its instructions; compile the model with "
                         "--instrument=on");
}

Status Session::captureGradients() {
  MEMOPT_RETURN_IF_ERROR(checkInstrumented("gradients"));
  parts->gradients.begin();
  return Status::ok();
}

StatusOr<std::vector<TensorToWrite>> Session::getCapturedGradients() {
  MEMOPT_RETURN_IF_ERROR(parts->gradients.joinParts(options.communicator));
  return parts->gradients.getTensors();
}

Status Session::setTrace(Trace *newTrace) {
  if (newTrace)
    MEMOPT_RETURN_IF_ERROR(checkInstrumented("timelines"));
  parts->trace = newTrace;
  return Status::ok();
}

int64_t Session::getRunningInstruction() const { return parts->position.getInstruction(); }

/// Between two instructions: keeps what is ready now. On a device the first must have ended when
/// something of it is wanted, and when times or the place of a failure shall be exact.
Status Session::lookAt(int64_t before, int64_t next) {
  if (parts->device) {
    bool isAwaited = parts->isSearching || parts->trace || parts->gradients.isWanted(before);
    MEMOPT_RETURN_IF_ERROR(parts->device->beginInstruction(next, isAwaited));
  }
  return parts->gradients.keep(before);
}

StatusOr<const VariableSpec *> Session::findNonFiniteVariable() const {
  return findNonFiniteState(getManifest(), arenas, getRank());
}
