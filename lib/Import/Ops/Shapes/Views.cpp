//===- Views.cpp - operators that only change how elements are addressed -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/OpContext.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;

//===----------------------------------------------------------------------===//
// Reshapes
//===----------------------------------------------------------------------===//

/// One size may be -1: what is left over.
static Expected<Shape> inferSizes(OpContext &op, ArrayRef<int64_t> wanted, int64_t elements) {
  Shape sizes(wanted);
  int64_t known = 1;
  int64_t *open = nullptr;
  for (int64_t &size : sizes) {
    if (size == -1 && !open) {
      open = &size;
      continue;
    }
    if (size < 0 || (size && known > limits::elements / size))
      return op.error("cannot give " + Twine(elements) + " elements the shape " + toString(wanted));
    known *= size;
  }
  if (open && (known == 0 || elements % known))
    return op.error("cannot give " + Twine(elements) + " elements the shape " + toString(wanted));
  if (open)
    *open = elements / known;
  return sizes;
}

static Error lowerView(OpContext &op) {
  Tensor self = op.tensor("self");
  ASSIGN_OR_RETURN(Shape sizes, inferSizes(op, op.integers("size"), self.getNumElements()));
  return setResult(op, reshape(op, self, sizes));
}

static Error lowerFlatten(OpContext &op) {
  Tensor self = op.tensor("self");
  if (self.rank() == 0)
    return setResult(op, reshape(op, self, 1));
  ASSIGN_OR_RETURN(int64_t first, op.dimension("start_dim", self.rank()));
  ASSIGN_OR_RETURN(int64_t last, op.dimension("end_dim", self.rank()));
  if (last < first)
    return op.error("end_dim comes before start_dim");
  Shape sizes(ArrayRef(self.sizes).take_front(first));
  sizes.push_back(1);
  for (int64_t dim = first; dim <= last; ++dim)
    sizes.back() *= self.sizes[dim];
  append_range(sizes, ArrayRef(self.sizes).drop_front(last + 1));
  return setResult(op, reshape(op, self, sizes));
}

static Error lowerUnflatten(OpContext &op) {
  Tensor self = op.tensor("self");
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  if (self.rank() == 0)
    return op.error("expected a tensor with dimensions");
  ASSIGN_OR_RETURN(Shape inner, inferSizes(op, op.integers("sizes"), self.sizes[dim]));
  Shape sizes(ArrayRef(self.sizes).take_front(dim));
  append_range(sizes, inner);
  append_range(sizes, ArrayRef(self.sizes).drop_front(dim + 1));
  return setResult(op, reshape(op, self, sizes));
}

static Error lowerUnsqueeze(OpContext &op) {
  Tensor self = op.tensor("self");
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank() + 1));
  Shape sizes(self.sizes);
  sizes.insert(sizes.begin() + dim, 1);
  return setResult(op, reshape(op, self, sizes));
}

/// Drops those of the given dimensions that have size 1.
static Error squeeze(OpContext &op, ArrayRef<int64_t> dims) {
  Tensor self = op.tensor("self");
  Shape sizes;
  for (auto [dim, size] : enumerate(self.sizes))
    if (size != 1 || !is_contained(dims, int64_t(dim)))
      sizes.push_back(size);
  return setResult(op, reshape(op, self, sizes));
}

static Error lowerSqueeze(OpContext &op) {
  return squeeze(op, to_vector(seq<int64_t>(0, op.tensor("self").rank())));
}
static Error lowerSqueezeDim(OpContext &op) {
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", op.tensor("self").rank()));
  return squeeze(op, dim);
}
static Error lowerSqueezeDims(OpContext &op) {
  Shape dims;
  for (int64_t value : op.integers("dim")) {
    ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", value, op.tensor("self").rank()));
    dims.push_back(dim);
  }
  return squeeze(op, dims);
}

//===----------------------------------------------------------------------===//
// Permutations and expansions
//===----------------------------------------------------------------------===//

static Error lowerPermute(OpContext &op) {
  Tensor self = op.tensor("self");
  ArrayRef<int64_t> given = op.integers("dims");
  Shape dims;
  for (int64_t value : given) {
    ASSIGN_OR_RETURN(int64_t dim, op.dimension("dims", value, self.rank()));
    if (is_contained(dims, dim))
      return op.error("argument 'dims' names dimension " + Twine(dim) + " twice");
    dims.push_back(dim);
  }
  if (int64_t(dims.size()) != self.rank())
    return op.error("argument 'dims': expected " + Twine(self.rank()) + " dimensions, found " +
                    toString(given));
  return setResult(op, permute(op, self, dims));
}

