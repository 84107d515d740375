//===- LowerToLinalgShapes.cpp - reductions and gathers --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LowerToLinalg.h"
#include "memopt/Dialect/ApartOps.h"
#include "memopt/Dialect/ViewBuilders.h"
#include "memopt/Transforms/Utils/FilledRows.h"
#include "memopt/Transforms/Utils/TensorBuilders.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include <numeric>

using namespace mlir;
using namespace mlir::memopt;

static Lowered lowerReduce(ReduceOp op, ImplicitLocOpBuilder &b) {
  RankedTensorType type = tensorType(op.getInput());
  Type element = type.getElementType();
  Type accumulator = isa<FloatType>(element) ? getComputeType(element) : element;
  ReduceKind kind = op.getKind();
  SmallVector<Value> results =
      createReduction(b, type.getShape(), op.getDimensions(), {readAll(b, op.getInput())},
                      {{kind, accumulator}}, [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                        return SmallVector<Value>{convertTo(inner, x[0], accumulator)};
                      });
  if (accumulator == element)
    return results;
  return createPointwise(b, tensorType(op.getResult()).getShape(), {readAll(b, results[0])},
                         {element}, [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                           return SmallVector<Value>{convertTo(inner, x[0], element)};
                         });
}

/// result[i..., j...] = table[indices[i...], j...]
static Lowered lowerEmbedding(EmbeddingOp op, ImplicitLocOpBuilder &b) {
  RankedTensorType type = tensorType(op.getResult());
  int64_t indexRank = tensorType(op.getIndices()).getRank();
  SmallVector<int64_t> indexDims(indexRank);
  std::iota(indexDims.begin(), indexDims.end(), 0);
  return createPointwise(
      b, type.getShape(), {readDims(b, op.getIndices(), type.getRank(), indexDims)},
      {type.getElementType()}, [&](ImplicitLocOpBuilder &inner, ValueRange x) {
        SmallVector<Value> at{convertTo(inner, x[0], inner.getIndexType())};
        for (int64_t dim = indexRank; dim < type.getRank(); ++dim)
          at.push_back(linalg::IndexOp::create(inner, dim));
        return SmallVector<Value>{tensor::ExtractOp::create(inner, op.getTable(), at)};
      });
}

/// result[r] = source[..., indices[k][r], ..., r[positions[j]], ...]; an index tensor of size 1
/// along a dimension is read at 0 there.
static Lowered lowerGather(GatherOp op, ImplicitLocOpBuilder &b) {
  RankedTensorType type = tensorType(op.getResult()), source = tensorType(op.getSource());
  SmallVector<Read> reads;
  for (Value index : op.getIndices()) {
    SmallVector<AffineExpr> exprs;
    for (auto [dim, size] : llvm::enumerate(tensorType(index).getShape()))
      exprs.push_back(size == 1 ? b.getAffineConstantExpr(0) : b.getAffineDimExpr(dim));
    reads.push_back({index, AffineMap::get(type.getRank(), 0, exprs, b.getContext())});
  }
  return createPointwise(b, type.getShape(), reads, {type.getElementType()},
                         [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                           SmallVector<Value> at;
                           const int64_t *position = op.getPositions().begin();
                           for (int64_t dim = 0, next = 0; dim < source.getRank(); ++dim)
                             if (llvm::is_contained(op.getIndexed(), dim))
                               at.push_back(convertTo(inner, x[next++], inner.getIndexType()));
                             else
                               at.push_back(linalg::IndexOp::create(inner, *position++));
                           return SmallVector<Value>{
                               tensor::ExtractOp::create(inner, op.getSource(), at)};
                         });
}

/// result[r] = counts[r[dim]] ? input[r] : input[first] along dim, where `first` is the first that
/// counts.
static Lowered lowerFillRows(FillRowsOp op, ImplicitLocOpBuilder &b) {
  RankedTensorType type = tensorType(op.getInput());
  auto dim = static_cast<int64_t>(op.getDim());
  int64_t rows = type.getDimSize(dim);
  Type index = b.getI64Type(), element = type.getElementType();
  Value first = createPlainReduction(
                    b, {rows}, {0}, {readAll(b, op.getCounts())}, {{ReduceKind::Min, index}},
                    [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                      Value at = convertTo(inner, linalg::IndexOp::create(inner, 0), index);
                      Value none = createIntConstant(inner, index, rows);
                      return SmallVector<Value>{arith::SelectOp::create(inner, x[0], at, none)};
                    })
                    .front();
  // One read of either row: of those that do not count no memory is touched.
  SmallVector<Value> filled = createPointwise(
      b, type.getShape(),
      {readDims(b, op.getCounts(), type.getRank(), {dim}), readDims(b, first, type.getRank(), {})},
      {element}, [&](ImplicitLocOpBuilder &inner, ValueRange x) {
        SmallVector<Value> at;
        for (int64_t other = 0; other < type.getRank(); ++other)
          at.push_back(linalg::IndexOp::create(inner, other));
        Value last = createIntConstant(inner, index, rows - 1);
        Value lent =
            convertTo(inner, arith::MinSIOp::create(inner, x[1], last), inner.getIndexType());
        at[dim] = arith::SelectOp::create(inner, x[0], at[dim], lent);
        Value found = tensor::ExtractOp::create(inner, op.getInput(), at);
        Value isThere = arith::CmpIOp::create(inner, arith::CmpIPredicate::sle, x[1], last);
        Value one = createConstant(inner, element, 1.0);
        return SmallVector<Value>{arith::SelectOp::create(inner, isThere, found, one)};
      });
  if (dim == 0)
    filled.front().getDefiningOp()->setDiscardableAttr(kFilledRowsAttr, b.getUnitAttr());
  return filled;
}

