//===- LinearAlgebra.cpp - factors of matrices, row by row ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What memopt.export writes linear algebra with, where a loop of the program does for all rows. The
// gradients are formulas of the export.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/Formula.h"
#include "memopt/Import/Graph/OpTable.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::memopt::ReduceKind;
using Builder = mlir::ImplicitLocOpBuilder;

/// The first `count` elements of each row.
static Value takeFirst(Builder &b, Value rows, int64_t count) {
  Shape sizes(mlir::cast<RankedTensorType>(rows.getType()).getShape());
  auto get = [&](int64_t number) { return b.getIndexAttr(number); };
  SmallVector<mlir::OpFoldResult> offsets(2, get(0)), strides(2, get(1));
  SmallVector<mlir::OpFoldResult> extents{get(sizes[0]), get(count)};
  return mlir::tensor::ExtractSliceOp::create(b, rows, offsets, extents, strides);
}

/// One row of the factor for each turn: that of the matrix which is left, divided by the root of its
/// own element; its products with its elements are taken off the rows.
static Value factorRows(OpContext &op, Value matrices) {
  Builder &b = op.b;
  Shape sizes(mlir::cast<RankedTensorType>(matrices.getType()).getShape());
  int64_t batch = sizes[0], n = sizes[1], width = sizes[2];
  Shape rows{batch, width};
  RankedTensorType numbers = op.tensorType(DType::I64, {n, width});
  Element row(b, mlir::memopt::IotaOp::create(b, numbers, 0));
  Element column(b, mlir::memopt::IotaOp::create(b, numbers, 1));
  Value units = equals(row, column);
  auto scan = mlir::memopt::ScanOp::create(b, {}, units, /*firsts=*/{0}, matrices, n, false);
  Builder inner(b.getLoc(), b.getContext());
  inner.setInsertionPointToEnd(&scan.getBody().front());
  Value unit = scan.getSliceArguments().front();
  auto takeSquare = [&](Value value) { return width == n ? value : takeFirst(inner, value, n); };
  Value isOne = reshapeValue(inner, unit, {1, width});
  isOne = reshapeValue(inner, takeSquare(isOne), {n});
  Element left(inner, scan.getCarriedArguments().front());
  Element isRow(inner, broadcastAlong(inner, isOne, 1, sizes));
  Element picked(inner, reduceValue(inner, select(isRow, left, 0.0), ReduceKind::Add, 1));
  Element isOwn(inner, broadcastAlong(inner, unit, 1, rows));
  Value own = reduceValue(inner, select(isOwn, picked, 0.0), ReduceKind::Add, 1);
  Element root(inner, broadcastAlong(inner, sqrt(Element(inner, own)), 0, rows));
  Element factor = picked / root;
  auto spread = [&](Value value, ArrayRef<int64_t> shape) -> Element {
    return {inner, broadcastValue(inner, reshapeValue(inner, value, shape), sizes)};
  };
  Value next = left - spread(takeSquare(factor), {batch, n, 1}) * spread(factor, {batch, 1, width});
  mlir::memopt::YieldOp::create(inner, SmallVector<Value>{next, factor});
  scan = mlir::memopt::ScanOp::finish(b, scan);
  return transposeValue(b, scan.getStacked().front(), {1, 0, 2});
}

/// Of [A, B], where A are symmetric matrices [..., n, n]: the upper factor U of A, and U^-T B. What
/// lies below the diagonal of U is rounding.
static Error lowerCholeskyRows(OpContext &op) {
  Tensor a = op.tensor("a");
  int64_t rank = a.rank();
  if (!isFloat(a.dtype) || rank < 2 || a.sizes[rank - 1] < a.sizes[rank - 2] ||
      a.getNumElements() == 0)
    return op.error(
        "expected floating-point matrices with as many columns as rows or more, found " +
        getName(a.dtype) + toString(a.sizes));
  int64_t n = a.sizes[rank - 2], width = a.sizes[rank - 1];
  ASSIGN_OR_RETURN(Tensor flat, reshape(op, a, {a.getNumElements() / (n * width), n, width}));
  Value rows = factorRows(op, op.get(flat));
  return setResult(op, reshape(op, op.wrap(a.dtype, rows), a.sizes));
}

void memopt::pt2::registerLinearAlgebra(OpTable &table) {
  table.add("memopt.cholesky_rows.default", "Tensor a", lowerCholeskyRows);
}
