//===- DeviceDescription.h - what is known of a GPU -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A program for a GPU is compiled from a description of the device, so that no device and no driver
// need be there. Some descriptions are compiled in (lib/Target/Cuda/devices); others are files of
// the same form (docs/Cuda.md).
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TARGET_CUDA_DEVICEDESCRIPTION_H
#define MEMOPT_TARGET_CUDA_DEVICEDESCRIPTION_H

#include "memopt/Dialect/Memopt.h"
#include "memopt/Target/Cpu/MachineProfile.h"

#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

#include <optional>
#include <string>

namespace mlir::memopt {

/// What connects the devices of a host: seconds before a message's first byte, and bytes a second
/// of one device in one direction.
struct DeviceLink {
  double latency, bytesPerSecond;
};

struct DeviceDescription {
  std::string name;   ///< short, such as "h100"
  std::string chip;   ///< "sm_90"
  std::string image;  ///< "cubin", or "bitcode" for an emulated device
  std::string origin; ///< where the numbers come from, for people
  /// Of its memory, for what is there beside an arena: the driver's context, kernels, libraries,
  /// graphs.
  int64_t overheadBytes;
  /// The device's properties by the names that cuDNN reads them under: whole numbers, triples of
  /// them, and `deviceName`.
  llvm::json::Object properties;
  MachineProfile profile; ///< rates; its machine is the device's name
  std::optional<DeviceLink> link;
  /// What is asked of it, and no part of the description: what products and convolutions of f32 are
  /// made of.
  std::string matmulPrecision = "highest", convPrecision = "high";

  int64_t getProperty(StringRef key) const { return *properties.getInteger(key); }
  int64_t getSms() const { return getProperty("multiProcessorCount"); }

  /// Fails, naming the key, what is expected and what was found.
  static llvm::Expected<DeviceDescription> fromJson(const llvm::json::Value &value);
  /// One of the descriptions that are compiled in, or the file `nameOrPath`, which ends in .json.
  /// Errors begin with the name or the path.
  static llvm::Expected<DeviceDescription> find(StringRef nameOrPath);
  /// The names of those that are compiled in, in order.
  static SmallVector<StringRef> getNames();

  CudaAttr toAttribute(MLIRContext *context) const;
};

} // namespace mlir::memopt

#endif // MEMOPT_TARGET_CUDA_DEVICEDESCRIPTION_H
