//===- DeviceLowering.h - from NVPTX's IR to this machine's -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_EMULATOR_DEVICELOWERING_H
#define MEMOPT_EMULATOR_DEVICELOWERING_H

#include "llvm/IR/Module.h"
#include <string>

namespace memopt::emulator {

/// Gives the module's shared memory its place from `base` on; what a launch asks for beside it
/// comes behind. Returns the bytes that the module declares itself.
size_t placeSharedMemory(llvm::Module &module, void *base);

/// Announces each access to memory, and makes calls of the emulator of the device's intrinsics.
/// Returns what is wrong, or nothing.
std::string lowerDeviceCode(llvm::Module &module);

} // namespace memopt::emulator

#endif // MEMOPT_EMULATOR_DEVICELOWERING_H
