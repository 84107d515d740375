//===- JoinShards.h - a tensor of which ranks have parts ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_SESSION_JOINSHARDS_H
#define MEMOPT_RUNTIME_LIB_SESSION_JOINSHARDS_H

#include "memopt-runtime/package/Manifest.h"
#include "memopt-runtime/ranks/Communicator.h"

#include <vector>

namespace memopt {

/// Gives the first rank, or all of them, the whole of `tensor`, of which this rank has its part
/// `own`: of a unit no more is sent than may be the tensor's. All ranks call it together.
Status joinShards(Communicator &communicator, const ShardedTensor &tensor, const char *own,
                  std::vector<char> &whole, bool toAll);

} // namespace memopt

#endif // MEMOPT_RUNTIME_LIB_SESSION_JOINSHARDS_H
