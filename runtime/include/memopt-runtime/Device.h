//===- Device.h - what gives memory to programs -----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A device owns the memory that programs run in. `cpu` is always there. A device that is not on
// this machine is an Environment error at open, never a crash: vendor libraries are looked up when
// asked for.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DEVICE_H
#define MEMOPT_RUNTIME_DEVICE_H

#include "memopt-runtime/Arena.h"
#include <memory>
#include <string>

namespace memopt {

class Device {
public:
  virtual ~Device() = default;

  /// Opens `cpu` or `cuda`. Another name is BadInput.
  static StatusOr<std::unique_ptr<Device>> open(const std::string &name);

  /// The name that packages give as their target.
  virtual std::string getName() const = 0;

  /// Memory for a space, 64-byte aligned, resident from now on.
  virtual StatusOr<Arena> allocate(int64_t bytes, bool isChecked) = 0;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_DEVICE_H
