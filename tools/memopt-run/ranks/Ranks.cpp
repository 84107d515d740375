//===- Ranks.cpp - a run of several processes -----------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The process that was started compiles the model, loads the package and maps the memory of all
// ranks; then it forks one process for each rank and does nothing but wait for them. It has no
// threads at that time, and what it owns (the lock of a checkpoint, a temporary package) it clears
// away itself in the end.
//
// Where a launcher started a process for each rank, each of these forks its own rank, and watches
// it and, through the meeting, the others.
//
//===----------------------------------------------------------------------===//

#include "memopt-run/ranks/Ranks.h"
#include "memopt-run/Signals.h"
#include "memopt-runtime/base/Clock.h"
#include "memopt-runtime/devices/OpenDevice.h"
#include "memopt-runtime/ranks/KeepAlive.h"
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace memopt;

//===----------------------------------------------------------------------===//
// One rank
//===----------------------------------------------------------------------===//

/// The life of a rank's process. What went wrong the first process prints, once.
[[noreturn]] static void runRank(SharedRanks &group, int64_t rank, pid_t parent,
                                 const std::string &device, const RankWork &work) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent)
    ::_exit(int(StatusCode::Environment)); // it died before the line above
  Status status;
  try {
    std::unique_ptr<Communicator> communicator = group.join(rank);
    StatusOr<std::unique_ptr<Device>> own = openDevice(device, &group, rank);
    status = own.isOk() ? work(*communicator, **own) : own.takeStatus();
  } catch (const std::bad_alloc &) {
    status = environmentError("this machine is out of memory");
  }
  if (!status.isOk())
    group.leave(rank, status);
  std::fflush(stdout);
  std::fflush(stderr);
  ::_exit(int(status.getCode()));
}

//===----------------------------------------------------------------------===//
// All of them
//===----------------------------------------------------------------------===//

/// Says for a process that cannot do so any more why it ended.
static Status describeEnd(int status) {
  if (WIFSIGNALED(status))
    return environmentError("was ended by signal " + std::to_string(WTERMSIG(status)) + " (" +
                            ::strsignal(WTERMSIG(status)) + ")");
  return Status(StatusCode(WEXITSTATUS(status)),
                WEXITSTATUS(status) ? "ended with exit code " + std::to_string(WEXITSTATUS(status))
                                    : "");
}

namespace {
/// Waits for the processes of a group, and sees to it that one that fails is followed by all.
class Watch {
public:
  Watch(SharedRanks &group, std::string device, RankMeeting *meeting = nullptr)
      : group(group), device(std::move(device)), meeting(meeting) {}

  /// Forks a process that does a rank's work.
  Status start(int64_t rank, const RankWork &work) {
    pid_t parent = ::getpid(), process = ::fork();
    if (process == 0)
      runRank(group, rank, parent, device, work);
    if (process < 0)
      return environmentError("cannot be started: " + std::string(std::strerror(errno)));
    processes[process] = rank;
    ends.push_back({int(::syscall(SYS_pidfd_open, process, 0)), POLLIN, 0});
    return Status::ok();
  }
  ~Watch() {
    for (const pollfd &end : ends)
      ::close(end.fd);
  }

  void waitForAll() {
    while (!processes.empty()) {
      int status = 0;
      if (pid_t ended = ::waitpid(-1, &status, WNOHANG); ended > 0)
        note(ended, status);
      else if (ended < 0 && errno != EINTR)
        return;
      else
        rest();
    }
    if (meeting)
      waitForOthers();
  }

private:
  /// Of a start by a launcher the first process ends last, so that it knows how all have ended.
  void waitForOthers() {
    double limit = meeting->getSeconds();
    for (Waiting waiting; !meeting->getOthers().empty() && !isOverdue; rest())
      if (waiting.getSeconds() > limit)
        return group.leave(meeting->getOthers().front(),
                           environmentError("its process does not end, " +
                                            std::to_string(int64_t(limit)) +
                                            " s after the others"));
  }

  void note(pid_t ended, int status) {
    auto found = processes.find(ended);
    if (found == processes.end())
      return;
    if (Status end = describeEnd(status); !end.isOk())
      group.leave(found->second, end);
    processes.erase(found);
  }

  void rest() {
    sleep();
    if (isInterrupted())
      group.askToStop(); // no signal: one to all of us has reached them, and a second one ends them
    if (meeting)
      for (int64_t lost : meeting->findLost())
        group.leave(lost, environmentError("its process was ended"));
    // Behind the end of another one a rank may leave a checkpoint, and says that it is at work.
    bool isGood = group.getReason().isOk();
    if (isGood)
      patience = Patience(mostSeconds);
    isOverdue = !isGood && patience.isOver(group.countSigns());
    if (isOverdue) // one that hangs does not see that the others have left
      for (auto [process, rank] : processes)
        ::kill(process, SIGKILL);
  }

  /// Until a process ends or a signal comes, but no longer than others may be left unwatched. The
  /// descriptor of a process that has ended is readable from then on, and is looked at no more.
  void sleep() {
    constexpr int withoutDescriptors = 2;
    const int milliseconds = meeting ? 10 : 50;
    bool isTold =
        std::all_of(ends.begin(), ends.end(), [](const pollfd &end) { return end.fd >= 0; });
    if (::poll(ends.data(), nfds_t(ends.size()), isTold ? milliseconds : withoutDescriptors) <= 0)
      return;
    ends.erase(
        std::remove_if(ends.begin(), ends.end(),
                       [](const pollfd &end) { return end.revents && ::close(end.fd) == 0; }),
        ends.end());
  }

  SharedRanks &group;
  const std::string device;
  RankMeeting *meeting;
  std::map<pid_t, int64_t> processes; ///< those that run, with their ranks
  std::vector<pollfd> ends;           ///< readable when one of them has ended
  static constexpr double mostSeconds = 5;
  Patience patience{mostSeconds}; ///< with those that run on when one has left
  bool isOverdue = false;         ///< it is at an end
};
} // namespace

Status memopt::runRanks(const RunOptions &options, int64_t arenaBytes, const RankWork &work) {
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<SharedRanks> group,
                          SharedRanks::create(options.countRanks(), arenaBytes,
                                              options.isMemoryChecked, options.rankTimeout));
  std::fflush(stdout);
  std::fflush(stderr);
  Watch watch(*group, options.device);
  for (int64_t rank = 0; rank < group->getRanks(); ++rank)
    if (Status status = watch.start(rank, work); !status.isOk()) {
      group->leave(rank, status);
      break;
    }
  watch.waitForAll();
  return group->getReason();
}

Status memopt::runOneRank(const RunOptions &options, SharedRanks &group, RankMeeting &meeting,
                          const RankWork &work) {
  std::fflush(stdout);
  std::fflush(stderr);
  Watch watch(group, options.device, &meeting);
  if (Status status = watch.start(meeting.getRank(), work); !status.isOk())
    group.leave(meeting.getRank(), status);
  watch.waitForAll();
  meeting.leave();
  Status reason = group.getReason();
  return reason.isOk() || group.claimReason() ? std::move(reason) : Status(reason.getCode(), "");
}
