//===- Slices.cpp - parts of tensors, and tensors of parts -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Ops/Indexing/Indexing.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::Value;

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
  if (begin < 0 && self.rank() != 0)
    begin += self.sizes[dim]; // counted from the end
  if (self.rank() == 0 || begin < 0 || count < 0 || begin > self.sizes[dim] ||
      count > self.sizes[dim] - begin)
    return op.error("elements " + Twine(begin) + " to +" + Twine(count) +
                    " do not lie in dimension " + Twine(dim) + " of " + toString(self.sizes));
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
    return op.error("expected " + Twine(op.getNumResults()) + " elements in dimension " +
                    Twine(dim) + " of " + toString(self.sizes));
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
      return op.error("pieces of " + toString(pieces) + " do not fit dimension " + Twine(dim) +
                      " of " + toString(self.sizes));
    begin += piece;
  }
  if (begin != self.sizes[dim] || pieces.size() != op.getNumResults())
    return op.error("pieces of " + toString(pieces) + " do not fill dimension " + Twine(dim) +
                    " of " + toString(self.sizes) + " in " + Twine(op.getNumResults()) +
                    " results");
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
    return op.error("expected a tensor with dimensions and elements, found " +
                    toString(self.sizes));
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

/// Cuts at the given places, which may lie beyond either end; or into parts of nearly equal size.
static Error splitAt(OpContext &op, ArrayRef<int64_t> places, int64_t dim) {
  Tensor self = op.tensor("self");
  int64_t size = self.sizes[dim], begin = 0;
  if (places.size() + 1 != op.getNumResults())
    return op.error("expected " + Twine(places.size() + 1) + " results, found " +
                    Twine(op.getNumResults()));
  for (size_t i = 0; i <= places.size(); ++i) {
    int64_t end = i < places.size() ? clampBound(places[i], size) : size;
    ASSIGN_OR_RETURN(Tensor part,
                     slice(op, self, dim, begin, 1, std::max<int64_t>(0, end - begin)));
    op.setResult(i, part);
    begin = end;
  }
  return Error::success();
}

static Error lowerTensorSplit(OpContext &op) {
  ASSIGN_OR_RETURN(int64_t dim, getSplitDimension(op));
  if (op.hasParameter("indices"))
    return splitAt(op, op.integers("indices"), dim);
  int64_t sections = op.integer("sections"), size = op.tensor("self").sizes[dim];
  if (sections < 1 || sections > size)
    return op.error("argument 'sections': expected from 1 to " + Twine(size) + ", found " +
                    Twine(sections));
  SmallVector<int64_t> places;
  for (int64_t i = 1; i < sections; ++i) // the first ones get what is left over
    places.push_back(i * (size / sections) + std::min(i, size % sections));
  return splitAt(op, places, dim);
}

//===----------------------------------------------------------------------===//
// Concatenation
//===----------------------------------------------------------------------===//

/// The shape of parts joined along a dimension.
static Expected<Shape> joinShapes(OpContext &op, ArrayRef<Tensor> parts, int64_t dim) {
  Shape sizes(parts.front().sizes);
  sizes[dim] = 0;
  for (const Tensor &part : parts) {
    Shape expected(sizes);
    if (part.rank() == int64_t(expected.size()))
      expected[dim] = part.sizes[dim];
    if (part.sizes != expected)
      return op.error("cannot join " + toString(parts.front().sizes) + " and " +
                      toString(part.sizes) + " along dimension " + Twine(dim));
    sizes[dim] += part.sizes[dim];
  }
  RETURN_IF_ERROR(countElements(op, sizes).takeError());
  return sizes;
}

