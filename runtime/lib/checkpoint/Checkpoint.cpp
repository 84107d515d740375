//===- Checkpoint.cpp - runs that go on later -----------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What is in a checkpoint, and reading it; CheckpointWriter.cpp writes it.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/checkpoint/CheckpointFiles.h"
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <set>
#include <sys/stat.h>
#include <unordered_map>

using namespace memopt;

static constexpr int64_t checkpointVersion = 1;

bool memopt::isModelVariable(const VariableSpec &variable) {
  return variable.role == "parameter" || variable.role == "buffer";
}
bool memopt::isOptimizerVariable(const VariableSpec &variable) {
  return !isModelVariable(variable) && variable.isState() && !variable.isFrozenScale();
}

//===----------------------------------------------------------------------===//
// state.json
//===----------------------------------------------------------------------===//

std::string memopt::printTrainingState(const TrainingState &state) {
  nlohmann::ordered_json text = {{"format", "memopt-checkpoint"},
                                 {"version", checkpointVersion},
                                 {"step", state.step},
                                 {"data_position", state.dataPosition},
                                 {"batch_size", state.batchSize},
                                 {"seed", state.seed},
                                 {"optimizer", state.optimizer},
                                 {"schedule", state.schedule.toJson()}};
  if (!state.base.empty())
    text["base"] = state.base;
  if (!state.numbers.empty())
    text["numbers"] = state.numbers;
  bool hasBest = std::isfinite(state.best.loss);
  if (hasBest)
    text["best_evaluation"] = {{"loss", state.best.loss}, {"step", state.best.step}};
  if (hasBest || state.best.worse)
    text["evaluations_without_a_better_one"] = state.best.worse;
  return text.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

bool BestEvaluation::note(std::optional<double> found, int64_t behindStep) {
  if (!found || !std::isfinite(*found) || *found >= loss) {
    ++worse;
    return false;
  }
  *this = {*found, behindStep, 0};
  return true;
}

/// Absent in checkpoints of runs that evaluate nothing, and in those of older releases.
static StatusOr<BestEvaluation> parseBest(const JsonView &root) {
  BestEvaluation best;
  if (root.has("best_evaluation")) {
    MEMOPT_ASSIGN_OR_RETURN(JsonView found, root.get("best_evaluation"));
    MEMOPT_ASSIGN_OR_RETURN(best.loss, found.getNumber("loss"));
    MEMOPT_ASSIGN_OR_RETURN(best.step, found.getCount("step"));
  }
  if (root.has("evaluations_without_a_better_one")) {
    MEMOPT_ASSIGN_OR_RETURN(best.worse, root.getCount("evaluations_without_a_better_one"));
  }
  return best;
}

/// Absent in checkpoints of runs in which nobody set any, and in those of older releases.
static StatusOr<std::map<std::string, double>> parseNumbers(const JsonView &root) {
  std::map<std::string, double> numbers;
  if (!root.has("numbers"))
    return numbers;
  MEMOPT_ASSIGN_OR_RETURN(JsonView found, root.get("numbers"));
  if (!found.raw().is_object())
    return found.failExpected("numbers by name");
  for (const auto &[name, value] : found.raw().items()) {
    MEMOPT_ASSIGN_OR_RETURN(double number, found.getNumber(name));
    numbers.emplace(name, number);
  }
  return numbers;
}

StatusOr<TrainingState> memopt::parseTrainingState(std::string_view text) {
  MEMOPT_ASSIGN_OR_RETURN(nlohmann::json document, parseJson(text, /*maxDepth=*/8));
  JsonView root(document);
  MEMOPT_ASSIGN_OR_RETURN(std::string format, root.getString("format"));
  MEMOPT_ASSIGN_OR_RETURN(int64_t version, root.getInteger("version"));
  if (format != "memopt-checkpoint" || version != checkpointVersion)
    return badInput("holds " + quote(format) + " version " + std::to_string(version) +
                    ", expected 'memopt-checkpoint' version " + std::to_string(checkpointVersion));
  TrainingState state;
  MEMOPT_ASSIGN_OR_RETURN(state.step, root.getCount("step"));
  MEMOPT_ASSIGN_OR_RETURN(state.dataPosition, root.getCount("data_position"));
  if (root.has("batch_size")) {
    MEMOPT_ASSIGN_OR_RETURN(state.batchSize, root.getCount("batch_size"));
  }
  MEMOPT_ASSIGN_OR_RETURN(state.seed, root.getCount("seed"));
  if (root.has("optimizer")) {
    MEMOPT_ASSIGN_OR_RETURN(state.optimizer, root.getString("optimizer"));
  }
  if (root.has("base")) {
    MEMOPT_ASSIGN_OR_RETURN(state.base, root.getString("base"));
  }
  MEMOPT_ASSIGN_OR_RETURN(JsonView schedule, root.get("schedule"));
  MEMOPT_ASSIGN_OR_RETURN(state.schedule, LearningRateSchedule::fromJson(schedule));
  MEMOPT_ASSIGN_OR_RETURN(state.best, parseBest(root));
  MEMOPT_ASSIGN_OR_RETURN(state.numbers, parseNumbers(root));
  return state;
}

Status TrainingState::countBatchesOf(int64_t samples) {
  int64_t saved = batchSize, before = dataPosition, position;
  batchSize = samples;
  if (saved == 0 || saved == samples)
    return Status::ok();
  bool isHuge = __builtin_mul_overflow(before, saved, &position);
  dataPosition = isHuge ? 0 : position / samples;
  if (!isHuge && position % samples == 0)
    return Status::ok();
  return badInput("it stands behind " + std::to_string(before) + " batches of " +
                  std::to_string(saved) + " samples, which are no whole batches of " +
                  std::to_string(samples));
}

//===----------------------------------------------------------------------===//
// Opening all files of one save
//===----------------------------------------------------------------------===//

std::string memopt::findCheckpointFile(const std::string &folder, const std::string &name) {
  std::string saved = folder + "/.saved/" + name;
  return fileExists(saved) ? saved : folder + "/" + name;
}

StatusOr<TrainingState> memopt::readState(const std::string &folder) {
  std::string path = findCheckpointFile(folder, stateFile);
  MEMOPT_ASSIGN_OR_RETURN(std::string text, readFile(path, maxStateBytes));
  StatusOr<TrainingState> state = parseTrainingState(text);
  if (!state.isOk())
    return state.takeStatus().withContext(quote(path));
  return state;
}

/// The folder that a pointer file names, which stands beside it.
static StatusOr<std::string> readPointer(const std::string &path) {
  constexpr size_t most = 4096;
  StatusOr<std::string> text = readFile(path, most);
  if (!text.isOk() && (!fileExists(path) || text.getCode() != StatusCode::BadInput))
    return text.takeStatus();
  std::string name = text.isOk() ? *text : "";
  name.erase(name.find_last_not_of(" \t\r\n") + 1);
  bool isName = !name.empty() && name != "." && name != ".." &&
                name.find_first_of(std::string("/\n\0", 3)) == std::string::npos;
  if (!isName)
    return badInput(quote(path) +
                    " is no checkpoint: expected a folder, or a file with the name of "
                    "a folder beside it");
  return getFolder(path) + "/" + name;
}

StatusOr<std::string> memopt::resolveCheckpoint(const std::string &path) {
  std::string place = path;
  for (int links = 0; links < 8; ++links) {
    std::string latest = place + "/" + latestName;
    bool isHere = fileExists(findCheckpointFile(place, modelFile)) ||
                  fileExists(findCheckpointFile(place, stateFile));
    if (isFolder(place) && (isHere || !fileExists(latest)))
      return place;
    if (!isFolder(place)) {
      MEMOPT_ASSIGN_OR_RETURN(place, readPointer(place));
    } else {
      place = latest;
    }
  }
  return badInput("checkpoint " + quote(path) + ": its pointer files lead in a circle");
}

namespace {
struct CheckpointContent {
  SafetensorsFile model, optimizer; ///< the latter open only for training
  TrainingState state;
};
} // namespace

static StatusOr<CheckpointContent> openFiles(const std::string &folder, bool isTraining) {
  CheckpointContent content;
  if (isTraining) {
    MEMOPT_ASSIGN_OR_RETURN(content.state, readState(folder));
    MEMOPT_ASSIGN_OR_RETURN(content.optimizer,
                            SafetensorsFile::open(findCheckpointFile(folder, optimizerFile)));
  }
  MEMOPT_ASSIGN_OR_RETURN(content.model,
                          SafetensorsFile::open(findCheckpointFile(folder, modelFile)));
  return content;
}

/// What tells one save's files from another's.
static std::vector<std::array<int64_t, 4>> identifyFiles(const std::string &folder) {
  std::vector<std::array<int64_t, 4>> identities;
  for (const char *name : checkpointFiles) {
    struct stat facts{};
    (void)!::stat(findCheckpointFile(folder, name).c_str(), &facts); // zeros: not there
    identities.push_back({int64_t(facts.st_dev), int64_t(facts.st_ino), facts.st_ctim.tv_sec,
                          facts.st_ctim.tv_nsec});
  }
  return identities;
}

/// Files that were all there together before and after are of one save, and stay so once open. Who
/// saves meanwhile moves them; then it begins again.
static StatusOr<CheckpointContent> openCheckpoint(const std::string &path, bool isTraining) {
  for (int tries = 0; tries < 100; ++tries) {
    MEMOPT_ASSIGN_OR_RETURN(std::string folder, resolveCheckpoint(path));
    auto before = identifyFiles(folder);
    StatusOr<CheckpointContent> content = openFiles(folder, isTraining);
    if (identifyFiles(folder) == before)
      return content;
  }
  return environmentError("checkpoint " + quote(path) + " is being written all the time");
}

//===----------------------------------------------------------------------===//
// Filling variables
//===----------------------------------------------------------------------===//

std::string memopt::getSharedPrefix(const Manifest &manifest) {
  std::optional<std::string> shared;
  for (const VariableSpec &variable : manifest.variables)
    for (const std::string &name : variable.names) {
      if (!isModelVariable(variable))
        continue;
      std::string front = name.substr(0, name.find('.') + 1); // empty without a dot
      if (shared.value_or(front) != front)
        return "";
      shared = front;
    }
  return shared.value_or("");
}

/// The first of the names that the file has, as they are or without the part that all names of the
/// model share.
static const SafetensorsEntry *findEntry(const SafetensorsFile &file,
                                         const std::vector<std::string> &names,
                                         const std::string &prefix) {
  for (const std::string &name : names)
    for (size_t dropped : {size_t(0), prefix.size()})
      if (const SafetensorsEntry *entry = file.find(name.substr(dropped)))
        return entry;
  return nullptr;
}

/// Whether a number of one type is one of the other, whichever it is.
static bool widens(DType from, DType to) {
  return isFloat(from) && isFloat(to) && getByteSize(from) < getByteSize(to);
}

static Status loadVariable(const SafetensorsFile &file, const VariableSpec &variable,
                           const std::vector<std::string> &names, const std::string &prefix,
                           Session &session) {
  const SafetensorsEntry *entry = findEntry(file, names, prefix);
  if (!entry)
    return badInput(quote(file.getPath()) + " lacks " + quote(names[0]) +
                    ", which the package has as " +
                    toString(variable.getWholeDType(), variable.getWholeShape()) +
                    (variable.isTrainable || !isModelVariable(variable)
                         ? ""
                         : ": a run with --frozen-weights leaves what is frozen to the package"));
  DType dtype = variable.getWholeDType();
  bool isWider = widens(entry->dtype, dtype);
  if (entry->shape != variable.getWholeShape() || (entry->dtype != dtype && !isWider))
    return badInput(quote(file.getPath()) + " has " + quote(names[0]) + " as " +
                    toString(entry->dtype, entry->shape) + ", the package has it as " +
                    toString(dtype, variable.getWholeShape()));
  return session.readWhole(variable, file, *entry);
}

/// What the names of counts begin with that parameters have of their own updates.
static constexpr std::string_view ownCountPrefix = "optimizer.step.";
static bool isOwnCount(std::string_view name) {
  return name.substr(0, ownCountPrefix.size()) == ownCountPrefix;
}

namespace {
/// The names that state of an optimizer may have in a file: `optimizer.SLOT.PARAMETER`, with each of
/// the parameter's names, and without the part that all names of the model share.
class StateNames {
public:
  explicit StateNames(const Manifest &manifest) : prefix(getSharedPrefix(manifest)) {
    for (const VariableSpec &variable : manifest.variables)
      if (isModelVariable(variable))
        model.emplace(variable.name, &variable);
  }

  std::vector<std::string> list(const VariableSpec &variable) const {
    std::vector<std::string> names = {variable.name};
    size_t front = findParameter(variable);
    addParameter(variable, front, variable.name.substr(0, front), names);
    return names;
  }

  /// Those of the count of the parameter whose state a variable is.
  std::vector<std::string> listCounts(const VariableSpec &variable) const {
    std::vector<std::string> names;
    addParameter(variable, findParameter(variable), std::string(ownCountPrefix), names);
    return names;
  }

private:
  /// Where a parameter's name begins in a variable's, if it has one.
  size_t findParameter(const VariableSpec &variable) const {
    const std::string &name = variable.name;
    size_t dot = name.find('.');
    while (dot != std::string::npos && !model.count(std::string_view(name).substr(dot + 1)))
      dot = name.find('.', dot + 1);
    return dot == std::string::npos ? name.size() : dot + 1;
  }

  void addParameter(const VariableSpec &variable, size_t place, const std::string &front,
                    std::vector<std::string> &names) const {
    auto found = model.find(std::string_view(variable.name).substr(place));
    if (found == model.end())
      return;
    for (const std::string &name : found->second->names)
      for (size_t dropped : {size_t(0), prefix.size()})
        names.push_back(front + name.substr(dropped));
  }

  std::unordered_map<std::string_view, const VariableSpec *> model; ///< by their own names
  std::string prefix;
};
} // namespace

static StatusOr<int64_t> readCount(const SafetensorsFile &file, const SafetensorsEntry &entry) {
  int64_t count = 0;
  if (entry.dtype != DType::I64 || !entry.shape.empty())
    return badInput("is " + toString(entry.dtype, entry.shape) + ", expected i64[]");
  MEMOPT_RETURN_IF_ERROR(file.read(entry, 0, &count, sizeof count));
  return count;
}

/// The updates of parameters without a count of their own: steps, but for those that were skipped.
static StatusOr<int64_t> countUpdates(const CheckpointContent &content, const Manifest &manifest) {
  const VariableSpec *skipped = manifest.findSkippedSteps();
  const SafetensorsEntry *entry = skipped ? content.optimizer.find(skipped->name) : nullptr;
  if (!entry)
    return content.state.step;
  MEMOPT_ASSIGN_OR_RETURN(int64_t count, readCount(content.optimizer, *entry));
  return content.state.step - count;
}

/// A count that the package does not have is of no use where it is that of the rest.
static Status checkOwnCount(const CheckpointContent &content, const Manifest &manifest,
                            const std::string &name, const SafetensorsEntry &entry) {
  MEMOPT_ASSIGN_OR_RETURN(int64_t updates, countUpdates(content, manifest));
  StatusOr<int64_t> own = readCount(content.optimizer, entry);
  if (!own.isOk())
    return own.takeStatus().withContext(quote(name));
  if (*own == updates)
    return Status::ok();
  std::string parameter = name.substr(ownCountPrefix.size());
  return badInput(quote(parameter) + " has made " + std::to_string(*own) + " updates, and others " +
                  std::to_string(updates) +
                  "; the package has one count for both: compile the model with --param-group=" +
                  parameter + ":step-count=own");
}

/// State of another optimizer would be dropped, or taken for something else.
static Status checkOptimizer(const CheckpointContent &content, const Manifest &manifest,
                             const StateNames &stateNames) {
  const std::string &saved = content.state.optimizer, &ours = manifest.optimizer;
  if (!saved.empty() && !ours.empty() && saved != ours)
    return badInput("it is of optimizer " + quote(saved) + ", the package has " + quote(ours) +
                    "; compile the model with --optimizer=" + saved);
  std::set<std::string> known, counts;
  for (const VariableSpec &variable : manifest.variables)
    if (isOptimizerVariable(variable)) {
      for (std::string &name : stateNames.list(variable))
        known.insert(std::move(name));
      for (std::string &name : stateNames.listCounts(variable))
        counts.insert(std::move(name));
    }
  for (const auto &[name, entry] : content.optimizer.entries())
    if (known.count(name) || (isOwnCount(name) && !counts.count(name)))
      continue; // or a count of what has no state here
    else if (isOwnCount(name))
      MEMOPT_RETURN_IF_ERROR(checkOwnCount(content, manifest, name, entry));
    else
      return badInput(quote(content.optimizer.getPath()) + " has " + quote(name) +
                      ", which the package does not have: it is of another optimizer, or of other "
                      "trained parameters");
  return Status::ok();
}

/// Fills the model's variables from a file, and those that `isRestored` does not know from the
/// package.
static Status fillModel(const SafetensorsFile &model, Session &session,
                        const std::function<bool(const VariableSpec &)> &isRestored) {
  const Manifest &manifest = session.getManifest();
  std::string prefix = getSharedPrefix(manifest);
  auto isInFile = [&](const VariableSpec &v) {
    return isModelVariable(v) && !v.names.empty() && v.restore != VariableRestore::Never &&
           ((v.restore == VariableRestore::Required && !v.encoding) ||
            findEntry(model, v.names, prefix));
  };
  // Constants, and buffers that a state dict of PyTorch's leaves out, come from the package; so
  // does what is kept in codes, unless it is there already.
  MEMOPT_RETURN_IF_ERROR(session.initializeFromWeights(
      [&](const VariableSpec &v) { return isInFile(v) || isRestored(v) || session.hasCodes(v); }));
  for (const VariableSpec &variable : manifest.variables)
    if (isInFile(variable))
      MEMOPT_RETURN_IF_ERROR(loadVariable(model, variable, variable.names, prefix, session));
  return Status::ok();
}

/// The counts in a file of parameters of which it has nothing else: they have had no update.
static std::set<std::string> listFirstCounts(const SafetensorsFile &file) {
  std::set<std::string> counts;
  for (const auto &[name, entry] : file.entries())
    if (isOwnCount(name))
      counts.insert(name);
  for (const auto &[name, entry] : file.entries())
    if (size_t dot = name.find('.', name.find('.') + 1);
        dot != std::string::npos && !isOwnCount(name))
      counts.erase(std::string(ownCountPrefix) + name.substr(dot + 1));
  return counts;
}

/// Whether a variable is the state of such a parameter, which is as it was initialized. An average
/// begins with the model.
static bool beginsAnew(const std::set<std::string> &firstCounts, const VariableSpec &variable,
                       const StateNames &stateNames) {
  constexpr std::string_view averages = "optimizer.average";
  if (isOwnCount(variable.name) || variable.name.compare(0, averages.size(), averages) == 0)
    return false;
  std::vector<std::string> names = stateNames.listCounts(variable);
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string &name) { return firstCounts.count(name); });
}

