//===- DeviceCommunicator.h - ranks on devices of their own -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What ranks do together on memory that no host reaches: one rank's end of it, beside the
// Communicator by which their hosts meet. Every rank puts the same collectives into a stream, in
// the same order; nothing is done until the stream comes to them, and graphs hold them like
// kernels.
//
// A device waits for others without looking up. So the host that waits for it does: when a rank has
// left, or keeps the others waiting beyond the limit, what the device waits for is given up, and
// every call fails from then on.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DEVICE_DEVICECOMMUNICATOR_H
#define MEMOPT_RUNTIME_DEVICE_DEVICECOMMUNICATOR_H

#include "memopt-runtime/device/Device.h"
#include "memopt-runtime/package/Manifest.h"
#include "memopt-runtime/ranks/Communicator.h"

namespace memopt {

class DeviceCommunicator {
public:
  virtual ~DeviceCommunicator() = default;

  /// Tells the library of memory that collectives work on; it must outlive this object.
  virtual Status registerMemory(Arena &memory) = 0;

  /// Puts a collective into a stream, on memory of the device. The specification must outlive the
  /// work.
  virtual Status start(ComputeStream &stream, const CollectiveSpec &collective, const char *from,
                       char *to) = 0;

  /// Wait for all that went into a stream, and until it has reached an event.
  virtual Status wait(Stream &stream) = 0;
  virtual Status wait(Event &event) = 0;

  /// Bytes of the device that the library says it holds; -1 where it does not say.
  virtual int64_t getTakenBytes() const { return -1; }
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_DEVICE_DEVICECOMMUNICATOR_H
