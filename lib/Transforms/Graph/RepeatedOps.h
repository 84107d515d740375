//===- RepeatedOps.h - sequences that repeat themselves --------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_GRAPH_REPEATEDOPS_H
#define MEMOPT_LIB_TRANSFORMS_GRAPH_REPEATEDOPS_H

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/DenseMap.h"

namespace mlir::memopt {

/// `count` times the same `period` names, one after the other.
struct Repetition {
  size_t period = 0, count = 0;
  size_t size() const { return period * count; }
};

/// Finds repetitions (tandem repeats) in a sequence of names. Close to linear in its length: of each
/// place a bounded number of periods is looked at, and no run of one period is compared twice.
class RepetitionFinder {
public:
  /// `least`: how many turns make a repetition.
  RepetitionFinder(ArrayRef<unsigned> names, size_t least);

  /// Those that begin at `first`, the longest first, of equally long ones the one with the shortest
  /// period. Places have to be asked for in increasing order.
  SmallVector<Repetition> findAt(size_t first);

private:
  size_t findEnd(size_t first, size_t period);

  ArrayRef<unsigned> names;
  size_t least;
  SmallVector<size_t> next;         ///< by place: the next one with the same name
  DenseMap<size_t, size_t> runEnds; ///< by period: up to where names are known to repeat
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_GRAPH_REPEATEDOPS_H
