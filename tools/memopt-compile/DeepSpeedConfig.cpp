//===- DeepSpeedConfig.cpp - options by DeepSpeed's names -----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every key of the file has one of four fates: it is an option of ours, it says something that is
// without effect here, it is off, or it is refused. Where a default of DeepSpeed is not ours, its
// own is handed on.
//
//===----------------------------------------------------------------------===//

#include "DeepSpeedConfig.h"

#include "CommandLine.h"

#include "memopt/Support/InputFile.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace memopt::tool;
using llvm::StringRef;
using llvm::Twine;
using memopt::getInteger;
namespace json = llvm::json;

/// How DeepSpeed cuts and overlaps what the planner decides here, and what it prints.
static constexpr llvm::StringLiteral kWithoutEffect[] = {
    "steps_per_print",
    "wall_clock_breakdown",
    "dump_state",
    "memory_breakdown",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "gradient_predivide_factor",
    "communication_data_type",
    "optimizer.legacy_fusion",
    "optimizer.params.torch_adam",
    "optimizer.params.fused",
    "optimizer.params.foreach",
    "zero_optimization.overlap_comm",
    "zero_optimization.reduce_scatter",
    "zero_optimization.reduce_bucket_size",
    "zero_optimization.allgather_partitions",
    "zero_optimization.allgather_bucket_size",
    "zero_optimization.contiguous_gradients",
    "zero_optimization.round_robin_gradients",
    "zero_optimization.sub_group_size",
    "zero_optimization.load_from_fp32_weights",
    "zero_optimization.stage3_prefetch_bucket_size",
    "zero_optimization.stage3_param_persistence_threshold",
    "zero_optimization.stage3_model_persistence_threshold",
    "zero_optimization.stage3_max_live_parameters",
    "zero_optimization.stage3_max_reuse_distance",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save",
    "zero_optimization.stage3_gather_fp16_weights_on_model_save",
    "zero_optimization.ignore_unused_parameters",
    "zero_optimization.offload_optimizer.pin_memory",
    "zero_optimization.offload_optimizer.buffer_count",
    "zero_optimization.offload_optimizer.fast_init",
    "zero_optimization.offload_optimizer.pipeline",
    "zero_optimization.offload_optimizer.pipeline_read",
    "zero_optimization.offload_optimizer.pipeline_write",
    "zero_optimization.offload_param.pin_memory",
    "zero_optimization.offload_param.buffer_count",
    "zero_optimization.offload_param.buffer_size",
    "zero_optimization.offload_param.max_in_cpu",
    "activation_checkpointing.contiguous_memory_optimization",
    "activation_checkpointing.synchronize_checkpoint_boundary",
    "activation_checkpointing.profile",
    "fp16.min_loss_scale",
    "fp16.consecutive_hysteresis",
    "aio"};

/// What turns a feature off.
static bool isOff(const json::Value &value) {
  if (const json::Object *object = value.getAsObject()) {
    std::optional<bool> enabled = object->getBoolean("enabled");
    return object->empty() || (enabled && !*enabled);
  }
  return value.kind() == json::Value::Null || value == json::Value(false) ||
         value == json::Value(0) || value == json::Value("none");
}

namespace {
/// Follows the file, key by key; the first thing that is wrong stands in `error`.
class ConfigReader {
public:
  ConfigReader(const json::Object &root, int64_t ranks) : root(root), ranks(ranks) {}

  llvm::Expected<DeepSpeedConfig> read() {
    for (auto *entry : sortKeys(root))
      readKey(entry->first, entry->second);
    chooseBatch();
    config.hasDefaultClipping = !root.get("gradient_clipping");
    if (!error.empty())
      return invalid(error);
    return std::move(config);
  }

private:
  using Entry = json::Object::value_type;
  /// In the order of their names, so that messages do not depend on hashes; what has no name is refused.
  std::vector<const Entry *> sortKeys(const json::Object &object) {
    std::vector<const Entry *> entries;
    for (const Entry &entry : object)
      if (StringRef(entry.first).empty())
        fail("", "is a key without a name: leave it out");
      else
        entries.push_back(&entry);
    llvm::sort(entries, [](const Entry *a, const Entry *b) {
      return StringRef(a->first) < StringRef(b->first);
    });
    return entries;
  }

  void fail(const Twine &key, const Twine &what) {
    if (error.empty())
      error = ("'" + key + "' " + what).str();
  }
  void choose(const Twine &key, StringRef name, const Twine &value) {
    config.choices.push_back({key.str(), name.str(), value.str()});
  }

