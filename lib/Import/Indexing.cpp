//===- Indexing.cpp - elements picked by index tensors -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The dialect has one gather, memopt.embedding: rows of a table by computed indices. Known indices
// that count up are slices instead, whose gradient needs no scattering; position embeddings are
// like that.
//
//===----------------------------------------------------------------------===//

#include "OpContext.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::ValueRange;
using Builder = mlir::ImplicitLocOpBuilder;
namespace arith = mlir::arith;

//===----------------------------------------------------------------------===//
// Known indices
//===----------------------------------------------------------------------===//

namespace {
/// Known indices that vary along one dimension at most, and count up along it.
struct Progression {
  int64_t begin = 0, step = 1, count = 1;
  std::optional<int64_t> dimension; ///< of the index tensor; none when all indices are equal
};
} // namespace

/// Also checks that indices lie in [-size, size) and makes them count from the front.
static std::optional<Progression> getProgression(const ConstantTensor &indices, int64_t size) {
  Progression result;
  for (auto [dim, extent] : enumerate(indices.getExtents())) {
    if (extent == 1)
      continue;
    if (result.dimension || extent == 0)
      return std::nullopt;
    result.dimension = dim;
    result.count = extent;
  }
  auto element = [&](int64_t i) {
    int64_t index = indices.getStored(i);
    return index < 0 ? index + size : index;
  };
  result.begin = element(0);
  if (result.count > 1)
    result.step = element(1) - element(0);
  for (int64_t i = 0; i != result.count; ++i)
    if (element(i) < 0 || element(i) >= size || element(i) != result.begin + i * result.step)
      return std::nullopt;
  return result.step >= 1 ? std::optional(result) : std::nullopt;
}

