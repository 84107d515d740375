//===- Indexing.cpp - elements picked by index tensors -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// embedding, index, gather and their like, as places (Indexing.h).
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Ops/Indexing/Indexing.h"
#include "memopt/Dialect/ApartOps.h"
#include "memopt/Import/Graph/Formula.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::Value;
using mlir::ValueRange;
using Builder = mlir::ImplicitLocOpBuilder;
namespace arith = mlir::arith;

//===----------------------------------------------------------------------===//
// Embedding
//===----------------------------------------------------------------------===//

/// Whether known indices name the padding row, which then gets no gradient.
static bool namesRow(const ConstantTensor &indices, int64_t row) {
  return any_of(seq<int64_t>(0, indices.getNumStored()),
                [&](int64_t i) { return indices.getStored(i) == row; });
}

/// table[indices[i...], :]
static Expected<Tensor> gatherRows(OpContext &op, const Tensor &table, const Tensor &indices) {
  Shape sizes(indices.sizes);
  sizes.push_back(table.sizes[1]);
  Places places;
  places.sizes = sizes;
  places.positions = {0, indices.rank()};
  ASSIGN_OR_RETURN(Tensor prepared, prepareIndex(op, indices, table.sizes[0], false));
  ASSIGN_OR_RETURN(prepared,
                   placeAt(op, prepared, sizes.size(), to_vector(seq<int64_t>(0, indices.rank()))));
  places.indices = {std::move(prepared), std::nullopt};
  return gather(op, table, std::move(places));
}

static Error lowerEmbedding(OpContext &op) {
  Tensor table = op.tensor("weight"), indices = op.tensor("indices");
  if (op.flag("scale_grad_by_freq") || op.flag("sparse"))
    return op.error("scale_grad_by_freq and sparse gradients are not supported");
  if (table.rank() != 2 || !isFloat(table.dtype) || table.getNumElements() == 0 ||
      (indices.dtype != DType::I64 && indices.dtype != DType::I32))
    return op.error("expected a floating-point table and integer indices, found " +
                    getName(table.dtype) + toString(table.sizes) + " and " +
                    getName(indices.dtype));
  int64_t padding = op.integer("padding_idx");
  if (padding < -1 || padding >= table.sizes[0])
    return op.error("argument 'padding_idx': expected a row of " + toString(table.sizes) +
                    " or -1, found " + Twine(padding));
  if (indices.constant && !(padding >= 0 && namesRow(*indices.constant, padding)))
    return setResult(op, gatherRows(op, table, indices));
  Shape sizes(indices.sizes);
  sizes.push_back(table.sizes[1]);
  RETURN_IF_ERROR(countElements(op, sizes).takeError());
  Value result = mlir::memopt::EmbeddingOp::create(
      op.b, op.tensorType(table.dtype, sizes), op.get(table), op.get(indices),
      padding < 0 ? mlir::IntegerAttr() : op.b.getI64IntegerAttr(padding));
  return setResult(op, op.wrap(table.dtype, result));
}

//===----------------------------------------------------------------------===//
// index and index_put
//===----------------------------------------------------------------------===//

/// The places of true elements of a known mask, one list for each of its dimensions.
static Expected<std::vector<Tensor>> listTrue(OpContext &op, const Tensor &mask) {
  if (!mask.constant)
    return op.error("picks elements by a computed mask, whose number depends on the data; keep all "
                    "elements, and choose with torch.where");
  RETURN_IF_ERROR(checkFoldable(op, mask.sizes));
  std::vector<SmallVector<int64_t>> lists(mask.rank());
  ConstantTensor::generate(DType::Bool, mask.sizes, [&](ArrayRef<int64_t> at) -> int64_t {
    if (mask.constant->at(at))
      for (auto [list, coordinate] : zip_equal(lists, at))
        list.push_back(coordinate);
    return 0;
  });
  if (lists.empty() || lists.front().empty())
    return op.error("picks no elements");
  std::vector<Tensor> result;
  for (ArrayRef<int64_t> list : lists)
    result.push_back(op.wrap(ConstantTensor::dense(DType::I64, int64_t(list.size()), list)));
  return result;
}