  void readKey(StringRef key, const json::Value &value);
  void readSection(StringRef key, const json::Object &section,
                   llvm::function_ref<bool(StringRef, const json::Value &)> readOne);
  void readZero(const json::Object &zero);
  void readPlace(StringRef key, StringRef option, const json::Value &value);
  void readOptimizer(const json::Object &optimizer);
  std::string chooseOptimizer(const std::string &type, const json::Object &params);
  void readHyperparameter(StringRef name, const json::Value &value);
  void refuseScheduler(const json::Object &scheduler);
  void readHalf(const json::Object &half);
  void readOther(StringRef key, const json::Value &value);
  void chooseBatch();
  int64_t getCount(StringRef key);

  const json::Object &root;
  int64_t ranks;
  DeepSpeedConfig config;
  std::string error;
};
} // namespace

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

static constexpr llvm::StringLiteral kBatchKeys[] = {
    "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"};

void ConfigReader::readKey(StringRef key, const json::Value &value) {
  if (llvm::is_contained(kBatchKeys, key))
    return; // together
  const json::Object *section = value.getAsObject();
  if (key == "gradient_clipping" && value.getAsNumber())
    return choose(key, "max-grad-norm", llvm::formatv("{0}", value).str());
  if (key == "zero_optimization" && section)
    return readZero(*section);
  if (key == "optimizer" && section)
    return readOptimizer(*section);
  if (key == "fp16" && section && !isOff(value))
    return readHalf(*section);
  if (key == "bf16" && section && !isOff(value)) {
    if (root.getObject("fp16") && !isOff(*root.get("fp16")))
      return fail("bf16", "and 'fp16' are both enabled: give one");
    choose("bf16.enabled", "precision", "bf16");
    return readSection(key, *section,
                       [](StringRef name, const json::Value &) { return name == "enabled"; });
  }
  if (key == "data_types" && section)
    return readSection(key, *section, [&](StringRef name, const json::Value &one) {
      bool isType = name == "grad_accum_dtype" && one.getAsString();
      if (isType)
        choose("data_types.grad_accum_dtype", "accumulate-dtype", *one.getAsString());
      return isType;
    });
  if (key == "activation_checkpointing" && section)
    return readSection(key, *section, [](StringRef, const json::Value &) { return false; });
  if (key == "scheduler" && section && !isOff(value))
    return refuseScheduler(*section);
  readOther(key, value);
}

/// What nobody else takes.
void ConfigReader::readOther(StringRef key, const json::Value &value) {
  if (value == json::Value("auto"))
    return fail(key, "is \"auto\", which a trainer fills in: write the value");
  if (!isOff(value) && !llvm::is_contained(kWithoutEffect, key))
    return fail(key, "is not supported: leave it out, or turn it off");
  config.withoutEffect.push_back(key.str());
}

void ConfigReader::readSection(StringRef key, const json::Object &section,
                               llvm::function_ref<bool(StringRef, const json::Value &)> readOne) {
  for (auto *entry : sortKeys(section))
    if (!readOne(entry->first, entry->second))
      readOther((key + "." + StringRef(entry->first)).str(), entry->second);
}

//===----------------------------------------------------------------------===//
// Sharing out, and other memory
//===----------------------------------------------------------------------===//

void ConfigReader::readZero(const json::Object &zero) {
  readSection("zero_optimization", zero, [&](StringRef name, const json::Value &value) {
    if (name == "offload_optimizer" && value.getAsObject())
      readPlace("zero_optimization.offload_optimizer", "offload-optimizer", value);
    else if (name == "offload_param" && value.getAsObject())
      readPlace("zero_optimization.offload_param", "offload-param", value);
    else if (name == "stage" && getInteger(&value))
      choose("zero_optimization.stage", "zero-stage", Twine(*getInteger(&value)));
    else
      return false;
    return true;
  });
}

void ConfigReader::readPlace(StringRef key, StringRef option, const json::Value &value) {
  const json::Object &place = *value.getAsObject();
  readSection(key, place, [&](StringRef name, const json::Value &one) {
    if (name == "device" && one.getAsString()) {
      choose(key + ".device", option, *one.getAsString());
      return true;
    }
    // The folder comes with --disk, which says its bytes too; a ratio below 1 is for part of the
    // state.
    if (name == "nvme_path" || (name == "ratio" && one.getAsNumber() == 1.0)) {
      config.withoutEffect.push_back((key + "." + name).str());
      return true;
    }
    return false;
  });
}

//===----------------------------------------------------------------------===//
// The optimizer
//===----------------------------------------------------------------------===//

/// Of DeepSpeed's names in small letters; empty for one that we lack. Its Adam is AdamW unless
/// adam_w_mode says otherwise.
std::string ConfigReader::chooseOptimizer(const std::string &type, const json::Object &params) {
  static constexpr llvm::StringLiteral alike[] = {"adamw",   "sgd",      "lion",     "adagrad",
                                                  "rmsprop", "adadelta", "adamax",   "nadam",
                                                  "radam",   "asgd",     "adafactor"};
  if (type == "adam")
    return params.getBoolean("adam_w_mode").value_or(true) ? "adamw" : "adam";
  return llvm::is_contained(alike, StringRef(type)) ? type : "";
}

