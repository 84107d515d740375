//===- AvailableMemory.cpp - what an arena may take -----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A container's process sees the machine's memory in /proc/meminfo and its own limit in the control
// groups' file system: cgroups(7), the kernel's admin-guide/cgroup-v2 and cgroup-v1/memory.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/memory/AvailableMemory.h"
#include "memopt-runtime/base/Text.h"
#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

using namespace memopt;

/// No process has more address space.
static constexpr int64_t addressSpace = int64_t(1) << 47;

namespace {
/// How a version of control groups names things.
struct GroupFiles {
  const char *limit, *usage, *inactiveCache, *activeCache;
};

/// Where this process's memory group is seen.
struct MemoryGroup {
  std::string top;    ///< the folder of the highest group that is visible
  std::string folder; ///< of our group, at or below it
  const GroupFiles *files;
};
} // namespace

static constexpr GroupFiles version2 = {"memory.max", "memory.current", "inactive_file",
                                        "active_file"};
static constexpr GroupFiles version1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                        "total_inactive_file", "total_active_file"};

/// The number behind a word at the begin of a line; without a word, the first of the file. "max" is
/// no number.
static std::optional<int64_t> readNumber(const std::string &path, const std::string &word = "") {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first;
    int64_t number;
    if (!word.empty() && !(words >> first))
      continue;
    if (first == word && words >> number && number >= 0)
      return number;
    if (word.empty())
      break;
  }
  return std::nullopt;
}

static bool hasItem(const std::string &list, const std::string &item) {
  return ("," + list + ",").find("," + item + ",") != std::string::npos;
}

/// The path of our group in the hierarchy of version 2 (no controllers named) or of version 1's
/// memory controller: lines are "number:controllers:path".
static std::optional<std::string> readGroupPath(const std::string &root, bool isVersion2) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos)
      continue;
    std::string controllers = line.substr(first + 1, second - first - 1);
    if (isVersion2 ? controllers.empty() : hasItem(controllers, "memory"))
      return line.substr(second + 1);
  }
  return std::nullopt;
}

/// Lines of mountinfo: number, parent, device, root within the file system, mount point, options,
/// optional fields, "-", type, source, options of the file system.
static std::vector<MemoryGroup> findGroups(const std::string &root) {
  std::vector<MemoryGroup> groups;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word, mounted, point, type, source, options;
    words >> word >> word >> word >> mounted >> point;
    while (words >> word && word != "-") {
    }
    words >> type >> source >> options;
    bool isVersion2 = type == "cgroup2";
    if (!isVersion2 && (type != "cgroup" || !hasItem(options, "memory")))
      continue;
    std::optional<std::string> path = readGroupPath(root, isVersion2);
    if (!path)
      continue;
    // A container may see only its own group, mounted as if it were the top.
    std::string below = mounted == "/"                           ? *path
                        : startsWith(*path + "/", mounted + "/") ? path->substr(mounted.size())
                                                                 : "";
    while (!below.empty() && below.back() == '/')
      below.pop_back();
    groups.push_back({root + point, root + point + below, isVersion2 ? &version2 : &version1});
  }
  return groups;
}

/// What a group lets its processes have in addition; nothing where it has no limit.
static std::optional<int64_t> getRoom(const std::string &folder, const GroupFiles &files) {
  std::optional<int64_t> limit = readNumber(folder + "/" + files.limit);
  if (!limit)
    return std::nullopt;
  int64_t used = readNumber(folder + "/" + files.usage).value_or(0);
  for (const char *cache : {files.inactiveCache, files.activeCache})
    used -= std::min(used, readNumber(folder + "/memory.stat", cache).value_or(0));
  return std::max<int64_t>(0, *limit - used);
}

int64_t memopt::getAvailableMemory(const std::string &root) {
  int64_t available = addressSpace;
  if (std::optional<int64_t> kib = readNumber(root + "/proc/meminfo", "MemAvailable:"))
    available = std::min(available, std::min(*kib, addressSpace / 1024) * 1024);
  for (const MemoryGroup &group : findGroups(root))
    for (std::string folder = group.folder; folder.size() >= group.top.size();
         folder = folder.substr(0, folder.find_last_of('/')))
      if (std::optional<int64_t> room = getRoom(folder, *group.files))
        available = std::min(available, *room);
  return available;
}
