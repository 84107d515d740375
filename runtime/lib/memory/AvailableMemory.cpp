//===- AvailableMemory.cpp - what an arena may take -----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A container's process sees the machine's memory in /proc/meminfo and its own limit in the control
// groups' file system: the kernel's admin-guide/cgroup-v2 and cgroup-v1/memory.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/memory/AvailableMemory.h"
#include "memopt-runtime/base/ControlGroups.h"
#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

using namespace memopt;

/// No process has more address space.
static constexpr int64_t addressSpace = int64_t(1) << 47;

namespace {
/// How a version of control groups names things.
struct GroupFiles {
  const char *limit, *usage, *inactiveCache, *activeCache;
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
  for (const ControlGroup &group : findControlGroups("memory", root))
    if (std::optional<int64_t> room = getRoom(group.folder, group.isVersion2 ? version2 : version1))
      available = std::min(available, *room);
  return available;
}
