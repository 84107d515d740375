//===- OpenDevice.h - devices by name ---------------*- C++ -*- ===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DEVICES_OPENDEVICE_H
#define MEMOPT_RUNTIME_DEVICES_OPENDEVICE_H

#include "memopt-runtime/device/Device.h"
#include "memopt-runtime/ranks/SharedRanks.h"

namespace memopt {

/// Opens `cpu` or `cuda`; another name is BadInput. Of several devices a rank has that of its
/// number, and where the process sees a single one, that.
StatusOr<std::unique_ptr<Device>> openDevice(const std::string &name, int64_t rank = 0);
/// The same for a rank of a group, whose memory is that of the processor; null: it has its own.
StatusOr<std::unique_ptr<Device>> openDevice(const std::string &name, const SharedRanks *group,
                                             int64_t rank);

} // namespace memopt

#endif // MEMOPT_RUNTIME_DEVICES_OPENDEVICE_H