void ConfigReader::readOptimizer(const json::Object &optimizer) {
  static const json::Object none;
  const json::Object *params = optimizer.getObject("params");
  StringRef type = optimizer.getString("type").value_or("");
  std::string name = chooseOptimizer(type.lower(), params ? *params : none);
  if (name.empty())
    return fail("optimizer.type", "is \"" + type +
                                      "\", which is no optimizer of ours: adam, "
                                      "adamw, sgd, lion, adagrad, rmsprop, adadelta, "
                                      "adamax, nadam, radam, asgd and adafactor are");
  choose("optimizer.type", "optimizer", name);
  // DeepSpeed's own classes decay nothing unless they are told to.
  bool isTheirs = name == "adam" || name == "adamw" || name == "lion";
  if (isTheirs && !(params && params->get("weight_decay")))
    choose("optimizer.type", "weight-decay", "0");
  readSection("optimizer", optimizer, [&](StringRef key, const json::Value &) {
    if (key == "params" && params)
      for (auto *entry : sortKeys(*params))
        readHyperparameter(entry->first, entry->second);
    return key == "type" || (key == "params" && params);
  });
}

/// By PyTorch's names, as ours are; a name that the optimizer lacks is found by whoever reads it.
void ConfigReader::readHyperparameter(StringRef name, const json::Value &value) {
  std::string key = ("optimizer.params." + name).str(), option = name.str(), text;
  llvm::replace(option, '_', '-');
  if (name == "adam_w_mode")
    return; // has chosen the optimizer
  if (name == "bias_correction" && value == json::Value(true)) {
    config.withoutEffect.push_back(key);
    return;
  }
  if (llvm::is_contained(kWithoutEffect, StringRef(key)) || value == json::Value("auto"))
    return readOther(key, value);
  auto write = [](const json::Value &number) { return llvm::formatv("{0}", number).str(); };
  if (const json::Array *list = value.getAsArray()) {
    text = llvm::join(llvm::map_range(*list, write), ",");
  } else if (std::optional<bool> flag = value.getAsBoolean()) {
    text = *flag ? "on" : "off";
  } else if (value.getAsNumber()) {
    text = write(value);
  } else {
    return fail(key, "should be a number, a list of numbers, true or false");
  }
  choose(key, option, text);
}

//===----------------------------------------------------------------------===//
// The schedule
//===----------------------------------------------------------------------===//

