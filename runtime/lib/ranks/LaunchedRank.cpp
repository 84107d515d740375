//===- LaunchedRank.cpp - what a launcher says of a process ---------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What all processes of one start share is the number of a job where the launcher has one. MPICH
// names none: there it is the launcher's process, the nearest ancestor that is not itself a rank,
// so that a shell between the two does no harm.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/ranks/LaunchedRank.h"
#include "memopt-runtime/base/Files.h"
#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/interface/PackageFormat.h"
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <unistd.h>

using namespace memopt;

namespace {
/// The variables of one launcher. `here` counts the processes on this host.
struct LauncherSpec {
  const char *launcher, *rank, *ranks, *here;
  const char *job[4]; ///< name the start together; none: the launcher's process does
  bool isJobNeeded;   ///< a start that is not named by all of the first two is refused
  bool isHereNeeded;  ///< others set the same variables without `here`, on any number of hosts
  bool startsMpi;     ///< its processes can be those of an MPI
};
} // namespace

/// Whoever was started last is asked first: torchrun may run below srun, and mpirun too.
static constexpr LauncherSpec launchers[] = {
    {"torchrun",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_WORLD_SIZE",
     {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"},
     true,
     true,
     false},
    {"mpirun",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
     false,
     false,
     true},
    {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", {}, false, false, true},
    // Of a step: a job's own script has SLURM_PROCID too, and is started once.
    {"srun",
     "SLURM_PROCID",
     "SLURM_STEP_NUM_TASKS",
     "SLURM_STEP_TASKS_PER_NODE",
     {"SLURM_JOB_ID", "SLURM_STEP_ID"},
     true,
     false,
     true}};

//===----------------------------------------------------------------------===//
// The launcher's process
//===----------------------------------------------------------------------===//

static std::string readProcFile(pid_t process, const char *name) {
  std::ifstream file("/proc/" + std::to_string(process) + "/" + name, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

/// Whether a process has a variable. One whose environment cannot be read is somebody else's.
static bool hasVariable(pid_t process, const char *name) {
  std::string environment = '\0' + readProcFile(process, "environ");
  return environment.find('\0' + std::string(name) + "=") != std::string::npos;
}

/// A field of /proc/PID/stat, counted from the one behind the process's name.
static long long readStatField(pid_t process, int field) {
  std::string text = readProcFile(process, "stat");
  size_t at = text.rfind(')');
  for (int i = 0; i <= field && at != std::string::npos; ++i)
    at = text.find(' ', at + 1);
  return at == std::string::npos ? 0 : std::atoll(text.c_str() + at);
}

static std::string nameLauncher(const char *rankVariable) {
  constexpr int parentField = 1, startField = 19; // ppid and starttime of proc(5)
  pid_t process = ::getppid();
  while (process > 1 && hasVariable(process, rankVariable))
    process = pid_t(readStatField(process, parentField));
  return "process " + std::to_string(process) + " of " +
         std::to_string(readStatField(process, startField));
}

//===----------------------------------------------------------------------===//
// Variables
//===----------------------------------------------------------------------===//

static StatusOr<int64_t> readNumber(const EnvironmentReader &read, const char *name, int64_t least,
                                    int64_t most) {
  const char *text = read(name);
  errno = 0;
  char *end = nullptr;
  long long number = text ? std::strtoll(text, &end, 10) : 0;
  if (!text || end == text || *end || errno || number < least || number > most)
    return badInput("environment variable " + std::string(name) + " should be an integer from " +
                    std::to_string(least) + " to " + std::to_string(most) + ", and " +
                    (text ? "is " + quote(text) : "is not set"));
  return int64_t(number);
}

static StatusOr<std::string> nameStart(const EnvironmentReader &read, const LauncherSpec &spec) {
  std::string start;
  for (size_t i = 0; i < std::size(spec.job) && spec.job[i]; ++i) {
    const char *value = read(spec.job[i]);
    if (!value && spec.isJobNeeded && i < 2)
      return badInput("environment variable " + std::string(spec.job[i]) + " is not set, but " +
                      spec.ranks + " is: " + spec.launcher +
                      " sets both, and processes find each other by it");
    if (value)
      start += std::string(spec.job[i]) + "=" + value + " ";
  }
  return start.empty() ? nameLauncher(spec.rank) : start;
}

/// srun writes "2(x3)" for two tasks on each of three nodes: the first number is enough.
static StatusOr<std::string> findSpread(const EnvironmentReader &read, const LauncherSpec &spec,
                                        int64_t ranks, bool isOneHost) {
  const char *here = read(spec.here);
  if (!here && spec.isHereNeeded && !isOneHost)
    return badInput("environment variables " + std::string(spec.rank) + " and " + spec.ranks +
                    " say that this process is one of " + std::to_string(ranks) + ", and " +
                    spec.here + " is not set, which says how many of them are on this host: set " +
                    spec.here +
                    ", give --transport=shared where all are on this host, or give "
                    "--launcher=none where this run is no rank");
  if (!here || std::atoll(here) == ranks)
    return std::string();
  return std::string(spec.launcher) + " started " + std::to_string(ranks) +
         " processes on several hosts (" + spec.here + " is " + quote(here) + ")";
}

StatusOr<std::optional<LaunchedRank>> memopt::findLaunchedRank(const EnvironmentReader &read,
                                                               bool isOneHost) {
  for (const LauncherSpec &spec : launchers) {
    const char *count = read(spec.ranks);
    if (!count || !read(spec.rank) || std::strcmp(count, "1") == 0)
      continue;
    LaunchedRank found;
    found.launcher = spec.launcher;
    found.startsMpi = spec.startsMpi;
    MEMOPT_ASSIGN_OR_RETURN(found.ranks, readNumber(read, spec.ranks, 1, mostRanks));
    MEMOPT_ASSIGN_OR_RETURN(found.rank, readNumber(read, spec.rank, 0, found.ranks - 1));
    MEMOPT_ASSIGN_OR_RETURN(found.spread, findSpread(read, spec, found.ranks, isOneHost));
    MEMOPT_ASSIGN_OR_RETURN(found.start, nameStart(read, spec));
    return std::optional<LaunchedRank>(std::move(found));
  }
  return std::optional<LaunchedRank>();
}
