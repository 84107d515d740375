//===- ShardUnits.h - small tensors that are cut over ranks together -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A tensor that is cut over many ranks leaves padding at its end, up to a vector for each rank, and
// is a message of its own. So tensors that are small beside that are put one behind another into a
// vector, a unit, which is cut as a whole.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_RANKS_SHARDUNITS_H
#define MEMOPT_PLANNING_RANKS_SHARDUNITS_H

#include "llvm/ADT/ArrayRef.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace memopt::planning {

/// A tensor that ranks share out.
struct ShardTensor {
  int64_t elements = 0;
  int64_t elementBytes = 4;
  int64_t unit = 16; ///< elements that a shard is a multiple of (RankTensor)
  /// Tensors of one group may be cut together; one without a group is cut by itself.
  std::optional<int64_t> group;
};

/// Tensors that are cut as one vector.
struct ShardUnit {
  std::vector<size_t> members; ///< positions in the list of tensors, at least two
  std::vector<int64_t> firsts; ///< of each member, its first element in the vector
  int64_t elements = 0;        ///< of the vector, without padding at its end
};

/// A unit is closed as soon as it is worth a message and its padding is at most a hundredth. What
/// is so by itself is in no unit. Members stay in the order of the list, and each begins where a
/// shard could.
std::vector<ShardUnit> formShardUnits(llvm::ArrayRef<ShardTensor> tensors, int64_t ranks);

} // namespace memopt::planning

#endif // MEMOPT_PLANNING_RANKS_SHARDUNITS_H
