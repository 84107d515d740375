//===- Cache.cpp - results found again on disk ------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Support/Cache.h"
#include "memopt/Support/InputFile.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BLAKE3.h"
#include "llvm/Support/CachePruning.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace llvm;
using memopt::Cache;

/// What an entry begins with; then the checksum, then the answer.
static constexpr StringLiteral kMagic = "memopt cache 1\n";
using Checksum = BLAKE3Result<32>;

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

/// Adds what tells one build of a loaded binary from another: its build id, or its file's time and
/// size where it has none.
static int addBinary(dl_phdr_info *info, size_t, void *data) {
  auto &hash = *static_cast<BLAKE3 *>(data);
  bool hasId = false;
  for (const auto &header : ArrayRef(info->dlpi_phdr, info->dlpi_phnum)) {
    if (header.p_type != PT_NOTE)
      continue;
    auto *note = reinterpret_cast<const uint8_t *>(info->dlpi_addr + header.p_vaddr);
    hash.update(ArrayRef(note, header.p_memsz));
    hasId |= StringRef(reinterpret_cast<const char *>(note), header.p_memsz)
                 .contains(StringRef("\3\0\0\0GNU\0", 8)); // NT_GNU_BUILD_ID and its owner
  }
  if (hasId)
    return 0;
  sys::fs::file_status status;
  StringRef path = info->dlpi_name[0] ? info->dlpi_name : "/proc/self/exe";
  if (!sys::fs::status(path, status))
    hash.update((path + utostr(status.getSize()) + "," +
                 utostr(status.getLastModificationTime().time_since_epoch().count()))
                    .str());
  return 0;
}

/// Of every binary that is loaded: a newer solver, code generator or mathematical function may
/// answer otherwise.
static const Checksum &getBuild() {
  static const Checksum build = [] {
    BLAKE3 hash;
    ::dl_iterate_phdr(addBinary, &hash);
    return hash.final<32>();
  }();
  return build;
}

/// LLVM prunes what begins with this alone, so that a wrong folder loses nothing.
static constexpr StringLiteral kPrefix = "llvmcache-";

Cache::Key Cache::getKey(StringRef kind, StringRef question) {
  BLAKE3 hash;
  hash.update(getBuild());
  hash.update(kind);
  hash.update(ArrayRef<uint8_t>{0});
  hash.update(question);
  return {kind.str(), (kPrefix + kind + "-" + toHex(hash.final<20>(), /*LowerCase=*/true)).str()};
}

/// Of an answer to one question: a file under another one's name is damaged, too.
static Checksum getChecksum(StringRef name, StringRef answer) {
  BLAKE3 hash;
  hash.update(name);
  hash.update(ArrayRef<uint8_t>{0});
  hash.update(answer);
  return hash.final<32>();
}

//===----------------------------------------------------------------------===//
// Entries
//===----------------------------------------------------------------------===//

/// Entries are code that is run: whoever may write there runs code as this user.
static Error checkOwner(StringRef folder) {
  sys::fs::file_status status;
  if (std::error_code code = sys::fs::status(folder, status))
    return createStringError(code, "the cache's folder '" + folder + "': " + code.message());
  std::string begin = ("the cache's folder '" + folder + "' ").str();
  if (status.getUser() != ::geteuid() && status.getUser() != 0)
    return createStringError(begin + "belongs to user " + Twine(status.getUser()) +
                             ", and code from it is run: give a folder of your own");
  if (status.permissions() & (sys::fs::group_write | sys::fs::others_write))
    return createStringError(begin + "may be written by others, and code from it is run: empty it "
                                     "and take their right away (chmod go-w), or give another "
                                     "folder");
  return Error::success();
}

Expected<Cache *> Cache::open(StringRef folder) {
  static std::mutex mutex;
  static StringMap<std::unique_ptr<Cache>> all;
  if (std::error_code code =
          sys::fs::create_directories(folder, /*IgnoreExisting=*/true, sys::fs::owner_all))
    return createStringError(code,
                             "cannot make the cache's folder '" + folder + "': " + code.message());
  if (Error error = checkOwner(folder))
    return std::move(error);
  std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Cache> &cache = all[folder];
  if (!cache)
    cache.reset(new Cache(folder));
  return cache.get();
}

std::string Cache::getPath(const Key &key) const {
  SmallString<128> path(folder);
  sys::path::append(path, key.name);
  return path.str().str();
}

void Cache::complain(const Key &key, StringRef what) {
  complaints.push_back(("cache entry '" + Twine(getPath(key)) + "' " + what).str());
}

std::optional<std::string> Cache::find(const Key &key) {
  // What was used last is pruned last, also where reading leaves no time of it (noatime).
  const timespec times[] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  ::utimensat(AT_FDCWD, getPath(key).c_str(), times, 0);
  Expected<std::unique_ptr<MemoryBuffer>> file = readInputFile(getPath(key), /*isText=*/false);
  std::lock_guard<std::mutex> lock(mutex);
  if (!file) {
    std::error_code code = errorToErrorCode(file.takeError());
    if (code != std::errc::no_such_file_or_directory)
      complain(key, "cannot be read: " + code.message());
    return std::nullopt;
  }
  StringRef text = (*file)->getBuffer();
  Checksum expected;
  bool isWhole = text.consume_front(kMagic) && text.size() >= expected.size();
  if (isWhole) {
    StringRef answer = text.drop_front(expected.size());
    expected = getChecksum(key.name, answer);
    isWhole = text.take_front(expected.size()) == toStringRef(expected);
    text = answer;
  }
  if (!isWhole) {
    complain(key, "is damaged; it is made anew");
    return std::nullopt;
  }
  ++counts[key.kind].found;
  return text.str();
}

void Cache::reject(const Key &key, StringRef reason) {
  std::lock_guard<std::mutex> lock(mutex);
  --counts[key.kind].found;
  complain(key, ("is wrong (" + reason + "); it is made anew").str());
}

/// Nobody depends on an entry: a full disk or a folder that is not ours leaves a complaint.
void Cache::store(const Key &key, StringRef answer) {
  SmallString<128> model(folder);
  sys::path::append(model, kPrefix + "new-%%%%%%%%%%%%");
  auto write = [&]() -> Error {
    Expected<sys::fs::TempFile> file = sys::fs::TempFile::create(model);
    if (!file)
      return file.takeError();
    raw_fd_ostream out(file->FD, /*shouldClose=*/false);
    out << kMagic << toStringRef(getChecksum(key.name, answer)) << answer;
    out.flush();
    std::error_code code = out.error();
    out.clear_error();
    if (code)
      return joinErrors(errorCodeToError(code), file->discard());
    return file->keep(getPath(key));
  };
  Error error = write();
  std::lock_guard<std::mutex> lock(mutex);
  ++counts[key.kind].made;
  if (error)
    complain(key, "cannot be written: " + toString(std::move(error)));
}

void Cache::prune(uint64_t bytes) {
  CachePruningPolicy policy;
  policy.Interval = std::chrono::seconds(0);
  policy.Expiration = std::chrono::seconds(0);
  policy.MaxSizePercentageOfAvailableSpace = 0;
  policy.MaxSizeBytes = bytes;
  pruneCache(folder, policy);
}

std::map<std::string, Cache::Counts> Cache::getCounts() const {
  std::lock_guard<std::mutex> lock(mutex);
  return counts;
}

std::vector<std::string> Cache::takeComplaints() {
  std::lock_guard<std::mutex> lock(mutex);
  return std::exchange(complaints, {});
}
