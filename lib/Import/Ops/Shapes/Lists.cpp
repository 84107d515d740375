//===- Lists.cpp - operators on lists of tensors -------------- -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/OpContext.h"
#include "memopt/Import/Graph/OpTable.h"

using namespace llvm;
using namespace memopt::pt2;

/// Each tensor with `least` dimensions at least: of three, a row is in the middle.
template <int64_t least> static Error lowerAtLeast(OpContext &op) {
  std::vector<std::optional<Tensor>> tensors = op.tensors("tensors");
  if (tensors.size() != op.getNumResults())
    return op.error("expected " + Twine(op.getNumResults()) + " tensors, found " +
                    Twine(tensors.size()));
  for (auto [place, tensor] : enumerate(tensors)) {
    Shape sizes(tensor->sizes);
    if (least == 3 && sizes.size() == 2)
      sizes.push_back(1);
    else if (least == 3 && sizes.size() == 1)
      sizes = {1, sizes[0], 1};
    while (int64_t(sizes.size()) < least)
      sizes.insert(sizes.begin(), 1);
    ASSIGN_OR_RETURN(Tensor shaped, reshape(op, *tensor, sizes));
    op.setResult(place, shaped);
  }
  return Error::success();
}

/// Each tensor cut into as many chunks along `dim`, zeros behind it where that does not come out
/// even; the chunks of one number are one row.
static Error lowerChunkCat(OpContext &op) {
  std::vector<std::optional<Tensor>> tensors = op.tensors("tensors");
  int64_t chunks = op.integer("num_chunks");
  if (tensors.empty() || chunks < 1)
    return op.error("expected tensors and a number of chunks");
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", tensors.front()->rank()));
  std::vector<Tensor> parts;
  for (const std::optional<Tensor> &tensor : tensors) {
    if (tensor->rank() <= dim || tensor->getNumElements() == 0)
      return op.error("expected tensors with elements and a dimension " + Twine(dim));
    int64_t size = tensor->sizes[dim], each = divideCeil(size, chunks);
    Shape low(tensor->rank(), 0), high(low),
        sizes(tensor->sizes.begin(), tensor->sizes.begin() + dim);
    high[dim] = each * chunks - size;
    Tensor padded = padZeros(op, *tensor, low, high);
    int64_t others = 1;
    for (int64_t lead : sizes)
      others *= lead;
    sizes.append({chunks, padded.getNumElements() / (others * chunks)});
    ASSIGN_OR_RETURN(padded, reshape(op, padded, sizes));
    parts.push_back(padded);
  }
  return setResult(op, concatenate(op, parts, dim + 1));
}

/// The same elements in another shape, as many of them.
static Error lowerResizeAs(OpContext &op) {
  Tensor self = op.tensor("self"), other = op.tensor("the_template");
  if (self.getNumElements() != other.getNumElements())
    return op.error("from " + toString(self.sizes) + " to " + toString(other.sizes) +
                    " is not supported, as the memory behind a tensor is none of the step's");
  ASSIGN_OR_RETURN(Tensor shaped, reshape(op, self, other.sizes));
  return setResult(op, op.copy(shaped));
}

void memopt::pt2::registerLists(OpTable &table) {
  table.add("aten.resize_as.default", "Tensor self, Tensor the_template, ignored memory_format",
            lowerResizeAs);
  table.add("aten.atleast_1d.Sequence", "Tensor[] tensors", lowerAtLeast<1>);
  table.add("aten.atleast_2d.Sequence", "Tensor[] tensors", lowerAtLeast<2>);
  table.add("aten.atleast_3d.Sequence", "Tensor[] tensors", lowerAtLeast<3>);
  table.add("aten._chunk_cat.default", "Tensor[] tensors, int dim, int num_chunks", lowerChunkCat);
}
