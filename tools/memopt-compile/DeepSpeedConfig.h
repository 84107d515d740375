//===- DeepSpeedConfig.h - options by DeepSpeed's names ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TOOLS_COMPILE_DEEPSPEEDCONFIG_H
#define MEMOPT_TOOLS_COMPILE_DEEPSPEEDCONFIG_H

#include "llvm/Support/Error.h"

#include <string>
#include <vector>

namespace memopt::tool {

struct DeepSpeedConfig {
  /// An option of memopt-compile, and the key that stands for it.
  struct Choice {
    std::string key, name, value;
  };
  std::vector<Choice> choices;
  /// Keys that steer DeepSpeed's own machinery, or are off: nothing depends on them here.
  std::vector<std::string> withoutEffect;
  /// Whether the file leaves clipping to DeepSpeed's default, which depends on its version.
  bool hasDefaultClipping = false;
};

/// Reads a configuration of DeepSpeed for so many ranks. Any key that can neither be followed nor
/// left out is an error that names it.
llvm::Expected<DeepSpeedConfig> readDeepSpeedConfig(llvm::StringRef path, int64_t ranks);

} // namespace memopt::tool

#endif // MEMOPT_TOOLS_COMPILE_DEEPSPEEDCONFIG_H