Expected<Tensor> memopt::pt2::concatenate(OpContext &op, ArrayRef<Tensor> parts, int64_t dim) {
  SmallVector<Operand> operands(parts.begin(), parts.end());
  DType type = promote(operands);
  ASSIGN_OR_RETURN(Shape sizes, joinShapes(op, parts, dim));
  if (is_contained(sizes, 0))
    return makeEmpty(op, type, sizes);
  SmallVector<Tensor> some;
  for (const Tensor &part : parts)
    if (part.getNumElements() != 0)
      some.push_back(castTo(op, part, type));
  if (!isFloat(type) && all_of(some, [](const Tensor &part) { return part.constant != nullptr; })) {
    RETURN_IF_ERROR(checkFoldable(op, sizes));
    SmallVector<Constant> known;
    for (const Tensor &part : some)
      known.push_back(part.constant);
    return op.wrap(ConstantTensor::concat(known, dim));
  }
  if (some.size() == 1)
    return op.copy(some.front());
  SmallVector<Value> values;
  for (const Tensor &part : some)
    values.push_back(op.get(part));
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
  // Of rank 1 and empty: joins with tensors of any shape, as in old versions of PyTorch.
  auto isNothing = [](const Tensor &part) { return part.sizes == Shape{0}; };
  if (!all_of(parts, isNothing))
    llvm::erase_if(parts, isNothing);
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

/// `src` takes the place of elements [begin, begin + its size) of a dimension.
static Error insertSlice(OpContext &op, const Tensor &source, int64_t dim, int64_t begin) {
  Tensor self = op.tensor("self");
  int64_t count = source.sizes[dim], end = begin + count;
  std::vector<Tensor> parts;
  if (begin > 0) {
    ASSIGN_OR_RETURN(Tensor head, slice(op, self, dim, 0, 1, begin));
    parts.push_back(head);
  }
  parts.push_back(source);
  if (end < self.sizes[dim]) {
    ASSIGN_OR_RETURN(Tensor tail, slice(op, self, dim, end, 1, self.sizes[dim] - end));
    parts.push_back(tail);
  }
  return setResult(op, concatenate(op, parts, dim));
}

static Error lowerSliceScatter(OpContext &op) {
  Tensor self = op.tensor("self"), source = op.tensor("src");
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  int64_t step = op.integer("step");
  if (self.rank() == 0 || step < 1)
    return op.error("expected a tensor with dimensions and a positive step");
  int64_t size = self.sizes[dim];
  int64_t begin = clampBound(op.optionalInteger("start").value_or(0), size);
  int64_t end = clampBound(op.optionalInteger("end").value_or(size), size);
  Shape expected(self.sizes);
  expected[dim] = end > begin ? (end - begin - 1) / step + 1 : 0;
  if (source.sizes != expected)
    return op.error("expected a source of shape " + toString(expected) + ", found " +
                    toString(source.sizes));
  if (expected[dim] == 0)
    return setResult(op, op.copy(self));
  if (step == 1)
    return insertSlice(op, source, dim, begin);
  Places places = Places::identity(expected);
  Tensor index = op.wrap(ConstantTensor::iota(DType::I64, begin, step, expected[dim]));
  ASSIGN_OR_RETURN(places.indices[dim], placeAt(op, index, self.rank(), dim));
  return setResult(op, scatter(op, mlir::memopt::ScatterKind::Set, self,
                               castTo(op, source, self.dtype), places));
}

static Error lowerSelectScatter(OpContext &op) {
  Tensor self = op.tensor("self"), source = op.tensor("src");
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  int64_t index = op.integer("index");
  if (self.rank() == 0 || index < -self.sizes[dim] || index >= self.sizes[dim])
    return op.error("expected an element of a dimension of " + toString(self.sizes));
  Shape sizes(self.sizes);
  sizes[dim] = 1;
  ASSIGN_OR_RETURN(source, reshape(op, source, sizes));
  return insertSlice(op, source, dim, index < 0 ? index + self.sizes[dim] : index);
}

/// Vectors as the axes of a grid; `ij` puts the first one along dimension 0.
static Error lowerMeshgrid(OpContext &op) {
  std::vector<std::optional<Tensor>> axes = op.tensors("tensors");
  StringRef indexing = op.text("indexing");
  if ((indexing != "ij" && indexing != "xy") || axes.size() != op.getNumResults())
    return op.error("expected indexing 'ij' or 'xy', and as many results as tensors");
  // With 'xy' the first two axes change places.
  bool swaps = indexing == "xy" && axes.size() > 1;
  auto placeOf = [&](int64_t axis) { return swaps && axis < 2 ? 1 - axis : axis; };
  Shape sizes(axes.size());
  for (auto [dim, axis] : enumerate(axes))
    sizes[placeOf(dim)] = axis->getNumElements();
  RETURN_IF_ERROR(countElements(op, sizes).takeError());
  for (auto [dim, axis] : enumerate(axes)) {
    Shape own(sizes.size(), 1);
    own[placeOf(dim)] = axis->getNumElements();
    ASSIGN_OR_RETURN(Tensor grid, reshape(op, *axis, own));
    ASSIGN_OR_RETURN(grid, expand(op, grid, sizes));
    op.setResult(dim, grid);
  }
  return Error::success();
}

/// Elements move `shift` places on, those that fall off come in at the front.
static Expected<Tensor> roll(OpContext &op, const Tensor &self, int64_t dim, int64_t shift) {
  int64_t size = self.sizes[dim], front = ((shift % size) + size) % size;
  if (front == 0)
    return self;
  ASSIGN_OR_RETURN(Tensor head, slice(op, self, dim, size - front, 1, front));
  ASSIGN_OR_RETURN(Tensor tail, slice(op, self, dim, 0, 1, size - front));
  return concatenate(op, {head, tail}, dim);
}

static Error lowerRoll(OpContext &op) {
  Tensor self = op.tensor("self"), result = self;
  ArrayRef<int64_t> shifts = op.integers("shifts"), dims = op.integers("dims");
  const int64_t flat = 0;
  if (dims.empty()) {
    ASSIGN_OR_RETURN(result, reshape(op, self, self.getNumElements()));
    dims = flat;
  }
  if (shifts.size() != dims.size() || dims.empty())
    return op.error("expected one dimension for each shift");
  for (auto [shift, given] : zip_equal(shifts, dims)) {
    ASSIGN_OR_RETURN(int64_t dim, op.dimension("dims", given, result.rank()));
    if (result.getNumElements() == 0 || result.rank() == 0)
      return op.error("expected a tensor with dimensions and elements");
    ASSIGN_OR_RETURN(result, roll(op, result, dim, shift));
  }
  ASSIGN_OR_RETURN(result, reshape(op, result, self.sizes));
  return setResult(op, op.copy(result));
}

/// The frequency zero of a spectrum moves to the middle, or back.
template <bool isInverse> static Error lowerFftShift(OpContext &op) {
  Tensor result = op.tensor("self");
  if (result.rank() == 0 || result.getNumElements() == 0)
    return op.error("expected a tensor with dimensions and elements");
  Shape dims;
  if (op.has("dim")) {
    ASSIGN_OR_RETURN(dims, op.dimensions("dim", result.rank()));
  } else {
    append_range(dims, seq<int64_t>(0, result.rank()));
  }
  for (int64_t dim : dims) {
    int64_t size = result.sizes[dim];
    ASSIGN_OR_RETURN(result, roll(op, result, dim, isInverse ? size - size / 2 : size / 2));
  }
  return setResult(op, op.copy(result));
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerSlices(OpTable &table) {
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
  table.add("aten.concat.default", "Tensor[] tensors, int dim=0", lowerCat);
  table.add("aten.slice_scatter.default",
            "Tensor self, Tensor src, int dim=0, int? start=None, int? end=None, int step=1",
            lowerSliceScatter);
  table.add("aten.select_scatter.default", "Tensor self, Tensor src, int dim, int index",
            lowerSelectScatter);
  table.add("aten.meshgrid.default", "Tensor[] tensors, str indexing='ij'", lowerMeshgrid);
  table.add("aten.meshgrid.indexing", "Tensor[] tensors, str indexing='ij'", lowerMeshgrid);
  table.add("aten.stack.default", "Tensor[] tensors, int dim=0", lowerStack);
  table.add("aten.roll.default", "Tensor self, int[] shifts, int[] dims=[]", lowerRoll);
  table.add("aten.fft_fftshift.default", "Tensor self, int[]? dim=None", lowerFftShift<false>);
  table.add("aten.fft_ifftshift.default", "Tensor self, int[]? dim=None", lowerFftShift<true>);
  constexpr StringLiteral bySize = "Tensor self, int split_size, int dim=0";
  constexpr StringLiteral bySizes = "Tensor self, int[] split_sizes, int dim=0";
  table.add("aten.tensor_split.sections", "Tensor self, int sections, int dim=0", lowerTensorSplit);
  table.add("aten.tensor_split.indices", "Tensor self, int[] indices, int dim=0", lowerTensorSplit);
  // The same with memory of their own.
  table.add("aten.slice_copy.Tensor",
            "Tensor self, int dim=0, int? start=None, int? end=None, int step=1",
            lowerCopied<lowerSlice>);
  table.add("aten.narrow_copy.default", "Tensor self, int dim, int start, int length",
            lowerCopied<lowerNarrow>);
  table.add("aten.select_copy.int", "Tensor self, int dim, int index", lowerCopied<lowerSelect>);
  table.add("aten.unbind_copy.int", "Tensor self, int dim=0", lowerCopied<lowerUnbind>);
  table.add("aten.split_copy.Tensor", bySize, lowerCopied<lowerSplit>);
  table.add("aten.unsafe_split.Tensor", bySize, lowerCopied<lowerSplit>);
  table.add("aten.split_with_sizes_copy.default", bySizes, lowerCopied<lowerSplitWithSizes>);
  table.add("aten.unsafe_split_with_sizes.default", bySizes, lowerCopied<lowerSplitWithSizes>);
  table.add("aten.unsafe_chunk.default", "Tensor self, int chunks, int dim=0",
            lowerCopied<lowerChunk>);
}
