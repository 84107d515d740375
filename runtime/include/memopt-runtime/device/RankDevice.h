//===- RankDevice.h - the cpu of a rank --------------*- C++ -*- ===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DEVICE_RANKDEVICE_H
#define MEMOPT_RUNTIME_DEVICE_RANKDEVICE_H

#include "memopt-runtime/device/Device.h"
#include "memopt-runtime/ranks/SharedRanks.h"

namespace memopt {

/// The cpu, whose device memory is the rank's arena. Must not outlive `group`.
std::unique_ptr<Device> openRankDevice(const SharedRanks &group, int64_t rank);

} // namespace memopt

#endif // MEMOPT_RUNTIME_DEVICE_RANKDEVICE_H
