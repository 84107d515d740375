//===- Package.h - a compiled program, loaded -------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Loading a package reads its manifest, maps its program.so and prepares its library calls. It runs
// native code from the package: it deserves the trust of a program.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_PACKAGE_H
#define MEMOPT_RUNTIME_PACKAGE_H

#include "memopt-runtime/LibraryCalls.h"
#include "memopt-runtime/Manifest.h"
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace memopt {

/// Makes a library call from its descriptor for a number of threads: LibraryCall::create in
/// programs that link the libraries, something smaller in tests.
using LibraryCallFactory = std::function<StatusOr<std::unique_ptr<LibraryCall>>(
    const nlohmann::json &descriptor, int threads)>;

/// A library call and what was planned for it.
struct PreparedCall {
  std::unique_ptr<LibraryCall> call;
  int64_t workspaceBytes; ///< planned, at least what the call needs
  int64_t bufferCount;    ///< operands and results, before the workspace
};

class Package {
public:
  /// Loads the package in `folder` and prepares its calls with the thread count that it was planned
  /// for. Then sets the pool to that count, or to what the process may use when that is less;
  /// results do not depend on it.
  static StatusOr<std::unique_ptr<Package>> load(const std::string &folder,
                                                 const LibraryCallFactory &createCall);
  ~Package();
  Package(const Package &) = delete;
  Package &operator=(const Package &) = delete;

  const std::string &getFolder() const { return folder; }
  const Manifest &getManifest() const { return manifest; }
  std::vector<PreparedCall> &getCalls() { return calls; }

  /// Gives the program its runtime functions; once, before the first step. The table must outlive
  /// the package.
  void bind(const memopt_runtime_functions *functions) { bindEntry(functions); }

  /// Runs one step; returns what the program returns.
  int32_t step(const memopt_step *step) { return stepEntry(step); }

private:
  Package() = default;
  Status loadProgram();
  Status prepareCalls(const LibraryCallFactory &createCall);

  std::string folder;
  Manifest manifest;
  void *program = nullptr; ///< of dlopen
  void (*bindEntry)(const memopt_runtime_functions *) = nullptr;
  int32_t (*stepEntry)(const memopt_step *) = nullptr;
  std::vector<PreparedCall> calls;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_PACKAGE_H