/// Of the optimizer. A count that the file leaves out is that of the rest.
static Status loadState(const CheckpointContent &content, const VariableSpec &variable,
                        const StateNames &stateNames, Session &session) {
  std::vector<std::string> names = stateNames.list(variable);
  if (!isOwnCount(variable.name) || findEntry(content.optimizer, names, ""))
    return loadVariable(content.optimizer, variable, names, "", session);
  MEMOPT_ASSIGN_OR_RETURN(int64_t updates, countUpdates(content, session.getManifest()));
  return session.writeTensor(variable, &updates);
}

static Status fillVariables(const CheckpointContent &content, Session &session) {
  const Manifest &manifest = session.getManifest();
  StateNames stateNames(manifest);
  bool isTraining = manifest.mode == "train";
  if (isTraining)
    MEMOPT_RETURN_IF_ERROR(checkOptimizer(content, manifest, stateNames));
  std::set<std::string> firstCounts = listFirstCounts(content.optimizer);
  auto isLoaded = [&](const VariableSpec &v) {
    return isOptimizerVariable(v) && !beginsAnew(firstCounts, v, stateNames);
  };
  MEMOPT_RETURN_IF_ERROR(fillModel(content.model, session, isLoaded));
  for (const VariableSpec &variable : manifest.variables)
    if (isTraining && isLoaded(variable))
      MEMOPT_RETURN_IF_ERROR(loadState(content, variable, stateNames, session));
  return Status::ok();
}

