//===- Package.h - a compiled program, loaded -------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Loading a package reads its manifest and maps its program.so. It runs native code from the
// package: it deserves the trust of a program. A package does not change once it is loaded; any
// number of sessions, on any threads, may share it.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_PACKAGE_PACKAGE_H
#define MEMOPT_RUNTIME_PACKAGE_PACKAGE_H

#include "memopt-runtime/package/Manifest.h"
#include <memory>
#include <string>

namespace memopt {

class Package {
public:
  static StatusOr<std::shared_ptr<const Package>> load(const std::string &folder);
  ~Package();
  Package(const Package &) = delete;
  Package &operator=(const Package &) = delete;

  const std::string &getFolder() const { return folder; }
  const Manifest &getManifest() const { return manifest; }
  /// The text that it was read from.
  const std::string &getManifestText() const { return manifestText; }

  /// Runs one step; returns what the program returns.
  int32_t step(const memopt_step *step) const { return stepEntry(step); }

private:
  Package() = default;
  Status loadProgram();

  std::string folder, manifestText;
  Manifest manifest;
  void *program = nullptr; ///< of dlopen
  int32_t (*stepEntry)(const memopt_step *) = nullptr;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_PACKAGE_PACKAGE_H
