//===- ProfileFuzzer.cpp - any text may be a machine's profile -------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rates that are accepted are numbers above zero, and survive being written.
//
//===----------------------------------------------------------------------===//

#include "Fuzzing.h"

#include "memopt/Support/InputFile.h"
#include "memopt/Target/Cpu/MachineProfile.h"

using namespace mlir::memopt;
using namespace memopt::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto value = memopt::parseInputJson(llvm::StringRef(toText(data, size)));
  if (!value) {
    llvm::consumeError(value.takeError());
    return 0;
  }
  auto profile = MachineProfile::fromJson(*value);
  if (!profile) {
    require(!llvm::toString(profile.takeError()).empty());
    return 0;
  }
  for (const MachineProfile::Rate &rate : MachineProfile::getRates())
    require((*profile).*rate.field > 0);
  require(bool(MachineProfile::fromJson(profile->toJson())));
  return 0;
}
