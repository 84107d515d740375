//===- NearestNames.h - names that may have been meant ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_UTILS_NEARESTNAMES_H
#define MEMOPT_TRANSFORMS_UTILS_NEARESTNAMES_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <string>

namespace mlir::memopt {

/// For a message about `wanted`, which is none of `names`: "; modules are 'a', 'b'", or of many the
/// few that take the fewest edits to become it, and their number. `kind`: what they are, in the
/// plural. Empty where there are none.
std::string describeNearest(llvm::StringRef wanted, llvm::ArrayRef<llvm::StringRef> names,
                            llvm::StringRef kind);

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_UTILS_NEARESTNAMES_H
