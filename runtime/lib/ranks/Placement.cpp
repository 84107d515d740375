//===- Placement.cpp - where ranks are ------------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/ranks/Placement.h"
#include "memopt-runtime/numbers/Random.h"
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sched.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

using namespace memopt;

Placement::Placement(const std::vector<uint64_t> &ofRanks) {
  std::vector<uint64_t> names;
  for (size_t rank = 0; rank < ofRanks.size(); ++rank) {
    auto host = size_t(std::find(names.begin(), names.end(), ofRanks[rank]) - names.begin());
    if (host == names.size()) {
      names.push_back(ofRanks[rank]);
      hosts.emplace_back();
    }
    inOrder &= host + 1 == names.size();
    places.push_back({int64_t(host), int64_t(hosts[host].size())});
    hosts[host].push_back(int64_t(rank));
  }
  auto [smallest, largest] =
      std::minmax_element(hosts.begin(), hosts.end(), [](const auto &one, const auto &other) {
        return one.size() < other.size();
      });
  fewest = int64_t(smallest->size());
  most = int64_t(largest->size());
}

/// A number for this machine since it was started.
static uint64_t identifyMachine() {
  std::string name;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), name);
  return hashName(name);
}

uint64_t memopt::identifyHost() {
  char name[256] = {};
  (void)::gethostname(name, sizeof name - 1);
  struct stat network{};
  (void)::stat("/proc/self/ns/net", &network);
  return hashName(std::to_string(identifyMachine()) + " " + std::to_string(network.st_ino) + " " +
                  name);
}

/// A number for the control groups of this process on its machine: their paths, which begin anew in
/// each namespace, and the namespace.
static uint64_t identifyGroup() {
  std::ifstream file("/proc/self/cgroup");
  std::string name(std::istreambuf_iterator<char>(file), {});
  struct stat space{};
  if (::stat("/proc/self/ns/cgroup", &space) == 0)
    name += std::to_string(space.st_ino);
  return hashName(name);
}

StatusOr<Sharers> memopt::countSharers(Communicator &communicator) {
  struct Place {
    uint64_t machine, group;
    cpu_set_t processors;
  } mine{identifyMachine(), identifyGroup(), {}};
  if (::sched_getaffinity(0, sizeof mine.processors, &mine.processors) != 0) // more than it holds
    std::memset(&mine.processors, 0xff, sizeof mine.processors);
  std::vector<Place> all(size_t(communicator.getRanks()));
  MEMOPT_RETURN_IF_ERROR(communicator.exchange(&mine, sizeof mine, all.data()));
  Sharers sharers{0, 0};
  for (Place &other : all) {
    cpu_set_t both;
    CPU_AND(&both, &mine.processors, &other.processors);
    sharers.ofProcessors += mine.machine == other.machine && CPU_COUNT(&both) > 0;
    sharers.ofQuota += mine.machine == other.machine && mine.group == other.group;
  }
  return sharers;
}
