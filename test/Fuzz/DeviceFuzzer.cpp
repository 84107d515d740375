//===- DeviceFuzzer.cpp - any text may describe a device ------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What is accepted has rates above zero, multiprocessors, and survives being made an attribute.
//
//===----------------------------------------------------------------------===//

#include "Fuzzing.h"

#include "memopt/Support/InputFile.h"
#include "memopt/Target/Cuda/DeviceDescription.h"

using namespace mlir::memopt;
using namespace memopt::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto value = memopt::parseInputJson(llvm::StringRef(toText(data, size)));
  if (!value) {
    llvm::consumeError(value.takeError());
    return 0;
  }
  auto device = DeviceDescription::fromJson(*value);
  if (!device) {
    require(!llvm::toString(device.takeError()).empty());
    return 0;
  }
  for (const MachineProfile::Rate &rate : MachineProfile::getRates())
    require(device->profile.*rate.field > 0);
  require(device->getSms() > 0 && device->overheadBytes >= 0);
  static mlir::MLIRContext context = [] {
    mlir::DialectRegistry registry;
    registry.insert<MemoptDialect>();
    return mlir::MLIRContext(registry);
  }();
  context.loadDialect<MemoptDialect>();
  require(bool(device->toAttribute(&context)));
  return 0;
}
