//===- Manifest.h - what a package says of itself -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PACKAGE_MANIFEST_H
#define MEMOPT_PACKAGE_MANIFEST_H

#include "memopt/Dialect/Memopt.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/JSON.h"

namespace mlir::memopt {

/// What the compiler knows and the IR does not.
struct ManifestOptions {
  std::string mode = "train"; ///< or "eval"
  std::string targetFeatures; ///< the processor compiled for, by name
  int64_t overheadBytes = 0;  ///< of a device's memory, that the plan leaves to its driver
  bool isAveraged = false;    ///< an evaluation of averages of the weights
  bool isInstrumented = true; ///< as in ProgramOptions
  int64_t microBatches = 1;   ///< parts that a batch of data is cut into
  int64_t ranks = 1;          ///< processes that run the program together
  llvm::json::Object optimizer;
  std::string planText;   ///< the plan in words
  std::string diskFolder; ///< for what lies on disk; empty where nothing does
};

/// The manifest of docs/Package.md for a planned module. Fails with a diagnostic when something has
/// no place.
FailureOr<llvm::json::Object> buildManifest(ModuleOp planned, const ManifestOptions &options);

/// An attribute tree as JSON: dictionaries, arrays, strings, numbers, booleans; a unit attribute is
/// null.
llvm::json::Value attributeToJson(Attribute attribute);

/// {"device": N, "host": N, ...}: as many spaces as there are numbers.
llvm::json::Object bySpace(llvm::ArrayRef<int64_t> bytes);

/// The report of memopt-fuse-conv-bn-eval that a module carries, or null.
DictionaryAttr getConvBnEval(ModuleOp module);

/// {"fused": [module, ...], "refused": {module: reason, ...}, ...}: what became of the batch norms
/// that were to join their convolutions; nothing where none were.
std::optional<llvm::json::Value> describeConvBnEval(ModuleOp module);

} // namespace mlir::memopt

#endif // MEMOPT_PACKAGE_MANIFEST_H