/// None of DeepSpeed's schedules is one of ours to the step: a warm-up begins at its lowest rate,
/// stays there for a second step and may rise by the logarithm, and a cycle's sides are straight.
/// So each is refused, with the options that come nearest.
void ConfigReader::refuseScheduler(const json::Object &scheduler) {
  static const json::Object none;
  const json::Object *given = scheduler.getObject("params");
  const json::Object &params = given ? *given : none;
  auto number = [&](StringRef name, double standard) {
    return params.getNumber(name).value_or(standard);
  };
  auto write = [](double value) { return llvm::formatv("{0}", llvm::format("%g", value)).str(); };
  auto count = [&](StringRef name, StringRef standard) {
    std::optional<int64_t> steps = getInteger(params.get(name));
    return steps ? std::to_string(*steps) : standard.str();
  };
  StringRef type = scheduler.getString("type").value_or("");
  std::string nearest, why;
  if (type.starts_with("Warmup")) {
    why = "whose warm-up begins with two steps at its lowest rate, and rises by the logarithm "
          "unless 'warmup_type' is \"linear\"";
    nearest = " --warmup-steps=" + count("warmup_num_steps", "1000");
  }
  std::string rate = " --lr=" + write(number("warmup_max_lr", 0.001));
  std::string ends = " --schedule-steps=" + count("total_num_steps", "N");
  if (type == "WarmupLR") {
    nearest = rate + nearest;
  } else if (type == "WarmupDecayLR") {
    nearest = rate + " --lr-schedule=linear" + nearest + ends;
  } else if (type == "WarmupCosineLR") {
    // Its rates are parts of the optimizer's.
    const json::Object *optimizer = root.getObject("optimizer");
    const json::Object *own = optimizer ? optimizer->getObject("params") : nullptr;
    double base = own ? own->getNumber("lr").value_or(0.001) : 0.001;
    nearest = " --lr=" + write(base) + " --lr-schedule=cosine" + nearest + ends +
              " --lr-min=" + write(base * number("cos_min_ratio", 0.0001));
  } else if (type == "OneCycle") {
    double low = number("cycle_min_lr", 0), high = number("cycle_max_lr", 0);
    double rise = number("cycle_first_step_size", 2000);
    double fall = number("cycle_second_step_size", rise);
    if (low <= 0 || high <= low || rise < 1 || fall < 1)
      return fail("scheduler.params", "of a OneCycle should have 'cycle_max_lr' above "
                                      "'cycle_min_lr' above 0, and steps to rise and fall");
    why = "whose rate rises and falls in straight lines and moves the momentum";
    nearest = " --lr-schedule=one-cycle --lr=" + write(high) +
              " --lr-pct-start=" + write(rise / (rise + fall)) +
              " --lr-div-factor=" + write(high / low) + " --lr-final-div-factor=1" +
              " --schedule-steps=" + write(rise + fall);
  } else if (type == "LRRangeTest") {
    return fail("scheduler.type", "is \"LRRangeTest\", a search for a rate: leave 'scheduler' out, "
                                  "and try rates with memopt-run --lr=X --steps=N");
  } else {
    return fail("scheduler.type", "is \"" + type +
                                      "\", which is no schedule of DeepSpeed's: leave "
                                      "'scheduler' out, and give memopt-run --lr-schedule");
  }
  fail("scheduler.type",
       "is \"" + type + "\", " + why + ": leave 'scheduler' out; nearest is memopt-run" + nearest);
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

void ConfigReader::readHalf(const json::Object &half) {
  choose("fp16.enabled", "precision", "fp16");
  double scale = half.getNumber("loss_scale").value_or(0);
  if (scale != 0) {
    choose("fp16.loss_scale", "loss-scale", llvm::formatv("{0}", json::Value(scale)).str());
  } else {
    double power = half.getNumber("initial_scale_power").value_or(16);
    choose("fp16.initial_scale_power", "init-scale",
           llvm::formatv("{0}", json::Value(std::exp2(power))).str());
    choose("fp16.loss_scale_window", "growth-interval",
           Twine(getInteger(half.get("loss_scale_window")).value_or(1000)));
  }
  readSection("fp16", half, [&](StringRef name, const json::Value &value) {
    if (name == "hysteresis" && value != json::Value(1))
      fail("fp16.hysteresis", "should be 1: the scale is lowered at each overflow");
    return name == "enabled" || name == "loss_scale" || name == "initial_scale_power" ||
           name == "loss_scale_window" || name == "hysteresis";
  });
  if (!half.get("hysteresis") && scale == 0)
    config.withoutEffect.push_back("fp16.hysteresis (left out; taken as 1)");
}

/// 0 where the key is not there.
int64_t ConfigReader::getCount(StringRef key) {
  const json::Value *value = root.get(key);
  if (!value)
    return 0;
  std::optional<int64_t> count = getInteger(value);
  if (*value == json::Value("auto"))
    fail(key, "is \"auto\", which a trainer fills in: write the value");
  else if (!count || *count < 1 || *count > int64_t(1) << 40)
    fail(key, "should be an integer of at least 1");
  return count.value_or(0);
}

/// A batch of training is that of one rank, times ranks, times steps of accumulation: two of them
/// give the third.
void ConfigReader::chooseBatch() {
  int64_t whole = getCount(kBatchKeys[0]), own = getCount(kBatchKeys[1]),
          steps = getCount(kBatchKeys[2]);
  if (!error.empty())
    return;
  if (whole) {
    int64_t known = ranks * std::max<int64_t>(1, own) * std::max<int64_t>(1, steps);
    if (whole % known || (own && steps && whole != known))
      return fail(kBatchKeys[0], "is " + Twine(whole) + ", expected " +
                                     (own && steps ? "" : "a multiple of ") + Twine(known) +
                                     ": the product of " + Twine(ranks) + " ranks and what '" +
                                     kBatchKeys[1] + "' and '" + kBatchKeys[2] + "' say");
    if (!own)
      own = whole / known;
    else if (!steps)
      steps = whole / known;
  }
  if (own)
    choose(root.get(kBatchKeys[1]) ? kBatchKeys[1] : kBatchKeys[0], "batch", Twine(own));
  if (steps)
    choose(root.get(kBatchKeys[2]) ? kBatchKeys[2] : kBatchKeys[0], "accumulative-counts",
           Twine(steps));
}

llvm::Expected<DeepSpeedConfig> memopt::tool::readDeepSpeedConfig(StringRef path, int64_t ranks) {
  llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> text = readInputFile(path, /*isText=*/true);
  if (!text)
    return text.takeError();
  llvm::Expected<json::Value> root = parseInputJson((*text)->getBuffer());
  if (!root)
    return root.takeError();
  const json::Object *object = root->getAsObject();
  if (!object)
    return invalid("expected an object");
  return ConfigReader(*object, ranks).read();
}
