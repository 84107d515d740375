//===- ControlGroups.cpp - limits of a container -------------------------- ===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// cgroups(7), the kernel's admin-guide/cgroup-v2 and scheduler/sched-bwc: a group may run for a
// quota of microseconds in each period of them, on all processors together.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/base/ControlGroups.h"
#include "memopt-runtime/base/Text.h"
#include <algorithm>
#include <climits>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>

using namespace memopt;

static bool hasItem(const std::string &list, const std::string &item) {
  return ("," + list + ",").find("," + item + ",") != std::string::npos;
}

/// The path of our group in the hierarchy of version 2 (no controllers named) or of a controller of
/// version 1: lines are "number:controllers:path".
static std::optional<std::string> readGroupPath(const std::string &root, bool isVersion2,
                                                const std::string &controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos)
      continue;
    std::string controllers = line.substr(first + 1, second - first - 1);
    if (isVersion2 ? controllers.empty() : hasItem(controllers, controller))
      return line.substr(second + 1);
  }
  return std::nullopt;
}

/// A group in a hierarchy whose highest visible group is the folder `top`, and all above it.
static void addWithParents(const std::string &top, const std::string &below, bool isVersion2,
                           std::vector<ControlGroup> &groups) {
  for (std::string folder = top + below; folder.size() >= top.size();
       folder = folder.substr(0, folder.find_last_of('/')))
    groups.push_back({folder, isVersion2});
}

/// Lines of mountinfo: number, parent, device, root within the file system, mount point, options,
/// optional fields, "-", type, source, options of the file system.
std::vector<ControlGroup> memopt::findControlGroups(const std::string &controller,
                                                    const std::string &root) {
  std::vector<ControlGroup> groups;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word, mounted, point, type, source, options;
    words >> word >> word >> word >> mounted >> point;
    while (words >> word && word != "-") {
    }
    words >> type >> source >> options;
    bool isVersion2 = type == "cgroup2";
    if (!isVersion2 && (type != "cgroup" || !hasItem(options, controller)))
      continue;
    std::optional<std::string> path = readGroupPath(root, isVersion2, controller);
    if (!path)
      continue;
    // A container may see only its own group, mounted as if it were the top.
    std::string below = mounted == "/"                           ? *path
                        : startsWith(*path + "/", mounted + "/") ? path->substr(mounted.size())
                                                                 : "";
    while (!below.empty() && below.back() == '/')
      below.pop_back();
    addWithParents(root + point, below, isVersion2, groups);
  }
  return groups;
}

/// The whole processors of one group; nothing where it has no limit ("max", or -1).
static std::optional<int64_t> readQuota(const ControlGroup &group) {
  int64_t quota = 0, period = 0;
  if (group.isVersion2) {
    std::ifstream(group.folder + "/cpu.max") >> quota >> period;
  } else {
    std::ifstream(group.folder + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(group.folder + "/cpu.cfs_period_us") >> period;
  }
  if (quota <= 0 || period <= 0)
    return std::nullopt;
  return quota / period;
}

int memopt::getProcessorQuota(const std::string &root) {
  int64_t processors = INT_MAX;
  for (const ControlGroup &group : findControlGroups("cpu", root))
    if (std::optional<int64_t> quota = readQuota(group))
      processors = std::min(processors, *quota);
  return int(std::max<int64_t>(1, processors));
}