/// One entry for each dimension of `self`: known masks become lists of indices.
static Expected<std::vector<std::optional<Tensor>>>
expandMasks(OpContext &op, const Tensor &self, ArrayRef<std::optional<Tensor>> given) {
  std::vector<std::optional<Tensor>> result;
  for (const std::optional<Tensor> &index : given) {
    if (!index || (index->dtype != DType::Bool && index->dtype != DType::U8)) {
      result.push_back(index);
      continue;
    }
    ASSIGN_OR_RETURN(std::vector<Tensor> lists, listTrue(op, *index));
    append_range(result, lists);
  }
  if (int64_t(result.size()) > self.rank() || self.getNumElements() == 0)
    return op.error("expected indices for at most " + Twine(self.rank()) + " dimensions");
  result.resize(self.rank());
  return result;
}

/// Index tensors broadcast together. Their dimensions take the place of the dimensions that they
/// index where these are neighbours, and come first otherwise.
static Expected<Places> getIndexPlaces(OpContext &op, const Tensor &self,
                                       ArrayRef<std::optional<Tensor>> given) {
  ASSIGN_OR_RETURN(auto indices, expandMasks(op, self, given));
  Shape shared;
  SmallVector<int64_t> indexed;
  for (auto [dim, index] : enumerate(indices)) {
    if (!index)
      continue;
    indexed.push_back(dim);
    ASSIGN_OR_RETURN(shared, broadcastShapes(op, shared, index->sizes));
  }
  if (indexed.empty())
    return op.error("expected at least one index");
  bool areNeighbours = indexed.back() - indexed.front() == int64_t(indexed.size()) - 1;
  int64_t lead = areNeighbours ? indexed.front() : 0, width = shared.size();
  int64_t rank = width + self.rank() - indexed.size();
  Places places;
  places.positions.resize(self.rank());
  places.sizes.assign(rank, 1);
  std::copy(shared.begin(), shared.end(), places.sizes.begin() + lead);
  int64_t next = 0;
  for (auto [dim, index] : enumerate(indices)) {
    if (index) {
      ASSIGN_OR_RETURN(Tensor prepared, prepareIndex(op, *index, self.sizes[dim], true));
      int64_t first = lead + width - prepared.rank();
      ASSIGN_OR_RETURN(index,
                       placeAt(op, prepared, rank, to_vector(seq<int64_t>(first, lead + width))));
      continue;
    }
    if (next == lead)
      next += width;
    places.positions[dim] = next;
    places.sizes[next++] = self.sizes[dim];
  }
  places.indices = std::move(indices);
  return places;
}

static Error lowerIndex(OpContext &op) {
  Tensor self = op.tensor("self");
  ASSIGN_OR_RETURN(Places places, getIndexPlaces(op, self, op.tensors("indices")));
  return setResult(op, gather(op, self, std::move(places)));
}

/// The only index, if it is a computed mask: then nothing is picked, values are chosen.
static std::optional<Tensor> getComputedMask(ArrayRef<std::optional<Tensor>> given) {
  if (given.size() != 1 || !given.front() || given.front()->constant ||
      given.front()->dtype != DType::Bool)
    return std::nullopt;
  return given.front();
}

/// x[mask] = value, and x[mask] += value.
static Error putByMask(OpContext &op, const Tensor &self, Tensor mask, const Tensor &values) {
  if (values.rank() > self.rank() - mask.rank() && values.getNumElements() != 1)
    return op.error("puts as many values as a computed mask has true elements; use torch.where");
  Shape spread(mask.sizes);
  spread.resize(self.rank(), 1);
  ASSIGN_OR_RETURN(mask, reshape(op, mask, spread));
  Tensor value = values;
  if (values.getNumElements() == 1) {
    ASSIGN_OR_RETURN(value, reshape(op, values, Shape()));
  }
  bool accumulates = op.flag("accumulate");
  return setResult(op, elementwise(op, {mask, value, self}, {DType::Bool, self.dtype, self.dtype},
                                   self.dtype, [&](Builder &b, ValueRange v) -> Value {
                                     Element old(b, v[2]), put(b, v[1]);
                                     return select({b, v[0]}, accumulates ? old + put : put, old);
                                   }));
}

