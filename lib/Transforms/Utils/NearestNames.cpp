//===- NearestNames.cpp - names that may have been meant ------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Utils/NearestNames.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"

using llvm::ArrayRef;
using llvm::SmallVector;
using llvm::StringRef;
using llvm::Twine;

std::string mlir::memopt::describeNearest(StringRef wanted, ArrayRef<StringRef> names,
                                          StringRef kind) {
  constexpr size_t most = 6;
  SmallVector<std::pair<unsigned, StringRef>> nearest;
  for (StringRef name : names)
    nearest.emplace_back(name.edit_distance(wanted), name);
  if (nearest.empty())
    return "";
  bool areMany = nearest.size() > most;
  if (areMany) {
    llvm::sort(nearest);
    nearest.truncate(most);
  }
  std::string list = llvm::join(
      llvm::map_range(nearest, [](const auto &entry) { return "'" + entry.second.str() + "'"; }),
      ", ");
  if (!areMany)
    return ("; " + kind + " are " + list).str();
  return ("; of the " + Twine(names.size()) + " " + kind + " the nearest are " + list).str();
}
