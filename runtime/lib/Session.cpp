//===- Session.cpp - a program at work ------------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The runtime functions that a program calls, and the steps. Variables are filled in
// SessionVariables.cpp.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/Session.h"
#include "memopt-runtime/ThreadPool.h"
#include <cmath>
#include <cstring>

using namespace memopt;

//===----------------------------------------------------------------------===//
// What the program calls
//===----------------------------------------------------------------------===//

const memopt_runtime_functions Session::functions = {
    MEMOPT_PROGRAM_INTERFACE_VERSION, sizeof(memopt_runtime_functions), &Session::onInstruction,
    &Session::onParallelFor, &Session::onLibraryCall};

int32_t Session::onInstruction(void *opaque, int64_t index) {
  auto *session = static_cast<Session *>(opaque);
  auto count = int64_t(session->getManifest().instructions.size());
  if (index < 0 || index > count) {
    session->failure = badInput("the program reports instruction " + std::to_string(index) +
                                " of " + std::to_string(count));
    return 1;
  }
  if (session->trace)
    session->trace->beginInstruction(index);
  if (index == 0 && session->isCapturing)
    session->keepGradients(-1);
  bool goesOn = index == 0 || session->finishInstruction(index - 1);
  session->running.store(index, std::memory_order_relaxed);
  return goesOn ? 0 : 1;
}

void Session::onParallelFor(int64_t count, int64_t grain, memopt_loop_body body, void *closure) {
  parallelFor(count, grain, body, closure);
}

int32_t Session::onLibraryCall(void *opaque, int64_t index, void *const *buffers) {
  auto *session = static_cast<Session *>(opaque);
  std::vector<PreparedCall> &calls = session->package->getCalls();
  if (index < 0 || index >= int64_t(calls.size())) {
    session->failure = badInput("the program makes library call " + std::to_string(index) + " of " +
                                std::to_string(calls.size()));
    return 1;
  }
  PreparedCall &call = calls[size_t(index)];
  if (session->options.isMemoryChecked && call.workspaceBytes)
    session->noteWorkspace(call, buffers);
  Status status = call.call->run(buffers);
  if (status.isOk())
    return 0;
  session->failure = std::move(status).withContext("library_calls[" + std::to_string(index) + "]");
  return 1;
}

void Session::noteWorkspace(const PreparedCall &call, void *const *buffers) {
  for (Arena &arena : arenas)
    arena.noteHandedOut(buffers[call.bufferCount], call.workspaceBytes);
}

/// Looks at what an instruction left; false leaves the step.
bool Session::finishInstruction(int64_t index) {
  const Manifest &manifest = getManifest();
  if (isCapturing)
    keepGradients(index);
  bool isLossReady = manifest.lossReadyAfter ? index == *manifest.lossReadyAfter
                                             : index + 1 == int64_t(manifest.instructions.size());
  if (watch == Watch::EveryOutput) {
    inspectOutputs(index);
    return firstNan < 0 && !isLossReady;
  }
  if (watch == Watch::Loss && isLossReady && !isLossFinite()) {
    isLossBad = true;
    return false;
  }
  return true;
}

void Session::keepGradients(int64_t index) {
  const std::vector<GradientSpec> &gradients = getManifest().gradients;
  for (size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i].readyAfter == index && gradients[i].bytes)
      std::memcpy(capturedGradients[i].data(), getAddress(gradients[i]),
                  size_t(gradients[i].bytes));
}

void Session::inspectOutputs(int64_t index) {
  for (const PlacedTensor &output : getManifest().instructions[size_t(index)].outputs) {
    int64_t count = output.bytes / getByteSize(output.dtype);
    const void *data = getAddress(output);
    if (findNonFinite(output.dtype, data, count) < 0)
      continue;
    if (firstNan < 0 && findNonFinite(output.dtype, data, count, /*onlyNan=*/true) >= 0)
      firstNan = index;
    if (firstInfinite < 0)
      firstInfinite = index;
  }
}

