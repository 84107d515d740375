//===- SharedReads.h - elements that lanes have in common --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where it is known how far each lane's element lies from the first lane's, few elements are read,
// and shuffled, instead of a gather.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_CORE_EMISSION_SHAREDREADS_H
#define MEMOPT_LIB_CONVERSION_CORE_EMISSION_SHAREDREADS_H

#include "mlir/Support/LLVM.h"

#include <optional>

namespace mlir::memopt {

/// What is read for lanes, and which of it each lane takes.
struct SharedReads {
  SmallVector<int64_t> offsets; ///< from the first lane's element, rising
  SmallVector<int32_t> choice;  ///< by lane, a place in `offsets`
  bool areContiguous() const {
    return offsets.back() - offsets.front() + 1 == static_cast<int64_t>(offsets.size());
  }
};

/// All elements between the first and the last, where these are no more than the lanes; else those
/// that are read, where these are no more than half the lanes; else nothing.
std::optional<SharedReads> shareReads(ArrayRef<int64_t> laneOffsets);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_CORE_EMISSION_SHAREDREADS_H
