//===- ModulePatterns.cpp - modules as users name them -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Utils/ModulePatterns.h"
#include "memopt/Transforms/Utils/NearestNames.h"

#include "mlir/IR/Diagnostics.h"

using namespace mlir;
using namespace mlir::memopt;

FailureOr<ModulePatterns> ModulePatterns::parse(ArrayRef<std::string> patterns,
                                                Operation *reportAt) {
  ModulePatterns result;
  result.texts = patterns.vec();
  for (const std::string &text : result.texts) {
    llvm::Expected<llvm::GlobPattern> glob = llvm::GlobPattern::create(text);
    if (!glob)
      return reportAt->emitError()
             << "module pattern '" << text << "': " << llvm::toString(glob.takeError());
    result.patterns.push_back({std::move(*glob)});
  }
  return result;
}

std::optional<StringRef> ModulePatterns::match(StringRef path) {
  std::optional<StringRef> outermost;
  for (size_t end = path.find('.');; end = path.find('.', end + 1)) {
    StringRef prefix = path.take_front(end);
    if (!prefix.empty())
      seen.insert(prefix);
    for (Pattern &pattern : patterns)
      if (pattern.glob.match(prefix)) {
        pattern.isMet = true;
        outermost = outermost.value_or(prefix);
      }
    if (end == StringRef::npos)
      return outermost;
  }
}

std::optional<StringRef> ModulePatterns::getUnmet() const {
  for (auto [text, pattern] : llvm::zip_equal(texts, patterns))
    if (!pattern.isMet)
      return StringRef(text);
  return std::nullopt;
}

std::string ModulePatterns::describeModules(StringRef unmet) const {
  return describeNearest(unmet, seen.getArrayRef(), "modules");
}
