//===- Report.h - what a run tells ------------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUN_REPORT_H
#define MEMOPT_RUN_REPORT_H

#include "memopt-run/options/Options.h"
#include "memopt-run/run/StepLog.h"
#include "memopt-runtime/session/ProgramSet.h"
#include <map>
#include <string>
#include <vector>

namespace memopt {

/// What the report says of each rank.
struct RankFacts {
  BytesBySpace predictedPeakBytes, usedPeakBytes;
  int64_t allocations;
};

/// What the outputs are on average, in the course of training.
struct Evaluation {
  int64_t step, samples;
  std::map<std::string, double> averages;
  std::optional<double> loss; ///< of them, where the model gives one

  /// "loss 0.25, accuracy 0.9 over 1000 samples"
  std::string describe() const;
};

/// What --report writes.
/// One of several programs of a package.
struct ProgramFacts {
  std::string name, kind;
  std::vector<std::pair<std::string, Shape>> shapes;
  BytesBySpace predictedPeakBytes, usedPeakBytes;
  int64_t steps, allocations;
};

struct RunReport {
  std::vector<double> losses;
  std::vector<double> stepSeconds;   ///< of the program alone
  std::vector<double> dataSeconds;   ///< by step: what it waited for its data, beside those
  std::vector<double> learningRates; ///< by step, in training
  std::vector<double> gradientNorms; ///< by step, where the program computes them
  std::vector<double> lossScales;    ///< by step, of programs that scale the loss
  std::vector<int64_t> skippedSteps; ///< of those: which of the steps above changed nothing
  double compileSeconds = 0;
  std::map<std::string, double> averages; ///< of outputs, in eval
  std::vector<Evaluation> evaluations;    ///< in the course of training
  int64_t samples = 0;                    ///< evaluated, in eval
  std::vector<RankFacts> ranks;           ///< of several, in their order
  int64_t overheadBytes = 0;              ///< what the process holds beside its arenas
  DeviceOverhead deviceOverhead;          ///< and what a GPU holds for it

  std::map<const Session *, int64_t> stepsOf; ///< of each program
  /// What a package of several programs was seen to do; empty in others.
  std::vector<ProgramFacts> programs;

  /// Notes what there is to say of the programs of a package that has several.
  void notePrograms(const ProgramSet &set);
  /// Of the arena, which is the largest program's.
  BytesBySpace getPredictedPeakBytes(const Session &session) const;
  int64_t countAllocations(const Session &session) const;

  /// Collects the facts of all ranks, which all take part; nothing without a communicator.
  Status gather(const Session &session, Communicator *communicator);
  /// Measures the overhead of all programs now.
  Status measureOverhead(const ProgramSet &set);

  /// What was used, hidden allocations included.
  BytesBySpace getUsedPeakBytes(const Session &session) const;

  /// Writes the file; `isMemoryChecked` adds what was observed.
  Status write(const std::string &path, const Session &session, bool isMemoryChecked) const;

  /// The lines at the end of a run.
  std::string summarize(const Session &session, bool isMemoryChecked) const;
};

/// Prints how a run goes: on a terminal a line that is overwritten, else one line for each step or
/// epoch. Lines for several steps have their means. Speeds are those of steps with their data, as
/// in the report and the log; saving and evaluating are left out.
class Progress {
public:
  /// `bytes`: of device memory.
  Progress(const RunOptions &options, int64_t bytes);
  ~Progress();

  void show(const StepFacts &facts, int64_t lastStep);
  /// Ends an unfinished line on the terminal.
  void finish();

private:
  enum class Lines { None, Overwritten, EachStep, EachEpoch };
  bool isDue(const StepFacts &facts, int64_t lastStep, double now) const;
  std::string describeMeans(const StepFacts &facts, int64_t lastStep, double now) const;

  Lines lines;
  bool hasOpenLine = false; ///< one that is not ended, to be overwritten
  int64_t bytes;
  double lastShown = 0; ///< when; 0: never
  int64_t shownEpoch;   ///< whole epochs then, or before the first step
  int64_t steps = 0;    ///< since then, with the sum of their losses and their samples
  double losses = 0, samples = 0, seconds = 0;
  int64_t firstStep = -1; ///< that was shown, and when
  double firstTime = 0;
};

/// A line for people on stderr; an unfinished line of progress makes room for it.
void notice(const std::string &text);

} // namespace memopt

#endif // MEMOPT_RUN_REPORT_H
