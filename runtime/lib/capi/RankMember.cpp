//===- RankMember.cpp - a process that a launcher made a rank -------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RankMember.h"
#include "memopt-runtime/device/RankDevice.h"
#include "memopt-runtime/devices/OpenDevice.h"
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <pthread.h>

using namespace memopt;

StatusOr<std::optional<LaunchedRank>> memopt::findOwnRank() {
  MEMOPT_ASSIGN_OR_RETURN(std::optional<LaunchedRank> self,
                          findLaunchedRank([](const char *name) { return std::getenv(name); }));
  if (self && !self->spread.empty())
    return environmentError(self->spread + ", and ranks of this interface share the memory of one; "
                                           "memopt-run meets others over MPI or UCX");
  return self;
}

StatusOr<std::unique_ptr<RankMember>> RankMember::join(const LaunchedRank &self,
                                                       const Package &package,
                                                       const std::string &device, bool isChecked,
                                                       double seconds) {
  std::unique_ptr<RankMember> member(new RankMember(device));
  RankTask task{{}, {{"the package", package.getManifest().digest}, {"the device", device}}};
  MEMOPT_ASSIGN_OR_RETURN(member->meeting,
                          RankMeeting::join(self, task, {seconds, [] { return false; }}));
  if (Status status = member->shareMemory(self.ranks, package, isChecked, seconds);
      !status.isOk()) {
    if (member->meeting->isFirst())
      member->meeting->refuse(status);
    return status;
  }
  member->communicator = member->group->join(self.rank);
  member->watcher = std::thread([&watched = *member] { watched.watch(); });
  return member;
}

/// Of a device the ranks share what they meet in alone.
Status RankMember::shareMemory(int64_t ranks, const Package &package, bool isChecked,
                               double seconds) {
  int64_t bytes = device == "cpu" ? package.getArenaBytes()[MEMOPT_SPACE_DEVICE] : 0;
  if (meeting->isFirst()) {
    MEMOPT_ASSIGN_OR_RETURN(group, SharedRanks::create(ranks, bytes, isChecked, seconds));
    return meeting->tell("", group->getMemory());
  }
  MEMOPT_ASSIGN_OR_RETURN(RankMeeting::Preparation told, meeting->listen());
  MEMOPT_ASSIGN_OR_RETURN(
      group, SharedRanks::attach(std::move(told.memory), ranks, bytes, isChecked, seconds));
  return Status::ok();
}

RankMember::~RankMember() {
  isOver = true;
  if (watcher.joinable())
    watcher.join();
  communicator.reset();
}

/// Signals are the caller's.
void RankMember::watch() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  while (!isOver) {
    for (int64_t lost : meeting->findLost())
      group->leave(lost, environmentError("its process was ended"));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  meeting->leave();
}

StatusOr<std::unique_ptr<Device>> RankMember::openOwnDevice() const {
  return device == "cpu" ? openRankDevice(*group, communicator->getRank())
                         : openDevice(device, communicator->getRank());
}