static Error swapDimensions(OpContext &op, int64_t first, int64_t second) {
  Tensor self = op.tensor("self");
  auto dims = to_vector(seq<int64_t>(0, self.rank()));
  if (self.rank() > 1)
    std::swap(dims[first], dims[second]);
  return setResult(op, permute(op, self, dims));
}

static Error lowerTranspose(OpContext &op) {
  int64_t rank = op.tensor("self").rank();
  ASSIGN_OR_RETURN(int64_t first, op.dimension("dim0", rank));
  ASSIGN_OR_RETURN(int64_t second, op.dimension("dim1", rank));
  return swapDimensions(op, first, second);
}

static Error lowerT(OpContext &op) {
  if (op.tensor("self").rank() > 2)
    return op.error("expected a tensor of rank 2 at most");
  return swapDimensions(op, 0, 1);
}

/// Dimensions `source` go to the places `destination`, the others keep their order.
static Error lowerMovedim(OpContext &op) {
  Tensor self = op.tensor("self");
  ArrayRef<int64_t> source = op.integers("source"), destination = op.integers("destination");
  if (source.size() != destination.size() || self.rank() == 0)
    return op.error("expected as many sources as destinations");
  Shape permutation(self.rank(), -1), rest;
  for (auto [from, to] : zip_equal(source, destination)) {
    ASSIGN_OR_RETURN(int64_t dim, op.dimension("source", from, self.rank()));
    ASSIGN_OR_RETURN(int64_t place, op.dimension("destination", to, self.rank()));
    if (permutation[place] != -1 || is_contained(permutation, dim))
      return op.error("names a dimension twice");
    permutation[place] = dim;
  }
  for (int64_t dim = 0; dim != self.rank(); ++dim)
    if (!is_contained(permutation, dim))
      rest.push_back(dim);
  auto next = rest.begin();
  for (int64_t &dim : permutation)
    if (dim == -1)
      dim = *next++;
  return setResult(op, permute(op, self, permutation));
}

/// All dimensions, or the last two, in reverse order.
static Error lowerReverseDims(OpContext &op) {
  Tensor self = op.tensor("self");
  auto dims = to_vector(reverse(seq<int64_t>(0, self.rank())));
  return setResult(op, permute(op, self, dims));
}
static Error lowerMatrixTranspose(OpContext &op) {
  int64_t rank = op.tensor("self").rank();
  if (rank < 2)
    return op.error("expected a tensor of rank 2 at least");
  return swapDimensions(op, rank - 2, rank - 1);
}

static Error lowerExpand(OpContext &op) {
  return setResult(op, expand(op, op.tensor("self"), op.integers("size")));
}
static Error lowerExpandAs(OpContext &op) {
  return setResult(op, expand(op, op.tensor("self"), op.tensor("other").sizes));
}

static Error lowerBroadcastTensors(OpContext &op) {
  std::vector<std::optional<Tensor>> tensors = op.tensors("tensors");
  if (tensors.size() != op.getNumResults())
    return op.error("expected as many results as tensors");
  Shape sizes;
  for (const auto &tensor : tensors) {
    ASSIGN_OR_RETURN(sizes, broadcastShapes(op, sizes, tensor->sizes));
  }
  for (auto [i, tensor] : enumerate(tensors)) {
    ASSIGN_OR_RETURN(Tensor expanded, expand(op, *tensor, sizes));
    op.setResult(i, expanded);
  }
  return Error::success();
}

/// [a, b] repeated [m, n] times: [1, a, 1, b] expanded to [m, a, n, b], then [m * a, n * b].
static Error repeat(OpContext &op, ArrayRef<int64_t> repeats) {
  Tensor self = op.tensor("self");
  int64_t added = int64_t(repeats.size()) - self.rank();
  if (added < 0)
    return op.error("argument 'repeats': expected at least " + Twine(self.rank()) +
                    " integers, found " + toString(repeats));
  Shape split, repeated, merged;
  for (auto [dim, times] : enumerate(repeats)) {
    int64_t size = int64_t(dim) < added ? 1 : self.sizes[dim - added];
    if (times < 1 || times > limits::elements / std::max<int64_t>(size, 1))
      return op.error("argument 'repeats': expected positive integers, found " + toString(repeats));
    split.append({1, size});
    repeated.append({times, size});
    merged.push_back(times * size);
  }
  RETURN_IF_ERROR(countElements(op, merged).takeError());
  ASSIGN_OR_RETURN(Tensor result, reshape(op, self, split));
  ASSIGN_OR_RETURN(result, expand(op, result, repeated));
  ASSIGN_OR_RETURN(result, reshape(op, result, merged));
  return setResult(op, op.copy(result));
}

