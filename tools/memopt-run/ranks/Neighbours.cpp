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

#include "memopt-run/ranks/Neighbours.h"
#include "memopt-run/Signals.h"
#include "memopt-run/ranks/Ranks.h"
#include "memopt-runtime/numbers/Random.h"
#include "memopt-runtime/ranks/RankMeeting.h"
#include <algorithm>
#include <sys/stat.h>
#include <unistd.h>

using namespace memopt;

/// How long neighbours look for each other.
static constexpr double mostSeconds = 10;

static uint64_t identifyHost() {
  char name[256] = {};
  (void)::gethostname(name, sizeof name - 1);
  struct stat network{};
  (void)::stat("/proc/self/ns/net", &network);
  return hashName(std::to_string(identifyMachine()) + " " + std::to_string(network.st_ino) + " " +
                  name);
}

int64_t memopt::countPlaces(const std::vector<uint64_t> &hosts) {
  auto places = std::count(hosts.begin(), hosts.end(), hosts.front());
  if (hosts.size() % size_t(places) != 0)
    return 0;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    auto first = std::find(hosts.begin(), hosts.end(), hosts[rank]) - hosts.begin();
    if (size_t(first) != rank / size_t(places) * size_t(places))
      return 0;
  }
  return places;
}

static StatusOr<std::unique_ptr<RankMeeting>> meet(const LaunchedRank &self, int64_t places,
                                                   double seconds) {
  LaunchedRank here{self.launcher, self.rank % places, places, self.start};
  here.start += " from rank " + std::to_string(self.rank - here.rank) + " on";
  return RankMeeting::join(here, {}, {std::min(seconds, mostSeconds), isInterrupted});
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

StatusOr<Neighbours> memopt::shareMemory(Communicator &across, const LaunchedRank &self,
                                         int64_t arenaBytes, bool isChecked, double seconds) {
  uint64_t mine = identifyHost();
  std::vector<uint64_t> hosts(size_t(across.getRanks()));
  MEMOPT_RETURN_IF_ERROR(across.exchange(&mine, sizeof mine, hosts.data()));
  int64_t places = countPlaces(hosts);
  if (places == 0)
    return Neighbours{nullptr, "hosts have different numbers of ranks, or ranks that are no "
                               "neighbours in number (mpirun --map-by slot makes them so)"};
  if (places == 1)
    return Neighbours{};
  StatusOr<std::unique_ptr<RankMeeting>> meeting = meet(self, places, seconds);
  char isAlone = !meeting.isOk();
  std::vector<char> alone(hosts.size());
  MEMOPT_RETURN_IF_ERROR(across.exchange(&isAlone, 1, alone.data()));
  if (auto first = std::find(alone.begin(), alone.end(), 1); first != alone.end())
    return Neighbours{nullptr, "rank " + std::to_string(first - alone.begin()) +
                                   " did not find the others of its host"};
  StatusOr<std::unique_ptr<SharedRanks>> group =
      makeMemory(**meeting, places, arenaBytes, isChecked, seconds);
  std::optional<int64_t> refusing;
  MEMOPT_RETURN_IF_ERROR(across.agree(group.takeStatus(), refusing));
  return Neighbours{*std::move(group), ""};
}
