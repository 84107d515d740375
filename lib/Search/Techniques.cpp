//===- Techniques.cpp - what each technique saves on a model ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Bytes of one technique depend on the others, so each is planned beside all that the command line
// asks for: added where it is off, left out where it is on. Nothing is estimated.
//
//===----------------------------------------------------------------------===//

#include "memopt/Search/Techniques.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// What can be turned on and off
//===----------------------------------------------------------------------===//

namespace {
struct Technique {
  llvm::StringLiteral option;
  bool (*isOn)(const PipelineOptions &);
  void (*turn)(PipelineOptions &, bool isOn);
};
} // namespace

static constexpr llvm::StringLiteral kStateBits = "optim-bits";

static void setStateBits(PipelineOptions &options, bool isOn) {
  llvm::SmallVector<llvm::StringRef> words;
  std::string given = options.optimizer;
  llvm::SplitString(given, words);
  llvm::erase_if(words, [](llvm::StringRef word) { return word.starts_with(kStateBits); });
  std::string narrow = (kStateBits + "=8").str();
  if (isOn)
    words.push_back(narrow);
  options.optimizer = llvm::join(words, " ");
}

static void setPrecision(PipelineOptions &options, bool isOn) {
  options.precision = isOn ? "bf16" : "f32";
  options.lossScale = 0;
  options.masterWeights = true;
}

static OffloadTier getTier(bool isOn) { return isOn ? OffloadTier::Host : OffloadTier::None; }

static const Technique kTechniques[] = {
    {"--micro-batches=2", [](const PipelineOptions &o) { return o.microBatches > 1; },
     [](PipelineOptions &o, bool isOn) { o.microBatches = isOn ? 2 : 1; }},
    {"--precision=bf16", [](const PipelineOptions &o) { return o.precision != "f32"; },
     setPrecision},
    {"--activation-dtype=bf16", [](const PipelineOptions &o) { return o.activationDtype != "f32"; },
     [](PipelineOptions &o, bool isOn) { o.activationDtype = isOn ? "bf16" : "f32"; }},
    {"--optim-bits=8",
     [](const PipelineOptions &o) { return llvm::StringRef(o.optimizer).contains(kStateBits); },
     setStateBits},
    {"--efficient-conv-bn-eval=all",
     [](const PipelineOptions &o) { return !o.efficientConvBnEval.empty(); },
     [](PipelineOptions &o, bool isOn) {
       o.efficientConvBnEval = llvm::SmallVector<std::string>(isOn ? 1 : 0, "all");
     }},
    {"--offload-optimizer=cpu",
     [](const PipelineOptions &o) { return o.offloadOptimizer != OffloadTier::None; },
     [](PipelineOptions &o, bool isOn) { o.offloadOptimizer = getTier(isOn); }},
    {"--offload-param=cpu",
     [](const PipelineOptions &o) { return o.offloadParam != OffloadTier::None; },
     [](PipelineOptions &o, bool isOn) { o.offloadParam = getTier(isOn); }},
    {"--offload-activation=cpu",
     [](const PipelineOptions &o) { return o.offloadActivation != OffloadTier::None; },
     [](PipelineOptions &o, bool isOn) { o.offloadActivation = getTier(isOn); }},
};

//===----------------------------------------------------------------------===//
// Trials
//===----------------------------------------------------------------------===//

FailureOr<TechniqueTable> mlir::memopt::compareTechniques(FormPlanner &planner,
                                                          std::string &message) {
  TechniqueTable table;
  // Plans of large models are large, too: numbers are what is wanted.
  auto plan = [&](llvm::function_ref<void(PipelineOptions &)> change) {
    Trial trial = planner.tryOptions(change);
    trial.planned = nullptr;
    return trial;
  };
  auto liftBudgets = [](PipelineOptions &options) {
    options.budget = options.hostBudget = options.diskBudget = -1;
  };
  table.asked = plan(liftBudgets);
  if (table.asked.code != StatusCode::Ok) {
    message = table.asked.message;
    return failure();
  }
  const PipelineOptions &given = planner.getPipelineOptions();
  for (const Technique &technique : kTechniques) {
    bool isOn = technique.isOn(given);
    table.techniques.push_back({technique.option.str(), isOn, plan([&](PipelineOptions &options) {
                                  liftBudgets(options);
                                  technique.turn(options, !isOn);
                                })});
  }
  // What no plan meets is refused with the smallest that was found.
  table.smallestBytes = plan([&](PipelineOptions &options) {
                          liftBudgets(options);
                          options.budget = 1;
                        }).bytes;
  return table;
}

//===----------------------------------------------------------------------===//
// Output
//===----------------------------------------------------------------------===//

llvm::json::Array TechniqueTable::toJson() const {
  llvm::json::Array rows;
  for (const TechniqueTrial &technique : techniques) {
    llvm::json::Object row{{"option", technique.option}, {"on", technique.isOn}};
    int64_t change = technique.trial.bytes - asked.bytes;
    if (technique.trial.code != StatusCode::Ok) {
      row["refused"] = technique.trial.message;
    } else {
      row["bytes"] = technique.trial.bytes;
      row["saved"] = technique.isOn ? change : -change;
      row["seconds"] = technique.trial.seconds;
    }
    rows.push_back(std::move(row));
  }
  rows.push_back(llvm::json::Object{{"option", "--device-memory=BYTES"},
                                    {"on", false},
                                    {"bytes", smallestBytes},
                                    {"saved", asked.bytes - smallestBytes}});
  return rows;
}

void TechniqueTable::print(llvm::raw_ostream &out) const {
  auto printRow = [&](int64_t bytes, const std::string &milliseconds, llvm::StringRef what) {
    out << llvm::formatv("  {0,14} {1,14} {2,11}  {3}\n", bytes, asked.bytes - bytes, milliseconds,
                         what);
  };
  auto print = [](double seconds) { return llvm::formatv("{0:F3}", seconds * 1e3).str(); };
  out << "Each technique by itself beside these options, without a budget:\n"
      << llvm::formatv("  {0,14} {1,14} {2,11}\n", "device bytes", "fewer", "ms a step");
  printRow(asked.bytes, print(asked.seconds), "as asked");
  for (const TechniqueTrial &technique : techniques)
    if (technique.trial.code == StatusCode::Ok)
      printRow(technique.trial.bytes, print(technique.trial.seconds),
               (technique.isOn ? "without " : "with ") + technique.option);
  printRow(smallestBytes, "", "with --device-memory: the smallest found by recomputation");
  for (const TechniqueTrial &technique : techniques)
    if (technique.trial.code != StatusCode::Ok)
      out << "  not " << technique.option << ": " << technique.trial.message << "\n";
}
