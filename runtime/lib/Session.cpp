//===- Session.cpp - a program at work ------------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/Session.h"
#include "SessionParts.h"
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

Status Session::prepare(Device &device, const LibraryCallFactory &createCall) {
  const Manifest &manifest = getManifest();
  MEMOPT_RETURN_IF_ERROR(DeviceProgram::checkTarget(manifest.target, device));
  int64_t ranks = options.communicator ? options.communicator->getRanks() : 1;
  if (ranks != manifest.ranks)
    return badInput("was compiled for " + std::to_string(manifest.ranks) + " ranks, not " +
                    std::to_string(ranks));
  bool hasImage = !manifest.target.image.empty();
  if (hasImage && ranks > 1)
    return environmentError("programs of several ranks need NCCL on device " +
                            quote(device.getName()) + ", which this build of memopt does not call");
  MEMOPT_ASSIGN_OR_RETURN(arenas, Arenas::allocate(device, manifest, options.isMemoryChecked));
  parts = std::make_unique<Parts>(this, manifest, arenas, options.communicator, getRank());
  if (hasImage) {
    MEMOPT_ASSIGN_OR_RETURN(parts->device, DeviceProgram::create(*package, arenas, device));
    parts->feed.setDevice(parts->device.get());
  }
  ComputeStream *compute = hasImage ? &parts->device->getStream() : nullptr;
  MEMOPT_ASSIGN_OR_RETURN(parts->calls,
                          hasImage ? PreparedCalls::create(manifest, createCall, device, *compute)
                                   : PreparedCalls::create(manifest, createCall));
  MEMOPT_ASSIGN_OR_RETURN(parts->transfers, Transfers::create(manifest, arenas, device, compute));
  int most = options.threads ? options.threads : getAllowedThreads();
  MEMOPT_ASSIGN_OR_RETURN(pool,
                          ThreadPool::create(std::min(int(manifest.threads), most),
                                             parts->calls.getTeam(), [this] { joinThread(); }));
  frame.session = this;
  frame.runtime = &ProgramCalls::table;
  for (int space = 0; space < MEMOPT_SPACE_COUNT; ++space)
    frame.arena[space] = arenas[space].base();
  MEMOPT_RETURN_IF_ERROR(parts->calls.warmUp(arenas, *pool));
  return arenas.reset();
}

/// A thread of the pool begins.
void Session::joinThread() {
  WorkFor::current = this;
  AllocationCounter::ofThread = &allocations;
  if (options.onThreadStart)
    options.onThreadStart();
}

void Session::setBatches(BatchFiller filler) { parts->feed.setFiller(std::move(filler)); }

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

Status Session::runStep() {
  WorkFor here(this);
  parts->isSearching = parts->isLossRefused = false;
  int64_t begin = getTime();
  MEMOPT_RETURN_IF_ERROR(runProgram());
  parts->seconds = double(getTime() - begin) * 1e-9 - parts->feed.getSeconds();
  parts->gradients.end();
  parts->isLossRefused = parts->isLossBad;
  return parts->isLossRefused ? explainLoss() : Status::ok();
}

Status Session::runProgram() {
  parts->hasCommitted = parts->isLossBad = false;
  parts->failure = Status::ok();
  parts->indices.reset();
  if (parts->device)
    MEMOPT_RETURN_IF_ERROR(parts->device->beginStep());
  MEMOPT_RETURN_IF_ERROR(parts->feed.beginStep());
  int32_t code = package->step(&frame);
  parts->transfers->abandon();
  Status status = finishProgram(code);
  parts->position.reset();
  return status;
}

/// What there is to say after a step, whether it reached its end or not.
Status Session::finishProgram(int32_t code) {
  const Manifest &manifest = getManifest();
  int64_t last = parts->position.getInstruction();
  bool isLeftOnPurpose = parts->isLossBad || parts->isSearching;
  if (parts->device && parts->failure.isOk())
    parts->failure = parts->device->fetch();
  if (!parts->failure.isOk()) {
    int64_t at = parts->device ? parts->device->findFailure(last) : last;
    return std::move(parts->failure).withContext(manifest.describeInstruction(at));
  }
  if (Status status = parts->indices.check(); !status.isOk())
    return parts->hasCommitted ? std::move(status).withContext("after the state has changed")
                               : std::move(status);
  if (code != 0 && !isLeftOnPurpose)
    return badInput("the program ended its step with code " + std::to_string(code) + " in " +
                    manifest.describeInstruction(last));
  if (!isLeftOnPurpose && !parts->hasCommitted && manifest.mode == "train")
    return badInput("the program ended its step without asking whether to go on (commit)");
  return options.isMemoryChecked ? arenas.observe() : Status::ok();
}

/// Runs the forward part again to see where a loss that is not finite comes from.
Status Session::explainLoss() {
  const std::string end = "; parameters were left as they were before this step";
  std::string message = parts->loss.describeLoss();
  if (!getManifest().isInstrumented)
    return badInput(message + "; a package compiled with --instrument=on would say where it began" +
                    end);
  parts->isSearching = true;
  parts->loss.beginSearch();
  Trace *kept = std::exchange(parts->trace, nullptr);
  Status status = runProgram();
  parts->trace = kept;
  MEMOPT_RETURN_IF_ERROR(std::move(status).withContext(message));
  return badInput(message + parts->loss.describeOrigin() + end);
}

bool Session::isLossRefused() const { return parts->isLossRefused; }

double Session::getStepSeconds() const { return parts->seconds; }

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
    bool isWatched = parts->isSearching || parts->trace || options.isMemoryChecked ||
                     parts->gradients.isWanted(before);
    MEMOPT_RETURN_IF_ERROR(parts->device->beginInstruction(next, isWatched));
  }
  return parts->gradients.keep(before);
}

StatusOr<const VariableSpec *> Session::findNonFiniteVariable() const {
  return findNonFiniteState(getManifest(), arenas, getRank());
}
