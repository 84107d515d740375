//===- Views.cpp - operators that only change how elements are addressed -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpContext.h"

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
static Error lowerRepeat(OpContext &op) {
  Tensor self = op.tensor("self");
  ArrayRef<int64_t> repeats = op.integers("repeats");
  int64_t added = int64_t(repeats.size()) - self.rank();
  if (added < 0)
    return op.error("argument 'repeats': expected at least " + Twine(self.rank()) + " integers, found " +
                    toString(repeats));
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

//===----------------------------------------------------------------------===//
// Slices
//===----------------------------------------------------------------------===//

/// Python's reading of a bound: negative ones count from the end, all are cut to the size.
static int64_t clampBound(int64_t bound, int64_t size) {
  if (bound < 0)
    bound = bound < -size ? 0 : bound + size;
  return std::min(bound, size);
}

static Error lowerSlice(OpContext &op) {
  Tensor self = op.tensor("self");
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  if (self.rank() == 0)
    return op.error("expected a tensor with dimensions");
  int64_t size = self.sizes[dim], step = op.integer("step");
  if (step < 1)
    return op.error("argument 'step': expected a positive integer, found " + Twine(step));
  int64_t begin = clampBound(op.optionalInteger("start").value_or(0), size);
  int64_t end = clampBound(op.optionalInteger("end").value_or(size), size);
  int64_t count = end > begin ? (end - begin - 1) / step + 1 : 0;
  return setResult(op, slice(op, self, dim, begin, step, count));
}

static Error lowerNarrow(OpContext &op) {
  Tensor self = op.tensor("self");
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  int64_t begin = op.integer("start"), count = op.integer("length");
  if (self.rank() == 0 || begin < 0 || count < 0 || begin > self.sizes[dim] ||
      count > self.sizes[dim] - begin)
    return op.error("elements " + Twine(begin) + " to +" + Twine(count) + " do not lie in dimension " +
                    Twine(dim) + " of " + toString(self.sizes));
  return setResult(op, slice(op, self, dim, begin, 1, count));
}

static Expected<Tensor> selectIndex(OpContext &op, const Tensor &self, int64_t dim, int64_t index) {
  ASSIGN_OR_RETURN(Tensor element, slice(op, self, dim, index, 1, 1));
  Shape sizes(self.sizes);
  sizes.erase(sizes.begin() + dim);
  return reshape(op, element, sizes);
}

static Error lowerSelect(OpContext &op) {
  Tensor self = op.tensor("self");
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  if (self.rank() == 0)
    return op.error("expected a tensor with dimensions");
  int64_t size = self.sizes[dim], index = op.integer("index");
  if (index < -size || index >= size)
    return op.error("argument 'index': expected an element of dimension " + Twine(dim) + " of " +
                    toString(self.sizes) + ", found " + Twine(index));
  return setResult(op, selectIndex(op, self, dim, index < 0 ? index + size : index));
}

static Error lowerUnbind(OpContext &op) {
  Tensor self = op.tensor("self");
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  if (self.rank() == 0 || int64_t(op.getNumResults()) != self.sizes[dim])
    return op.error("expected " + Twine(op.getNumResults()) + " elements in dimension " + Twine(dim) +
                    " of " + toString(self.sizes));
  for (size_t i = 0; i != op.getNumResults(); ++i) {
    ASSIGN_OR_RETURN(Tensor element, selectIndex(op, self, dim, i));
    op.setResult(i, element);
  }
  return Error::success();
}

/// Consecutive pieces of the given sizes, which fill the dimension.
static Error split(OpContext &op, ArrayRef<int64_t> pieces, int64_t dim) {
  Tensor self = op.tensor("self");
  int64_t begin = 0;
  for (int64_t piece : pieces) {
    if (piece < 0 || piece > self.sizes[dim] - begin)
      return op.error("pieces of " + toString(pieces) + " do not fit dimension " + Twine(dim) + " of " +
                      toString(self.sizes));
    begin += piece;
  }
  if (begin != self.sizes[dim] || pieces.size() != op.getNumResults())
    return op.error("pieces of " + toString(pieces) + " do not fill dimension " + Twine(dim) + " of " +
                    toString(self.sizes) + " in " + Twine(op.getNumResults()) + " results");
  begin = 0;
  for (auto [i, piece] : enumerate(pieces)) {
    ASSIGN_OR_RETURN(Tensor part, slice(op, self, dim, begin, 1, piece));
    op.setResult(i, part);
    begin += piece;
  }
  return Error::success();
}

static Error splitEvenly(OpContext &op, int64_t size, int64_t dim) {
  int64_t total = op.tensor("self").sizes[dim];
  if (size < 1 || (total - 1) / size + 1 != int64_t(op.getNumResults()))
    return op.error("pieces of " + Twine(size) + " elements of " + Twine(total) + " do not give " +
                    Twine(op.getNumResults()) + " results");
  Shape pieces;
  for (int64_t left = total; left > 0; left -= size)
    pieces.push_back(std::min(size, left));
  return split(op, pieces, dim);
}

static Expected<int64_t> getSplitDimension(OpContext &op) {
  Tensor self = op.tensor("self");
  if (self.rank() == 0 || self.getNumElements() == 0)
    return op.error("expected a tensor with dimensions and elements, found " + toString(self.sizes));
  return op.dimension("dim", self.rank());
}

static Error lowerSplit(OpContext &op) {
  ASSIGN_OR_RETURN(int64_t dim, getSplitDimension(op));
  return splitEvenly(op, op.integer("split_size"), dim);
}
static Error lowerChunk(OpContext &op) {
  ASSIGN_OR_RETURN(int64_t dim, getSplitDimension(op));
  int64_t chunks = op.integer("chunks");
  if (chunks < 1)
    return op.error("argument 'chunks': expected a positive integer, found " + Twine(chunks));
  return splitEvenly(op, (op.tensor("self").sizes[dim] - 1) / chunks + 1, dim);
}
static Error lowerSplitWithSizes(OpContext &op) {
  ASSIGN_OR_RETURN(int64_t dim, getSplitDimension(op));
  return split(op, op.integers("split_sizes"), dim);
}

//===----------------------------------------------------------------------===//
// Concatenation
//===----------------------------------------------------------------------===//

/// Tensors that agree in all dimensions but `dim`.
static Expected<Tensor> concatenate(OpContext &op, ArrayRef<Tensor> parts, int64_t dim) {
  DType type = op.resultMeta(0).dtype;
  SmallVector<Constant> known;
  Shape sizes(parts.front().sizes);
  sizes[dim] = 0;
  for (const Tensor &part : parts) {
    Shape expected(sizes);
    if (part.rank() == int64_t(expected.size()))
      expected[dim] = part.sizes[dim];
    if (part.sizes != expected || part.getNumElements() == 0)
      return op.error("cannot join " + toString(parts.front().sizes) + " and " + toString(part.sizes) +
                      " along dimension " + Twine(dim));
    sizes[dim] += part.sizes[dim];
    if (part.constant && !isFloat(type))
      known.push_back(castTo(op, part, type).constant);
  }
  RETURN_IF_ERROR(countElements(op, sizes).takeError());
  if (known.size() == parts.size()) {
    RETURN_IF_ERROR(checkFoldable(op, sizes));
    return op.wrap(ConstantTensor::concat(known, dim));
  }
  SmallVector<Value> values;
  for (const Tensor &part : parts)
    values.push_back(op.get(castTo(op, part, type)));
  if (values.size() == 1)
    return op.copy(castTo(op, parts.front(), type));
  return op.wrap(type, mlir::tensor::ConcatOp::create(op.b, dim, values));
}

static Expected<std::vector<Tensor>> getParts(OpContext &op) {
  std::vector<Tensor> parts;
  for (const auto &tensor : op.tensors("tensors"))
    parts.push_back(*tensor);
  if (parts.empty())
    return op.error("expected at least one tensor");
  return parts;
}

static Error lowerCat(OpContext &op) {
  ASSIGN_OR_RETURN(std::vector<Tensor> parts, getParts(op));
  if (parts.front().rank() == 0)
    return op.error("expected tensors with dimensions");
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", parts.front().rank()));
  return setResult(op, concatenate(op, parts, dim));
}

static Error lowerStack(OpContext &op) {
  ASSIGN_OR_RETURN(std::vector<Tensor> parts, getParts(op));
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", parts.front().rank() + 1));
  for (Tensor &part : parts) {
    Shape sizes(part.sizes);
    if (dim > part.rank())
      return op.error("expected tensors of one rank");
    sizes.insert(sizes.begin() + dim, 1);
    ASSIGN_OR_RETURN(part, reshape(op, part, sizes));
  }
  return setResult(op, concatenate(op, parts, dim));
}

/// Elements move `shift` places on, those that fall off come in at the front.
static Error lowerRoll(OpContext &op) {
  Tensor result = op.tensor("self");
  ArrayRef<int64_t> shifts = op.integers("shifts"), dims = op.integers("dims");
  if (shifts.size() != dims.size() || dims.empty())
    return op.error("expected one dimension for each shift");
  for (auto [shift, given] : zip_equal(shifts, dims)) {
    ASSIGN_OR_RETURN(int64_t dim, op.dimension("dims", given, result.rank()));
    if (result.getNumElements() == 0 || result.rank() == 0)
      return op.error("expected a tensor with dimensions and elements");
    int64_t size = result.sizes[dim], front = ((shift % size) + size) % size;
    if (front == 0)
      continue;
    ASSIGN_OR_RETURN(Tensor head, slice(op, result, dim, size - front, 1, front));
    ASSIGN_OR_RETURN(Tensor tail, slice(op, result, dim, 0, 1, size - front));
    ASSIGN_OR_RETURN(result, concatenate(op, {head, tail}, dim));
  }
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
  table.add("aten.flatten.using_ints", "Tensor self, int start_dim=0, int end_dim=-1", lowerFlatten);
  table.add("aten.unflatten.int", "Tensor self, int dim, int[] sizes", lowerUnflatten);
  table.add("aten.unsqueeze.default", "Tensor self, int dim", lowerUnsqueeze);
  table.add("aten.squeeze.default", "Tensor self", lowerSqueeze);
  table.add("aten.squeeze.dim", "Tensor self, int dim", lowerSqueezeDim);
  table.add("aten.squeeze.dims", "Tensor self, int[] dim", lowerSqueezeDims);
  table.add("aten.permute.default", "Tensor self, int[] dims", lowerPermute);
  table.add("aten.transpose.int", "Tensor self, int dim0, int dim1", lowerTranspose);
  table.add("aten.t.default", "Tensor self", lowerT);
  table.add("aten.expand.default", "Tensor self, int[] size, bool implicit=False", lowerExpand);
  table.add("aten.expand_as.default", "Tensor self, Tensor other", lowerExpandAs);
  table.add("aten.broadcast_to.default", "Tensor self, int[] size", lowerExpand);
  table.add("aten.broadcast_tensors.default", "Tensor[] tensors", lowerBroadcastTensors);
  table.add("aten.repeat.default", "Tensor self, int[] repeats", lowerRepeat);
  table.add("aten.slice.Tensor",
            "Tensor self, int dim=0, int? start=None, int? end=None, int step=1", lowerSlice);
  table.add("aten.narrow.default", "Tensor self, int dim, int start, int length", lowerNarrow);
  table.add("aten.select.int", "Tensor self, int dim, int index", lowerSelect);
  table.add("aten.unbind.int", "Tensor self, int dim=0", lowerUnbind);
  table.add("aten.split.Tensor", "Tensor self, int split_size, int dim=0", lowerSplit);
  table.add("aten.split_with_sizes.default", "Tensor self, int[] split_sizes, int dim=0",
            lowerSplitWithSizes);
  table.add("aten.chunk.default", "Tensor self, int chunks, int dim=0", lowerChunk);
  table.add("aten.cat.default", "Tensor[] tensors, int dim=0", lowerCat);
  table.add("aten.stack.default", "Tensor[] tensors, int dim=0", lowerStack);
  table.add("aten.roll.default", "Tensor self, int[] shifts, int[] dims=[]", lowerRoll);
}
