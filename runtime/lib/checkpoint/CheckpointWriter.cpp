//===- CheckpointWriter.cpp - checkpoints that stay whole -----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each change of names is one rename(2), which all file systems have, of something that is on the
// disk already. Whatever stops between two of them is finished by finishMoves().
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/base/Text.h"
#include "memopt-runtime/checkpoint/CheckpointFiles.h"
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sys/stat.h>
#include <unistd.h>

using namespace memopt;

bool memopt::isCheckpointFile(const std::string &name) {
  return std::find(std::begin(checkpointFiles), std::end(checkpointFiles), name) !=
         std::end(checkpointFiles);
}

void memopt::removeFiles(const std::string &folder) {
  struct stat facts;
  if (::lstat(folder.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode))
    return;
  for (const char *name : checkpointFiles)
    ::unlink((folder + "/" + name).c_str());
  ::rmdir(folder.c_str());
}

/// Removes a kept checkpoint of the folder, if it is there. It is whole as long as it has its name.
/// What else somebody has put into it stays there.
static void removeKept(const std::string &folder, const std::string &place) {
  if (!isFolder(place))
    return;
  std::string hidden = folder + "/" + savingPrefix + place.substr(place.rfind('/') + 1);
  removeFiles(hidden);
  if (::rename(place.c_str(), hidden.c_str()) != 0)
    return;
  removeFiles(hidden);
  (void)::rename(hidden.c_str(), place.c_str()); // if it has not gone
}

