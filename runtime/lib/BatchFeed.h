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
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_BATCHFEED_H
#define MEMOPT_RUNTIME_BATCHFEED_H

#include "DeviceProgram.h"
#include "memopt-runtime/Session.h"

namespace memopt {

class BatchFeed {
public:
  /// Both must outlive it. `rank` is that whose samples these are.
  BatchFeed(const Manifest &manifest, const Arenas &arenas, int64_t rank);

  /// Where samples have to be brought to a device.
  void setDevice(DeviceProgram *program) { device = program; }

  void setFiller(BatchFiller newFiller) { filler = std::move(newFiller); }

  /// Before a step.
  Status beginStep();
  /// At an iteration of the repeat that reads inputs.
  Status beginIteration(int64_t iteration);

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
  Status checkRange(const InputSpec &input) const;

  const Manifest &manifest;
  const Arenas &arenas;
  int64_t rank;
  DeviceProgram *device = nullptr;
  BatchFiller filler;
  std::vector<char> spare; ///< for what a filler gives and nobody wants
  Group once, repeated;
  const VariableSpec
      *sampleOffset; ///< number of the first sample in the step's; null: not asked for
  int64_t samplesPerBatch = 1;
  int64_t nanoseconds = 0;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_BATCHFEED_H
