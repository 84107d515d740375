//===- Package.h - a compiled program, loaded -------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Loading a package reads its manifest and maps its program.so. It runs native code from the
// package: it deserves the trust of a program. A package does not change once it is loaded,
// whatever becomes of its folder; any number of sessions, on any threads, may share it.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_PACKAGE_PACKAGE_H
#define MEMOPT_RUNTIME_PACKAGE_PACKAGE_H

#include "memopt-runtime/package/Manifest.h"
#include "memopt-runtime/package/Safetensors.h"
#include <memory>
#include <string>

namespace memopt {

/// The code of a package, which all of its programs have; before, each program had its own.
struct PackageCode {
  PackageCode() = default;
  ~PackageCode();
  PackageCode(const PackageCode &) = delete;
  PackageCode &operator=(const PackageCode &) = delete;

  /// Open as long as the code is, so that its paths are those of no other file.
  InputFile programFile;
  InputFile image, source; ///< of a device, where the package has them
  void *program = nullptr; ///< of dlopen
};

class Package {
public:
  /// Refuses files of different packages. Waits while the folder's package is being replaced.
  /// Messages have `name` for the folder.
  static StatusOr<std::shared_ptr<const Package>> load(const std::string &folder,
                                                       const std::string &name);
  static StatusOr<std::shared_ptr<const Package>> load(const std::string &folder) {
    return load(folder, folder);
  }
  Package(const Package &) = delete;
  Package &operator=(const Package &) = delete;

  const std::string &getFolder() const { return folder; }
  /// How the package calls the program; empty in a package of one.
  const std::string &getName() const { return programName; }
  /// Its other programs, which share the state that this one's manifest has.
  const std::vector<std::shared_ptr<const Package>> &getOthers() const { return others; }
  const Manifest &getManifest() const { return manifest; }
  /// What the largest of the programs needs.
  BytesBySpace getArenaBytes() const;
  /// Whether this program may run in the arena of another that comes first.
  Status checkJoins(const Package &first) const;
  /// The text that it was read from.
  const std::string &getManifestText() const { return manifestText; }
  /// The file with initial values.
  StatusOr<SafetensorsFile> openWeights() const;
  /// The device's image, where the target has one.
  const InputFile &getImage() const { return code->image; }
  /// What the image was made of, where the package has it; else no file is open.
  const InputFile &getSource() const { return code->source; }
  /// Whether another program has the same code, and its kernels the same numbers.
  bool sharesCode(const Package &other) const { return code == other.code; }

  /// Runs one step; returns what the program returns.
  int32_t step(const memopt_step *step) const { return stepEntry(step); }

private:
  Package() = default;
  Status loadFrom(const OpenFolder &opened, size_t number);
  Status loadCode(const OpenFolder &opened, size_t number);
  Status findStep(size_t number);
  Status loadOthers(const OpenFolder &opened);
  Status checkDigest() const;

  std::string folder, programName, manifestText;
  Manifest manifest;
  std::vector<std::shared_ptr<const Package>> others;
  InputFile weights; ///< where the package has them
  std::shared_ptr<PackageCode> code;
  int32_t (*stepEntry)(const memopt_step *) = nullptr;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_PACKAGE_PACKAGE_H
