//===- Limits.h - bounds on outside input -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A model file comes from anywhere. Nothing in it may make the importer recurse, allocate or loop
// beyond these bounds; each is far above what real models need, and each refusal names it.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_IMPORT_ARCHIVE_LIMITS_H
#define MEMOPT_IMPORT_ARCHIVE_LIMITS_H

#include "llvm/ADT/Twine.h"
#include "llvm/Support/Error.h"

#include <cstdint>

namespace memopt::pt2 {

namespace limits {
inline constexpr uint64_t archiveMembers = 1u << 20;
inline constexpr uint64_t memberNameBytes = 4096;
inline constexpr uint64_t jsonBytes = uint64_t(256) << 20;
inline constexpr unsigned rank = 16;
inline constexpr int64_t elements = int64_t(1) << 44;
inline constexpr uint64_t nodes = 1u << 20;
/// Integer index arithmetic evaluated at import (masks, positions); larger results are refused.
inline constexpr int64_t foldedElements = int64_t(1) << 26;
/// All such results of one file together.
inline constexpr uint64_t foldedBytes = uint64_t(1) << 30;
} // namespace limits

/// The one way to make an error of this room: a sentence that names file and place.
inline llvm::Error makeError(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

} // namespace memopt::pt2

#endif // MEMOPT_IMPORT_ARCHIVE_LIMITS_H
