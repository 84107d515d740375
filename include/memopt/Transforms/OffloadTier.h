//===- OffloadTier.h - where something lies that is not on the device -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_OFFLOADTIER_H
#define MEMOPT_TRANSFORMS_OFFLOADTIER_H

#include "llvm/Support/CommandLine.h"

namespace mlir::memopt {

/// None: it stays on the device.
enum class OffloadTier { None, Host, Disk };

/// By the names that users of the field know.
inline llvm::StringRef stringifyOffloadTier(OffloadTier tier) {
  return tier == OffloadTier::Disk ? "nvme" : tier == OffloadTier::Host ? "cpu" : "none";
}

inline auto getOffloadTierValues() {
  return llvm::cl::values(clEnumValN(OffloadTier::None, "none", "on the device"),
                          clEnumValN(OffloadTier::Host, "cpu", "on the host"),
                          clEnumValN(OffloadTier::Disk, "nvme", "on disk"));
}

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_OFFLOADTIER_H
