//===- DeviceProgram.cpp - a program whose kernels are a device's ---------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DeviceProgram.h"

using namespace memopt;

/// Code for "sm_90a" uses what only this version of the chip has, and runs on "sm_90".
static std::string dropVariant(std::string chip) {
  if (!chip.empty() && (chip.back() == 'a' || chip.back() == 'f'))
    chip.pop_back();
  return chip;
}

Status DeviceProgram::checkTarget(const TargetSpec &target, const Device &device) {
  if (target.name != device.getName())
    return badInput("was compiled for target " + quote(target.name) + ", the device is " +
                    quote(device.getName()));
  if (dropVariant(target.chip) == device.getChip())
    return Status::ok();
  return environmentError("was compiled for chip " + quote(target.chip) + ", the device is " +
                          quote(device.getChip()) + "; compile the model for it");
}

StatusOr<std::unique_ptr<DeviceProgram>>
DeviceProgram::create(const Package &package, const Arenas &arenas, Device &device) {
  const Manifest &manifest = package.getManifest();
  std::unique_ptr<DeviceProgram> program(new DeviceProgram(manifest, arenas));
  MEMOPT_ASSIGN_OR_RETURN(
      program->module,
      device.loadModule(package.getFolder() + "/" + manifest.target.image, manifest.kernels));
  MEMOPT_ASSIGN_OR_RETURN(program->samplesCopied, device.createEvent());
  MEMOPT_ASSIGN_OR_RETURN(program->stream, device.createComputeStream());
  return program;
}

Status DeviceProgram::beginStep() {
  for (const VariableSpec &variable : manifest.variables)
    if (variable.role == "hyperparameter" || variable.role == "index_fault")
      MEMOPT_RETURN_IF_ERROR(arenas.upload(*stream, variable));
  return Status::ok();
}

Status DeviceProgram::uploadSamples(const std::vector<const PlacedTensor *> &tensors) {
  for (const PlacedTensor *tensor : tensors)
    MEMOPT_RETURN_IF_ERROR(arenas.upload(*stream, *tensor));
  return stream->record(*samplesCopied);
}

Status DeviceProgram::beginInstruction(int64_t instruction, bool isWatched) {
  if (isWatched)
    MEMOPT_RETURN_IF_ERROR(stream->synchronize());
  return stream->leaveMark(uint32_t(instruction + 1));
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
