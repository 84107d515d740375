//===- OptionRules.cpp - what options need of each other ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OptionRules.h"

#include "llvm/ADT/STLExtras.h"

using namespace memopt::tool;

namespace {
/// An option, whether the others let it have an effect, and what it needs otherwise.
struct Rule {
  llvm::StringLiteral option;
  bool (*isMet)(const CommandLine &);
  llvm::StringLiteral needs;
};
} // namespace

//===----------------------------------------------------------------------===//
// Conditions
//===----------------------------------------------------------------------===//

static bool isStopped(const CommandLine &line) {
  return line.isSet("emit") && line.get("emit") != "package";
}

/// Whether there will be a plan of one step.
static bool makesPlan(const CommandLine &line) {
  std::string stage = line.get("emit");
  bool isBefore = stage == "graph" || stage == "joint" || stage == "kernels";
  return !isBefore && !line.isSet("estimate");
}

static bool makesPackage(const CommandLine &line) {
  return !isStopped(line) && !line.isSet("estimate") && !line.isSet("frontier");
}

static bool writesReport(const CommandLine &line) {
  return makesPlan(line) || line.isSet("estimate");
}

static bool showsPlan(const CommandLine &line) { return makesPlan(line) || line.isSet("frontier"); }

static bool isPlanned(const CommandLine &line) { return !line.isSet("estimate"); }

static bool hasRanks(const CommandLine &line) { return line.isSet("ranks"); }

static bool accumulates(const CommandLine &line) {
  return line.isSet("accumulative-counts") || line.isSet("micro-batches") || line.isSet("auto");
}

//===----------------------------------------------------------------------===//
// The tables
//===----------------------------------------------------------------------===//

static constexpr Rule kRules[] = {
    {"o", makesPackage, "names a package, and --emit, --estimate and --frontier write none"},
    {"report", writesReport, "is of a plan, and --emit stops before there is one"},
    {"html", showsPlan, "is of a plan, and --emit and --estimate stop before there is one"},
    {"explain", makesPlan, "is of a plan, and --emit and --estimate stop before there is one"},
    {"device-memory", isPlanned, "bounds a plan, and --estimate makes none"},
    {"host-memory", isPlanned, "bounds a plan, and --estimate makes none"},
    {"frontier", [](const CommandLine &line) { return !isStopped(line); },
     "and --emit print different things; give one"},
    {"frontier-output", [](const CommandLine &line) { return line.isSet("frontier"); },
     "needs --frontier=N, which it writes"},
    {"zero-stage", hasRanks, "needs --ranks=N, among whom it shares out"},
    {"sync-batch-norm", hasRanks, "needs --ranks=N, over whose samples it takes statistics"},
    {"reduce", hasRanks, "needs --ranks=N, over whom it adds up"},
    {"network", hasRanks, "needs --ranks=N, whom it connects"},
    {"overlap-collectives", hasRanks, "needs --ranks=N, between whom it sends"},
    {"accumulate-dtype", accumulates,
     "is of gradients that are accumulated: it needs --accumulative-counts=K or "
     "--micro-batches=K"},
    {"dampening", [](const CommandLine &line) { return line.isSet("momentum"); },
     "needs --momentum=X, which it dampens"},
};

/// Beside the options of optimizers.
static constexpr llvm::StringLiteral kOfTraining[] = {"max-grad-norm",
                                                      "accumulative-counts",
                                                      "micro-batches",
                                                      "ranks",
                                                      "zero-stage",
                                                      "sync-batch-norm",
                                                      "reduce",
                                                      "overlap-collectives",
                                                      "accumulate-dtype",
                                                      "offload-optimizer",
                                                      "offload-activation",
                                                      "activation-checkpointing",
                                                      "loss-scale",
                                                      "init-scale",
                                                      "growth-factor",
                                                      "backoff-factor",
                                                      "growth-interval"};

/// What measuring a machine looks at.
static constexpr llvm::StringLiteral kOfCalibration[] = {
    "calibrate", "run-threads", "target-features", "target", "machine-profile",
    "threads",   "report",      "quiet",           "ranks"};

//===----------------------------------------------------------------------===//
// The checks
//===----------------------------------------------------------------------===//

bool memopt::tool::isOfTraining(const OptionRow &row) {
  return row.isOfOptimizer || llvm::is_contained(kOfTraining, row.name);
}

static std::string getDashes(llvm::StringRef name) { return name == "o" ? "-" : "--"; }

/// Whether the command line says something that would be otherwise without it.
static bool isAsked(const CommandLine &line, const OptionRow &row) {
  return line.isGiven(row.name) &&
         (!row.takesValue() || line.get(row.name) != row.initial || row.initial.empty());
}

static llvm::Error checkOption(const CommandLine &line, const OptionRow &row) {
  if (!isAsked(line, row))
    return llvm::Error::success();
  std::string name = getDashes(row.name) + row.name.str();
  if (line.isSet("calibrate")) {
    if (!llvm::is_contained(kOfCalibration, row.name))
      return invalid(name + " is of compiling a model, and --calibrate compiles none of yours");
    return llvm::Error::success();
  }
  if (line.get("mode") == "eval" && isOfTraining(row))
    return invalid(name + " is for training, not for --mode=eval");
  for (const Rule &rule : kRules)
    if (rule.option == row.name && !rule.isMet(line))
      return invalid(name + " " + rule.needs);
  return llvm::Error::success();
}

llvm::Error memopt::tool::checkRules(const CommandLine &line) {
  for (const OptionRow &row : getOptions())
    if (llvm::Error error = checkOption(line, row))
      return error;
  return llvm::Error::success();
}
