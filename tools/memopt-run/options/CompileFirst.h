//===- CompileFirst.h - from a model to a package ---------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUN_COMPILEFIRST_H
#define MEMOPT_RUN_COMPILEFIRST_H

#include "memopt-run/options/Options.h"
#include "memopt-runtime/package/Package.h"
#include "memopt-runtime/package/PackageInMaking.h"
#include <functional>

namespace memopt {

/// A package, loaded; the folder of a temporary one is removed with this object.
class CompiledPackage {
public:
  CompiledPackage() = default;
  CompiledPackage(const CompiledPackage &) = delete;
  CompiledPackage &operator=(const CompiledPackage &) = delete;

  /// Loads the package at `path`, if there is to be one and it is not loaded as yet.
  Status load();

  /// Runs the memopt-compile that stands beside this program on the model; with evaluations in the
  /// course of training they are a program of the same package. Its messages go where ours go; when
  /// it fails, `exitCode` is its exit code and the failure has no message of its own,
  /// unless one of our options may have been meant. Calls `whileWaiting` many times a second.
  Status compile(const RunOptions &options, const std::function<void()> &whileWaiting);

  std::string path;
  std::shared_ptr<const Package> loaded;
  double seconds = 0;
  int exitCode = 0;

private:
  Status makeFolder();
  StatusOr<std::string> choosePlace(const std::string &kept);
  Status take(const std::string &place, const std::string &origin);
  Status writePrograms(const std::string &file, const RunOptions &options,
                       const std::vector<std::string> &training,
                       const std::vector<std::string> &target);
  Status explainRefusal(const std::string &compiler, const RunOptions &options);
  StatusOr<std::vector<std::string>> describeTarget(const RunOptions &options);

  ScratchFolder temporaryFolder;
  std::optional<PackageInMaking> making; ///< of a package that is kept
};

/// The end of --help: the options of the memopt-compile beside this program.
std::string describeCompileOptions();

} // namespace memopt

#endif // MEMOPT_RUN_COMPILEFIRST_H
