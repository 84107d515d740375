//===- ModulePatterns.h - modules as users name them ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A list of fully qualified module names and globs over them. A pattern names a module and all that
// lies inside it.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_UTILS_MODULEPATTERNS_H
#define MEMOPT_TRANSFORMS_UTILS_MODULEPATTERNS_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/GlobPattern.h"

#include <optional>
#include <string>
#include <vector>

namespace mlir::memopt {

class ModulePatterns {
public:
  /// Fails with a diagnostic at `reportAt` for what is no glob.
  static FailureOr<ModulePatterns> parse(ArrayRef<std::string> patterns, Operation *reportAt);
  ModulePatterns(ModulePatterns &&) = default; // a copy's globs would refer to the other's texts

  /// The outermost module on the way to `path` (its prefix up to a dot, or all of it) that a
  /// pattern matches; none when no pattern does.
  std::optional<StringRef> match(StringRef path);

  /// The first pattern that `match` has met nowhere; none when all were met.
  std::optional<StringRef> getUnmet() const;
  /// For a message about it: which modules `match` has seen.
  std::string describeModules(StringRef unmet) const;

private:
  ModulePatterns() = default;

  struct Pattern {
    llvm::GlobPattern glob; ///< refers to its text
    bool isMet = false;
  };

  std::vector<std::string> texts; ///< never changed once globs refer to them
  SmallVector<Pattern> patterns;
  llvm::SetVector<StringRef> seen;
};

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_UTILS_MODULEPATTERNS_H
