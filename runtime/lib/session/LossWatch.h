//===- LossWatch.h - a loss that is not finite ------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Says whether the loss is finite, and where one that is not came from: while the forward part runs
// again, on the same inputs and state, each instruction's outputs are looked at as they appear.
// Buffers are shared later in a step, so afterwards nothing of this could be seen.
//
// Infinity alone may be meant (masks are made of it): the first NaN counts, and an infinity only
// when there is no NaN.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_SESSION_LOSSWATCH_H
#define MEMOPT_RUNTIME_LIB_SESSION_LOSSWATCH_H

#include "memopt-runtime/execution/Arenas.h"

namespace memopt {

class LossWatch {
public:
  /// The first two must outlive it.
  LossWatch(const Manifest &manifest, const Arenas &arenas, int64_t rank)
      : manifest(manifest), arenas(arenas), rank(rank) {}

  /// True for a program without a loss, too.
  bool isFinite() const;

  /// The loss, for a message.
  std::string describeLoss() const;
  /// What of this rank's inputs and state is not finite, to follow on it; nothing where all is.
  std::string describeCause() const;

  /// A search for the origin begins.
  void beginSearch() { firstNan = firstInfinite = -1; }
  /// Looks at what an instruction left; false when there is nothing more to look for.
  StatusOr<bool> inspect(int64_t instruction);
  /// What the search found, to follow on describeLoss.
  std::string describeOrigin() const;

private:
  const Manifest &manifest;
  const Arenas &arenas;
  const int64_t rank;
  int64_t firstNan = -1, firstInfinite = -1; ///< instructions
};

/// The first variable that lasts and holds a value that is not finite, or null. Padding of what a
/// rank has parts of does not count.
StatusOr<const VariableSpec *> findNonFiniteState(const Manifest &manifest, const Arenas &arenas,
                                                  int64_t rank);

} // namespace memopt

#endif // MEMOPT_RUNTIME_LIB_SESSION_LOSSWATCH_H
