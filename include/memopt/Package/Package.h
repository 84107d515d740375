//===- Package.h - planned program to package -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PACKAGE_PACKAGE_H
#define MEMOPT_PACKAGE_PACKAGE_H

#include "memopt-runtime/base/Status.h"
#include "memopt/Package/Manifest.h"
#include "memopt/Package/Program.h"

namespace mlir::memopt {

/// One of several programs of a package.
struct ProgramToWrite {
  std::string name;
  ModuleOp planned;
  ManifestOptions manifest;
  ProgramOptions options;
};

/// Makes the package that the folder `directory` then is, whole or not at all (PackageInMaking.h).
/// A failure has a diagnostic and says who can help.
::memopt::StatusCode writePackage(ModuleOp planned, const ManifestOptions &options,
                                  const ProgramOptions &program, StringRef directory);

/// The same of several programs that share their state (SharedState.h), the first of which speaks
/// for it.
::memopt::StatusCode writePackage(ArrayRef<ProgramToWrite> programs, StringRef directory);

} // namespace mlir::memopt

#endif // MEMOPT_PACKAGE_PACKAGE_H
