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
//===----------------------------------------------------------------------===//

#include "Ranks.h"
#include "Signals.h"
#include "memopt-runtime/Files.h"
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace memopt;

//===----------------------------------------------------------------------===//
// One rank
//===----------------------------------------------------------------------===//

/// The life of a rank's process. What went wrong the first process prints, once.
[[noreturn]] static void runRank(SharedRanks &group, int64_t rank, pid_t parent,
                                 const std::function<Status(Communicator &, Device &)> &run) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent)
    ::_exit(int(StatusCode::Environment)); // it died before the line above
  Status status;
  try {
    std::unique_ptr<Communicator> communicator = group.join(rank);
    std::unique_ptr<Device> device = group.openDevice(rank);
    status = run(*communicator, *device);
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
  Watch(SharedRanks &group, std::vector<pid_t> processes)
      : group(group), processes(std::move(processes)), left(this->processes.size()) {}

  void waitForAll() {
    while (left > 0) {
      int status = 0;
      if (pid_t ended = ::waitpid(-1, &status, WNOHANG); ended > 0)
        note(ended, status);
      else if (ended < 0 && errno != EINTR)
        return;
      else
        rest();
    }
  }

private:
  void note(pid_t ended, int status) {
    auto found = std::find(processes.begin(), processes.end(), ended);
    if (found == processes.end())
      return;
    *found = 0;
    --left;
    if (Status end = describeEnd(status); !end.isOk())
      group.leave(found - processes.begin(), end);
  }

  void rest() {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (isInterrupted())
      group.askToStop(); // no signal: one to all of us has reached them, and a second one ends them
    auto now = std::chrono::steady_clock::now();
    if (group.getReason().isOk())
      lastGood = now;
    else if (now - lastGood > std::chrono::seconds(5))
      sendAll(SIGKILL); // one that hangs does not see that the others have left
  }

  void sendAll(int signal) {
    for (pid_t process : processes)
      if (process > 0)
        ::kill(process, signal);
  }

  SharedRanks &group;
  std::vector<pid_t> processes; ///< 0 once they have ended
  size_t left;
  std::chrono::steady_clock::time_point lastGood = std::chrono::steady_clock::now();
};
} // namespace

Status memopt::runRanks(const RunOptions &options, int64_t arenaBytes,
                        const std::function<Status(Communicator &, Device &)> &run) {
  if (options.device != "cpu")
    return environmentError("--ranks: ranks run on device 'cpu' only");
  MEMOPT_ASSIGN_OR_RETURN(
      std::unique_ptr<SharedRanks> group,
      SharedRanks::create(options.ranks, arenaBytes, options.isMemoryChecked, options.rankTimeout));
  std::fflush(stdout);
  std::fflush(stderr);
  std::vector<pid_t> processes;
  pid_t parent = ::getpid();
  for (int64_t rank = 0; rank < options.ranks; ++rank) {
    pid_t process = ::fork();
    if (process == 0)
      runRank(*group, rank, parent, run);
    if (process < 0) {
      group->leave(rank,
                   environmentError("cannot be started: " + std::string(std::strerror(errno))));
      break;
    }
    processes.push_back(process);
  }
  Watch(*group, std::move(processes)).waitForAll();
  return group->getReason();
}

//===----------------------------------------------------------------------===//
// Other launchers
//===----------------------------------------------------------------------===//

Status memopt::checkLauncher(const RunOptions &options) {
  // By the variable that counts the processes, which those that start them set for each.
  static constexpr struct {
    const char *rank, *count, *launcher;
  } launchers[] = {{"RANK", "WORLD_SIZE", "torchrun"},
                   {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpirun"},
                   {"PMI_RANK", "PMI_SIZE", "mpirun"},
                   {"SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "srun"}};
  for (const auto &[rank, count, launcher] : launchers) {
    const char *number = std::getenv(count);
    if (!std::getenv(rank) || !number || std::atoi(number) <= 1)
      continue;
    return environmentError("this process is one of " + std::string(number) + " that " + launcher +
                            " started (" + count +
                            "); this version starts its ranks itself, on "
                            "one host: run it once, with --ranks=" +
                            number);
  }
  return Status::ok();
}