static Error checkIndexRange(OpContext &op, const ConstantTensor &indices, int64_t least,
                             int64_t size) {
  for (int64_t i = 0, n = indices.getNumStored(); i != n; ++i)
    if (indices.getStored(i) < least || indices.getStored(i) >= size)
      return op.error("index " + Twine(indices.getStored(i)) +
                      " lies outside a dimension of size " + Twine(size));
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Embedding
//===----------------------------------------------------------------------===//

/// table[begin : begin + n], laid along the one dimension in which the indices vary.
static Expected<Tensor> sliceRows(OpContext &op, const Tensor &table, const Tensor &indices,
                                  const Progression &rows) {
  ASSIGN_OR_RETURN(Tensor picked, slice(op, table, 0, rows.begin, rows.step, rows.count));
  Shape narrow(indices.rank(), 1), wide(indices.sizes);
  if (rows.dimension)
    narrow[*rows.dimension] = rows.count;
  narrow.push_back(table.sizes[1]);
  wide.push_back(table.sizes[1]);
  ASSIGN_OR_RETURN(picked, reshape(op, picked, narrow));
  ASSIGN_OR_RETURN(picked, expand(op, picked, wide));
  return op.copy(picked);
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
  if (indices.constant) {
    RETURN_IF_ERROR(checkIndexRange(op, *indices.constant, 0, table.sizes[0]));
    auto rows = getProgression(*indices.constant, table.sizes[0]);
    // The padding row gets no gradient, which a slice cannot say.
    bool hasPadding =
        rows && padding >= rows->begin && padding < rows->begin + rows->count * rows->step;
    if (rows && !hasPadding)
      return setResult(op, sliceRows(op, table, indices, *rows));
  }
  Shape sizes(indices.sizes);
  sizes.push_back(table.sizes[1]);
  RETURN_IF_ERROR(countElements(op, sizes).takeError());
  Value result = mlir::memopt::EmbeddingOp::create(
      op.b, op.tensorType(table.dtype, sizes), op.get(table), op.get(indices),
      padding < 0 ? mlir::IntegerAttr() : op.b.getI64IntegerAttr(padding));
  return setResult(op, op.wrap(table.dtype, result));
}

//===----------------------------------------------------------------------===//
// index.Tensor
//===----------------------------------------------------------------------===//

/// Both known: element by element.
static Expected<Tensor> indexKnown(OpContext &op, const Tensor &self, ArrayRef<Constant> indices,
                                   ArrayRef<int64_t> sizes) {
  size_t shared = indices.front()->getSizes().size();
  // Dimensions along which neither indices nor elements vary are not walked.
  Shape walked(sizes);
  for (auto [dim, size] : enumerate(walked)) {
    bool varies =
        dim < shared
            ? any_of(
                  indices,
                  [dim = dim](const Constant &index) { return index->getExtents()[dim] != 1; })
            : self.extents()[indices.size() + dim - shared] != 1;
    if (!varies)
      size = 1;
  }
  RETURN_IF_ERROR(checkFoldable(op, walked));
  for (auto [dim, index] : enumerate(indices))
    RETURN_IF_ERROR(checkIndexRange(op, *index, -self.sizes[dim], self.sizes[dim]));
  Constant walkedResult =
      ConstantTensor::generate(self.dtype, walked, [&](ArrayRef<int64_t> position) {
        Shape source(self.rank());
        for (auto [dim, index] : enumerate(indices)) {
          int64_t picked = index->at(position.take_front(shared));
          source[dim] = picked < 0 ? picked + self.sizes[dim] : picked;
        }
        for (size_t dim = indices.size(); dim != source.size(); ++dim)
          source[dim] = position[shared + dim - indices.size()];
        return self.constant->at(source);
      });
  return op.wrap(ConstantTensor::expand(walkedResult, sizes));
}

/// Known indices that each count up along a dimension of their own: slices, a permutation, new
/// ones.
static Expected<Tensor> indexBySlices(OpContext &op, Tensor self, ArrayRef<Constant> indices,
                                      ArrayRef<int64_t> sizes) {
  int64_t shared = indices.front()->getSizes().size(), count = indices.size();
  SmallVector<std::pair<int64_t, int64_t>> placed; // dimension of the result, of self
  Shape narrow(shared, 1);
  for (auto [dim, index] : enumerate(indices)) {
    auto progression = getProgression(*index, self.sizes[dim]);
    if (!progression)
      return op.error("picks elements by irregular indices, which is not supported");
    ASSIGN_OR_RETURN(
        self, slice(op, self, dim, progression->begin, progression->step, progression->count));
    if (!progression->dimension)
      continue;
    int64_t target = *progression->dimension;
    if (narrow[target] != 1)
      return op.error("picks elements along a diagonal, which is not supported");
    narrow[target] = progression->count;
    placed.emplace_back(target, dim);
  }
  llvm::sort(placed);
  // Indexed dimensions in their order in the result, then those picked once (size 1), then the
  // rest.
  Shape permutation;
  for (auto [target, dim] : placed)
    permutation.push_back(dim);
  for (int64_t dim = 0; dim != self.rank(); ++dim)
    if (!is_contained(permutation, dim))
      permutation.push_back(dim);
  append_range(narrow, ArrayRef(self.sizes).drop_front(count));
  ASSIGN_OR_RETURN(Tensor result, reshape(op, permute(op, self, permutation), narrow));
  ASSIGN_OR_RETURN(result, expand(op, result, sizes));
  return op.copy(result);
}

/// Index tensors for the first dimensions. They broadcast together; their dimensions come first.
static Expected<Tensor> indexLeading(OpContext &op, const Tensor &self,
                                     ArrayRef<std::optional<Tensor>> given) {
  Shape shared;
  for (const auto &index : given) {
    if (!index)
      return op.error("indices for dimensions that are not neighbours are not supported");
    if (index->dtype == DType::Bool || index->dtype == DType::U8)
      return op.error("masks as indices give results of unknown size, which is not supported");
    ASSIGN_OR_RETURN(shared, broadcastShapes(op, shared, index->sizes));
  }
  Shape sizes(shared);
  append_range(sizes, ArrayRef(self.sizes).drop_front(given.size()));
  RETURN_IF_ERROR(countElements(op, sizes).takeError());
  SmallVector<Constant> known;
  for (const auto &index : given) {
    if (!index->constant)
      break;
    ASSIGN_OR_RETURN(Tensor expanded, expand(op, *index, shared));
    known.push_back(expanded.constant);
  }
  if (known.size() == given.size())
    return self.constant ? indexKnown(op, self, known, sizes)
                         : indexBySlices(op, self, known, sizes);
  if (given.size() == 1 && self.rank() == 2 && isFloat(self.dtype))
    return op.wrap(self.dtype, mlir::memopt::EmbeddingOp::create(
                                   op.b, op.tensorType(self.dtype, sizes), op.get(self),
                                   op.get(*given.front()), mlir::IntegerAttr()));
  return op.error("picks elements by computed indices, which is not supported");
}

/// Where the first indices are none, the indexed dimensions go to the front for a while:
/// x[:, i, j] is permute(x, [1, 2, 0])[i, j] with the indices' own dimensions put behind dimension
/// 0.
static Error lowerIndex(OpContext &op) {
  Tensor self = op.tensor("self");
  std::vector<std::optional<Tensor>> given = op.tensors("indices");
  while (!given.empty() && !given.back())
    given.pop_back();
  if (given.empty() || int64_t(given.size()) > self.rank() || self.getNumElements() == 0)
    return op.error("expected indices for at most " + Twine(self.rank()) + " dimensions");
  int64_t lead = 0, count = given.size();
  while (!given[lead])
    ++lead;
  Shape order;
  append_range(order, seq<int64_t>(lead, count));
  append_range(order, seq<int64_t>(0, lead));
  append_range(order, seq<int64_t>(count, self.rank()));
  ASSIGN_OR_RETURN(Tensor result,
                   indexLeading(op, permute(op, self, order), ArrayRef(given).drop_front(lead)));
  int64_t shared = result.rank() - (self.rank() - (count - lead));
  Shape back;
  append_range(back, seq<int64_t>(shared, shared + lead));
  append_range(back, seq<int64_t>(0, shared));
  append_range(back, seq<int64_t>(shared + lead, result.rank()));
  return setResult(op, op.copy(permute(op, result, back)));
}

static Error lowerIndexSelect(OpContext &op) {
  Tensor self = op.tensor("self"), index = op.tensor("index");
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  if (index.rank() != 1 || self.rank() == 0 || self.getNumElements() == 0)
    return op.error("expected a tensor with dimensions and indices of rank 1");
  if (index.constant)
    if (auto picked = getProgression(*index.constant, self.sizes[dim]);
        picked && (picked->dimension || index.sizes[0] == 1)) {
      ASSIGN_OR_RETURN(Tensor result,
                       slice(op, self, dim, picked->begin, picked->step, picked->count));
      return setResult(op, op.copy(result));
    }
  if (dim != 0 || self.rank() != 2 || !isFloat(self.dtype) || isFloat(index.dtype))
    return op.error("picks elements by computed indices, which is not supported");
  return setResult(op, op.wrap(self.dtype, mlir::memopt::EmbeddingOp::create(
                                               op.b, op.resultType(0), op.get(self), op.get(index),
                                               mlir::IntegerAttr())));
}

//===----------------------------------------------------------------------===//
// gather and diff
//===----------------------------------------------------------------------===//

/// One element for each position of the other dimensions: compare with a ramp, keep the one that
/// agrees.
static Expected<Tensor> gatherOne(OpContext &op, const Tensor &self, const Tensor &index,
                                  int64_t dim) {
  Value table = op.get(self), indices = op.get(index);
  auto type = cast<RankedTensorType>(table.getType());
  auto indexType = type.clone(mlir::getElementTypeOrSelf(indices));
  Value spread = broadcastValue(op.b, indices, self.sizes);
  Value own = mlir::memopt::IotaOp::create(op.b, indexType, dim);
  Value hit = arith::CmpIOp::create(op.b, arith::CmpIPredicate::eq, spread, own);
  Value picked = arith::SelectOp::create(op.b, hit, table, splat(op.b, type, 0.0));
  return op.wrap(self.dtype,
                 reduceValue(op.b, picked, mlir::memopt::ReduceKind::Add, dim, /*keep=*/true));
}

static Error lowerGather(OpContext &op) {
  Tensor self = op.tensor("self"), index = op.tensor("index");
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  if (self.rank() == 0 || index.rank() != self.rank() || isFloat(index.dtype) ||
      index.dtype == DType::Bool || index.getNumElements() == 0)
    return op.error("expected integer indices of the tensor's rank, found " + getName(index.dtype) +
                    toString(index.sizes));
  for (auto [at, sizes] : enumerate(zip_equal(index.sizes, self.sizes)))
    if (int64_t(at) != dim && std::get<0>(sizes) > std::get<1>(sizes))
      return op.error("indices of shape " + toString(index.sizes) + " do not fit " +
                      toString(self.sizes));
  if (self.constant && index.constant) {
    RETURN_IF_ERROR(checkFoldable(op, index.sizes));
    RETURN_IF_ERROR(checkIndexRange(op, *index.constant, 0, self.sizes[dim]));
    return setResult(op, op.wrap(ConstantTensor::generate(
                             self.dtype, index.sizes, [&](ArrayRef<int64_t> position) {
                               Shape source(position);
                               source[dim] = index.constant->at(position);
                               return self.constant->at(source);
                             })));
  }
  Shape expected(self.sizes);
  expected[dim] = 1;
  if (index.sizes != expected || !isFloat(self.dtype))
    return op.error("gathers several elements of a dimension, which is not supported");
  return setResult(op, gatherOne(op, self, index, dim));
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

/// Differences of neighbours, after joining `prepend` and `append`.
static Error lowerDiff(OpContext &op) {
  Tensor self = op.tensor("self");
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  if (self.rank() == 0 || op.integer("n") != 1)
    return op.error("expected a tensor with dimensions and n = 1");
  SmallVector<Constant> parts;
  for (const std::optional<Tensor> &part :
       {op.optionalTensor("prepend"), std::optional<Tensor>(self), op.optionalTensor("append")}) {
    if (!part)
      continue;
    Shape expected(self.sizes);
    if (part->rank() == self.rank())
      expected[dim] = part->sizes[dim];
    if (!part->constant || part->dtype != self.dtype || part->sizes != expected)
      return op.error("differences of computed values are not supported");
    parts.push_back(part->constant);
  }
  int64_t length = 0;
  for (const Constant &part : parts)
    length += part->getSizes()[dim];
  Shape joinedSizes(self.sizes);
  joinedSizes[dim] = length;
  if (length < 2)
    return op.error("expected at least two elements in dimension " + Twine(dim));
  RETURN_IF_ERROR(checkFoldable(op, joinedSizes));
  Constant joined = ConstantTensor::concat(parts, dim);
  Constant left = ConstantTensor::slice(joined, dim, 0, 1, length - 1);
  Constant right = ConstantTensor::slice(joined, dim, 1, 1, length - 1);
  return setResult(op,
                   op.wrap(ConstantTensor::map(self.dtype, {right, left}, [](ArrayRef<int64_t> v) {
                     return int64_t(uint64_t(v[0]) - uint64_t(v[1]));
                   })));
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
  table.add("aten.one_hot.default", "Tensor self, int num_classes=-1", lowerOneHot);
  table.add("aten.diff.default",
            "Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None",
            lowerDiff);
}