/// What was trained beside other frozen weights is not trained for these.
static Status checkBase(const TrainingState &state, const Session &session) {
  MEMOPT_ASSIGN_OR_RETURN(std::string digest, session.getBaseDigest());
  if (state.base.empty() || digest.empty() || state.base == digest)
    return Status::ok();
  return badInput("it was trained with another base: frozen weights that have the digest " +
                  state.base + ", those of the package have " + digest);
}

Status memopt::loadWeights(const std::string &file, Session &session) {
  MEMOPT_ASSIGN_OR_RETURN(SafetensorsFile model, SafetensorsFile::open(file));
  return fillModel(model, session, [](const VariableSpec &) { return false; });
}

Status memopt::checkFinite(const Session &session, const TrainingState &state) {
  MEMOPT_ASSIGN_OR_RETURN(const VariableSpec *variable, session.findNonFiniteVariable());
  if (!variable)
    return Status::ok();
  return notFinite("step " + std::to_string(state.step) + ": the update left " + variable->role +
                   " " + quote(variable->name) +
                   " with values that are not finite; the checkpoint was not written");
}

StatusOr<TrainingState> memopt::loadCheckpoint(const std::string &folder, Session &session) {
  MEMOPT_ASSIGN_OR_RETURN(CheckpointContent content,
                          openCheckpoint(folder, session.getManifest().mode == "train"));
  Status status = fillVariables(content, session);
  if (status.isOk())
    status = checkBase(content.state, session);
  if (!status.isOk())
    return std::move(status).withContext("checkpoint " + quote(folder));
  return content.state;
}