static Error lowerIndexPut(OpContext &op) {
  Tensor self = op.tensor("self"), values = castTo(op, op.tensor("values"), self.dtype);
  std::vector<std::optional<Tensor>> given = op.tensors("indices");
  if (std::optional<Tensor> mask = getComputedMask(given))
    return putByMask(op, self, *mask, values);
  ASSIGN_OR_RETURN(Places places, getIndexPlaces(op, self, given));
  ASSIGN_OR_RETURN(values, expand(op, values, places.sizes));
  bool accumulates = op.flag("accumulate");
  return setResult(
      op, scatter(op, accumulates ? mlir::memopt::ScatterKind::Add : mlir::memopt::ScatterKind::Set,
                  self, values, places));
}

/// Indices held to the sizes that they index: what a mask leaves out may lie anywhere.
static Expected<std::vector<std::optional<Tensor>>> clampedIndices(OpContext &op,
                                                                   const Tensor &self) {
  std::vector<std::optional<Tensor>> indices = op.tensors("indices");
  if (int64_t(indices.size()) > self.rank())
    return op.error("expected indices for at most " + Twine(self.rank()) + " dimensions");
  for (auto [index, size] : zip(indices, self.sizes)) {
    if (!index)
      continue;
    if (isFloat(index->dtype) || index->dtype == DType::Bool)
      return op.error("expected integers as indices, found " + getName(index->dtype));
    DType type = getArithmeticType(index->dtype);
    ASSIGN_OR_RETURN(
        index, elementwise(
                   op, {castTo(op, *index, type)}, type, type,
                   [size = size](Builder &b, ValueRange v) -> Value {
                     Value least = arith::MaxSIOp::create(b, v[0], splat(b, v[0].getType(), -size));
                     return arith::MinSIOp::create(b, least, splat(b, v[0].getType(), size - 1));
                   },
                   [size = size](ArrayRef<int64_t> v) -> int64_t {
                     return std::clamp(v[0], -size, size - 1);
                   }));
  }
  return indices;
}

static Error lowerMaskedIndex(OpContext &op) {
  Tensor self = op.tensor("self");
  ASSIGN_OR_RETURN(auto indices, clampedIndices(op, self));
  ASSIGN_OR_RETURN(Places places, getIndexPlaces(op, self, indices));
  ASSIGN_OR_RETURN(Tensor picked, gather(op, self, std::move(places)));
  return setResult(op, select(op, op.tensor("mask"), picked, op.operand("fill"), self.dtype));
}

static Error lowerMaskedIndexPut(OpContext &op) {
  Tensor self = op.tensor("self"), values = castTo(op, op.tensor("values"), self.dtype);
  ASSIGN_OR_RETURN(auto indices, clampedIndices(op, self));
  ASSIGN_OR_RETURN(Places places, getIndexPlaces(op, self, indices));
  ASSIGN_OR_RETURN(values, select(op, op.tensor("mask"), values, Scalar(), self.dtype));
  ASSIGN_OR_RETURN(values, expand(op, values, places.sizes));
  return setResult(op, scatter(op, mlir::memopt::ScatterKind::Add, self, values, places));
}

//===----------------------------------------------------------------------===//
// One dimension
//===----------------------------------------------------------------------===//

static Error lowerIndexSelect(OpContext &op) {
  ASSIGN_OR_RETURN(Tensor self, withDimension(op, op.tensor("self")));
  Tensor index = op.tensor("index");
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  if (index.rank() > 1)
    return op.error("expected indices of rank 1, found " + toString(index.sizes));
  ASSIGN_OR_RETURN(index, withDimension(op, index));
  ASSIGN_OR_RETURN(Tensor result, selectAlong(op, self, index, dim));
  return setResult(op, reshape(op, result, op.resultMeta(0).sizes));
}

