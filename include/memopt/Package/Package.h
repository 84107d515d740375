//===- Package.h - planned program to package -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PACKAGE_PACKAGE_H
#define MEMOPT_PACKAGE_PACKAGE_H

#include "memopt/Package/Manifest.h"

namespace mlir::memopt {

/// Writes `weights.safetensors` and `manifest.json` into the existing folder `directory`;
/// `program.so` comes from code generation. Fails with a diagnostic that names the file.
LogicalResult writePackageData(ModuleOp planned, const ManifestOptions &options,
                               StringRef directory);

} // namespace mlir::memopt

#endif // MEMOPT_PACKAGE_PACKAGE_H
