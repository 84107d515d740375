//===- JoinShards.cpp - a tensor of which ranks have parts ----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "JoinShards.h"

#include <algorithm>
#include <cstring>

using namespace memopt;

/// Of a rank's part of a unit, a window of so many elements that holds its elements of the tensor.
static int64_t getWindow(const ShardedTensor &tensor, int64_t rank, int64_t elements) {
  return std::min(tensor.getOwnElements(rank).at, getElementCount(tensor.shape) - elements);
}

Status memopt::joinShards(Communicator &communicator, const ShardedTensor &tensor, const char *own,
                          std::vector<char> &whole, bool toAll) {
  int64_t ranks = communicator.getRanks(), rank = communicator.getRank();
  int64_t size = getByteSize(tensor.dtype), elements = getElementCount(tensor.shape);
  bool isOfUnit = !tensor.unit.empty() || tensor.unitFirst;
  std::vector<char> window;
  if (isOfUnit) {
    // A window lies elsewhere on each rank, so a copy is sent.
    elements = std::min(elements, getElementCount(tensor.getWholeShape()));
    const char *begin = own + getWindow(tensor, rank, elements) * size;
    window.assign(begin, begin + elements * size);
    own = window.data();
  }
  int64_t bytes = elements * size;
  bool hasAll = toAll || rank == 0;
  whole.resize(hasAll ? size_t(bytes * ranks) : 0);
  if (toAll)
    MEMOPT_RETURN_IF_ERROR(communicator.exchangeAny(own, bytes, whole.data()));
  else
    MEMOPT_RETURN_IF_ERROR(communicator.collect(own, bytes, whole.data()));
  if (!hasAll)
    return Status::ok();
  // Each rank's elements move to the front, behind those of the ranks before.
  for (int64_t other = 0; other < ranks && isOfUnit; ++other) {
    auto [first, count, at] = tensor.getOwnElements(other);
    int64_t from = other * elements + at - getWindow(tensor, other, elements);
    std::memmove(whole.data() + first * size, whole.data() + from * size, size_t(count * size));
  }
  whole.resize(size_t(tensor.getWholeBytes()));
  return Status::ok();
}
