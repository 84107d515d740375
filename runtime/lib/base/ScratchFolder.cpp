//===- ScratchFolder.cpp - a folder that ends with its process ------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/base/ScratchFolder.h"
#include "memopt-runtime/base/Text.h"
#include <cerrno>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

using namespace memopt;

/// Nothing is said about what cannot be removed: nobody needs it, and somebody may look later.
static void removeAll(const std::string &path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored); // does not follow links
}

static bool isOwnFolder(const std::string &path) {
  struct stat facts;
  return ::lstat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) &&
         facts.st_uid == ::geteuid();
}

/// Removes folders whose processes are gone.
static void clearLeftovers(const std::string &prefix) {
  std::string folder = getFolder(prefix);
  std::string begin = prefix.substr(prefix.find_last_of('/') + 1);
  StatusOr<std::vector<std::string>> names = listFolder(folder);
  for (const std::string &name : names.isOk() ? *names : std::vector<std::string>()) {
    std::string path = folder + "/" + name;
    if (!startsWith(name, begin) || name.size() != begin.size() + randomLetters ||
        !isOwnFolder(path))
      continue;
    StatusOr<OpenFolder> opened = OpenFolder::open(path);
    if (opened.isOk() && opened->tryLock() && opened->isCurrent())
      removeAll(path);
  }
}

StatusOr<ScratchFolder> ScratchFolder::create(const std::string &prefix) {
  clearLeftovers(prefix);
  for (;;) {
    ScratchFolder made;
    MEMOPT_ASSIGN_OR_RETURN(made.path, createNewFolder(prefix, 0700));
    StatusOr<OpenFolder> opened = OpenFolder::open(made.path);
    if (!opened.isOk() && isOwnFolder(made.path))
      return opened.takeStatus();
    if (opened.isOk()) {
      made.held = *std::move(opened);
      made.held.lock(/*isShared=*/false);
      if (made.held.isCurrent())
        return made;
    }
    made.path.clear(); // before the lock somebody took it for a leftover
  }
}

ScratchFolder::~ScratchFolder() {
  if (!path.empty())
    removeAll(path);
}
