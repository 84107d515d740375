//===- CheckpointFolder.cpp - checkpoints that stay whole -----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Inside the folder, hidden: `.lock`, held while a run may save; `.saving-...`, a save that is not
// done; `.saved`, a save that is done and whose files are on their way up.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/base/Text.h"
#include "memopt-runtime/checkpoint/CheckpointFiles.h"
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace memopt;

static const std::string lockName = ".lock", savedName = ".saved", savingPrefix = ".saving-";

static bool isCheckpointFile(const std::string &name) {
  return std::find(std::begin(checkpointFiles), std::end(checkpointFiles), name) !=
         std::end(checkpointFiles);
}

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
  std::string state = findCheckpointFile(folder, stateFile);
  if (fileExists(state)) {
    MEMOPT_ASSIGN_OR_RETURN(std::string text, readFile(state, maxStateBytes));
    StatusOr<TrainingState> parsed = parseTrainingState(text);
    if (parsed.isOk())
      return Status::ok();
    return parsed.takeStatus().withContext("--save=" + path + ": " + quote(state) +
                                           " is not that of a checkpoint");
  }
  for (const std::string &name : names) {
    bool isOurs = name == lockName || name == savedName || startsWith(name, savingPrefix);
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

/// The open lock file tells others who holds it, and the system takes it from a process that dies.
/// Where the file system knows no locks there is none.
static StatusOr<Descriptor> takeLock(const std::string &path, const std::string &folder) {
  std::string file = folder + "/" + lockName;
  for (;;) {
    Descriptor lock(::open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (lock.get() < 0)
      return environmentError(describeErrno("creating", file, errno));
    (void)!::fchmod(lock.get(), 0600); // who may open it may hold it
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
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
// Leftovers
//===----------------------------------------------------------------------===//

/// Removes a hidden folder of ours with its files. Something else of that name stays.
static void removeHidden(const std::string &folder) {
  struct stat facts;
  if (::lstat(folder.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode))
    return;
  for (const char *name : checkpointFiles)
    ::unlink((folder + "/" + name).c_str());
  ::rmdir(folder.c_str());
}

/// Moves the files of a save that is done over the old ones.
static Status moveUp(const std::string &folder) {
  std::string saved = folder + "/" + savedName;
  if (!isFolder(saved))
    return Status::ok();
  for (const char *name : checkpointFiles)
    if (::rename((saved + "/" + name).c_str(), (folder + "/" + name).c_str()) != 0 &&
        errno != ENOENT)
      return environmentError(describeErrno("replacing", folder + "/" + name, errno));
  MEMOPT_RETURN_IF_ERROR(syncFolder(folder));
  if (::rmdir(saved.c_str()) != 0)
    return environmentError(describeErrno("removing", saved, errno));
  return Status::ok();
}

static Status clearLeftovers(const std::string &folder) {
  MEMOPT_RETURN_IF_ERROR(moveUp(folder));
  MEMOPT_ASSIGN_OR_RETURN(std::vector<std::string> names, listFolder(folder));
  for (const std::string &name : names)
    if (startsWith(name, savingPrefix))
      removeHidden(folder + "/" + name);
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// The folder
//===----------------------------------------------------------------------===//

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
  MEMOPT_ASSIGN_OR_RETURN(result.lock, takeLock(path, folder));
  if (Status status = clearLeftovers(folder); !status.isOk())
    return status.withContext("--save=" + path);
  return result;
}

CheckpointFolder::~CheckpointFolder() {
  if (lock.get() >= 0)
    ::unlink((folder + "/" + lockName).c_str()); // before it is let go, so that it is ours
  if (isNew && !folder.empty())
    ::rmdir(folder.c_str()); // only when it is empty
}

//===----------------------------------------------------------------------===//
// Saving
//===----------------------------------------------------------------------===//

namespace {
struct SavedTensor {
  std::string name;
  const VariableSpec *variable;
};
} // namespace

/// What a file of a checkpoint holds, in its order, in which ranks collect what they have parts of.
static std::vector<SavedTensor> listTensors(const Manifest &manifest, const std::string &file,
                                            bool hasModelNames) {
  std::vector<SavedTensor> tensors;
  size_t dropped = hasModelNames ? getSharedPrefix(manifest).size() : 0;
  for (const VariableSpec &variable : manifest.variables)
    if (file == modelFile && isModelVariable(variable))
      for (const std::string &name : variable.names)
        tensors.push_back({name.substr(dropped), &variable});
    else if (file == optimizerFile && isOptimizerVariable(variable))
      tensors.push_back({variable.name, &variable});
  return tensors;
}

static Status writeTensors(const std::string &folder, const std::string &file,
                           const Session &session, bool hasModelNames) {
  std::vector<SavedTensor> tensors = listTensors(session.getManifest(), file, hasModelNames);
  std::vector<TensorToWrite> described;
  for (const auto &[name, variable] : tensors)
    described.push_back({name, variable->dtype, variable->getWholeShape(), nullptr});
  MEMOPT_ASSIGN_OR_RETURN(SafetensorsLayout layout, SafetensorsLayout::plan(described));
  std::vector<SafetensorsLayout::Place> places = layout.places;
  MEMOPT_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                          SafetensorsWriter::create(folder + "/" + file, std::move(layout)));
  std::vector<char> storage;
  for (size_t i = 0; i < tensors.size(); ++i) {
    MEMOPT_ASSIGN_OR_RETURN(const void *data, session.getWhole(*tensors[i].variable, storage));
    MEMOPT_RETURN_IF_ERROR(writer.write(i, 0, data, places[i].bytes));
  }
  return writer.finish();
}

static Status writeText(const std::string &path, const std::string &text) {
  MEMOPT_ASSIGN_OR_RETURN(Descriptor file, createNewFile(path));
  MEMOPT_RETURN_IF_ERROR(writeAt(file, path, text.data(), text.size(), 0));
  return syncAndClose(std::move(file), path);
}

static Status writeFiles(const std::string &folder, const Session &session,
                         const TrainingState &state, bool hasModelNames) {
  for (const char *file : {modelFile, optimizerFile})
    MEMOPT_RETURN_IF_ERROR(writeTensors(folder, file, session, hasModelNames));
  MEMOPT_RETURN_IF_ERROR(writeText(folder + "/" + stateFile, printTrainingState(state)));
  return syncFolder(folder);
}

/// Makes a hidden folder with all files the checkpoint. It is on the disk before anything of the
/// old one goes.
static Status commit(const std::string &fresh, const std::string &folder) {
  if (::rename(fresh.c_str(), (folder + "/" + savedName).c_str()) != 0)
    return environmentError(describeErrno("renaming", fresh, errno));
  MEMOPT_RETURN_IF_ERROR(syncFolder(folder));
  return moveUp(folder);
}

//===----------------------------------------------------------------------===//
// Older checkpoints
//===----------------------------------------------------------------------===//

static const std::string keptPrefix = "step-";

/// Folders of older checkpoints with their steps, the oldest first.
static StatusOr<std::vector<std::pair<int64_t, std::string>>> listKept(const std::string &folder) {
  MEMOPT_ASSIGN_OR_RETURN(std::vector<std::string> names, listFolder(folder));
  std::vector<std::pair<int64_t, std::string>> kept;
  for (const std::string &name : names) {
    if (!startsWith(name, keptPrefix))
      continue;
    char *end = nullptr;
    errno = 0;
    long long step = std::strtoll(name.c_str() + keptPrefix.size(), &end, 10);
    if (!*end && !errno && name == keptPrefix + std::to_string(step))
      kept.push_back({step, folder + "/" + name});
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

/// A hidden folder with the checkpoint's files. They are not copied: saves make new ones.
static StatusOr<std::string> linkFiles(const std::string &folder) {
  MEMOPT_ASSIGN_OR_RETURN(std::string fresh, createNewFolder(folder + "/" + savingPrefix));
  for (const char *name : checkpointFiles)
    if (::link((folder + "/" + name).c_str(), (fresh + "/" + name).c_str()) != 0) {
      Status failed = environmentError(describeErrno("keeping", folder + "/" + name, errno));
      removeHidden(fresh);
      return failed;
    }
  return fresh;
}

/// Gives the checkpoint in the folder, if there is one, a place beside `count` - 1 older ones, and
/// removes others.
static Status keepLast(const std::string &folder, int64_t count) {
  std::string state = folder + "/" + stateFile;
  if (!fileExists(state))
    return Status::ok();
  MEMOPT_ASSIGN_OR_RETURN(std::string text, readFile(state, maxStateBytes));
  MEMOPT_ASSIGN_OR_RETURN(TrainingState last, parseTrainingState(text));
  std::string place = folder + "/" + keptPrefix + std::to_string(last.step);
  if (!isFolder(place)) {
    MEMOPT_ASSIGN_OR_RETURN(std::string fresh, linkFiles(folder));
    if (::rename(fresh.c_str(), place.c_str()) != 0)
      return environmentError(describeErrno("renaming", fresh, errno));
  }
  MEMOPT_ASSIGN_OR_RETURN(auto kept, listKept(folder));
  for (size_t i = 0; i + size_t(count) < kept.size(); ++i)
    removeHidden(kept[i].second);
  return syncFolder(folder);
}

Status CheckpointFolder::mark(const std::string &name) {
  std::string place = folder + "/" + name;
  MEMOPT_ASSIGN_OR_RETURN(std::string fresh, linkFiles(folder));
  // One moment for the change: the old one goes under the hidden name.
  bool isReplaced =
      ::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE) == 0;
  if (!isReplaced && ::rename(fresh.c_str(), place.c_str()) != 0) {
    Status failed = environmentError(describeErrno("renaming", fresh, errno));
    removeHidden(fresh);
    return failed;
  }
  if (isReplaced)
    removeHidden(fresh);
  return syncFolder(folder);
}

Status memopt::contributeToCheckpoint(const Session &session) {
  std::vector<char> none;
  for (const char *file : {modelFile, optimizerFile})
    for (const auto &[name, variable] : listTensors(session.getManifest(), file, false))
      MEMOPT_RETURN_IF_ERROR(session.getWhole(*variable, none).takeStatus());
  return Status::ok();
}

Status CheckpointFolder::save(const Session &session, const TrainingState &state) {
  auto write = [&]() -> Status {
    MEMOPT_RETURN_IF_ERROR(moveUp(folder)); // of a save before, if the disk failed then
    if (options.keep > 1)
      MEMOPT_RETURN_IF_ERROR(keepLast(folder, options.keep - 1));
    MEMOPT_ASSIGN_OR_RETURN(std::string fresh, createNewFolder(folder + "/" + savingPrefix));
    Status status = writeFiles(fresh, session, state, options.hasModelNames);
    if (status.isOk())
      status = commit(fresh, folder);
    removeHidden(fresh); // not there any more when all went well
    return status;
  };
  if (Status status = write(); !status.isOk())
    return status.withContext(
        "saving checkpoint " + quote(path) +
        (fileExists(findCheckpointFile(folder, stateFile)) ? " (the one before is intact)" : ""));
  return Status::ok();
}
