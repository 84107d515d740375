//===- DeepSpeedFuzzer.cpp - any file may be a configuration of DeepSpeed -===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every key of what is accepted ends as an option with a name, or is named as one without effect.
//
//===----------------------------------------------------------------------===//

#include "Fuzzing.h"

#include "DeepSpeedConfig.h"

using namespace memopt::testing;
using namespace memopt::tool;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  MemoryFile file(toText(data, size));
  for (int64_t ranks : {1, 4}) {
    llvm::Expected<DeepSpeedConfig> config = readDeepSpeedConfig(file.getPath(), ranks);
    if (!config) {
      require(!llvm::toString(config.takeError()).empty());
      continue;
    }
    for (const DeepSpeedConfig::Choice &choice : config->choices)
      require(!choice.name.empty() && !choice.key.empty());
    for (const std::string &key : config->withoutEffect)
      require(!key.empty());
  }
  return 0;
}
