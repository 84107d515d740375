//===- EmbeddingBag.cpp - sums, means and maxima of rows -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Bags are runs of a list of indices, by the offsets at which they begin. When offsets are known
// and equally far apart (two-dimensional indices come like that) the rows are a tensor [bags, size,
// columns] that is reduced. Otherwise each index finds its bag by counting offsets, and its row is
// scattered into the result.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Ops/Indexing/Indexing.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <limits>

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::memopt::ReduceKind;
using mlir::memopt::ScatterKind;
namespace arith = mlir::arith;

namespace {
enum BagMode { Sum, Mean, Max };

/// The operator's arguments, checked, and what is built from them.
class EmbeddingBag {
public:
  explicit EmbeddingBag(OpContext &op) : op(op) {}
  Error run();

private:
  Error readArguments();
  Expected<int64_t> findBagSize() const;
  Error pickRows();
  Error findPadding();
  Value keepInBag(Value values, double neutral);
  Expected<Tensor> reduceRuns(int64_t size);
  Expected<Tensor> scatterRows();
  Value finish(Value result, Value counts);
  Value filled(ArrayRef<int64_t> sizes, double value) {
    return splat(op.b, op.tensorType(table.dtype, sizes), value);
  }
  /// [n] or [n, 1, ..] as [n, .., columns].
  Value spread(Value value, ArrayRef<int64_t> sizes) {
    Shape own(sizes.size(), 1);
    llvm::copy(cast<RankedTensorType>(value.getType()).getShape(), own.begin());
    return broadcastValue(op.b, reshapeValue(op.b, value, own), sizes);
  }

  OpContext &op;
  Tensor table, indices, offsets;
  BagMode mode = Sum;
  int64_t count = 0, bags = 0, columns = 0;
  Value rows;  ///< [count, columns], what belongs to no bag already neutral
  Value inBag; ///< [count] booleans where there is a padding index, or null
};
} // namespace

Error EmbeddingBag::readArguments() {
  table = op.tensor("weight");
  indices = op.tensor("indices");
  offsets = op.tensor("offsets");
  mode = BagMode(op.integer("mode"));
  bool isIndex = indices.dtype == DType::I64 || indices.dtype == DType::I32;
  if (table.rank() != 2 || !isFloat(table.dtype) || indices.rank() != 1 || offsets.rank() != 1 ||
      !isIndex || indices.getNumElements() == 0 || op.integer("mode") < 0 || op.integer("mode") > 2)
    return op.error(
        "expected a floating-point table, a list of integer indices and offsets, found " +
        getName(table.dtype) + toString(table.sizes) + ", " + getName(indices.dtype) +
        toString(indices.sizes) + " and " + toString(offsets.sizes));
  if (op.flag("scale_grad_by_freq") || op.flag("sparse"))
    return op.error("scale_grad_by_freq and sparse gradients are not supported");
  if (op.has("per_sample_weights") && mode != Sum)
    return op.error("weights of samples are for mode 'sum' alone");
  count = indices.sizes[0];
  columns = table.sizes[1];
  bags = offsets.sizes[0] - (op.flag("include_last_offset") ? 1 : 0);
  if (bags < 1)
    return op.error("expected at least one bag");
  return Error::success();
}

/// The size that all bags have, or 0.
Expected<int64_t> EmbeddingBag::findBagSize() const {
  if (!offsets.constant || count % bags)
    return 0;
  int64_t size = count / bags;
  for (int64_t bag = 0; bag != offsets.sizes[0]; ++bag)
    if (offsets.constant->at(bag) != bag * size)
      return 0;
  return size;
}

Error EmbeddingBag::pickRows() {
  Places places;
  places.sizes = {count, columns};
  places.positions = {0, 1};
  ASSIGN_OR_RETURN(Tensor index, prepareIndex(op, indices, table.sizes[0], false));
  ASSIGN_OR_RETURN(index, placeAt(op, index, 2, 0));
  places.indices = {std::move(index), std::nullopt};
  ASSIGN_OR_RETURN(Tensor picked, gather(op, table, std::move(places)));
  RETURN_IF_ERROR(findPadding());
  double neutral = mode == Max ? -std::numeric_limits<double>::infinity() : 0;
  rows = keepInBag(op.get(picked), neutral);
  std::optional<Tensor> weights = op.optionalTensor("per_sample_weights");
  if (!weights)
    return Error::success();
  if (weights->sizes != indices.sizes)
    return op.error("expected one weight for each index, found " + toString(weights->sizes));
  Value factors = keepInBag(op.get(castTo(op, *weights, table.dtype)), 0);
  rows = arith::MulFOp::create(op.b, rows, spread(factors, {count, columns}));
  return Error::success();
}

Error EmbeddingBag::findPadding() {
  if (!op.hasParameter("padding_idx") || !op.has("padding_idx"))
    return Error::success();
  ASSIGN_OR_RETURN(int64_t padding, op.dimension("padding_idx", table.sizes[0]));
  Value own = op.get(indices);
  Scalar number;
  number.integer = padding;
  inBag = arith::CmpIOp::create(op.b, arith::CmpIPredicate::ne, own,
                                splat(op.b, own.getType(), number));
  return Error::success();
}

