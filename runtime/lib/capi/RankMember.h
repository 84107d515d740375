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
#include "memopt-runtime/ranks/Communicator.h"
#include "memopt-runtime/ranks/LaunchedRank.h"

namespace memopt {

/// What torchrun, mpirun or srun made of this process, if anything.
StatusOr<std::optional<LaunchedRank>> findOwnRank();

/// One rank of several, by shared memory where all are on this host, or else over messages.
class RankMember {
public:
  /// Returns when all ranks have come, with the same package. `seconds` is how long to wait.
  static StatusOr<std::unique_ptr<RankMember>> join(const LaunchedRank &self,
                                                    const Package &package,
                                                    const std::string &device, bool isChecked,
                                                    double seconds);
  virtual ~RankMember() = default;
  RankMember(const RankMember &) = delete;
  RankMember &operator=(const RankMember &) = delete;

  virtual Communicator &getCommunicator() = 0;
  virtual StatusOr<std::unique_ptr<Device>> openOwnDevice() const = 0;
  /// The others end as well, and say why.
  void fail(const Status &reason) { getCommunicator().leave(reason); }

protected:
  RankMember() = default;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_LIB_CAPI_RANKMEMBER_H