StatusOr<std::vector<std::pair<int64_t, std::string>>> memopt::listKept(const std::string &folder) {
  MEMOPT_ASSIGN_OR_RETURN(std::vector<std::string> names, listFolder(folder));
  std::vector<std::pair<int64_t, std::string>> kept;
  for (const std::string &name : names) {
    if (!startsWith(name, keptPrefix))
      continue;
    StatusOr<TrainingState> state = readState(folder + "/" + name);
    if (state.isOk() && name == keptPrefix + std::to_string(state->step))
      kept.push_back({state->step, folder + "/" + name});
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

//===----------------------------------------------------------------------===//
// Moves
//===----------------------------------------------------------------------===//

/// Moves the checkpoint's files, as many as are there, from one folder to another.
static Status moveFiles(const std::string &from, const std::string &to) {
  for (const char *name : checkpointFiles)
    if (std::string file = from + "/" + name;
        fileExists(file) && ::rename(file.c_str(), (to + "/" + name).c_str()) != 0)
      return environmentError(describeErrno("replacing", to + "/" + name, errno));
  return Status::ok();
}

/// Whether the folder `step-N` is there, and another than a kept checkpoint: then it stays.
static bool isForeign(const std::string &folder, const std::string &place) {
  StatusOr<std::vector<std::pair<int64_t, std::string>>> kept = listKept(folder);
  return fileExists(place) &&
         (!kept.isOk() || std::none_of(kept->begin(), kept->end(),
                                       [&](const auto &entry) { return entry.second == place; }));
}

/// Gives the files of the save before their place, if the folder `.keeping` says that they stay.
/// They are in the folder as long as all those of the new save lie in `.saved`.
static Status finishKeeping(const std::string &folder) {
  std::string keeping = folder + "/" + keepingName;
  if (!isFolder(keeping) || !fileExists(folder + "/" + savedName + "/" + checkpointFiles[0]))
    return Status::ok();
  MEMOPT_RETURN_IF_ERROR(moveFiles(folder, keeping));
  MEMOPT_RETURN_IF_ERROR(syncFolder(keeping));
  MEMOPT_RETURN_IF_ERROR(syncFolder(folder));
  StatusOr<TrainingState> state = readState(keeping);
  std::string place =
      folder + "/" + keptPrefix + (state.isOk() ? std::to_string(state->step) : "none");
  if (!state.isOk() || isForeign(folder, place)) {
    removeFiles(keeping);
    return Status::ok();
  }
  removeKept(folder, place); // that of a run that was given up
  if (::rename(keeping.c_str(), place.c_str()) != 0)
    return environmentError(describeErrno("renaming", keeping, errno));
  return syncFolder(folder);
}

Status memopt::finishMoves(const std::string &folder) {
  std::string saved = folder + "/" + savedName;
  if (!isFolder(saved))
    return Status::ok();
  MEMOPT_RETURN_IF_ERROR(finishKeeping(folder));
  MEMOPT_RETURN_IF_ERROR(moveFiles(saved, folder));
  MEMOPT_RETURN_IF_ERROR(syncFolder(folder));
  if (::rmdir(saved.c_str()) != 0)
    return environmentError(describeErrno("removing", saved, errno));
  return Status::ok();
}

/// Makes a hidden folder with all files the checkpoint in `folder`. It is on the disk before
/// anything of the old one goes, which is kept if `isKept` says so.
static Status commit(const std::string &fresh, const std::string &folder, bool isKept) {
  std::string keeping = folder + "/" + keepingName;
  if (isKept && ::mkdir(keeping.c_str(), 0777) != 0 && errno != EEXIST)
    return environmentError(describeErrno("creating folder", keeping, errno));
  if (!isKept)
    removeFiles(keeping); // of a save that came to nothing
  if (::rename(fresh.c_str(), (folder + "/" + savedName).c_str()) != 0)
    return environmentError(describeErrno("renaming", fresh, errno));
  MEMOPT_RETURN_IF_ERROR(syncFolder(folder));
  return finishMoves(folder);
}

/// Lets `fill` write all files into a hidden folder, and gives it to `publish`.
static Status writeBeside(const std::string &folder,
                          const std::function<Status(const std::string &)> &fill,
                          const std::function<Status(const std::string &)> &publish) {
  MEMOPT_ASSIGN_OR_RETURN(std::string fresh, createNewFolder(folder + "/" + savingPrefix));
  Status status = fill(fresh);
  if (status.isOk())
    status = syncFolder(fresh);
  if (status.isOk())
    status = publish(fresh);
  removeFiles(fresh); // not there any more when all went well
  return status;
}

//===----------------------------------------------------------------------===//
// What is written
//===----------------------------------------------------------------------===//

namespace {
struct SavedTensor {
  std::string name;
  const VariableSpec *variable;
};

/// The tensors of a session, file by file and in the order in which ranks collect what they have
/// parts of. All ranks go through all of them, or they would wait for one another.
class SavedTensors {
public:
  explicit SavedTensors(const Session &session) : session(session) {
    for (const char *file : {modelFile, optimizerFile})
      for (const SavedTensor &tensor : list(session.getManifest(), file, false))
        order.push_back(tensor.variable);
  }
  ~SavedTensors() { (void)contribute(); }
  SavedTensors(const SavedTensors &) = delete;
  SavedTensors &operator=(const SavedTensors &) = delete;

  static std::vector<SavedTensor> list(const Manifest &manifest, const std::string &file,
                                       bool hasModelNames) {
    std::vector<SavedTensor> tensors;
    size_t dropped = hasModelNames ? getSharedPrefix(manifest).size() : 0;
    for (const VariableSpec &variable : manifest.variables)
      if (file == modelFile && isModelVariable(variable) && !variable.encoding)
        for (const std::string &name : variable.names)
          tensors.push_back({name.substr(dropped), &variable});
      else if (file == optimizerFile && isOptimizerVariable(variable))
        tensors.push_back({variable.name, &variable});
    return tensors;
  }

  /// The bytes of the next one.
  StatusOr<const void *> take() { return session.getWhole(*order[next++], storage); }

  /// Goes through those that are left.
  Status contribute() {
    while (next < order.size())
      MEMOPT_RETURN_IF_ERROR(take().takeStatus());
    return Status::ok();
  }

private:
  const Session &session;
  std::vector<const VariableSpec *> order;
  size_t next = 0;
  std::vector<char> storage;
};
} // namespace

static StatusOr<SafetensorsLayout> planFile(const Manifest &manifest, const std::string &file,
                                            bool hasModelNames) {
  std::vector<TensorToWrite> described;
  for (const auto &[name, variable] : SavedTensors::list(manifest, file, hasModelNames))
    described.push_back({name, variable->dtype, variable->getWholeShape(), nullptr});
  return SafetensorsLayout::plan(described);
}

StatusOr<int64_t> memopt::getCheckpointBytes(const Manifest &manifest, bool hasModelNames) {
  constexpr int64_t stateBytes = 4096, blockBytes = 4096;
  int64_t bytes = stateBytes;
  for (const char *file : {modelFile, optimizerFile}) {
    MEMOPT_ASSIGN_OR_RETURN(SafetensorsLayout layout, planFile(manifest, file, hasModelNames));
    bytes += (layout.bytes + blockBytes - 1) / blockBytes * blockBytes;
  }
  return bytes;
}

/// Writes a file of a layout, whose tensors `getData` gives one after the other.
static Status writeFile(const std::string &path, SafetensorsLayout layout,
                        const std::function<StatusOr<const void *>(size_t)> &getData) {
  std::vector<SafetensorsLayout::Place> places = layout.places;
  MEMOPT_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                          SafetensorsWriter::create(path, std::move(layout)));
  for (size_t i = 0; i < places.size(); ++i) {
    MEMOPT_ASSIGN_OR_RETURN(const void *data, getData(i));
    MEMOPT_RETURN_IF_ERROR(writer.write(i, 0, data, places[i].bytes));
  }
  return writer.finish();
}

static Status writeSession(const std::string &folder, const Manifest &manifest,
                           SavedTensors &tensors, bool hasModelNames) {
  for (const char *file : {modelFile, optimizerFile}) {
    MEMOPT_ASSIGN_OR_RETURN(SafetensorsLayout layout, planFile(manifest, file, hasModelNames));
    MEMOPT_RETURN_IF_ERROR(
        writeFile(folder + "/" + file, std::move(layout), [&](size_t) { return tensors.take(); }));
  }
  return Status::ok();
}

static Status writeTensors(const std::string &path, const std::vector<TensorToWrite> &tensors) {
  MEMOPT_ASSIGN_OR_RETURN(SafetensorsLayout layout, SafetensorsLayout::plan(tensors));
  return writeFile(path, std::move(layout),
                   [&](size_t i) -> StatusOr<const void *> { return tensors[i].data; });
}

static Status writeState(const std::string &folder, const TrainingState &state) {
  std::string path = folder + "/" + stateFile, text = printTrainingState(state);
  MEMOPT_ASSIGN_OR_RETURN(Descriptor file, createNewFile(path));
  MEMOPT_RETURN_IF_ERROR(writeAt(file, path, text.data(), text.size(), 0));
  return syncAndClose(std::move(file), path);
}

//===----------------------------------------------------------------------===//
// Saving
//===----------------------------------------------------------------------===//

Status memopt::contributeToCheckpoint(const Session &session) {
  return SavedTensors(session).contribute();
}

Status CheckpointFolder::save(const Session &session, const TrainingState &state) {
  SavedTensors tensors(session);
  StatusOr<std::string> digest = session.getBaseDigest();
  if (!digest.isOk())
    return describeFailure(digest.takeStatus());
  base = *digest;
  return replace(
      [&](const std::string &fresh) -> Status {
        MEMOPT_RETURN_IF_ERROR(
            writeSession(fresh, session.getManifest(), tensors, options.hasModelNames));
        return writeState(fresh, withBase(state));
      },
      state.step);
}

Status CheckpointFolder::save(const CheckpointTensors &tensors, const TrainingState &state) {
  return replace(
      [&](const std::string &fresh) -> Status {
        MEMOPT_RETURN_IF_ERROR(writeTensors(fresh + "/" + modelFile, tensors.model));
        MEMOPT_RETURN_IF_ERROR(writeTensors(fresh + "/" + optimizerFile, tensors.optimizer));
        return writeState(fresh, state);
      },
      state.step);
}

/// Puts what `fill` writes in the place of the checkpoint.
Status CheckpointFolder::replace(const Filler &fill, int64_t step) {
  auto write = [&]() -> Status {
    MEMOPT_RETURN_IF_ERROR(finishMoves(folder)); // of a save before, if the disk failed then
    if (!isParentSynced)
      MEMOPT_RETURN_IF_ERROR(syncFolder(getFolder(folder)));
    isParentSynced = true;
    std::optional<int64_t> kept = findStepToKeep(step);
    return writeBeside(folder, fill, [&](const std::string &fresh) {
      Status status = commit(fresh, folder, kept.has_value());
      if (fileExists(fresh))
        return status;
      // It counts, although some of the moves behind it may be left to the next save.
      lastStep = step;
      if (kept)
        keptSteps.insert(*kept);
      return status;
    });
  };
  if (Status status = write(); !status.isOk())
    return describeFailure(std::move(status));
  removeOlder();
  return Status::ok();
}

Status CheckpointFolder::updateState(const TrainingState &state) {
  auto write = [&]() -> Status {
    MEMOPT_RETURN_IF_ERROR(finishMoves(folder));
    MEMOPT_RETURN_IF_ERROR(writeBeside(
        folder, [&](const std::string &fresh) { return writeState(fresh, withBase(state)); },
        [&](const std::string &fresh) { return moveFiles(fresh, folder); }));
    return syncFolder(folder);
  };
  return describeFailure(write());
}

Status CheckpointFolder::keepBest() {
  std::string place = folder + "/" + bestName;
  auto copy = [&](const std::string &fresh) {
    Status status;
    for (const char *name : checkpointFiles)
      if (status.isOk())
        status = copyToNewFile(folder + "/" + name, fresh + "/" + name);
    return status;
  };
  auto write = [&]() -> Status {
    if (isFolder(place)) {
      MEMOPT_RETURN_IF_ERROR(finishMoves(place));
      return writeBeside(place, copy, [&](const std::string &fresh) {
        return commit(fresh, place, /*isKept=*/false);
      });
    }
    return writeBeside(folder, copy, [&](const std::string &fresh) -> Status {
      if (::rename(fresh.c_str(), place.c_str()) != 0)
        return environmentError(describeErrno("renaming", fresh, errno));
      return syncFolder(folder);
    });
  };
  return write().withContext("keeping the best checkpoint in " + quote(path + "/" + bestName));
}

Status CheckpointFolder::describeFailure(Status status) const {
  bool isThere = fileExists(findCheckpointFile(folder, stateFile));
  return std::move(status).withContext("saving checkpoint " + quote(path) +
                                       (isThere ? " (the one before is intact)" : ""));
}

//===----------------------------------------------------------------------===//
// Older checkpoints
//===----------------------------------------------------------------------===//

/// The step of the checkpoint that a save of `nextStep` replaces, if it is to stay as `step-N`.
/// Those up to where the run began are where it comes from, as far as steps tell.
std::optional<int64_t> CheckpointFolder::findStepToKeep(int64_t nextStep) const {
  StatusOr<TrainingState> last = readState(folder);
  if (options.keep <= 1 || !last.isOk() || last->step >= nextStep)
    return std::nullopt;
  bool isOfThisRun = last->step <= firstStep || last->step == lastStep;
  return isOfThisRun ? std::optional<int64_t>(last->step) : std::nullopt;
}

/// Leaves `keep` - 1 older ones of this run, the newest, and none of one that was given up.
void CheckpointFolder::removeOlder() {
  StatusOr<std::vector<std::pair<int64_t, std::string>>> kept = listKept(folder);
  if (options.keep <= 1 || !kept.isOk())
    return;
  int64_t left = options.keep - 1;
  for (auto entry = kept->rbegin(); entry != kept->rend(); ++entry)
    if ((entry->first > firstStep && !keptSteps.count(entry->first)) || left-- <= 0)
      removeKept(folder, entry->second);
}
