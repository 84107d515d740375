//===- Communicator.cpp - what all transports do alike --------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/ranks/Communicator.h"
#include <algorithm>
#include <cstring>

using namespace memopt;

Status Communicator::exchangeAny(const void *mine, int64_t bytes, void *all) {
  int64_t most = getPieceBytes();
  std::vector<char> pieces(size_t(ranks * std::min(bytes, most)));
  for (int64_t begin = 0; begin < bytes; begin += most) {
    int64_t size = std::min(bytes - begin, most);
    MEMOPT_RETURN_IF_ERROR(exchange(static_cast<const char *>(mine) + begin, size, pieces.data()));
    for (int64_t from = 0; from < ranks; ++from)
      std::memcpy(static_cast<char *>(all) + from * bytes + begin, pieces.data() + from * size,
                  size_t(size));
  }
  return Status::ok();
}

/// Reasons are told only where there is one: what ranks do in each step is to exchange a byte.
Status Communicator::agree(Status own, std::optional<int64_t> &refusing) {
  refusing.reset();
  char isRefused = !own.isOk();
  MEMOPT_RETURN_IF_ERROR(exchange(&isRefused, 1, refusals.data()));
  auto first = std::find(refusals.begin(), refusals.end(), 1);
  if (first == refusals.end())
    return Status::ok();
  struct Reason {
    int32_t code;
    char text[2044];
  } mine{int32_t(own.getCode()), {}};
  std::strncpy(mine.text, own.getMessage().c_str(), sizeof mine.text - 1);
  std::vector<Reason> all(static_cast<size_t>(ranks));
  MEMOPT_RETURN_IF_ERROR(exchange(&mine, sizeof mine, all.data()));
  refusing = first - refusals.begin();
  if (isRefused)
    return own;
  Reason &told = all[size_t(*refusing)];
  told.text[sizeof told.text - 1] = 0;
  return Status(toFailureCode(told.code), "rank " + std::to_string(*refusing) + ": " + told.text);
}
