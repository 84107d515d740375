//===- Dimensions.h - symbolic sizes of an archive -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// torch.export with Dim leaves sizes as SymPy expressions over symbols (s24, ...) with ranges. A
// program has numbers: each symbol gets one, and every expression becomes its value before the
// graph is read. The archive keeps no names of dimensions, so they are called by where they stand
// in the inputs.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_IMPORT_ARCHIVE_DIMENSIONS_H
#define MEMOPT_IMPORT_ARCHIVE_DIMENSIONS_H

#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

#include <string>
#include <utility>
#include <vector>

namespace memopt::pt2 {

/// Sizes by name.
using DimensionSizes = std::vector<std::pair<std::string, int64_t>>;

/// Gives the symbols of an archive's model.json these sizes, in place. A dimension is called
/// `batch` where it is the first of the inputs; else by the first input that has it, `tokens`; or
/// `tokens.1`, by input and place; or by its symbol. Names that are none of these are those of the
/// dimensions left, in their order. Fails where a symbol has no size, or one out of its range.
llvm::Error giveSizes(llvm::json::Value &model, const DimensionSizes &sizes, llvm::StringRef file);

} // namespace memopt::pt2

#endif // MEMOPT_IMPORT_ARCHIVE_DIMENSIONS_H
