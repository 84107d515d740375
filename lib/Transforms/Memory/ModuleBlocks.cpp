//===- ModuleBlocks.cpp - the repeated parts of a model ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ModuleBlocks.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

using llvm::StringRef;

/// Calls visit(prefix) for the modules around what `path` names, the outermost first, until it
/// says that it has seen enough.
static void visitOwners(StringRef path, llvm::function_ref<bool(StringRef)> visit) {
  for (size_t end = path.find('.'); end != StringRef::npos; end = path.find('.', end + 1))
    if (visit(path.take_front(end)))
      return;
}

/// What `module` lies in; empty for a module of the model itself.
static StringRef getOwner(StringRef module) {
  size_t dot = module.rfind('.');
  return dot == StringRef::npos ? StringRef() : module.take_front(dot);
}

static bool isNumbered(StringRef module) {
  StringRef name = module.substr(module.rfind('.') + 1);
  return !name.empty() && llvm::all_of(name, llvm::isDigit);
}

llvm::SmallVector<int32_t> mlir::memopt::numberBlocks(llvm::ArrayRef<StringRef> paths) {
  llvm::StringSet<> owners;
  llvm::StringMap<int> likeIn; // by the module around them
  for (StringRef path : paths)
    visitOwners(path, [&](StringRef module) {
      if (owners.insert(module).second && isNumbered(module))
        ++likeIn[getOwner(module)];
      return false;
    });
  llvm::StringMap<int32_t> numbers;
  llvm::SmallVector<int32_t> blocks;
  for (StringRef path : paths) {
    blocks.push_back(-1);
    visitOwners(path, [&](StringRef module) {
      if (!isNumbered(module) || likeIn.lookup(getOwner(module)) < 2)
        return false;
      int32_t next = static_cast<int32_t>(numbers.size());
      blocks.back() = numbers.try_emplace(module, next).first->second;
      return true;
    });
  }
  return blocks;
}
