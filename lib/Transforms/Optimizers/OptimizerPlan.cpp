//===- OptimizerPlan.cpp - which optimizer updates what -------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Options are words `name=value`. Those of the plan itself say which optimizer, which groups and
// how state is kept; all others belong to optimizers and are read by their descriptors. A word
// counts for every optimizer in use that has the option, and must count for one.
//
//===----------------------------------------------------------------------===//

#include "OptimizerOptions.h"

#include "memopt/Transforms/Optimizers/Update.h"
#include "memopt/Transforms/Utils/NearestNames.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/GlobPattern.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Rows of the options
//===----------------------------------------------------------------------===//

static std::string listOptimizers(StringRef separator) {
  return llvm::join(
      llvm::map_range(getOptimizers(), [](const Optimizer *entry) { return entry->getName(); }),
      separator);
}

static llvm::Expected<const Optimizer *> readOptimizer(StringRef name) {
  if (const Optimizer *found = findOptimizer(name); found && found != &getAverage())
    return found;
  return invalidOption("unknown optimizer '" + name + "', expected one of " + listOptimizers(", "));
}

/// Who has the option with which default, such as "0 of adam, 0.01 of adamw".
static void addOwners(StringRef name, OptimizerOptionRow &row) {
  std::vector<std::pair<std::string, std::string>> owners;
  for (const Optimizer *entry : getOptimizers()) {
    std::optional<OptimizerOption> option = findOption(*entry, name);
    if (!option)
      continue;
    std::string initial = writeInitial(*option);
    auto same = llvm::find_if(owners, [&](auto &owner) { return owner.first == initial; });
    if (same == owners.end())
      owners.emplace_back(initial, entry->getName().str());
    else
      same->second += ", " + entry->getName().str();
  }
  for (auto &[initial, names] : owners)
    row.initial += (row.initial.empty() ? "" : "; ") + initial + " of " + names;
}

