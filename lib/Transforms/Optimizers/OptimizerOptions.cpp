//===- OptimizerOptions.cpp - options of optimizers as words --------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OptimizerOptions.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Settings
//===----------------------------------------------------------------------===//

bool OptimizerSettings::has(StringRef name) const { return values.count(name.str()); }

ArrayRef<double> OptimizerSettings::getNumbers(StringRef name) const {
  auto found = values.find(name.str());
  assert(found != values.end() && "a setting that the optimizer does not have");
  return found->second.numbers;
}

StringRef OptimizerSettings::getWord(StringRef name) const {
  return values.find(name.str())->second.word;
}

void OptimizerSettings::setNumbers(StringRef name, ArrayRef<double> numbers) {
  values[name.str()].numbers.assign(numbers.begin(), numbers.end());
}

void OptimizerSettings::setWord(StringRef name, StringRef word) {
  values[name.str()].word = word.str();
}

void OptimizerSettings::erase(StringRef name) { values.erase(name.str()); }

static std::string replaceAll(StringRef text, char from, char to) {
  std::string result = text.str();
  std::replace(result.begin(), result.end(), from, to);
  return result;
}

std::string mlir::memopt::getInputName(StringRef option, unsigned place) {
  return option == "betas" ? "beta" + std::to_string(place + 1) : replaceAll(option, '-', '_');
}

DictionaryAttr OptimizerSettings::toAttribute(MLIRContext *context) const {
  Builder b(context);
  SmallVector<NamedAttribute> attributes;
  for (const auto &[name, value] : values) {
    Attribute attribute = b.getStringAttr(value.word);
    if (value.numbers.size() == 1)
      attribute = b.getF64FloatAttr(value.numbers.front());
    else if (!value.numbers.empty())
      attribute = b.getDenseF64ArrayAttr(value.numbers);
    attributes.push_back(b.getNamedAttr(replaceAll(name, '-', '_'), attribute));
  }
  return b.getDictionaryAttr(attributes);
}

OptimizerSettings OptimizerSettings::fromAttribute(DictionaryAttr attribute) {
  OptimizerSettings settings;
  for (NamedAttribute entry : attribute) {
    std::string name = replaceAll(entry.getName(), '_', '-');
    if (auto word = dyn_cast<StringAttr>(entry.getValue()))
      settings.setWord(name, word.getValue());
    else if (auto number = dyn_cast<FloatAttr>(entry.getValue()))
      settings.setNumbers(name, number.getValueAsDouble());
    else if (auto pair = dyn_cast<DenseF64ArrayAttr>(entry.getValue()))
      settings.setNumbers(name, pair.asArrayRef());
  }
  return settings;
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// As a person would write the number: 0.1, inf.
static std::string toText(double number) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%g", number);
  return text;
}

static std::string describeRange(const OptimizerOption &option) {
  return (std::isinf(option.low) ? "(" : "[") + toText(option.low) + ", " + toText(option.high) +
         (option.isHighOpen || std::isinf(option.high) ? ")" : "]");
}

static llvm::Error readNumbers(const OptimizerOption &option, StringRef text,
                               OptimizerSettings &settings) {
  SmallVector<StringRef> parts;
  text.split(parts, ',');
  size_t wanted = option.kind == OptimizerOption::Pair ? 2 : 1;
  SmallVector<double> numbers;
  for (StringRef part : parts) {
    double number;
    bool isNumber = !part.getAsDouble(number) && std::isfinite(number);
    bool isCount =
        option.kind != OptimizerOption::Count || (isNumber && number == std::floor(number));
    if (!isNumber || !isCount || number < option.low || number > option.high ||
        (option.isHighOpen && number == option.high))
      return invalidOption("--" + option.name + " expects " +
                           (wanted == 2 ? "two numbers"
                            : isCount   ? "a number"
                                        : "a count") +
                           " in " + describeRange(option) + ", found '" + text + "'");
    numbers.push_back(number);
  }
  if (numbers.size() != wanted)
    return invalidOption("--" + option.name + " expects " +
                         (wanted == 2 ? "two numbers" : "one number") + ", found '" + text + "'");
  settings.setNumbers(option.name, numbers);
  return llvm::Error::success();
}

llvm::Error mlir::memopt::readValue(const OptimizerOption &option, StringRef text,
                                    OptimizerSettings &settings) {
  switch (option.kind) {
  case OptimizerOption::Number:
  case OptimizerOption::Count:
  case OptimizerOption::Pair:
    return readNumbers(option, text, settings);
  case OptimizerOption::Flag:
    if (text != "" && text != "on" && text != "off")
      return invalidOption("--" + option.name + " expects on or off, found '" + text + "'");
    settings.setNumbers(option.name, text == "off" ? 0.0 : 1.0);
    return llvm::Error::success();
  case OptimizerOption::Choice:
    if (!llvm::is_contained(option.words, text))
      return invalidOption("--" + option.name + " expects " + llvm::join(option.words, ", ") +
                           ", found '" + text + "'");
    settings.setWord(option.name, text);
    return llvm::Error::success();
  }
  llvm_unreachable("all kinds are listed");
}

