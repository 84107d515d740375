//===- BatchFeed.h - the samples of a step ----------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fills the inputs of a program and checks them: all before a step; or, where a repeat reads some
// of them, those at each of its iterations and the others, from the first batch, before the step.
//
// On a device samples are filled into the mirror and copied to where they wait beside the kernels
// that run. What a step begins with is filled and sent during the step before, where the filler
// knows it.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_SESSION_BATCHFEED_H
#define MEMOPT_RUNTIME_LIB_SESSION_BATCHFEED_H

#include "memopt-runtime/execution/DeviceProgram.h"
#include "memopt-runtime/session/Session.h"

namespace memopt {

class BatchFeed {
public:
  /// Both must outlive it. `rank` is that whose samples these are.
  BatchFeed(const Manifest &manifest, const Arenas &arenas, int64_t rank);

  /// Where samples have to be brought to a device.
  void setDevice(DeviceProgram *program) { device = program; }

  /// Where ranks go on together without samples that one of them lacks: what could not be filled
  /// then holds values that are allowed.
  void goOnWithoutSamples() { isReplaced = true; }

  /// `isAhead`: the filler may be asked for the first part of the next step, too.
  void setFiller(BatchFiller newFiller, bool isAhead);

  /// Before a step.
  Status beginStep();
  /// At an iteration of the repeat that reads inputs.
  Status beginIteration(int64_t iteration);
  /// When the step needs no more samples: sends what the next one begins with, if it can.
  void fillAhead();
  /// Drops that: the next step may begin with something else.
  void forgetAhead() { ahead = nullptr; }

  /// Seconds that were spent here since beginStep.
  double getSeconds() const { return double(nanoseconds) * 1e-9; }

private:
  /// Inputs that are filled together.
  struct Group {
    std::vector<size_t> inputs;
    std::vector<const PlacedTensor *> tensors; ///< the same, and what is written with them
    std::vector<char *> targets; ///< for all inputs; those of other groups go into `spare`
  };

  Group makeGroup(bool isRepeated);
  Status fill(const Group &group, int64_t iteration);
  Status prepare(const Group &group, int64_t part, int64_t stepParts);
  Status takeFromFiller(const Group &group, int64_t part) const;
  Status checkRange(const InputSpec &input) const;
  Status replace(const Group &group) const;

  const Manifest &manifest;
  const Arenas &arenas;
  int64_t rank;
  DeviceProgram *device = nullptr;
  BatchFiller filler;
  bool isFilledAhead = false;
  bool isReplaced = false;
  const Group *ahead = nullptr; ///< whose samples of the next step have been sent
  const Group *ready = nullptr; ///< and of this one
  std::vector<char> spare;      ///< for what a filler gives and nobody wants
  Group once, repeated;
  const VariableSpec
      *sampleOffset; ///< number of the first sample in the step's; null: not asked for
  int64_t samplesPerBatch = 1;
  int64_t nanoseconds = 0;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_LIB_SESSION_BATCHFEED_H
