//===- Collectives.cpp - what a program does with other ranks -------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/execution/Collectives.h"
#include <algorithm>
#include <cstring>

using namespace memopt;

Status Collectives::run(int64_t number, ThreadPool &pool) {
  auto count = int64_t(manifest.collectives.size());
  if (number < 0 || number >= count || !communicator)
    return badInput("the program names collective " + std::to_string(number) + " of " +
                    std::to_string(communicator ? count : 0));
  const CollectiveSpec &spec = manifest.collectives[size_t(number)];
  char *base = arenas[MEMOPT_SPACE_DEVICE].base();
  return run(spec, base + spec.fromOffset, base + spec.toOffset, pool);
}

Status Collectives::run(const CollectiveSpec &spec, const char *from, char *to, ThreadPool &pool) {
  int64_t size = getByteSize(spec.dtype);
  switch (spec.kind) {
  case CollectiveKind::AllReduce:
    return communicator->allReduce(spec.dtype, from, to, spec.elements, pool);
  case CollectiveKind::ReduceScatter:
    return communicator->reduceScatter(spec.dtype, from, spec.elements, to, spec.resultElements,
                                       pool);
  case CollectiveKind::AllGather:
    return communicator->allGather(from, spec.elements * size, to, spec.resultElements * size,
                                   pool);
  case CollectiveKind::AllToAll:
    return badInput("a program for the cpu sends no terms of sums: its ranks read each other's");
  case CollectiveKind::OwnShard:
    break;
  }
  int64_t begin = std::min(spec.elements, communicator->getRank() * spec.resultElements),
          own = std::min(spec.elements - begin, spec.resultElements);
  std::memcpy(to, from + begin * size, size_t(own * size));
  std::memset(to + own * size, 0, size_t((spec.resultElements - own) * size));
  return Status::ok();
}
