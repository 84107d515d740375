//===- RankMeeting.h - processes of one start find each other ---*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Before they share memory, the processes that a launcher started on one host meet at a socket of
// the first. They compare what they were asked to do; then the first prepares the run and tells the
// others, with the memory that all map. The connections stay, so that each side learns when the
// other dies.
//
// The socket's address is no file: it lives as long as the first process waits for the others, and
// nothing of an earlier run can be found there. Only processes of the same user are let in.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_RANKS_RANKMEETING_H
#define MEMOPT_RUNTIME_RANKS_RANKMEETING_H

#include "memopt-runtime/base/Clock.h"
#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/ranks/LaunchedRank.h"
#include <chrono>

namespace memopt {

/// What all processes of a run must be asked alike.
struct RankTask {
  std::vector<std::string> arguments;
  /// Inputs by their option, with what tells one file from another; see describeFile().
  std::vector<std::pair<std::string, std::string>> files;
};

/// Device, number, size and time of a file or folder; empty for what is not there.
std::string describeFile(const std::string &path);
/// What tells files on different hosts apart: sizes, and a number from the content, of large files
/// from parts of it; of a folder those of the files in it. Empty for what is not there.
std::string describeContent(const std::string &path);

std::string writeTask(const RankTask &task);
StatusOr<RankTask> readTask(const std::string &text);
/// What another rank was asked otherwise than the first; empty where it was not.
std::string findDisagreement(int64_t rank, const RankTask &first, const RankTask &other);

/// Not for several threads at once.
class RankMeeting {
public:
  /// How long to wait for others, and what ends a wait before that.
  struct Patience {
    double seconds;
    std::function<bool()> isInterrupted;
  };

  /// Returns when all have come and agree. Whoever does not, or does not come in time, ends it for
  /// all: with a message for the first and one without text for the others.
  static StatusOr<std::unique_ptr<RankMeeting>> join(const LaunchedRank &self, const RankTask &task,
                                                     Patience patience);

  int64_t getRank() const { return self.rank; }
  bool isFirst() const { return self.rank == 0; }

  /// The first: what keeps the others waiting goes on. To be called once a second or so.
  void keepWaiting();
  /// The first: it is prepared; `memory` is a file for the others to map.
  Status tell(const std::string &preparation, int memory);
  /// The first: there will be no run, for a reason that it gives itself. Of no effect once it has
  /// told what is prepared.
  void refuse(const Status &reason);

  struct Preparation {
    std::string text;
    Descriptor memory;
  };
  /// The others: waits for what the first tells. A refusal has the first's code and no text.
  StatusOr<Preparation> listen();

  /// The others: this process ends as it should. Who goes without is lost.
  void leave();
  /// Who was lost since the last call. The first sees all others, they see the first.
  std::vector<int64_t> findLost();
  /// The first: those that have neither left nor been lost.
  std::vector<int64_t> getOthers() const;
  /// How long to wait for them.
  double getSeconds() const { return patience.seconds; }

private:
  RankMeeting(LaunchedRank self, Patience patience)
      : self(std::move(self)), patience(std::move(patience)) {}

  Status waitForOthers(const RankTask &task);
  StatusOr<Descriptor> openDoor() const;
  void letIn(int door);
  Status hearGuest(Descriptor guest, const RankTask &task, std::string &disagreement);
  void waitForWords(int door) const;
  Status goToFirst(const RankTask &task);
  StatusOr<Descriptor> findDoor();
  std::string nameMissing() const;

  using Clock = std::chrono::steady_clock;
  Status checkTime(Waiting &waiting, const std::string &whom) const;

  const LaunchedRank self;
  const Patience patience;
  std::vector<Descriptor> others; ///< by rank, for the first; else the first alone
  std::vector<Descriptor> guests; ///< let in, but have not said which rank they are
  Clock::time_point lastWord{};
  bool hasTold = false;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_RANKS_RANKMEETING_H
