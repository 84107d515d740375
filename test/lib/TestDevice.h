//===- TestDevice.h - a family of GPUs of nobody's, for tests ---*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What another vendor would add: operations of threads, numbers, and kernels as text. The text is
// assembly of AMD's gfx1030, which LLVM writes. Nothing runs it.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TEST_LIB_TESTDEVICE_H
#define MEMOPT_TEST_LIB_TESTDEVICE_H

#include "memopt/Conversion/Objects/ObjectEmission.h"
#include "memopt/Conversion/Threads/DeviceOps.h"

namespace memopt_test {

const mlir::memopt::DeviceOps &getTestDeviceOps();

/// Kernels of KernelLowering as assembly. Uses up the module. Fails with a diagnostic.
mlir::memopt::Emission emitTestDeviceText(mlir::ModuleOp kernels, std::string &text);

} // namespace memopt_test

#endif // MEMOPT_TEST_LIB_TESTDEVICE_H
