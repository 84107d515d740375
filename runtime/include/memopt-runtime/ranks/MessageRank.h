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
// compare what they were asked to do, the first may prepare something, those of one host share
// memory, and all begin.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_RANKS_MESSAGERANK_H
#define MEMOPT_RUNTIME_RANKS_MESSAGERANK_H

#include "memopt-runtime/ranks/RankMeeting.h"
#include "memopt-runtime/ranks/TwoLevelRanks.h"
#include <chrono>
#include <optional>

namespace memopt {

/// Not for several threads at once.
class MessageRank {
public:
  /// Loads the plugin, of MPI or, where no launcher of an MPI started the ranks, of UCX, and finds
  /// the others.
  static StatusOr<std::unique_ptr<MessageRank>> join(const LaunchedRank &self,
                                                     RankMeeting::Patience patience);
  ~MessageRank();

  bool isFirst() const { return self.rank == 0; }
  Communicator &getCommunicator();

  /// Refuses tasks that differ.
  Status compare(const RankTask &task);
  /// The first: what keeps the others waiting goes on. To be called once a second or so.
  void keepWaiting();
  /// All know the text of the first, which waits for nobody; that of others counts for nothing.
  StatusOr<std::string> share(const std::string &text);

  /// Makes memory that ranks of one host share, for arenas of so many bytes; those of devices lie
  /// elsewhere. From then on the communicator uses it. A text says why they send messages next door,
  /// too.
  StatusOr<std::string> shareMemory(int64_t arenaBytes, bool isChecked);
  /// That memory; null where there is none.
  const SharedRanks *getMemory() const { return neighbours.get(); }
  /// Which of the ranks of its host this one is, after compare().
  int64_t getPlace() const { return placement->getPlace(self.rank); }

  /// The end of this rank's run and of its process, as `status` says. `say` tells the user what is
  /// to be told here, before the process may be ended. The result has no text.
  ///
  /// Without it this rank leaves and its process goes on, as do others that are at work.
  Status end(const Status &status, const std::function<void(const Status &)> &say);

private:
  MessageRank(LaunchedRank self, RankMeeting::Patience patience)
      : self(std::move(self)), patience(std::move(patience)) {}

  Status warmUp();
  StatusOr<std::string> listen(const std::string &word);
  StatusOr<std::vector<std::string>> collectTexts(const std::string &mine);

  const LaunchedRank self;
  const RankMeeting::Patience patience;
  std::unique_ptr<MessageCommunicator> communicator;
  std::unique_ptr<SharedRanks> neighbours; ///< null: all send messages
  std::optional<Placement> placement;
  std::unique_ptr<TwoLevelCommunicator> twoLevels; ///< over both
  std::chrono::steady_clock::time_point lastWord{};
  bool hasEnded = false;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_RANKS_MESSAGERANK_H
