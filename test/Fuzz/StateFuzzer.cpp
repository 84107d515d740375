//===- StateFuzzer.cpp - any text may be a checkpoint's state --------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What is read can be written and read again to the same.
//
//===----------------------------------------------------------------------===//

#include "Fuzzing.h"
#include "memopt-runtime/checkpoint/CheckpointFiles.h"

using namespace memopt;
using namespace memopt::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  StatusOr<TrainingState> state = parseTrainingState(toText(data, size));
  if (!state.isOk()) {
    require(!state.getMessage().empty());
    return 0;
  }
  (void)state->schedule.at(state->step + 1);
  std::string text = printTrainingState(*state);
  StatusOr<TrainingState> again = parseTrainingState(text);
  require(again.isOk() && printTrainingState(*again) == text);
  return 0;
}