/// The square root of the sum of squares of everything.
static Lowered lowerGlobalNorm(GlobalNormOp op, ImplicitLocOpBuilder &b) {
  Type element = tensorType(op.getResult()).getElementType();
  SmallVector<Read> sums;
  AffineMap scalarMap = AffineMap::get(0, 0, b.getContext());
  for (Value input : op.getInputs()) {
    RankedTensorType type = tensorType(input);
    Type compute = getComputeType(type.getElementType());
    SmallVector<int64_t> all(type.getRank());
    std::iota(all.begin(), all.end(), 0);
    Value sum =
        createReduction(b, type.getShape(), all, {readAll(b, input)}, {{ReduceKind::Add, compute}},
                        [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                          Value wide = convertTo(inner, x[0], compute);
                          return SmallVector<Value>{arith::MulFOp::create(inner, wide, wide)};
                        })
            .front();
    sums.push_back({sum, scalarMap});
  }
  // Few terms of very different size: f64 costs nothing here.
  return createPointwise(
      b, {}, sums, ArrayRef<Type>{element}, [&](ImplicitLocOpBuilder &inner, ValueRange x) {
        Value total = createConstant(inner, inner.getF64Type(), 0.0);
        for (Value sum : x)
          total = arith::AddFOp::create(inner, total, convertTo(inner, sum, inner.getF64Type()));
        Value norm = math::SqrtOp::create(inner, total);
        return SmallVector<Value>{convertTo(inner, norm, element)};
      });
}

/// By now nothing changes the number of samples any more.
static Lowered lowerCount(CountOp op, ImplicitLocOpBuilder &b) {
  RankedTensorType type = tensorType(op.getResult());
  Attribute number = b.getFloatAttr(type.getElementType(), static_cast<double>(op.getCount()));
  return SmallVector<Value>{
      arith::ConstantOp::create(b, DenseElementsAttr::get(type, number)).getResult()};
}

/// A vector as one piece of a concatenation, with zeros up to the next.
static void addZeros(ImplicitLocOpBuilder &b, RankedTensorType whole, int64_t count,
                     SmallVectorImpl<Value> &pieces) {
  if (count)
    pieces.push_back(createSplat(b, b.getLoc(), whole.clone(count), 0));
}

static Lowered lowerPack(PackOp op, ImplicitLocOpBuilder &b) {
  RankedTensorType whole = tensorType(op.getResult());
  SmallVector<Value> pieces;
  int64_t end = 0;
  for (auto [input, first] : llvm::zip_equal(op.getInputs(), op.getFirsts())) {
    int64_t elements = tensorType(input).getNumElements();
    addZeros(b, whole, first - end, pieces);
    pieces.push_back(reshapeTo(b, b.getLoc(), input, {elements}));
    end = first + elements;
  }
  addZeros(b, whole, whole.getNumElements() - end, pieces);
  if (pieces.size() == 1)
    return pieces;
  return SmallVector<Value>{tensor::ConcatOp::create(b, whole, 0, pieces).getResult()};
}

static Lowered lowerUnpack(UnpackOp op, ImplicitLocOpBuilder &b) {
  RankedTensorType type = tensorType(op.getResult());
  Value part = tensor::ExtractSliceOp::create(
      b, tensorType(op.getInput()).clone(type.getNumElements()), op.getInput(), ValueRange(),
      ValueRange(), ValueRange(), ArrayRef<int64_t>{static_cast<int64_t>(op.getFirst())},
      ArrayRef<int64_t>{type.getNumElements()}, ArrayRef<int64_t>{1});
  return SmallVector<Value>{reshapeTo(b, b.getLoc(), part, type.getShape())};
}

void mlir::memopt::populateShapeLowerings(LinalgLowerings &lowerings) {
  lowerings.add<ReduceOp>(lowerReduce);
  lowerings.add<CountOp>(lowerCount);
  lowerings.add<EmbeddingOp>(lowerEmbedding);
  lowerings.add<FillRowsOp>(lowerFillRows);
  lowerings.add<GatherOp>(lowerGather);
  lowerings.add<GlobalNormOp>(lowerGlobalNorm);
  lowerings.add<PackOp>(lowerPack);
  lowerings.add<UnpackOp>(lowerUnpack);
}