static Error lowerRepeat(OpContext &op) { return repeat(op, op.integers("repeats")); }

/// Like repeat, but missing numbers are ones.
static Error lowerTile(OpContext &op) {
  ArrayRef<int64_t> given = op.integers("dims");
  Shape repeats(std::max<int64_t>(0, op.tensor("self").rank() - int64_t(given.size())), 1);
  append_range(repeats, given);
  return repeat(op, repeats);
}

/// Each element `repeats` times in a row: [a] becomes [a, 1], [a, n], [a * n].
static Error lowerRepeatInterleave(OpContext &op) {
  Tensor self = op.tensor("self");
  int64_t repeats = op.integer("repeats");
  if (!op.has("dim")) {
    ASSIGN_OR_RETURN(self, reshape(op, self, self.getNumElements()));
  }
  ASSIGN_OR_RETURN(int64_t dim,
                   op.has("dim") ? op.dimension("dim", self.rank()) : Expected<int64_t>(0));
  if (self.rank() == 0 || self.getNumElements() == 0 || repeats < 1 ||
      repeats > limits::elements / self.sizes[dim])
    return op.error("expected a tensor with elements and a positive number, found " +
                    Twine(repeats));
  Shape split(self.sizes), merged(self.sizes);
  split.insert(split.begin() + dim + 1, 1);
  Shape repeated(split);
  repeated[dim + 1] = repeats;
  merged[dim] *= repeats;
  ASSIGN_OR_RETURN(Tensor result, reshape(op, self, split));
  ASSIGN_OR_RETURN(result, expand(op, result, repeated));
  ASSIGN_OR_RETURN(result, reshape(op, result, merged));
  return setResult(op, op.copy(result));
}

