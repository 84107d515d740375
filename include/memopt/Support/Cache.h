//===- Cache.h - results found again on disk --------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A folder of results by the content of their questions. An entry's name is a hash of the question,
// of its kind, and of every binary that this process runs, so a newer compiler or library finds
// nothing of an older one's. Entries are written beside their names and renamed, so that processes
// which share a folder see whole ones. None is trusted: whoever finds one checks what it says, and
// makes it anew where it is wrong. The folder may be emptied at any time.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_SUPPORT_CACHE_H
#define MEMOPT_SUPPORT_CACHE_H

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace memopt {

class Cache {
public:
  /// The cache in a folder, which is made where it is missing; the same for the same path, until
  /// the process ends. Fails where the folder cannot be made, and where others may write to it.
  static llvm::Expected<Cache *> open(llvm::StringRef folder);

  /// One question. Kinds are short words: they begin the names of files.
  struct Key {
    std::string kind, name; ///< name: of the file
  };
  static Key getKey(llvm::StringRef kind, llvm::StringRef question);

  /// What `store` was given, or nothing. A damaged file counts as none, with a complaint.
  std::optional<std::string> find(const Key &key);
  void store(const Key &key, llvm::StringRef answer);
  /// What `find` gave is no answer to the question: it counts as none, with a complaint.
  void reject(const Key &key, llvm::StringRef reason);

  /// Removes what was not used for longest, until at most so many bytes are left.
  void prune(uint64_t bytes);

  struct Counts {
    int64_t found = 0, made = 0;
  };
  std::map<std::string, Counts> getCounts() const;
  /// What was wrong with entries since the last call, with their files.
  std::vector<std::string> takeComplaints();

private:
  explicit Cache(llvm::StringRef folder) : folder(folder) {}
  std::string getPath(const Key &key) const;
  void complain(const Key &key, llvm::StringRef what);

  std::string folder;
  mutable std::mutex mutex; ///< of what follows
  std::map<std::string, Counts> counts;
  std::vector<std::string> complaints;
};

} // namespace memopt

#endif // MEMOPT_SUPPORT_CACHE_H
