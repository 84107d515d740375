//===- CpuDevice.h - this machine as a device -------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Both spaces are plain memory. A stream is a thread that sleeps while there is nothing to do.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DEVICE_CPUDEVICE_H
#define MEMOPT_RUNTIME_DEVICE_CPUDEVICE_H

#include "memopt-runtime/device/Device.h"

namespace memopt {

std::unique_ptr<Device> createCpuDevice();

} // namespace memopt

#endif // MEMOPT_RUNTIME_DEVICE_CPUDEVICE_H