std::optional<OptimizerOption> mlir::memopt::findOption(const Optimizer &optimizer,
                                                        StringRef name) {
  for (const OptimizerOption &option : optimizer.getOptions())
    if (option.name == name)
      return option;
  return std::nullopt;
}

llvm::Expected<OptimizerSettings> mlir::memopt::readSettings(const Optimizer &optimizer,
                                                             OptionWords words) {
  OptimizerSettings settings;
  for (const OptimizerOption &option : optimizer.getOptions()) {
    if (option.kind == OptimizerOption::Choice)
      settings.setWord(option.name, option.words.front());
    else
      settings.setNumbers(option.name, option.initial);
    for (const auto &[name, value] : words)
      if (name == option.name)
        if (llvm::Error error = readValue(option, value, settings))
          return std::move(error);
  }
  if (llvm::Error error = optimizer.check(settings))
    return std::move(error);
  return settings;
}

std::string mlir::memopt::writeInitial(const OptimizerOption &option) {
  if (option.kind == OptimizerOption::Choice)
    return option.words.front().str();
  if (option.kind == OptimizerOption::Flag)
    return option.initial.front() != 0 ? "on" : "off";
  return llvm::join(llvm::map_range(option.initial, toText), ",");
}

//===----------------------------------------------------------------------===//
// Options of the plan itself
//===----------------------------------------------------------------------===//

ArrayRef<OptimizerOption> mlir::memopt::getPlanOptions() {
  static const OptimizerOption all[] = {
      {"optim-bits",
       "32|16|8|4",
       "bits of optimizer state; 8: blocks of 256, dynamic codes; 4: blocks of 128",
       OptimizerOption::Choice,
       {},
       0,
       0,
       false,
       {"32", "16", "8", "4"}},
      {"min-8bit-size",
       "N",
       "state of smaller parameters stays in 32 bits",
       OptimizerOption::Count,
       {4096}},
      {"norm-decay-mult", "X", "factor of weight decay for norms", OptimizerOption::Number, {1}},
      {"bias-decay-mult", "X", "factor of weight decay for biases", OptimizerOption::Number, {1}},
      {"flat-decay-mult",
       "X",
       "factor of weight decay for vectors and scalars",
       OptimizerOption::Number,
       {1}},
      {"maximize", "[on|off]", "updates go up the gradient, not down", OptimizerOption::Flag, {0}},
      {"step-count",
       "shared|own",
       "shared: updates are numbered as the run's steps; own: each parameter counts its own, as "
       "one that joins a run later needs",
       OptimizerOption::Choice,
       {},
       0,
       0,
       false,
       {"shared", kOwnCount}},
      {"hyperparameters",
       "constants|inputs|host",
       "inputs: momentum, betas, weight decay and --max-grad-norm are variables that a host may "
       "change between steps; host: and a host program sets them, and rates, before the first",
       OptimizerOption::Choice,
       {},
       0,
       0,
       false,
       {"constants", "inputs", "host"}},
      {"ema-decay",
       "X",
       "keep an average of the weights, of which each step keeps this part; 0: keep none",
       OptimizerOption::Number,
       {0},
       0,
       1,
       true},
      {"ema-warmup",
       "[on|off]",
       "the average's decay rises to ema-decay: 1 - n^(-2/3) at the n-th step",
       OptimizerOption::Flag,
       {0}},
      {"ema-uniform",
       "[on|off]",
       "keep an average in which all weights count alike (SWA)",
       OptimizerOption::Flag,
       {0}},
      {"ema-start", "N", "the average begins behind so many steps", OptimizerOption::Count, {0}},
      {"ema-every",
       "N",
       "the average takes the weights of every N-th step from there on",
       OptimizerOption::Count,
       {1},
       1}};
  return all;
}

const OptimizerOption *mlir::memopt::findPlanOption(StringRef name) {
  const auto *found = llvm::find_if(
      getPlanOptions(), [&](const OptimizerOption &option) { return option.name == name; });
  return found == getPlanOptions().end() ? nullptr : found;
}

ArrayRef<StringLiteral> mlir::memopt::getGroupKeys() {
  static constexpr StringLiteral keys[] = {"optim-bits", kMaximize, kStepCount};
  return keys;
}
