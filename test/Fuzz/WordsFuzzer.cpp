//===- WordsFuzzer.cpp - another rank may say anything --------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a rank says that it was asked to do can be written and read again, and agrees with itself.
//
//===----------------------------------------------------------------------===//

#include "Fuzzing.h"
#include "memopt-runtime/ranks/RankMeeting.h"

using namespace memopt;
using namespace memopt::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  StatusOr<RankTask> task = readTask(std::string(toText(data, size)));
  if (!task.isOk()) {
    require(!task.getMessage().empty());
    return 0;
  }
  StatusOr<RankTask> again = readTask(writeTask(*task));
  require(again.isOk() && findDisagreement(1, *task, *again).empty());
  return 0;
}
