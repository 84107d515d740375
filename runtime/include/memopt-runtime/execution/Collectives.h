//===- Collectives.h - what a program does with other ranks -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_EXECUTION_COLLECTIVES_H
#define MEMOPT_RUNTIME_EXECUTION_COLLECTIVES_H

#include "memopt-runtime/execution/Arenas.h"
#include "memopt-runtime/ranks/Communicator.h"

namespace memopt {

/// The collectives of a program, by their numbers in the manifest.
class Collectives {
public:
  /// All must outlive it. Without a communicator, which is one rank, there is nothing to run.
  Collectives(const Manifest &manifest, const Arenas &arenas, Communicator *communicator)
      : manifest(manifest), arenas(arenas), communicator(communicator) {}

  Status run(int64_t collective, ThreadPool &pool);

private:
  Status run(const CollectiveSpec &spec, const char *from, char *to, ThreadPool &pool);

  const Manifest &manifest;
  const Arenas &arenas;
  Communicator *communicator;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_EXECUTION_COLLECTIVES_H