static Error lowerGather(OpContext &op) {
  ASSIGN_OR_RETURN(Tensor self, withDimension(op, op.tensor("self")));
  Tensor given = op.tensor("index");
  ASSIGN_OR_RETURN(Tensor index, withDimension(op, given));
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  if (index.rank() != self.rank() || index.getNumElements() == 0)
    return op.error("expected indices of the tensor's rank, found " + toString(index.sizes) +
                    " for " + toString(self.sizes));
  for (auto [at, sizes] : enumerate(zip_equal(index.sizes, self.sizes)))
    if (int64_t(at) != dim && std::get<0>(sizes) > std::get<1>(sizes))
      return op.error("indices of shape " + toString(index.sizes) + " do not fit " +
                      toString(self.sizes));
  ASSIGN_OR_RETURN(Tensor result, gatherAlong(op, self, index, dim));
  return setResult(op, reshape(op, result, given.sizes));
}

/// Elements of the tensor laid flat.
static Error lowerTake(OpContext &op) {
  Tensor self = op.tensor("self"), index = op.tensor("index");
  ASSIGN_OR_RETURN(Tensor flat, reshape(op, self, self.getNumElements()));
  ASSIGN_OR_RETURN(Tensor prepared, prepareIndex(op, index, self.getNumElements(), true));
  Places places;
  places.sizes = index.sizes;
  places.indices.push_back(prepared);
  places.positions.push_back(0);
  return setResult(op, gather(op, flat, std::move(places)));
}

static Error lowerTakeAlongDim(OpContext &op) {
  Tensor self = op.tensor("self"), index = op.tensor("indices");
  if (!op.has("dim")) {
    ASSIGN_OR_RETURN(self, reshape(op, self, self.getNumElements()));
    ASSIGN_OR_RETURN(index, reshape(op, index, index.getNumElements()));
  }
  ASSIGN_OR_RETURN(int64_t dim,
                   op.has("dim") ? op.dimension("dim", self.rank()) : Expected<int64_t>(0));
  if (index.rank() != self.rank() || self.rank() == 0)
    return op.error("expected indices of the tensor's rank, found " + toString(index.sizes));
  Shape sources(self.sizes), picks(index.sizes);
  sources[dim] = picks[dim] = 1;
  ASSIGN_OR_RETURN(Shape shared, broadcastShapes(op, sources, picks));
  sources = picks = shared;
  sources[dim] = self.sizes[dim];
  picks[dim] = index.sizes[dim];
  ASSIGN_OR_RETURN(self, expand(op, self, sources));
  ASSIGN_OR_RETURN(index, expand(op, index, picks));
  return setResult(op, gatherAlong(op, self, index, dim));
}

Expected<std::vector<Tensor>> memopt::pt2::listCombinations(OpContext &op, int64_t size,
                                                            int64_t count, bool withRepeats) {
  if (count < 1 || (!withRepeats && count > size))
    return op.error("combinations of " + Twine(count) + " of " + Twine(size) +
                    " elements: there are none");
  std::vector<SmallVector<int64_t>> lists(count);
  SmallVector<int64_t> chosen;
  for (int64_t i = 0; i != count; ++i)
    chosen.push_back(withRepeats ? 0 : i);
  auto most = [&](int64_t i) { return withRepeats ? size - 1 : size - count + i; };
  for (int64_t at = 0; at >= 0;) {
    for (auto [list, number] : zip_equal(lists, chosen))
      list.push_back(number);
    RETURN_IF_ERROR(checkFoldable(op, Shape{int64_t(lists.front().size()), count}));
    for (at = count - 1; at >= 0 && chosen[at] == most(at);)
      --at;
    for (int64_t i = at, next = at < 0 ? 0 : chosen[at] + 1; at >= 0 && i != count; ++i)
      chosen[i] = withRepeats ? next : next++;
  }
  std::vector<Tensor> result;
  for (ArrayRef<int64_t> list : lists)
    result.push_back(op.wrap(ConstantTensor::dense(DType::I64, int64_t(list.size()), list)));
  return result;
}

