//===- LaneOffsets.h - which elements lanes read -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A loop over several dims at once reads what has some of them at quotients and remainders of its
// number: a value for each row that several columns take, or a row that is taken again and again.
// Where blocks of lanes begin at multiples of these divisors, how far each lane's element lies from
// the first lane's is a constant. Then few elements are read, and shuffled, instead of a gather.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_CORE_EMISSION_LANEOFFSETS_H
#define MEMOPT_LIB_CONVERSION_CORE_EMISSION_LANEOFFSETS_H

#include "memopt/Conversion/Core/Emission/ScopedBuilder.h"

namespace mlir::memopt {

/// How far `expr` is in each lane from what it is in the first; nothing where that is not known.
std::optional<SmallVector<int64_t>> getLaneOffsets(const IndexTable &table, const IndexExpr &expr,
                                                   const ScopedBuilder::Scope &scope);

/// What is read for lanes, and which of it each lane takes.
struct SharedReads {
  SmallVector<int64_t> offsets; ///< from the first lane, rising
  SmallVector<int32_t> choice;  ///< by lane, a place in `offsets`
  bool isContiguous() const {
    return offsets.back() - offsets.front() + 1 == (int64_t)offsets.size();
  }
};

/// All elements between the first and the last, where these are no more than the lanes; else those
/// that are read, where these are no more than half the lanes; else nothing.
std::optional<SharedReads> shareReads(ArrayRef<int64_t> laneOffsets);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_CORE_EMISSION_LANEOFFSETS_H
