//===- Shards.h - the pieces of a tensor on ranks -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_RANKS_SHARDS_H
#define MEMOPT_TRANSFORMS_RANKS_SHARDS_H

#include "memopt/Dialect/Memopt.h"
#include "memopt/Planning/Ranks/RankModel.h"
#include "memopt/Planning/Ranks/ShardUnits.h"

namespace mlir::memopt {

/// The type of the pieces (ShardAttr) of a tensor of type `whole`, as many elements as
/// getShardElements says: by itself those of a vector of 64 bytes in f32, so that all pieces begin
/// at one.
inline RankedTensorType getPieceType(RankedTensorType whole, int64_t ranks,
                                     int64_t unit = ::memopt::planning::RankTensor().unit) {
  return whole.clone(
      ArrayRef<int64_t>(::memopt::planning::getShardElements(whole.getNumElements(), ranks, unit)));
}

/// The number of a group for each of the things that tensors of it have in common.
class ShardGroups {
public:
  int64_t get(StringRef alike) {
    return numbers.try_emplace(alike, static_cast<int64_t>(numbers.size())).first->second;
  }

private:
  llvm::StringMap<int64_t> numbers;
};

/// In which element types a step reads a parameter: what is narrowed behind the read is sent
/// narrow, and what is sent together is sent in one type.
std::string describeReads(ArrayRef<ReadOp> reads);

/// Makes `variable` one of the tensors of `joined`, `ranks` shards of which are the unit.
void placeInUnit(VariableOp variable, VariableOp joined, RankedTensorType whole, int64_t ranks,
                 int64_t first);

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_RANKS_SHARDS_H
