//===- Checkpoint.cpp - runs that go on later -----------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/Checkpoint.h"
#include "memopt-runtime/Files.h"
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <linux/fs.h>
#include <set>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace memopt;

static constexpr int64_t checkpointVersion = 1;
static const char *const checkpointFiles[] = {"model.safetensors", "optimizer.safetensors",
                                              "state.json"};

static bool isModel(const VariableSpec &variable) {
  return variable.role == "parameter" || variable.role == "buffer";
}
static bool isOptimizer(const VariableSpec &variable) {
  return !isModel(variable) && variable.isState();
}

/// Without slashes at its end, so that names beside it can be made.
static std::string trimSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/')
    path.pop_back();
  return path;
}

//===----------------------------------------------------------------------===//
// Folders
//===----------------------------------------------------------------------===//

/// Removes a folder's checkpoint files, and the folder when that empties it. What is not there is
/// no failure.
static Status removeCheckpoint(const std::string &folder) {
  for (const char *name : checkpointFiles)
    if (::unlink((folder + "/" + name).c_str()) != 0 && errno != ENOENT && errno != ENOTDIR)
      return environmentError(describeErrno("removing", folder + "/" + name, errno));
  StatusOr<std::vector<std::string>> left = listFolder(folder);
  for (const std::string &name : left.isOk() ? *left : std::vector<std::string>())
    if (name.find(".writing-") != std::string::npos)
      ::unlink((folder + "/" + name).c_str()); // from a process that was killed
  if (::rmdir(folder.c_str()) != 0 && errno != ENOENT)
    return environmentError(describeErrno("removing", folder, errno));
  return Status::ok();
}

static Status createFolder(const std::string &folder) {
  if (::mkdir(folder.c_str(), 0777) != 0)
    return environmentError(describeErrno("creating folder", folder, errno));
  return Status::ok();
}

/// Other files in a checkpoint's folder (a log, a report) move along with it.
static void moveForeignFiles(const std::string &from, const std::string &to) {
  StatusOr<std::vector<std::string>> names = listFolder(from);
  if (!names.isOk())
    return;
  for (const std::string &name : *names) {
    bool isOurs = name.find(".writing-") != std::string::npos ||
                  std::any_of(std::begin(checkpointFiles), std::end(checkpointFiles),
                              [&](const char *file) { return name == file; });
    if (!isOurs)
      ::rename((from + "/" + name).c_str(), (to + "/" + name).c_str());
  }
}

static Status replaceFolder(const std::string &fresh, const std::string &folder) {
  auto fail = [&] { return environmentError(describeErrno("replacing folder", folder, errno)); };
  std::string old = folder + ".old";
  if (!fileExists(folder)) {
    if (::rename(fresh.c_str(), folder.c_str()) != 0)
      return fail();
    return removeCheckpoint(old); // of a run that was killed between two renames
  }
  std::string leftover = fresh;
  if (::syscall(SYS_renameat2, AT_FDCWD, fresh.c_str(), AT_FDCWD, folder.c_str(),
                RENAME_EXCHANGE) != 0) {
    if (errno != ENOSYS && errno != EINVAL)
      return fail();
    MEMOPT_RETURN_IF_ERROR(removeCheckpoint(old));
    if (::rename(folder.c_str(), old.c_str()) != 0 || ::rename(fresh.c_str(), folder.c_str()) != 0)
      return fail();
    leftover = old;
  }
  moveForeignFiles(leftover, folder);
  return removeCheckpoint(leftover);
}

