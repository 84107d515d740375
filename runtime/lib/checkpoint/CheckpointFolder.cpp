//===- CheckpointFolder.cpp - the folder that a run saves to --------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Everything that can be known before the first step is found out here: whether something else lies
// there, whether another run saves there, whether files can be made and have room.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/base/Text.h"
#include "memopt-runtime/checkpoint/CheckpointFiles.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace memopt;

//===----------------------------------------------------------------------===//
// Whether to save there
//===----------------------------------------------------------------------===//

static bool isCurrentFolder(const std::string &folder) {
  struct stat here, there;
  return ::stat(".", &here) == 0 && ::stat(folder.c_str(), &there) == 0 &&
         here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

/// A checkpoint may be replaced; nothing else may. Foreign files are safe beside one, but a folder
/// that holds them is more often a slip of the pen, unless it can be no other: a mount point, or
/// where the user stands.
static Status checkContent(const std::string &path, const std::string &folder) {
  MEMOPT_ASSIGN_OR_RETURN(std::vector<std::string> names, listFolder(folder));
  if (std::string file = findCheckpointFile(folder, stateFile); fileExists(file)) {
    Status status = readState(folder).takeStatus();
    return std::move(status).withContext("--save=" + path + ": " + quote(file) +
                                         " is not that of a checkpoint");
  }
  for (const std::string &name : names) {
    bool isOurs = name == lockName || name == savedName || name == keepingName ||
                  startsWith(name, savingPrefix);
    bool mayStay = !isCheckpointFile(name) && (isMountPoint(folder) || isCurrentFolder(folder));
    if (!isOurs && !mayStay)
      return badInput("--save=" + path + " is a folder that holds " + quote(name) +
                      " and no checkpoint; give the name of a new folder");
  }
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// The lock
//===----------------------------------------------------------------------===//

static Status explainLock(const std::string &path, const std::string &file) {
  StatusOr<std::string> holder = readFile(file, 100);
  std::string process = holder.isOk() && !holder->empty() ? " (process " + *holder + ")" : "";
  return badInput("--save=" + path + ": another run" + process +
                  " saves to this folder; give another one, or wait until it is done");
}

/// 0 when the lock is ours, or the error.
static int lockFile(const Descriptor &file) {
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0)
    if (errno != EINTR)
      return errno;
  return 0;
}

/// The open lock file tells others who holds it, and the system takes it from a process that dies.
/// Nobody else may open it, who could hold the lock. `error` says why there is none, where the file
/// system knows no locks.
static StatusOr<Descriptor> takeLock(const std::string &path, const std::string &folder,
                                     int &error) {
  std::string file = folder + "/" + lockName;
  for (;;) {
    Descriptor lock = openOwnFile(file, O_RDWR | O_CREAT, 0600);
    if (lock.get() < 0)
      return environmentError(describeErrno("creating", file, errno));
    (void)::fchmod(lock.get(), 0600); // one that an older release has left
    error = lockFile(lock);
    if (error == EWOULDBLOCK)
      return explainLock(path, file);
    struct stat ours, there;
    bool isCurrent = ::fstat(lock.get(), &ours) == 0 && ::stat(file.c_str(), &there) == 0 &&
                     ours.st_ino == there.st_ino;
    if (!isCurrent)
      continue; // its holder removed it between our two calls
    std::string process = std::to_string(::getpid());
    if (::ftruncate(lock.get(), 0) == 0)
      (void)!::write(lock.get(), process.data(), process.size()); // for messages alone
    return lock;
  }
}

//===----------------------------------------------------------------------===//
// The folder
//===----------------------------------------------------------------------===//

/// Ends what a killed run has begun. Without a lock what is not done may be that of a run that goes
/// on, on another host say; it stays.
static Status clearLeftovers(const std::string &folder, bool isLocked) {
  MEMOPT_RETURN_IF_ERROR(finishMoves(folder));
  if (!isLocked)
    return Status::ok();
  removeFiles(folder + "/" + keepingName);
  MEMOPT_ASSIGN_OR_RETURN(std::vector<std::string> names, listFolder(folder));
  for (const std::string &name : names)
    if (startsWith(name, savingPrefix))
      removeFiles(folder + "/" + name);
  return Status::ok();
}

/// A place for the best checkpoint: something else that is there stays what it is.
static Status checkBest(const std::string &path, const std::string &folder, bool isLocked) {
  std::string place = folder + "/" + bestName;
  if (!fileExists(place))
    return Status::ok();
  if (!isFolder(place))
    return badInput("--save-best: " + quote(place) +
                    " is a file, where the folder of the best checkpoint goes; rename it");
  MEMOPT_RETURN_IF_ERROR(
      checkContent(path + "/" + bestName, place).withContext("--save-best needs that folder"));
  return clearLeftovers(place, isLocked);
}

/// Some file systems tell only when a file is made that nobody may.
static Status tryWriting(const std::string &folder) {
  MEMOPT_ASSIGN_OR_RETURN(std::string fresh, createNewFolder(folder + "/" + savingPrefix));
  std::string file = fresh + "/" + stateFile;
  Status status = createNewFile(file).takeStatus();
  removeFiles(fresh);
  return status;
}

StatusOr<CheckpointFolder> CheckpointFolder::open(const std::string &path, SaveOptions options) {
  bool isNew = ::mkdir(path.c_str(), 0777) == 0;
  if (!isNew && errno != EEXIST)
    return environmentError(describeErrno("creating folder", path, errno));
  if (!isFolder(path))
    return badInput("--save=" + path + " is not a folder");
  std::string folder = getRealPath(path);
  if (folder.empty())
    return environmentError(describeErrno("opening folder", path, errno));
  CheckpointFolder result(path, folder, options, isNew);
  MEMOPT_RETURN_IF_ERROR(checkContent(path, folder));
  int lockError = 0;
  MEMOPT_ASSIGN_OR_RETURN(result.lock, takeLock(path, folder, lockError));
  if (lockError)
    result.notices.push_back("the file system of " + quote(path) + " gives no lock (" +
                             std::strerror(lockError) +
                             "): see to it that no other run saves there");
  Status status = clearLeftovers(folder, lockError == 0);
  if (status.isOk() && options.keepsBest)
    status = checkBest(path, folder, lockError == 0);
  if (status.isOk())
    status = tryWriting(folder);
  if (!status.isOk())
    return status.withContext("--save=" + path);
  // A disk that fails now may be well when something is saved, which then needs it.
  result.isParentSynced = !isNew || syncFolder(getFolder(folder)).isOk();
  return result;
}

CheckpointFolder::~CheckpointFolder() {
  if (lock.get() >= 0)
    ::unlink((folder + "/" + lockName).c_str()); // before it is let go, so that it is ours
  if (isNew && !folder.empty())
    ::rmdir(folder.c_str()); // only when it is empty
}

//===----------------------------------------------------------------------===//
// Room
//===----------------------------------------------------------------------===//

/// Bytes of a checkpoint in a folder, as far as there is one.
static int64_t countBytes(const std::string &folder) {
  int64_t bytes = 0;
  for (const char *name : checkpointFiles) {
    struct stat facts{};
    if (::stat(findCheckpointFile(folder, name).c_str(), &facts) == 0)
      bytes += facts.st_size;
  }
  return bytes;
}

Status CheckpointFolder::checkRoom(const Manifest &manifest, int64_t saves) const {
  std::optional<int64_t> free = getFreeBytes(folder);
  if (!free || saves <= 0)
    return Status::ok();
  MEMOPT_ASSIGN_OR_RETURN(int64_t bytes, getCheckpointBytes(manifest, options.hasModelNames));
  MEMOPT_ASSIGN_OR_RETURN(auto kept, listKept(folder));
  // While one is written those that it replaces are still there.
  int64_t there = fileExists(findCheckpointFile(folder, stateFile)) ? 1 : 0;
  if (options.keep > 1)
    there += int64_t(kept.size());
  int64_t most = std::min(options.keep, saves - 1 + there) + 1 + (options.keepsBest ? 1 : 0);
  int64_t taken = countBytes(folder);
  if (options.keepsBest)
    taken += countBytes(folder + "/" + bestName);
  for (const auto &[step, place] : kept)
    taken += options.keep > 1 ? countBytes(place) : 0;
  int64_t needed;
  if (__builtin_mul_overflow(bytes, most, &needed))
    needed = std::numeric_limits<int64_t>::max();
  if (needed - taken <= *free)
    return Status::ok();
  return environmentError("--save=" + path + ": " + std::to_string(most) + " checkpoints of " +
                          std::to_string(bytes) +
                          " bytes, the one that is being written included, " + "need " +
                          std::to_string(needed - taken) + " bytes more than lie there, and " +
                          std::to_string(*free) + " are free; make room, or save elsewhere");
}