static Error lowerCombinations(OpContext &op) {
  Tensor self = op.tensor("self");
  if (self.rank() != 1 || self.getNumElements() == 0)
    return op.error("expected a vector with elements, found " + toString(self.sizes));
  ASSIGN_OR_RETURN(auto lists, listCombinations(op, self.sizes[0], op.integer("r"),
                                                op.flag("with_replacement")));
  std::vector<Tensor> columns;
  for (const Tensor &list : lists) {
    ASSIGN_OR_RETURN(Tensor picked, selectAlong(op, self, list, 0));
    ASSIGN_OR_RETURN(picked, reshape(op, picked, {picked.sizes[0], 1}));
    columns.push_back(picked);
  }
  return setResult(op, concatenate(op, columns, 1));
}

/// A class number becomes a row with a one in its place.
static Error lowerOneHot(OpContext &op) {
  Tensor self = op.tensor("self");
  int64_t classes = op.integer("num_classes");
  if (classes < 1 || isFloat(self.dtype) || self.dtype == DType::Bool || self.getNumElements() == 0)
    return op.error("expected integers and the number of classes, found " + getName(self.dtype) +
                    " and " + Twine(classes));
  Shape column(self.sizes);
  column.push_back(1);
  ASSIGN_OR_RETURN(Tensor spread, reshape(op, self, column));
  RETURN_IF_ERROR(checkFoldable(op, classes));
  Tensor own = op.wrap(ConstantTensor::iota(self.dtype, 0, 1, classes));
  ASSIGN_OR_RETURN(Tensor hit, elementwise(
                                   op, {spread, own}, self.dtype, DType::Bool,
                                   [](Builder &b, ValueRange v) -> Value {
                                     return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, v[0],
                                                                  v[1]);
                                   },
                                   [](ArrayRef<int64_t> v) -> int64_t { return v[0] == v[1]; }));
  return setResult(op, castTo(op, hit, DType::I64));
}

static Error lowerFillRows(OpContext &op) {
  Tensor x = op.tensor("x"), counts = op.tensor("counts");
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", x.rank()));
  if (!isFloat(x.dtype) || counts.dtype != DType::Bool || counts.rank() != 1 ||
      counts.sizes[0] != x.sizes[dim])
    return op.error("expected floating-point rows and which of them count, found " +
                    getName(x.dtype) + toString(x.sizes) + " and " + getName(counts.dtype) +
                    toString(counts.sizes));
  return setResult(
      op, op.wrap(x.dtype, mlir::memopt::FillRowsOp::create(op.b, op.tensorType(x.dtype, x.sizes),
                                                            op.get(x), op.get(counts), dim)));
}

void memopt::pt2::registerIndexing(OpTable &table) {
  table.add("aten.embedding.default",
            "Tensor weight, Tensor indices, int padding_idx=-1, bool scale_grad_by_freq=False, "
            "bool sparse=False",
            lowerEmbedding);
  table.add("aten.index.Tensor", "Tensor self, Tensor?[] indices", lowerIndex);
  table.add("aten.index_select.default", "Tensor self, int dim, Tensor index", lowerIndexSelect);
  table.add("aten.gather.default", "Tensor self, int dim, Tensor index, bool sparse_grad=False",
            lowerGather);
  table.add("aten.take.default", "Tensor self, Tensor index", lowerTake);
  table.add("aten.take_along_dim.default", "Tensor self, Tensor indices, int? dim=None",
            lowerTakeAlongDim);
  table.add("aten.index_put.default",
            "Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False", lowerIndexPut);
  table.add("aten._unsafe_index.Tensor", "Tensor self, Tensor?[] indices", lowerIndex);
  table.add("aten._unsafe_index_put.default",
            "Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False", lowerIndexPut);
  table.add("aten._unsafe_masked_index.default",
            "Tensor self, Tensor mask, Tensor?[] indices, Scalar fill", lowerMaskedIndex);
  table.add("aten._unsafe_masked_index_put_accumulate.default",
            "Tensor self, Tensor mask, Tensor?[] indices, Tensor values", lowerMaskedIndexPut);
  table.add("aten.combinations.default", "Tensor self, int r=2, bool with_replacement=False",
            lowerCombinations);
  table.add("memopt.fill_rows.default", "Tensor x, Tensor counts, int dim", lowerFillRows);
  table.add("aten.one_hot.default", "Tensor self, int num_classes=-1", lowerOneHot);
}