/// [.., C r r, H, W] and [.., C, H r, W r] (Shi et al., 2016); `shuffle` says in which direction.
template <bool shuffle> static Error lowerPixelShuffle(OpContext &op) {
  Tensor self = op.tensor("self");
  int64_t r = op.integer(shuffle ? "upscale_factor" : "downscale_factor");
  if (self.rank() < 3 || self.getNumElements() == 0 || r < 1 || r > (1 << 15))
    return op.error("expected a tensor of rank 3 at least and a positive factor");
  Shape lead(ArrayRef(self.sizes).drop_back(3));
  int64_t c = self.sizes[lead.size()], h = self.sizes[lead.size() + 1],
          w = self.sizes[lead.size() + 2];
  if (shuffle ? c % (r * r) != 0 : h % r != 0 || w % r != 0)
    return op.error("the factor " + Twine(r) + " does not divide " + toString(self.sizes));
  Shape split(lead), merged(lead);
  Shape order = shuffle ? Shape{0, 3, 1, 4, 2} : Shape{0, 2, 4, 1, 3};
  if (shuffle) {
    split.append({c / (r * r), r, r, h, w});
    merged.append({c / (r * r), h * r, w * r});
  } else {
    split.append({c, h / r, r, w / r, r});
    merged.append({c * r * r, h / r, w / r});
  }
  Shape permutation = to_vector<4>(seq<int64_t>(0, lead.size()));
  for (int64_t dim : order)
    permutation.push_back(lead.size() + dim);
  ASSIGN_OR_RETURN(Tensor result, reshape(op, self, split));
  ASSIGN_OR_RETURN(result, reshape(op, permute(op, result, permutation), merged));
  return setResult(op, op.copy(result));
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerViews(OpTable &table) {
  table.add("aten.view.default", "Tensor self, int[] size", lowerView);
  table.add("aten._unsafe_view.default", "Tensor self, int[] size", lowerView);
  table.add("aten.reshape.default", "Tensor self, int[] shape", [](OpContext &op) -> Error {
    Tensor self = op.tensor("self");
    ASSIGN_OR_RETURN(Shape sizes, inferSizes(op, op.integers("shape"), self.getNumElements()));
    return setResult(op, reshape(op, self, sizes));
  });
  table.add("aten.flatten.using_ints", "Tensor self, int start_dim=0, int end_dim=-1",
            lowerFlatten);
  table.add("aten.unflatten.int", "Tensor self, int dim, int[] sizes", lowerUnflatten);
  table.add("aten.unsqueeze.default", "Tensor self, int dim", lowerUnsqueeze);
  table.add("aten.squeeze.default", "Tensor self", lowerSqueeze);
  table.add("aten.squeeze.dim", "Tensor self, int dim", lowerSqueezeDim);
  table.add("aten.squeeze.dims", "Tensor self, int[] dim", lowerSqueezeDims);
  table.add("aten.permute.default", "Tensor self, int[] dims", lowerPermute);
  table.add("aten.transpose.int", "Tensor self, int dim0, int dim1", lowerTranspose);
  table.add("aten.t.default", "Tensor self", lowerT);
  table.add("aten.swapaxes.default", "Tensor self, int axis0, int axis1",
            [](OpContext &op) -> Error {
              ASSIGN_OR_RETURN(int64_t first, op.dimension("axis0", op.tensor("self").rank()));
              ASSIGN_OR_RETURN(int64_t second, op.dimension("axis1", op.tensor("self").rank()));
              return swapDimensions(op, first, second);
            });
  table.add("aten.movedim.int", "Tensor self, int[] source, int[] destination", lowerMovedim);
  table.add("aten.movedim.intlist", "Tensor self, int[] source, int[] destination", lowerMovedim);
  table.add("aten.numpy_T.default", "Tensor self", lowerReverseDims);
  table.add("aten.mT.default", "Tensor self", lowerMatrixTranspose);
  table.add("aten.expand.default", "Tensor self, int[] size, bool implicit=False", lowerExpand);
  table.add("aten.expand_as.default", "Tensor self, Tensor other", lowerExpandAs);
  table.add("aten.broadcast_to.default", "Tensor self, int[] size", lowerExpand);
  table.add("aten.broadcast_tensors.default", "Tensor[] tensors", lowerBroadcastTensors);
  table.add("aten.repeat.default", "Tensor self, int[] repeats", lowerRepeat);
  table.add("aten.repeat_interleave.self_int",
            "Tensor self, int repeats, int? dim=None, int? output_size=None",
            lowerRepeatInterleave);
  table.add("aten.pixel_shuffle.default", "Tensor self, int upscale_factor",
            lowerPixelShuffle<true>);
  table.add("aten.pixel_unshuffle.default", "Tensor self, int downscale_factor",
            lowerPixelShuffle<false>);
  table.add("aten.tile.default", "Tensor self, int[] dims", lowerTile);
  table.add("aten.swapdims.default", "Tensor self, int dim0, int dim1", lowerTranspose);
  table.add("aten.moveaxis.int", "Tensor self, int[] source, int[] destination", lowerMovedim);
  table.add("aten.moveaxis.intlist", "Tensor self, int[] source, int[] destination", lowerMovedim);
  table.add("aten.adjoint.default", "Tensor self", lowerMatrixTranspose);
  table.add("aten.mH.default", "Tensor self", lowerMatrixTranspose);
  // The same with memory of their own.
  table.add("aten.view_copy.default", "Tensor self, int[] size", lowerCopied<lowerView>);
  table.add("aten.permute_copy.default", "Tensor self, int[] dims", lowerCopied<lowerPermute>);
  table.add("aten.transpose_copy.int", "Tensor self, int dim0, int dim1",
            lowerCopied<lowerTranspose>);
  table.add("aten.t_copy.default", "Tensor self", lowerCopied<lowerT>);
  table.add("aten.unsqueeze_copy.default", "Tensor self, int dim", lowerCopied<lowerUnsqueeze>);
  table.add("aten.squeeze_copy.default", "Tensor self", lowerCopied<lowerSqueeze>);
  table.add("aten.squeeze_copy.dim", "Tensor self, int dim", lowerCopied<lowerSqueezeDim>);
  table.add("aten.squeeze_copy.dims", "Tensor self, int[] dim", lowerCopied<lowerSqueezeDims>);
  table.add("aten.expand_copy.default", "Tensor self, int[] size, bool implicit=False",
            lowerCopied<lowerExpand>);
}
