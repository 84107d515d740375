//===- Transfers.h - bytes in flight ----------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_EXECUTION_TRANSFERS_H
#define MEMOPT_RUNTIME_EXECUTION_TRANSFERS_H

#include "memopt-runtime/execution/Arenas.h"
#include "memopt-runtime/execution/Flight.h"

namespace memopt {

/// The transfers of a program: each resource is a stream of the device, or of the disk, so what
/// shares one is done in the order of its starts, and an event says when a transfer has ended.
/// Where kernels run in a stream too, it is this stream that a transfer begins behind, and that
/// waits; such programs use no disk. Starting and waiting allocate nothing.
class Transfers {
public:
  /// All must outlive it.
  static StatusOr<std::unique_ptr<Transfers>> create(const Manifest &manifest, Arenas &arenas,
                                                     Device &device, Stream *compute);

  /// A transfer that is still in flight is not started again.
  Status start(int64_t transfer);
  /// A failure of the transfer, or of one that was never started.
  Status wait(int64_t transfer);
  /// Lets the kernels' stream wait for all that is in flight, here and not where the program will.
  Status join();
  /// Waits for all that is in flight, whatever became of it: the step was left.
  void abandon();

private:
  struct Transfer : Flight {
    Stream *stream = nullptr;
    bool isOnDisk = false;
  };
  /// A stream in the making: a resource that belongs to the disk or not.
  using StreamKey = std::pair<bool, std::string>;

  Transfers(const Manifest &manifest, Arenas &arenas, Stream *compute)
      : manifest(manifest), arenas(arenas), compute(compute) {}
  Status createStreams(Device &device);
  StatusOr<std::unique_ptr<Stream>> createStream(Device &device, const StreamKey &key,
                                                 int64_t capacity);
  void noteWindow(const TransferSpec &spec);
  Status checkNumber(int64_t transfer) const;

  const Manifest &manifest;
  Arenas &arenas;
  Stream *compute;               ///< of the kernels; null where programs run them themselves
  std::vector<Transfer> flights; ///< as in the manifest; their events end after the streams
  std::vector<std::unique_ptr<Stream>> streams; ///< one for each resource
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_EXECUTION_TRANSFERS_H
