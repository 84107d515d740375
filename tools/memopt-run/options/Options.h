//===- Options.h - the command line of memopt-run ---------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUN_OPTIONS_H
#define MEMOPT_RUN_OPTIONS_H

#include "memopt-runtime/base/Status.h"
#include "memopt-runtime/session/LearningRate.h"
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace memopt {

struct RunOptions {
  std::string model; ///< a package's folder, a .pt2 or a .mlir
  std::string device = "cpu";
  std::string mode; ///< as asked for; empty: what the package says

  std::vector<std::string> data;
  std::optional<int64_t> steps, epochs;
  std::vector<std::pair<std::string, int64_t>> alternation; ///< programs, and steps of each in turn
  std::optional<bool> isShuffled;
  double dataScale = 1.0 / 255;
  std::vector<double> dataMeans = {0}, dataDeviations = {1};
  bool isMirrored = false; ///< of --data-augment
  int64_t cropPadding = 0; ///< of --data-augment; pixels
  int64_t dataStride = 0;  ///< tokens; 0: a window's
  std::vector<int64_t>
      dataBuckets; ///< tokens, rising; none: data has batches of the inputs' shapes

  std::optional<int64_t> seed;
  bool isRandom = false; ///< --init=random

  std::optional<double> rate, minRate, gamma, power, percentStart, divFactor, finalDivFactor;
  std::string rateText; ///< --lr as given, for the compiler
  std::optional<std::vector<int64_t>> milestones;
  std::optional<ScheduleKind> schedule;
  std::optional<int64_t> warmupSteps, scheduleSteps, stepSize;

  std::string load, save, weights;
  int64_t saveEvery = 0;      ///< steps; 0: at the end only
  int64_t keep = 1;           ///< checkpoints that stay
  bool hasModelNames = false; ///< --names=model
  bool isBestSaved = false;   ///< --save-best

  std::vector<std::string> evalData;
  std::string evalPackage;
  bool isAveraged = false; ///< evaluate the average of the weights
  int64_t evalEvery = 0;   ///< steps; 0: an epoch
  int64_t patience = 0;    ///< evaluations without a better loss that end the run; 0: any number
  std::string saveGradients;

  std::optional<int64_t> ranks;   ///< as given, or as many as a launcher started
  std::string transport = "auto"; ///< of --transport
  double rankTimeout = 300;       ///< seconds that a rank waits for the others
  bool isLauncherHeard = true;    ///< of --launcher

  std::string diskFolder; ///< empty: where the package says
  bool isMemoryChecked = false;
  bool isStoppedOnNan = true;
  std::optional<bool> isReplayed; ///< --cuda-graph
  bool areDenormalsZero = false;  ///< --flush-denormals
  std::string report, trace, log;
  std::string description; ///< file for what the compiler needs to know of the device
  std::string network;     ///< file for what ranks take to send
  bool isQuiet = false;
  bool isShownByEpoch = false; ///< one line for many steps
  bool isHelp = false, isVersion = false;

  int64_t countRanks() const { return ranks.value_or(1); }
  /// Whether the command line has the option of this name, with its dashes.
  bool isGiven(const std::string &option) const { return given.count(option) != 0; }

  std::set<std::string> given;

  std::string packagePath;                 ///< -o: where a compiled package stays
  std::vector<std::string> compileOptions; ///< what memopt-run does not know, for memopt-compile
};

/// Reads the arguments after the program's name. With a package that is ready every option must be
/// one of memopt-run's; with a model to compile the others are left to memopt-compile, which
/// refuses what it does not know.
StatusOr<RunOptions> parseOptions(const std::vector<std::string> &arguments);

/// ", did you mean '--steps'?" for a word that is nearly one of memopt-run's options; else nothing
/// (OptionTable::suggest).
std::string suggestOption(const std::string &name);

/// Whether memopt-run has an option of this name, or by another name.
bool isRunOption(const std::string &name);

/// Whether a path names something to compile first.
bool needsCompilation(const std::string &model);

/// The text of --help.
std::string getHelp();

} // namespace memopt

#endif // MEMOPT_RUN_OPTIONS_H
