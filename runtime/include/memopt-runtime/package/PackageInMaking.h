//===- PackageInMaking.h - a package that takes its place -------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_PACKAGE_PACKAGEINMAKING_H
#define MEMOPT_RUNTIME_PACKAGE_PACKAGEINMAKING_H

#include "memopt-runtime/base/ScratchFolder.h"

namespace memopt {

/// A package that is written to a hidden folder beside its place, and then takes it. Until
/// publish() the package that is there stays as it is, and it stays when this object ends before.
/// Any number of processes may do so at once: the last one's package is there in the end, whole.
class PackageInMaking {
public:
  /// `target`: where it is to be; folders above it are made where they are missing.
  static StatusOr<PackageInMaking> begin(const std::string &target);

  /// The folder to write to, with the permissions of the one whose place it takes.
  const std::string &getPath() const { return path; }

  /// Exchanges the folders, in one step. A folder that cannot be exchanged (it is a mount point,
  /// its file system knows no exchange, or something else lies in it, which stays) gets the files
  /// one by one: the manifest goes first and comes last, so a folder with one is a whole package.
  Status publish();

private:
  Status exchange(bool &isDone);
  Status replaceFiles();

  std::string target, path;
  ScratchFolder folder;
  bool isInside = false; ///< the folder is within the target
};

/// What memopt-run compiled a package from; it is replaced with the package.
constexpr const char *originFile = "compiled-from.txt";

} // namespace memopt

#endif // MEMOPT_RUNTIME_PACKAGE_PACKAGEINMAKING_H