static std::string getParent(const std::string &folder) {
  size_t slash = folder.find_last_of('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : folder.substr(0, slash);
}

Status memopt::checkCheckpointTarget(const std::string &path) {
  std::string folder = trimSlashes(path);
  if (fileExists(folder)) {
    if (!isFolder(folder))
      return badInput("--save=" + path + " is not a folder");
    MEMOPT_ASSIGN_OR_RETURN(std::vector<std::string> names, listFolder(folder));
    bool isCheckpoint = std::find(names.begin(), names.end(), "state.json") != names.end();
    if (!names.empty() && !isCheckpoint)
      return badInput("--save=" + path + " is a folder that holds " + quote(names[0]) +
                      " and no checkpoint; give the name of a new folder");
  }
  std::string fresh = folder + ".writing";
  MEMOPT_RETURN_IF_ERROR(removeCheckpoint(fresh));
  MEMOPT_RETURN_IF_ERROR(createFolder(fresh));
  return removeCheckpoint(fresh);
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

static Status writeAll(const std::string &folder, const Session &session,
                       const TrainingState &state) {
  std::vector<TensorToWrite> model, optimizer;
  for (const VariableSpec &variable : session.getManifest().variables) {
    const void *data = session.getAddress(variable);
    if (isModel(variable))
      for (const std::string &name : variable.names)
        model.push_back({name, variable.dtype, variable.shape, data});
    else if (isOptimizer(variable))
      optimizer.push_back({variable.name, variable.dtype, variable.shape, data});
  }
  nlohmann::ordered_json text = {{"format", "memopt-checkpoint"},
                                 {"version", checkpointVersion},
                                 {"step", state.step},
                                 {"data_position", state.dataPosition},
                                 {"seed", state.seed},
                                 {"schedule", state.schedule.toJson()}};
  MEMOPT_RETURN_IF_ERROR(writeSafetensors(folder + "/model.safetensors", model));
  MEMOPT_RETURN_IF_ERROR(writeSafetensors(folder + "/optimizer.safetensors", optimizer));
  return writeFileAtomically(folder + "/state.json", text.dump(1) + "\n");
}

Status memopt::saveCheckpoint(const std::string &path, const Session &session,
                              const TrainingState &state) {
  std::string folder = trimSlashes(path), fresh = folder + ".writing";
  auto save = [&]() -> Status {
    MEMOPT_RETURN_IF_ERROR(removeCheckpoint(fresh));
    MEMOPT_RETURN_IF_ERROR(createFolder(fresh));
    if (Status status = writeAll(fresh, session, state); !status.isOk()) {
      (void)removeCheckpoint(fresh).isOk(); // the first failure is the one to tell
      return status;
    }
    MEMOPT_RETURN_IF_ERROR(replaceFolder(fresh, folder));
    return syncFolder(getParent(folder));
  };
  if (Status status = save(); !status.isOk())
    return status.withContext("saving checkpoint " + quote(path) +
                              (fileExists(folder) ? " (the one before is intact)" : ""));
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// DIR, or DIR.old when a run was killed between two renames.
static std::string findCheckpoint(const std::string &path) {
  std::string folder = trimSlashes(path);
  return !fileExists(folder) && isFolder(folder + ".old") ? folder + ".old" : folder;
}

static StatusOr<TrainingState> parseState(std::string_view text) {
  MEMOPT_ASSIGN_OR_RETURN(nlohmann::json document, parseJson(text, /*maxDepth=*/8));
  JsonView root(document);
  MEMOPT_ASSIGN_OR_RETURN(std::string format, root.getString("format"));
  MEMOPT_ASSIGN_OR_RETURN(int64_t version, root.getInteger("version"));
  if (format != "memopt-checkpoint" || version != checkpointVersion)
    return badInput("holds " + quote(format) + " version " + std::to_string(version) +
                    ", expected 'memopt-checkpoint' version " + std::to_string(checkpointVersion));
  TrainingState state;
  MEMOPT_ASSIGN_OR_RETURN(state.step, root.getInteger("step"));
  MEMOPT_ASSIGN_OR_RETURN(state.dataPosition, root.getInteger("data_position"));
  MEMOPT_ASSIGN_OR_RETURN(state.seed, root.getInteger("seed"));
  MEMOPT_ASSIGN_OR_RETURN(JsonView schedule, root.get("schedule"));
  MEMOPT_ASSIGN_OR_RETURN(state.schedule, LearningRateSchedule::fromJson(schedule));
  if (state.step < 0 || state.dataPosition < 0 || state.seed < 0)
    return badInput("has a negative step, data position or seed");
  return state;
}

StatusOr<TrainingState> memopt::readTrainingState(const std::string &path) {
  std::string file = findCheckpoint(path) + "/state.json";
  MEMOPT_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(file));
  StatusOr<TrainingState> state = parseState(mapped.text());
  if (!state.isOk())
    return state.takeStatus().withContext(quote(file));
  return state;
}

/// The first of the names that the file has.
static const SafetensorsEntry *findEntry(const SafetensorsFile &file,
                                         const std::vector<std::string> &names) {
  for (const std::string &name : names)
    if (const SafetensorsEntry *entry = file.find(name))
      return entry;
  return nullptr;
}

static Status loadVariable(const SafetensorsFile &file, const VariableSpec &variable,
                           const std::vector<std::string> &names, Session &session) {
  const SafetensorsEntry *entry = findEntry(file, names);
  if (!entry)
    return badInput("lacks " + quote(names[0]) + ", which the model has as " +
                    toString(variable.dtype, variable.shape));
  if (entry->shape != variable.shape || entry->dtype != variable.dtype)
    return badInput("has " + quote(names[0]) + " as " + toString(entry->dtype, entry->shape) +
                    ", the model has it as " + toString(variable.dtype, variable.shape));
  if (variable.bytes)
    std::memcpy(session.getAddress(variable), entry->data, size_t(variable.bytes));
  return Status::ok();
}

Status memopt::loadCheckpoint(const std::string &path, Session &session) {
  std::string folder = findCheckpoint(path);
  MEMOPT_ASSIGN_OR_RETURN(SafetensorsFile model,
                          SafetensorsFile::open(folder + "/model.safetensors"));
  auto isInModel = [&](const VariableSpec &v) {
    return isModel(v) && !v.names.empty() && v.restore != VariableRestore::Never &&
           (v.restore == VariableRestore::Required || findEntry(model, v.names));
  };
  // Constants, and buffers that a state dict of PyTorch's leaves out, come from the package.
  MEMOPT_RETURN_IF_ERROR(session.initializeFromWeights(
      [&](const VariableSpec &v) { return isInModel(v) || isOptimizer(v); }));
  for (const VariableSpec &variable : session.getManifest().variables)
    if (isInModel(variable))
      if (Status status = loadVariable(model, variable, variable.names, session); !status.isOk())
        return status.withContext(quote(model.getPath()));
  if (session.getManifest().mode != "train")
    return Status::ok();
  MEMOPT_ASSIGN_OR_RETURN(SafetensorsFile optimizer,
                          SafetensorsFile::open(folder + "/optimizer.safetensors"));
  for (const VariableSpec &variable : session.getManifest().variables)
    if (isOptimizer(variable))
      if (Status status = loadVariable(optimizer, variable, {variable.name}, session);
          !status.isOk())
        return status.withContext(quote(optimizer.getPath()));
  return Status::ok();
}
