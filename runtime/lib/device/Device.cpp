//===- Device.cpp - what gives memory and moves bytes ---------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/Device.h"
#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/device/DeviceCommunicator.h"

using namespace memopt;

static Status refuse(const Device &device, const std::string &what) {
  return badInput("device " + quote(device.getName()) + " has no " + what +
                  "; its programs bring all code themselves");
}

StatusOr<std::string> Device::describe() const {
  return badInput("device " + quote(getName()) +
                  " needs no description; memopt-compile --calibrate measures it");
}

Status DeviceCall::warmUp(ComputeStream &stream, void *const *buffers, ThreadPool &pool) {
  MEMOPT_RETURN_IF_ERROR(start(stream, buffers, pool));
  return stream.synchronize();
}

StatusOr<std::unique_ptr<ComputeStream>> Device::createComputeStream() {
  return refuse(*this, "stream for kernels");
}

StatusOr<std::unique_ptr<Module>> Device::loadModule(const InputFile &image, const InputFile &,
                                                     const std::vector<std::string> &) {
  return refuse(*this, "use for the image " + quote(image.getPath()));
}

StatusOr<std::unique_ptr<DeviceCall>> Device::createCall(const nlohmann::json &, int,
                                                         const LibraryCallFactory &) {
  return refuse(*this, "library calls in streams");
}

StatusOr<std::unique_ptr<DeviceCommunicator>> Device::joinRanks(Communicator &, double) {
  return refuse(*this, "communicator");
}

Status memopt::checkCopy(const Arena &to, int64_t toOffset, const Arena &from, int64_t fromOffset,
                         int64_t bytes) {
  auto isInside = [&](const Arena &arena, int64_t offset) {
    return bytes >= 0 && offset >= 0 && offset <= arena.size() && bytes <= arena.size() - offset;
  };
  if (isInside(to, toOffset) && isInside(from, fromOffset))
    return Status::ok();
  return badInput("a copy of " + std::to_string(bytes) + " bytes from offset " +
                  std::to_string(fromOffset) + " of an arena of " + std::to_string(from.size()) +
                  " to offset " + std::to_string(toOffset) + " of one of " +
                  std::to_string(to.size()) + " leaves it");
}
