//===- IndexWatch.h - indices out of range ----------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A program that meets an index out of range stores where and what into the variable of role
// `index_fault`, by an atomic unsigned minimum of
//
//   site << 48 | (index & (2^48 - 1))
//
// so that of several the lowest site stays, the same one on any number of threads, and goes on with
// an index that is allowed. Here the word is set to all ones before a step and looked at.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_SESSION_INDEXWATCH_H
#define MEMOPT_RUNTIME_LIB_SESSION_INDEXWATCH_H

#include "memopt-runtime/execution/Arenas.h"

namespace memopt {

class IndexWatch {
public:
  /// Both must outlive it.
  IndexWatch(const Manifest &manifest, const Arenas &arenas)
      : manifest(manifest), arenas(arenas), word(manifest.findIndexFault()) {}

  /// A step begins.
  void reset();
  /// A failure that names the op, the index and what is allowed, when one was out of range.
  Status check() const;

private:
  const Manifest &manifest;
  const Arenas &arenas;
  const VariableSpec *word; ///< null where the program has none
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_LIB_SESSION_INDEXWATCH_H
