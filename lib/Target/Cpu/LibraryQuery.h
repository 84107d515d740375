//===- LibraryQuery.h - what the runtime would run --------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TARGET_CPU_LIBRARYQUERY_H
#define MEMOPT_LIB_TARGET_CPU_LIBRARYQUERY_H

#include <cstdint>
#include <string>

namespace mlir::memopt {

struct LibraryAnswer {
  std::string implementation; ///< for reports
  int64_t workspaceBytes = 0;
  double slowdown = 1;
  int64_t packedWeightBytes = 0; ///< of a convolution that packs its weights in each run
  std::string error;             ///< empty when there is an implementation
};

/// What the runtime would run for a library call's JSON description, planned for `threads`.
LibraryAnswer queryLibrary(const std::string &json, int threads);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TARGET_CPU_LIBRARYQUERY_H
