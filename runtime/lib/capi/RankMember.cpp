//===- RankMember.cpp - a process that a launcher made a rank -------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RankMember.h"
#include "memopt-runtime/devices/OpenDevice.h"
#include "memopt-runtime/ranks/MessageRank.h"
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <pthread.h>
#include <thread>

using namespace memopt;

StatusOr<std::optional<LaunchedRank>> memopt::findOwnRank() {
  return findLaunchedRank([](const char *name) { return std::getenv(name); });
}

/// What all ranks need to have alike. Packages are compared by what they are made from: hosts have
/// copies of their own.
static RankTask describeTask(const Package &package, const std::string &device) {
  return {{}, {{"the package", package.getManifest().digest}, {"the device", device}}};
}

/// Of each rank's arena. Of a device the ranks share what they meet in alone.
static int64_t countSharedBytes(const Package &package, const std::string &device) {
  return device == "cpu" ? package.getArenaBytes()[MEMOPT_SPACE_DEVICE] : 0;
}

//===----------------------------------------------------------------------===//
// Ranks of one host
//===----------------------------------------------------------------------===//

namespace {
/// A thread of its own watches for processes that end, so that no wait for them is longer than it
/// has to be.
class MemberOfHost final : public RankMember {
public:
  MemberOfHost(std::string device, std::unique_ptr<RankMeeting> meeting)
      : device(std::move(device)), meeting(std::move(meeting)) {}
  ~MemberOfHost() override {
    if (communicator)
      communicator->close();
    isOver = true;
    if (watcher.joinable())
      watcher.join();
  }

  Status shareMemory(int64_t ranks, const Package &package, bool isChecked, double seconds) {
    int64_t bytes = countSharedBytes(package, device);
    if (meeting->isFirst()) {
      MEMOPT_ASSIGN_OR_RETURN(group, SharedRanks::create(ranks, bytes, isChecked, seconds));
      MEMOPT_RETURN_IF_ERROR(meeting->tell("", group->getMemory()));
    } else {
      MEMOPT_ASSIGN_OR_RETURN(RankMeeting::Preparation told, meeting->listen());
      MEMOPT_ASSIGN_OR_RETURN(
          group, SharedRanks::attach(std::move(told.memory), ranks, bytes, isChecked, seconds));
    }
    communicator = group->join(meeting->getRank());
    watcher = std::thread([this] { watch(); });
    return Status::ok();
  }
  void refuse(const Status &reason) const {
    if (meeting->isFirst())
      meeting->refuse(reason);
  }

  Communicator &getCommunicator() override { return *communicator; }
  StatusOr<std::unique_ptr<Device>> openOwnDevice() const override {
    return openDevice(device, group.get(), communicator->getRank());
  }

private:
  /// Signals are the caller's.
  void watch() {
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

  const std::string device;
  std::unique_ptr<RankMeeting> meeting; ///< of the thread that watches, once there is one
  std::unique_ptr<SharedRanks> group;
  std::unique_ptr<Communicator> communicator;
  std::atomic<bool> isOver{false};
  std::thread watcher;
};
} // namespace

static StatusOr<std::unique_ptr<RankMember>> joinHost(const LaunchedRank &self,
                                                      const Package &package,
                                                      const std::string &device, bool isChecked,
                                                      RankMeeting::Patience patience) {
  double seconds = patience.seconds;
  MEMOPT_ASSIGN_OR_RETURN(
      std::unique_ptr<RankMeeting> meeting,
      RankMeeting::join(self, describeTask(package, device), std::move(patience)));
  auto member = std::make_unique<MemberOfHost>(device, std::move(meeting));
  if (Status status = member->shareMemory(self.ranks, package, isChecked, seconds);
      !status.isOk()) {
    member->refuse(status);
    return status;
  }
  return std::unique_ptr<RankMember>(std::move(member));
}

//===----------------------------------------------------------------------===//
// Ranks of several
//===----------------------------------------------------------------------===//

namespace {
class MemberOfHosts final : public RankMember {
public:
  MemberOfHosts(std::string device, std::unique_ptr<MessageRank> self)
      : device(std::move(device)), self(std::move(self)) {}

  Communicator &getCommunicator() override { return self->getCommunicator(); }
  StatusOr<std::unique_ptr<Device>> openOwnDevice() const override {
    return openDevice(device, self->getMemory(), self->getPlace());
  }

private:
  const std::string device;
  const std::unique_ptr<MessageRank> self;
};
} // namespace

static StatusOr<std::unique_ptr<RankMember>> joinHosts(const LaunchedRank &launched,
                                                       const Package &package,
                                                       const std::string &device, bool isChecked,
                                                       RankMeeting::Patience patience) {
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<MessageRank> self,
                          MessageRank::join(launched, std::move(patience)));
  auto prepare = [&]() -> Status {
    MEMOPT_RETURN_IF_ERROR(self->compare(describeTask(package, device)));
    return self->shareMemory(countSharedBytes(package, device), isChecked).takeStatus();
  };
  if (Status status = prepare(); !status.isOk()) {
    self->getCommunicator().leave(status);
    return status;
  }
  return std::unique_ptr<RankMember>(std::make_unique<MemberOfHosts>(device, std::move(self)));
}

StatusOr<std::unique_ptr<RankMember>> RankMember::join(const LaunchedRank &self,
                                                       const Package &package,
                                                       const std::string &device, bool isChecked,
                                                       double seconds) {
  auto join = self.spread.empty() ? joinHost : joinHosts;
  return join(self, package, device, isChecked, {seconds, [] { return false; }});
}
