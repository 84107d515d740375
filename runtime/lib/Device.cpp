//===- Device.cpp - what gives memory and moves bytes ---------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/Device.h"
#include "CpuDevice.h"
#include "memopt-runtime/Json.h"
#include <dlfcn.h>

using namespace memopt;

/// Says what is missing for CUDA on this machine.
static Status explainCuda() {
  void *driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver) {
    const char *reason = ::dlerror();
    return environmentError("device 'cuda': the NVIDIA driver cannot be loaded (" +
                            std::string(reason ? reason : "no reason given") +
                            "); use --device=cpu");
  }
  ::dlclose(driver);
  return environmentError("device 'cuda': this build of memopt runs programs for the cpu only; use "
                          "--device=cpu");
}

StatusOr<std::unique_ptr<Device>> Device::open(const std::string &name) {
  if (name == "cpu")
    return createCpuDevice();
  if (name == "cuda")
    return explainCuda();
  return badInput("device " + quote(name) + " is unknown; known are 'cpu' and 'cuda'");
}
