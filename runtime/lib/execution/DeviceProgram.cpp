//===- DeviceProgram.cpp - a program whose kernels are a device's ---------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/execution/DeviceProgram.h"
#include <cstdlib>
#include <utility>

using namespace memopt;

/// 90 of "sm_90" and of "sm_90a"; 0 of what is no chip.
static int getVersion(const std::string &chip) {
  size_t digits = chip.find_first_of("0123456789");
  return digits == std::string::npos ? 0 : std::atoi(chip.c_str() + digits);
}

/// Code for "sm_90a" uses what only this version of the chip has, and runs on "sm_90" alone; that
/// for "sm_100f" on all of its major version. Newer chips run all other, if from PTX.
static bool runsOn(const std::string &chip, const std::string &device) {
  int wanted = getVersion(chip), there = getVersion(device);
  if (wanted == 0 || there == 0)
    return chip == device;
  if (chip.back() == 'a')
    return there == wanted;
  return there >= wanted && (chip.back() != 'f' || there / 10 == wanted / 10);
}

Status DeviceProgram::checkTarget(const TargetSpec &target, const Device &device) {
  if (target.name != device.getName())
    return badInput("was compiled for target " + quote(target.name) + ", the device is " +
                    quote(device.getName()));
  if (runsOn(target.chip, device.getChip()))
    return Status::ok();
  return environmentError("was compiled for chip " + quote(target.chip) + ", the device is " +
                          quote(device.getChip()) + "; compile the model for it");
}

StatusOr<std::unique_ptr<DeviceProgram>> DeviceProgram::create(const Package &package,
                                                               const Arenas &arenas, Device &device,
                                                               const DeviceProgram *partner) {
  const Manifest &manifest = package.getManifest();
  std::unique_ptr<DeviceProgram> program(new DeviceProgram(package, arenas));
  if (partner && package.sharesCode(partner->package)) {
    program->module = partner->module;
  } else {
    MEMOPT_ASSIGN_OR_RETURN(
        program->module,
        device.loadModule(package.getImage(), package.getSource(), manifest.kernels));
  }
  MEMOPT_ASSIGN_OR_RETURN(program->samplesSent, device.createEvent());
  MEMOPT_ASSIGN_OR_RETURN(program->samplesTaken, device.createEvent());
  MEMOPT_ASSIGN_OR_RETURN(program->stream, device.createComputeStream());
  // A copy for each input and for the samples' number, a wait and a record.
  MEMOPT_ASSIGN_OR_RETURN(program->sampleStream,
                          device.createStream(int64_t(manifest.inputs.size()) + 3));
  for (size_t i = 0; i < manifest.collectives.size(); ++i) {
    MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<Event> begin, device.createEvent());
    MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<Event> end, device.createEvent());
    program->flights.push_back({std::move(begin), std::move(end)});
  }
  if (!program->flights.empty()) {
    MEMOPT_ASSIGN_OR_RETURN(program->rankStream, device.createComputeStream());
  }
  return program;
}

Status DeviceProgram::beginStep() {
  for (const VariableSpec &variable : manifest.variables)
    if (variable.role == "hyperparameter" || variable.role == "index_fault")
      MEMOPT_RETURN_IF_ERROR(arenas.upload(*stream, variable));
  return Status::ok();
}

Status DeviceProgram::sendSamples(const std::vector<const PlacedTensor *> &tensors) {
  MEMOPT_RETURN_IF_ERROR(sampleStream->waitFor(*samplesTaken));
  for (const PlacedTensor *tensor : tensors)
    MEMOPT_RETURN_IF_ERROR(arenas.stage(*sampleStream, *tensor));
  return sampleStream->record(*samplesSent);
}

Status DeviceProgram::takeSamples(const std::vector<const PlacedTensor *> &tensors) {
  MEMOPT_RETURN_IF_ERROR(stream->waitFor(*samplesSent));
  for (const PlacedTensor *tensor : tensors)
    MEMOPT_RETURN_IF_ERROR(arenas.unstage(*stream, *tensor));
  return stream->record(*samplesTaken);
}

Status DeviceProgram::beginInstruction(int64_t instruction, bool isWatched) {
  if (isWatched)
    MEMOPT_RETURN_IF_ERROR(synchronize());
  return stream->leaveMark(uint32_t(instruction + 1));
}

StatusOr<Flight *> DeviceProgram::findFlight(int64_t number) {
  if (number >= 0 && number < int64_t(flights.size()) && ranks)
    return &flights[size_t(number)];
  return badInput("the program names collective " + std::to_string(number) + " of " +
                  std::to_string(ranks ? flights.size() : 0));
}

Status DeviceProgram::startCollective(int64_t number) {
  MEMOPT_ASSIGN_OR_RETURN(Flight * flight, findFlight(number));
  if (flight->isInFlight)
    return badInput("the program starts collective " + std::to_string(number) +
                    " again before its wait");
  const CollectiveSpec &collective = manifest.collectives[size_t(number)];
  char *base = arenas[MEMOPT_SPACE_DEVICE].base();
  MEMOPT_RETURN_IF_ERROR(stream->record(*flight->begin));
  MEMOPT_RETURN_IF_ERROR(rankStream->waitFor(*flight->begin));
  MEMOPT_RETURN_IF_ERROR(ranks->start(*rankStream, collective, base + collective.fromOffset,
                                      base + collective.toOffset));
  flight->isInFlight = true;
  return rankStream->record(*flight->end);
}

Status DeviceProgram::waitForCollective(int64_t number) {
  MEMOPT_ASSIGN_OR_RETURN(Flight * flight, findFlight(number));
  if (!flight->isInFlight)
    return badInput("the program waits for collective " + std::to_string(number) +
                    ", which it did not start");
  return flight->finish(stream.get());
}

Status DeviceProgram::runCollective(int64_t number) {
  MEMOPT_RETURN_IF_ERROR(startCollective(number));
  return waitForCollective(number);
}

Status DeviceProgram::joinCollectives() {
  for (Flight &flight : flights)
    MEMOPT_RETURN_IF_ERROR(flight.join(stream.get()));
  return Status::ok();
}

void DeviceProgram::abandonCollectives() {
  for (Flight &flight : flights)
    flight.isInFlight = flight.isJoined = false;
}

Status DeviceProgram::bringBack() {
  for (const OutputSpec &output : manifest.outputs)
    MEMOPT_RETURN_IF_ERROR(arenas.download(*stream, output));
  for (const VariableSpec &variable : manifest.variables)
    if (variable.isLeftForHost())
      MEMOPT_RETURN_IF_ERROR(arenas.download(*stream, variable));
  return Status::ok();
}

int64_t DeviceProgram::findFailure(int64_t last) {
  bool isLost = !stream->synchronize().isOk();
  return isLost ? int64_t(stream->getMark()) - 1 : last;
}