/// What is padding gives `neutral`, and gets no gradient.
Value EmbeddingBag::keepInBag(Value values, double neutral) {
  if (!inBag)
    return values;
  ArrayRef<int64_t> sizes = cast<RankedTensorType>(values.getType()).getShape();
  return arith::SelectOp::create(op.b, spread(inBag, sizes), values, filled(sizes, neutral));
}

/// Divides by the number of rows, and gives bags without rows zeros. `counts` [bags].
Value EmbeddingBag::finish(Value result, Value counts) {
  Shape sizes{bags, columns};
  if (mode == Mean) {
    Value least = arith::MaximumFOp::create(op.b, counts, splat(op.b, counts.getType(), 1.0));
    return arith::DivFOp::create(op.b, result, spread(least, sizes));
  }
  Value isEmpty = arith::CmpFOp::create(op.b, arith::CmpFPredicate::OEQ, counts,
                                        splat(op.b, counts.getType(), 0.0));
  return arith::SelectOp::create(op.b, spread(isEmpty, sizes), filled(sizes, 0), result);
}

Expected<Tensor> EmbeddingBag::reduceRuns(int64_t size) {
  Value runs = reshapeValue(op.b, rows, {bags, size, columns});
  Value result = reduceValue(op.b, runs, mode == Max ? ReduceKind::Max : ReduceKind::Add, 1);
  if (mode == Sum)
    return op.wrap(table.dtype, result);
  Value counts = filled(bags, double(size));
  if (inBag) {
    Value ones = convert(op.b, inBag, DType::Bool, table.dtype);
    counts = reduceValue(op.b, reshapeValue(op.b, ones, {bags, size}), ReduceKind::Add, 1);
  }
  return op.wrap(table.dtype, finish(result, counts));
}

/// An index is in the last bag that begins before it or with it.
Expected<Tensor> EmbeddingBag::scatterRows() {
  Shape square{count, offsets.sizes[0]};
  RETURN_IF_ERROR(countElements(op, square).takeError());
  Value begins = broadcastAlong(op.b, op.get(castTo(op, offsets, DType::I64)), 1, square);
  Value place = mlir::memopt::IotaOp::create(op.b, op.tensorType(DType::I64, square), 0);
  Value begun = arith::CmpIOp::create(op.b, arith::CmpIPredicate::sle, begins, place);
  Value number =
      reduceValue(op.b, convert(op.b, begun, DType::Bool, DType::I64), ReduceKind::Add, 1);
  Value bag = arith::SubIOp::create(op.b, number, splat(op.b, number.getType(), 1.0));
  Places places = Places::identity({count, columns});
  ASSIGN_OR_RETURN(places.indices[0], placeAt(op, op.wrap(DType::I64, bag), 2, 0));
  double initial = mode == Max ? -std::numeric_limits<double>::infinity() : 0;
  Tensor start = op.wrap(table.dtype, filled({bags, columns}, initial));
  ASSIGN_OR_RETURN(Tensor result, scatter(op, mode == Max ? ScatterKind::Max : ScatterKind::Add,
                                          start, op.wrap(table.dtype, rows), places));
  if (mode == Sum)
    return result;
  Places counted = Places::identity(count);
  counted.indices[0] = op.wrap(DType::I64, bag);
  Value ones = inBag ? convert(op.b, inBag, DType::Bool, table.dtype) : filled(count, 1);
  ASSIGN_OR_RETURN(Tensor counts,
                   scatter(op, ScatterKind::Add, op.wrap(table.dtype, filled(bags, 0)),
                           op.wrap(table.dtype, ones), counted));
  return op.wrap(table.dtype, finish(op.get(result), op.get(counts)));
}

Error EmbeddingBag::run() {
  RETURN_IF_ERROR(readArguments());
  for (size_t i = 1; i < op.getNumResults(); ++i)
    if (op.isUsed(i))
      return op.error("its bags and their sizes are not supported as values");
  ASSIGN_OR_RETURN(int64_t size, findBagSize());
  RETURN_IF_ERROR(pickRows());
  ASSIGN_OR_RETURN(Tensor result, size ? reduceRuns(size) : scatterRows());
  op.setResult(0, result);
  return Error::success();
}

static Error lowerEmbeddingBag(OpContext &op) { return EmbeddingBag(op).run(); }

void memopt::pt2::registerEmbeddingBag(OpTable &table) {
  table.add("aten.embedding_bag.default",
            "Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int "
            "mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool "
            "include_last_offset=False",
            lowerEmbeddingBag);
  table.add("aten.embedding_bag.padding_idx",
            "Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq, int mode, "
            "bool sparse, Tensor? per_sample_weights, bool include_last_offset, int? padding_idx",
            lowerEmbeddingBag);
}
