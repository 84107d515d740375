//===- Neighbours.cpp - ranks of one host among several -------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ranks seem to be neighbours where the machine as it was started, its network and its name are the
// same. Whether they share memory is seen when they do: the file of it passes through a socket that
// is found on one machine, within one network namespace. Copies of a virtual machine may look alike
// and not find each other; then all send messages.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/ranks/Neighbours.h"
#include <algorithm>
#include <optional>

using namespace memopt;

/// How long neighbours look for each other.
static constexpr double mostSeconds = 10;

static StatusOr<std::unique_ptr<RankMeeting>> meet(const LaunchedRank &self,
                                                   const std::vector<int64_t> &ranks, int64_t place,
                                                   RankMeeting::Patience patience) {
  LaunchedRank here{self.launcher, place, int64_t(ranks.size()), self.start};
  here.start += " from rank " + std::to_string(ranks.front()) + " on";
  patience.seconds = std::min(patience.seconds, mostSeconds);
  return RankMeeting::join(here, {}, std::move(patience));
}

static StatusOr<std::unique_ptr<SharedRanks>>
makeMemory(RankMeeting &meeting, int64_t places, int64_t bytes, bool isChecked, double seconds) {
  if (!meeting.isFirst()) {
    MEMOPT_ASSIGN_OR_RETURN(RankMeeting::Preparation told, meeting.listen());
    return SharedRanks::attach(std::move(told.memory), places, bytes, isChecked, seconds);
  }
  StatusOr<std::unique_ptr<SharedRanks>> group =
      SharedRanks::create(places, bytes, isChecked, seconds);
  if (!group.isOk()) {
    Status status = group.takeStatus();
    meeting.refuse(status);
    return status;
  }
  MEMOPT_RETURN_IF_ERROR(meeting.tell("", (*group)->getMemory()));
  return group;
}

StatusOr<Placement> memopt::findPlacement(Communicator &across) {
  uint64_t mine = identifyHost();
  std::vector<uint64_t> hosts(size_t(across.getRanks()));
  MEMOPT_RETURN_IF_ERROR(across.exchange(&mine, sizeof mine, hosts.data()));
  return Placement(hosts);
}

StatusOr<Neighbours> memopt::shareMemory(Communicator &across, const Placement &placement,
                                         const LaunchedRank &self, int64_t arenaBytes,
                                         bool isChecked, RankMeeting::Patience patience) {
  Neighbours found;
  if (placement.countMost() == 1)
    return found;
  const std::vector<int64_t> &ranks = placement.getRanks(placement.getHost(self.rank));
  StatusOr<std::unique_ptr<RankMeeting>> meeting =
      meet(self, ranks, placement.getPlace(self.rank), patience);
  char isAlone = !meeting.isOk();
  std::vector<char> alone(size_t(across.getRanks()));
  MEMOPT_RETURN_IF_ERROR(across.exchange(&isAlone, 1, alone.data()));
  if (auto first = std::find(alone.begin(), alone.end(), 1); first != alone.end()) {
    found.refusal =
        "rank " + std::to_string(first - alone.begin()) + " did not find the others of its host";
    return found;
  }
  StatusOr<std::unique_ptr<SharedRanks>> group =
      makeMemory(**meeting, int64_t(ranks.size()), arenaBytes, isChecked, patience.seconds);
  std::optional<int64_t> refusing;
  MEMOPT_RETURN_IF_ERROR(across.agree(group.takeStatus(), refusing));
  found.group = *std::move(group);
  return found;
}