std::vector<OptimizerOptionRow> OptimizerPlan::getOptionRows() {
  std::vector<OptimizerOptionRow> rows{
      {"optimizer", listOptimizers("|"), "sgd", "with PyTorch's meaning and defaults"}};
  llvm::StringMap<bool> known;
  for (const Optimizer *entry : getOptimizers())
    for (const OptimizerOption &option : entry->getOptions())
      if (known.try_emplace(option.name, true).second) {
        OptimizerOptionRow &row = rows.emplace_back();
        row = {option.name.str(), option.metavariable.str(), "", option.help.str()};
        addOwners(option.name, row);
      }
  for (const OptimizerOption &option : getPlanOptions())
    rows.push_back(
        {option.name.str(), option.metavariable.str(), writeInitial(option), option.help.str()});
  rows.push_back({"param-group", "GLOB,...:KEY=VALUE,...", "",
                  "optimizer, optim-bits, maximize, step-count and options of the optimizer, for "
                  "these parameters; "
                  "repeatable, the first match wins"});
  return rows;
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

llvm::Expected<OptimizerPlan> OptimizerPlan::parse(StringRef text) {
  OptimizerPlan plan;
  plan.optimizer = getOptimizers().front();
  SmallVector<StringRef> parts;
  text.split(parts, ' ', -1, /*KeepEmpty=*/false);
  for (StringRef part : parts) {
    auto [name, value] = part.split('=');
    if (llvm::Error error = plan.readWord(name, value))
      return std::move(error);
  }
  if (llvm::Error error = plan.finish())
    return std::move(error);
  return plan;
}

/// The last of a name wins, as everywhere on a command line.
static void setWord(std::vector<std::pair<std::string, std::string>> &words, StringRef name,
                    StringRef value) {
  llvm::erase_if(words, [&](auto &word) { return word.first == name; });
  words.emplace_back(name.str(), value.str());
}

/// The value of an option of the plan; those of optimizers are read when it is known which they are.
static llvm::Error checkPlanWord(StringRef name, StringRef value) {
  const OptimizerOption *option = findPlanOption(name);
  OptimizerSettings scratch;
  return option ? readValue(*option, value, scratch) : llvm::Error::success();
}

llvm::Error OptimizerPlan::readWord(StringRef name, StringRef value) {
  if (name == "param-group")
    return readGroup(value);
  if (name == "optimizer") {
    auto found = readOptimizer(value);
    if (!found)
      return found.takeError();
    optimizer = *found;
    return llvm::Error::success();
  }
  if (llvm::Error error = checkPlanWord(name, value))
    return error;
  setWord(words, name, value);
  return llvm::Error::success();
}

std::optional<OptimizerSettings> OptimizerPlan::getAverageSettings() const {
  llvm::Expected<OptimizerSettings> settings = readSettings(getAverage(), words);
  if (!settings) { // all words were read before
    llvm::consumeError(settings.takeError());
    return std::nullopt;
  }
  bool isKept = settings->getNumber("ema-decay") > 0 || settings->isOn("ema-uniform");
  return isKept ? std::optional(*settings) : std::nullopt;
}

static bool isGroupKey(StringRef key) {
  return key == "optimizer" || llvm::is_contained(getGroupKeys(), key) ||
         llvm::any_of(getOptimizers(),
                      [&](const Optimizer *entry) { return findOption(*entry, key).has_value(); });
}

/// KEY=VALUE,... at its commas, but for those of a pair: betas=0.9,0.95.
static SmallVector<StringRef> splitItems(StringRef text) {
  SmallVector<StringRef> items;
  for (StringRef part : llvm::split(text, ','))
    if (part.contains('=') || items.empty())
      items.push_back(part);
    else
      items.back() = StringRef(items.back().begin(), part.end() - items.back().begin());
  return items;
}

llvm::Error OptimizerPlan::readGroup(StringRef text) {
  auto [globs, settings] = text.rsplit(':');
  if (globs.empty() || settings.empty())
    return invalidOption("--param-group expects GLOB,...:KEY=VALUE,..., found '" + text + "'");
  Group group;
  for (StringRef glob : llvm::split(globs, ',')) {
    auto pattern = llvm::GlobPattern::create(glob);
    if (!pattern)
      return invalidOption("--param-group: '" + glob +
                           "' is no glob: " + llvm::toString(pattern.takeError()));
    group.globs.push_back(glob.str());
  }
  for (StringRef item : splitItems(settings)) {
    auto [key, value] = item.split('=');
    if (value.empty() || !isGroupKey(key))
      return invalidOption("--param-group sets optimizer, " + llvm::join(getGroupKeys(), ", ") +
                           " or an option of an optimizer, found '" + item + "' in '" + text + "'");
    if (key == "optimizer") {
      auto found = readOptimizer(value);
      if (!found)
        return found.takeError();
      group.optimizer = *found;
    } else if (llvm::Error error = checkPlanWord(key, value)) {
      return error;
    } else {
      setWord(group.words, key, value);
    }
  }
  groups.push_back(std::move(group));
  return llvm::Error::success();
}

static std::vector<std::pair<std::string, std::string>>
merge(std::vector<std::pair<std::string, std::string>> words,
      ArrayRef<std::pair<std::string, std::string>> over) {
  for (const auto &[name, value] : over)
    setWord(words, name, value);
  return words;
}

static const std::string *findWord(ArrayRef<std::pair<std::string, std::string>> words,
                                   StringRef name) {
  for (const auto &word : words)
    if (word.first == name)
      return &word.second;
  return nullptr;
}

llvm::Error OptimizerPlan::finish() {
  if (llvm::Error error = checkOptions())
    return error;
  auto settings = readSettings(*optimizer, words);
  if (!settings)
    return settings.takeError();
  rate = settings->getNumber("lr");
  // Values of groups, and of optimizers that only groups use, are read now, whatever the model.
  for (const Group &group : groups) {
    const Optimizer &own = group.optimizer ? *group.optimizer : *optimizer;
    auto ofGroup = readSettings(own, merge(words, group.words));
    if (!ofGroup)
      return ofGroup.takeError();
  }
  for (const Optimizer *substitute : optimizer->getSubstitutes()) {
    auto ofSubstitute = readSettings(*substitute, words);
    if (!ofSubstitute)
      return ofSubstitute.takeError();
  }
  if (llvm::Error error = checkAverage())
    return error;
  return checkBits();
}

llvm::Error OptimizerPlan::checkAverage() const {
  std::optional<OptimizerSettings> average = getAverageSettings();
  bool isUniform = average && average->isOn("ema-uniform");
  if (isUniform && average->getNumber("ema-decay") > 0)
    return invalidOption(
        "--ema-uniform is an average in which all weights count alike, and --ema-decay=X "
        "one that forgets; give one");
  if (findWord(words, "ema-warmup") && (!average || isUniform))
    return invalidOption("--ema-warmup needs --ema-decay=X, to which the decay rises");
  for (StringRef name : {"ema-start", "ema-every"})
    if (findWord(words, name) && !average)
      return invalidOption("--" + name +
                           "=N is of an average of the weights, and needs --ema-decay=X or "
                           "--ema-uniform");
  return llvm::Error::success();
}

std::vector<const Optimizer *> OptimizerPlan::getOptimizersInUse() const {
  std::vector<const Optimizer *> used{optimizer};
  for (const Group &group : groups)
    if (group.optimizer)
      used.push_back(group.optimizer);
  for (size_t i = 0, size = used.size(); i < size; ++i)
    llvm::append_range(used, used[i]->getSubstitutes());
  return used;
}

llvm::Error OptimizerPlan::checkOptions() const {
  std::vector<const Optimizer *> used = getOptimizersInUse();
  auto isKnown = [&](StringRef name) {
    return llvm::any_of(
        used, [&](const Optimizer *entry) { return findOption(*entry, name).has_value(); });
  };
  for (const auto &[name, value] : words) {
    if (findPlanOption(name) || isKnown(name))
      continue;
    std::string owners;
    for (const Optimizer *entry : getOptimizers())
      if (findOption(*entry, name))
        owners += (owners.empty() ? "" : ", ") + entry->getName().str();
    if (owners.empty())
      return invalidOption("unknown option '" + StringRef(name) + "' of an optimizer");
    return invalidOption("--" + StringRef(name) + " is an option of " + owners + "; " +
                         optimizer->getName() + " has none such");
  }
  auto decays = [&](const Optimizer *entry) {
    std::optional<OptimizerOption> option = findOption(*entry, "weight-decay");
    const std::string *word = option ? findWord(words, "weight-decay") : nullptr;
    double number = 0;
    return word ? llvm::to_float(*word, number) && number != 0
                : option && option->initial.front() != 0;
  };
  for (StringRef name : {"norm-decay-mult", "bias-decay-mult", "flat-decay-mult"})
    if (findWord(words, name) && !isKnown("weight-decay"))
      return invalidOption("--" + name + " changes weight decay, which " + optimizer->getName() +
                           " does not have");
    else if (findWord(words, name) && llvm::none_of(used, decays))
      return invalidOption("--" + name +
                           " changes weight decay, which is 0; give --weight-decay=X");
  for (const Group &group : groups) {
    const Optimizer &own = group.optimizer ? *group.optimizer : *optimizer;
    for (const auto &[name, value] : group.words)
      if (!findPlanOption(name) && !findOption(own, name))
        return invalidOption("--param-group=...:" + StringRef(name) + "=" + value + ": " +
                             own.getName() + " has no such option");
  }
  return llvm::Error::success();
}

/// Bits must suit everybody that they are asked of.
llvm::Error OptimizerPlan::checkBits() const {
  bool isAnyCoded = false;
  auto check = [&](const Optimizer &own, const Words &of) -> llvm::Error {
    const std::string *bits = findWord(of, "optim-bits");
    if (!bits)
      return llvm::Error::success();
    if (!llvm::is_contained(findPlanOption("optim-bits")->words, *bits))
      return invalidOption("--optim-bits expects 32, 16, 8, 4, found '" + *bits + "'");
    isAnyCoded |= *bits == "8" || *bits == "4";
    auto settings = readSettings(own, of);
    if (!settings)
      return settings.takeError();
    std::string refusal = own.refuseBits(*settings, std::stoul(*bits));
    return refusal.empty() ? llvm::Error::success()
                           : invalidOption("--optim-bits=" + *bits + ": " + refusal);
  };
  if (llvm::Error error = check(*optimizer, words))
    return error;
  for (const Group &group : groups)
    if (llvm::Error error =
            check(group.optimizer ? *group.optimizer : *optimizer, merge(words, group.words)))
      return error;
  if (findWord(words, "min-8bit-size") && !isAnyCoded)
    return invalidOption("--min-8bit-size needs --optim-bits=8 or 4");
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// Choosing
//===----------------------------------------------------------------------===//

StringRef OptimizerPlan::getOptimizerName() const { return optimizer->getName(); }

/// The first group that names the parameter; `used` marks all globs that do, counted through.
const OptimizerPlan::Group *OptimizerPlan::findGroup(const ParameterInfo &parameter,
                                                     std::vector<bool> &used) const {
  const Group *first = nullptr;
  size_t number = 0;
  for (const Group &group : groups)
    for (const std::string &glob : group.globs) {
      llvm::GlobPattern pattern = llvm::cantFail(llvm::GlobPattern::create(glob));
      if (llvm::any_of(parameter.names, [&](StringRef name) { return pattern.match(name); })) {
        used[number] = true;
        first = first ? first : &group;
      }
      ++number;
    }
  return first;
}

/// A group's own weight decay is taken as it is.
void OptimizerPlan::scaleDecay(const ParameterInfo &parameter, OptimizerSettings &settings) const {
  if (!settings.has("weight-decay"))
    return;
  auto scale = [&](StringRef name, bool applies) {
    const std::string *word = applies ? findWord(words, name) : nullptr;
    if (!word)
      return;
    OptimizerSettings factor;
    llvm::cantFail(readValue(*findPlanOption(name), *word, factor));
    settings.setNumbers("weight-decay",
                        settings.getNumber("weight-decay") * factor.getNumber(name));
  };
  scale("norm-decay-mult", parameter.kind == ParameterKind::Norm);
  scale("bias-decay-mult", parameter.kind == ParameterKind::Bias);
  scale("flat-decay-mult", parameter.type.getRank() < 2);
}

bool OptimizerPlan::hasInputs() const {
  const std::string *word = findWord(words, "hyperparameters");
  return word && *word != "constants";
}

bool OptimizerPlan::isSetByHost() const {
  const std::string *word = findWord(words, "hyperparameters");
  return word && *word == "host";
}

llvm::Expected<OptimizerSettings> OptimizerPlan::adaptSettings(const Optimizer &own,
                                                               const ParameterInfo &parameter,
                                                               const Group *group,
                                                               OptimizerSettings settings) const {
  if (!group || !findWord(group->words, "weight-decay"))
    scaleDecay(parameter, settings);
  if (llvm::Error error = own.adapt(parameter, settings))
    return std::move(error);
  return settings;
}

/// A momentum of 0 has no state, and stays 0.
llvm::Expected<std::vector<HyperparameterInput>>
OptimizerPlan::listInputs(const Optimizer &own, const ParameterInfo &parameter, const Group *group,
                          const OptimizerSettings &given) const {
  std::vector<HyperparameterInput> inputs;
  for (StringRef option : {"momentum", "betas"})
    if (given.has(option) && (option == "betas" || given.getNumber(option) != 0))
      for (auto [place, number] : llvm::enumerate(given.getNumbers(option)))
        inputs.push_back({getInputName(option, place), number});
  if (!given.has("weight-decay"))
    return inputs;
  OptimizerSettings whole = given;
  whole.setNumbers("weight-decay", {1.0});
  auto adapted = adaptSettings(own, parameter, group, std::move(whole));
  if (!adapted)
    return adapted.takeError();
  if (double factor = adapted->getNumber("weight-decay"))
    inputs.push_back({getInputName("weight-decay"), given.getNumber("weight-decay"), factor});
  return inputs;
}

llvm::Expected<ParameterUpdate> OptimizerPlan::chooseOne(const ParameterInfo &parameter,
                                                         const Group *group) const {
  ParameterUpdate update;
  update.optimizer = group && group->optimizer ? group->optimizer : optimizer;
  if (const Optimizer *substitute = update.optimizer->getSubstitute(parameter))
    update.optimizer = substitute;
  Words own = merge(words, group ? group->words : Words());
  auto settings = readSettings(*update.optimizer, own);
  if (!settings)
    return settings.takeError();
  // A run may change the rate of those that have none of their own.
  double ownRate = settings->getNumber("lr");
  if ((group && findWord(group->words, "lr")) || (!findWord(words, "lr") && ownRate != rate))
    update.rate = ownRate;
  settings->erase("lr");
  if (hasInputs()) {
    auto inputs = listInputs(*update.optimizer, parameter, group, *settings);
    if (!inputs)
      return inputs.takeError();
    update.inputs = std::move(*inputs);
  }
  settings = adaptSettings(*update.optimizer, parameter, group, std::move(*settings));
  if (!settings)
    return settings.takeError();
  if (const std::string *bits = findWord(own, "optim-bits"))
    update.stateBits = std::stoul(*bits);
  const std::string *smallest = findWord(own, "min-8bit-size");
  double least = smallest ? std::stod(*smallest) : findPlanOption("min-8bit-size")->initial.front();
  bool isSmall = static_cast<double>(parameter.type.getNumElements()) < least;
  if (update.stateBits <= 8 && (isSmall || parameter.kind == ParameterKind::Embedding))
    update.stateBits = 32;
  if (update.stateBits == 4)
    settings->setNumbers(Update::kStateBits, {4});
  if (const std::string *word = findWord(own, kMaximize); word && *word != "off")
    settings->setNumbers(kMaximize, {1});
  if (const std::string *word = findWord(own, kStepCount))
    update.hasOwnCount = *word == kOwnCount;
  update.settings = std::move(*settings);
  return update;
}

static SmallVector<StringRef> getNames(ArrayRef<ParameterInfo> parameters) {
  SmallVector<StringRef> names;
  for (const ParameterInfo &parameter : parameters)
    llvm::append_range(names, parameter.names);
  return names;
}

llvm::Expected<std::vector<ParameterUpdate>>
OptimizerPlan::choose(ArrayRef<ParameterInfo> parameters) const {
  std::vector<std::string> globs;
  for (const Group &group : groups)
    llvm::append_range(globs, group.globs);
  std::vector<bool> used(globs.size());
  std::vector<ParameterUpdate> updates;
  for (const ParameterInfo &parameter : parameters) {
    auto update = chooseOne(parameter, findGroup(parameter, used));
    if (!update)
      return update.takeError();
    updates.push_back(std::move(*update));
  }
  // A host program names all that its groups have, with what the loss does not reach.
  for (auto [glob, isUsed] : llvm::zip_equal(globs, used))
    if (!isUsed && !isSetByHost())
      return invalidOption("--param-group: no trainable parameter matches '" + glob + "'" +
                           describeNearest(glob, getNames(parameters), "parameters"));
  bool hasState = llvm::any_of(llvm::zip_equal(parameters, updates), [](auto pair) {
    auto &[parameter, update] = pair;
    return !update.optimizer->getState(parameter, update.settings).empty();
  });
  if (findWord(words, "optim-bits") && !hasState)
    return invalidOption("--optim-bits: " + optimizer->getName() +
                         " keeps no state with these options");
  return updates;
}
