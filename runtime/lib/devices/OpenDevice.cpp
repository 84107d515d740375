//===- OpenDevice.cpp - devices by name --------------------- ===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/devices/OpenDevice.h"
#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/device/CpuDevice.h"
#include "memopt-runtime/device/RankDevice.h"
#include "memopt-runtime/device/cuda/CudaDevice.h"

using namespace memopt;

StatusOr<std::unique_ptr<Device>> memopt::openDevice(const std::string &name, int64_t rank) {
  if (name == "cpu")
    return createCpuDevice();
  if (name == "cuda")
    return openCudaDevice(rank);
  return badInput("device " + quote(name) + " is unknown; known are 'cpu' and 'cuda'");
}

StatusOr<std::unique_ptr<Device>> memopt::openDevice(const std::string &name,
                                                     const SharedRanks *group, int64_t rank) {
  return group && name == "cpu" ? openRankDevice(*group, rank) : openDevice(name, rank);
}
