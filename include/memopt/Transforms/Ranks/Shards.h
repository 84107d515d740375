//===- Shards.h - the pieces of a tensor on ranks -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_RANKS_SHARDS_H
#define MEMOPT_TRANSFORMS_RANKS_SHARDS_H

#include "memopt/Planning/Ranks/RankModel.h"

#include "mlir/IR/BuiltinTypes.h"

namespace mlir::memopt {

/// The type of the pieces (ShardAttr) of a tensor of type `whole`, as many elements as
/// getShardElements says: by itself those of a vector of 64 bytes in f32, so that all pieces begin
/// at one.
inline RankedTensorType getPieceType(RankedTensorType whole, int64_t ranks,
                                     int64_t unit = ::memopt::planning::RankTensor().unit) {
  return whole.clone(
      ArrayRef<int64_t>(::memopt::planning::getShardElements(whole.getNumElements(), ranks, unit)));
}

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_RANKS_SHARDS_H
