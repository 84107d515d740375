//===- MessageRank.h - one rank over messages -------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where processes are on several hosts, or were asked to send messages, each of those that a
// launcher started is a rank itself: it forks nothing, for an MPI does not live through that. They
// compare what they were asked to do, the first prepares the run, those of one host share memory,
// and all begin.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUN_MESSAGERANK_H
#define MEMOPT_RUN_MESSAGERANK_H

#include "memopt-run/ranks/LaunchedRanks.h"
#include "memopt-runtime/device/Device.h"
#include "memopt-runtime/ranks/TwoLevelRanks.h"
#include <chrono>

namespace memopt {

class MessageRank {
public:
  /// Loads the plugin, of MPI or, where no launcher of an MPI started the ranks, of UCX, and finds
  /// the others.
  static StatusOr<std::unique_ptr<MessageRank>> join(const RunOptions &options,
                                                     const LaunchedRank &self);

  bool isFirst() const { return self.rank == 0; }
  Communicator &getCommunicator();

  /// Refuses tasks that differ, and models that one host alone would have compiled.
  Status compare(const RunOptions &options, const RankTask &task);
  /// The first: what it prepares goes on. To be called once a second or so.
  void keepWaiting();
  /// The first says what it prepared, and all know it.
  StatusOr<PreparedRun> share(const PreparedRun &mine);

  /// Makes memory that ranks of one host share, unless all were asked to send messages. From then
  /// on the communicator uses it.
  Status shareMemory(const RunOptions &options, int64_t arenaBytes);
  /// This rank's device, whose memory may be shared.
  StatusOr<std::unique_ptr<Device>> openOwnDevice(const RunOptions &options) const;

  /// The end of this rank's run, as `status` says. `say` tells the user what is to be told here,
  /// before the process may be ended. The result has no text.
  Status end(const Status &status, const std::function<void(const Status &)> &say);

private:
  explicit MessageRank(LaunchedRank self) : self(std::move(self)) {}

  Status warmUp();
  StatusOr<std::string> listen(const std::string &word);
  StatusOr<std::vector<std::string>> collectTexts(const std::string &mine);

  const LaunchedRank self;
  std::unique_ptr<MessageCommunicator> communicator;
  std::unique_ptr<SharedRanks> neighbours;         ///< null: all send messages
  std::unique_ptr<TwoLevelCommunicator> twoLevels; ///< over both
  std::chrono::steady_clock::time_point lastWord{};
};

} // namespace memopt

#endif // MEMOPT_RUN_MESSAGERANK_H
