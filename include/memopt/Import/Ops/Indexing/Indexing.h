//===- Indexing.h - gathers and scatters of tensors -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All of PyTorch's indexing comes down to one description of places, which the dialect's gather and
// scatter share. Known indices that count up become slices, whose gradient needs no scattering;
// where everything is known, elements are picked while importing.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_IMPORT_OPS_INDEXING_INDEXING_H
#define MEMOPT_IMPORT_OPS_INDEXING_INDEXING_H

#include "memopt/Import/Graph/OpContext.h"

namespace memopt::pt2 {

/// For each dimension of a tensor, where a walk over `sizes` finds its elements.
struct Places {
  /// Of the walk: the shape of what is gathered, or of the updates.
  Shape sizes;
  /// One entry for each dimension of the tensor: an index tensor of the walk's rank, whose sizes
  /// are 1 or the walk's; or none, and then `positions` says which of the walk's coordinates
  /// counts.
  std::vector<std::optional<Tensor>> indices;
  Shape positions;

  /// The walk reads every dimension at its own coordinate.
  static Places identity(llvm::ArrayRef<int64_t> sizes);
};

/// Index tensors as PyTorch has them: integers, those below zero count from the end when
/// `mayBeNegative`. Known ones are checked.
llvm::Expected<Tensor> prepareIndex(OpContext &op, const Tensor &index, int64_t size,
                                    bool mayBeNegative);
/// `tensor` with size 1 for all dimensions of the walk but `dims`, in order, to which its own go.
llvm::Expected<Tensor> placeAt(OpContext &op, const Tensor &tensor, int64_t rank,
                               llvm::ArrayRef<int64_t> dims);

llvm::Expected<Tensor> gather(OpContext &op, const Tensor &source, Places places);
llvm::Expected<Tensor> scatter(OpContext &op, mlir::memopt::ScatterKind kind, const Tensor &input,
                               const Tensor &updates, const Places &places);

/// A gather along one dimension: `index` has the result's shape.
llvm::Expected<Tensor> gatherAlong(OpContext &op, const Tensor &source, const Tensor &index,
                                   int64_t dim);
/// Elements `index` (rank 1) of one dimension.
llvm::Expected<Tensor> selectAlong(OpContext &op, const Tensor &source, const Tensor &index,
                                   int64_t dim, bool mayBeNegative = false);

/// The numbers of `size` elements that combinations of `count` of them have, in the order of
/// dictionaries: one list for each position. `withRepeats` takes an element more than once.
llvm::Expected<std::vector<Tensor>> listCombinations(OpContext &op, int64_t size, int64_t count,
                                                     bool withRepeats);

} // namespace memopt::pt2

#endif // MEMOPT_IMPORT_OPS_INDEXING_INDEXING_H
