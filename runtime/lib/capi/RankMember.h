//===- RankMember.h - a process that a launcher made a rank -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_CAPI_RANKMEMBER_H
#define MEMOPT_RUNTIME_LIB_CAPI_RANKMEMBER_H

#include "memopt-runtime/device/Device.h"
#include "memopt-runtime/package/Package.h"
#include "memopt-runtime/ranks/LaunchedRank.h"
#include "memopt-runtime/ranks/RankMeeting.h"
#include "memopt-runtime/ranks/SharedRanks.h"
#include <atomic>
#include <thread>

namespace memopt {

/// What torchrun, mpirun or srun made of this process, if anything. Ranks of several hosts are
/// refused.
StatusOr<std::optional<LaunchedRank>> findOwnRank();

/// One rank of several on this host. A thread of its own watches for processes that end, so that
/// no wait for them is longer than it has to be.
class RankMember {
public:
  /// Returns when all ranks have come, with the same package. `seconds` is how long to wait.
  static StatusOr<std::unique_ptr<RankMember>> join(const LaunchedRank &self,
                                                    const Package &package,
                                                    const std::string &device, bool isChecked,
                                                    double seconds);
  ~RankMember();
  RankMember(const RankMember &) = delete;
  RankMember &operator=(const RankMember &) = delete;

  Communicator &getCommunicator() const { return *communicator; }
  StatusOr<std::unique_ptr<Device>> openOwnDevice() const;
  /// The others end as well, and say why.
  void fail(const Status &reason) const { group->leave(meeting->getRank(), reason); }

private:
  RankMember(std::string device) : device(std::move(device)) {}
  Status shareMemory(int64_t ranks, const Package &package, bool isChecked, double seconds);
  void watch();

  const std::string device;
  std::unique_ptr<RankMeeting> meeting; ///< of the thread that watches, once there is one
  std::unique_ptr<SharedRanks> group;
  std::unique_ptr<Communicator> communicator;
  std::atomic<bool> isOver{false};
  std::thread watcher;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_LIB_CAPI_RANKMEMBER_H