bool Session::isLossFinite() const {
  int loss = getManifest().getLossIndex();
  return loss < 0 || std::isfinite(readScalar(getManifest().outputs[size_t(loss)]));
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

StatusOr<std::unique_ptr<Session>> Session::create(std::unique_ptr<Package> package, Device &device,
                                                   const SessionOptions &options) {
  const Manifest &manifest = package->getManifest();
  if (manifest.target != device.getName())
    return badInput("package " + quote(package->getFolder()) + " was compiled for target " +
                    quote(manifest.target) + ", the device is " + quote(device.getName()));
  std::unique_ptr<Session> session(new Session());
  session->frame.session = session.get();
  session->package = std::move(package);
  session->package->bind(&functions);
  if (!session->package->getCalls().empty()) {
    MEMOPT_RETURN_IF_ERROR(session->allocateArenas(device, /*isChecked=*/false));
    session->rehearse();
  }
  session->options = options;
  MEMOPT_RETURN_IF_ERROR(session->allocateArenas(device, options.isMemoryChecked));
  return session;
}

Status Session::allocateArenas(Device &device, bool isChecked) {
  for (int space = 0; space < MEMOPT_SPACE_COUNT; ++space) {
    arenas[space] = Arena();
    StatusOr<Arena> arena = device.allocate(getManifest().arenaBytes[space], isChecked);
    if (!arena.isOk())
      return arena.takeStatus().withContext(std::string(getSpaceName(space)) + " memory");
    arenas[space] = *std::move(arena);
    frame.arena[space] = arenas[space].base();
  }
  return Status::ok();
}

/// One step on zeros, forgotten afterwards: libraries generate some code only when they first need it (oneDNN its
/// barriers), and that must not happen, and allocate, during a step. Its numbers mean nothing.
void Session::rehearse() {
  watch = Watch::Nothing;
  (void)package->step(&frame);
  running.store(-1);
  failure = Status::ok();
}

Status Session::checkInputs() const {
  for (const InputSpec &input : getManifest().inputs) {
    if (!input.validRange)
      continue;
    const ValidRange &valid = *input.validRange;
    const char *data = getAddress(input);
    int64_t count = getElementCount(input.shape);
    for (int64_t i = 0; i < count; ++i) {
      int64_t value;
      if (input.dtype == DType::I64)
        std::memcpy(&value, data + i * 8, 8);
      else
        value =
            int64_t(readElement(input.dtype, data, i)); // narrower integers are exact as numbers
      if ((value >= valid.min && value <= valid.max) || value == valid.ignore)
        continue;
      return badInput("input " + quote(input.name) + " holds " + std::to_string(value) +
                      " at index " + toIndexText(input.shape, i) + ", expected " +
                      std::to_string(valid.min) + " to " + std::to_string(valid.max) +
                      (valid.ignore ? " or " + std::to_string(*valid.ignore) : "") +
                      (valid.reason.empty() ? "" : " (" + valid.reason + ")"));
    }
  }
  return Status::ok();
}

Status Session::execute(Watch newWatch) {
  watch = newWatch;
  isLossBad = false;
  failure = Status::ok();
  int32_t result = package->step(&frame);
  int64_t last = running.exchange(-1);
  if (!failure.isOk())
    return std::move(failure).withContext(describeInstruction(last));
  bool isLeftOnPurpose = isLossBad || watch == Watch::EveryOutput;
  if (result != 0 && !isLeftOnPurpose)
    return badInput("the program ended its step with code " + std::to_string(result) + " in " +
                    describeInstruction(last));
  for (Arena &arena : arenas) {
    if (!options.isMemoryChecked)
      break;
    arena.updateMark();
    MEMOPT_RETURN_IF_ERROR(arena.checkSlack());
  }
  return Status::ok();
}

Status Session::runStep() {
  MEMOPT_RETURN_IF_ERROR(execute(options.isStoppedOnNan ? Watch::Loss : Watch::Nothing));
  isCapturing = false;
  return isLossBad ? explainLoss() : Status::ok();
}

std::string Session::describeInstruction(int64_t index) const {
  const std::vector<InstructionSpec> &instructions = getManifest().instructions;
  if (index < 0 || index >= int64_t(instructions.size()))
    return "the step";
  const InstructionSpec &instruction = instructions[size_t(index)];
  return "instruction " + std::to_string(index) + " " + quote(instruction.name) +
         (instruction.ops.empty() ? "" : " (" + instruction.ops + ")") +
         (instruction.module.empty() ? "" : " of module " + quote(instruction.module));
}

/// Runs the forward part again, on the same inputs and parameters, and looks at each output as it
/// appears: buffers are shared later in a step, so afterwards nothing of this could be seen.
/// Infinity alone may be meant (masks are made of it); the first NaN counts, and an infinity only
/// when there is no NaN.
Status Session::explainLoss() {
  int loss = getManifest().getLossIndex();
  std::string message =
      "the loss is " + std::to_string(readScalar(getManifest().outputs[size_t(loss)]));
  for (const InputSpec &input : getManifest().inputs)
    if (int64_t at = findNonFinite(input.dtype, getAddress(input), getElementCount(input.shape));
        at >= 0)
      message += "; input " + quote(input.name) + " holds " +
                 std::to_string(readElement(input.dtype, getAddress(input), at)) + " at index " +
                 toIndexText(input.shape, at);
  if (const VariableSpec *variable = findNonFiniteVariable())
    message += "; " + variable->role + " " + quote(variable->name) + " is no longer finite";
  firstNan = firstInfinite = -1;
  Trace *kept = std::exchange(trace, nullptr);
  MEMOPT_RETURN_IF_ERROR(execute(Watch::EveryOutput).withContext(message));
  trace = kept;
  int64_t first = firstNan >= 0 ? firstNan : firstInfinite;
  if (first >= 0)
    message += "; the first output that is " +
               std::string(firstNan >= 0 ? "not a number" : "infinite") + " comes from " +
               describeInstruction(first);
  if (firstNan >= 0 && firstInfinite >= 0 && firstInfinite != firstNan)
    message += ", after an infinite one from " + describeInstruction(firstInfinite);
  return badInput(message + "; parameters were left as they were before this step");
}

//===----------------------------------------------------------------------===//
// Gradients and memory
//===----------------------------------------------------------------------===//

void Session::captureGradients() {
  capturedGradients.clear();
  for (const GradientSpec &gradient : getManifest().gradients)
    capturedGradients.emplace_back(size_t(gradient.bytes));
  isCapturing = true;
}

std::vector<TensorToWrite> Session::getCapturedGradients() const {
  std::vector<TensorToWrite> tensors;
  for (size_t i = 0; i < capturedGradients.size(); ++i) {
    const GradientSpec &gradient = getManifest().gradients[i];
    tensors.push_back({gradient.name, gradient.dtype, gradient.shape, capturedGradients[i].data()});
  }
  return tensors;
}

BytesBySpace Session::getUsedPeakBytes() const {
  BytesBySpace bytes;
  for (int space = 0; space < MEMOPT_SPACE_COUNT; ++space)
    bytes[space] = arenas[space].usedPeakBytes();
  return bytes;
}

int64_t Session::getResidentArenaBytes() const {
  int64_t bytes = 0;
  for (const Arena &arena : arenas)
    bytes += arena.residentBytes();
  return bytes;
}

bool Session::isGuard(const void *address) const {
  for (const Arena &arena : arenas)
    if (arena.isGuard(address))
      return true;
  return false;
}
