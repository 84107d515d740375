//===- Scans.cpp - running sums, products and extremes -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Ops/Indexing/Indexing.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::Value;
using mlir::ValueRange;
using mlir::memopt::ReduceKind;
using Builder = mlir::ImplicitLocOpBuilder;
namespace arith = mlir::arith;

//===----------------------------------------------------------------------===//
// Scans
//===----------------------------------------------------------------------===//

/// The tensor and dimension of a scan; a tensor without dimensions pretends to have one.
static Expected<std::pair<Tensor, int64_t>> getOperand(OpContext &op) {
  ASSIGN_OR_RETURN(Tensor self, withDimension(op, op.tensor("self")));
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  if (self.getNumElements() == 0)
    return op.error("tensors without elements are not supported");
  return std::pair(self, dim);
}

static Error lowerCumsum(OpContext &op) {
  ASSIGN_OR_RETURN(auto operand, getOperand(op));
  auto &[self, dim] = operand;
  DType type = op.resultMeta(0).dtype;
  if (self.constant && !isFloat(type)) {
    RETURN_IF_ERROR(checkFoldable(op, self.sizes));
    ASSIGN_OR_RETURN(Tensor known,
                     reshape(op, op.wrap(ConstantTensor::cumsum(self.constant, dim, type)),
                             op.resultMeta(0).sizes));
    return setResult(op, known);
  }
  Value terms = op.get(castTo(op, self, type));
  Value sums = mlir::memopt::LinearScanOp::create(op.b, splat(op.b, terms.getType(), 1.0), terms,
                                                  dim, false, APFloat(0.0));
  return setResult(op, reshape(op, op.wrap(type, sums), op.resultMeta(0).sizes));
}

static Error lowerCumprod(OpContext &op) {
  ASSIGN_OR_RETURN(auto operand, getOperand(op));
  auto &[self, dim] = operand;
  DType type = op.resultMeta(0).dtype;
  Value factors = op.get(castTo(op, self, type));
  Value products = mlir::memopt::LinearScanOp::create(
      op.b, factors, splat(op.b, factors.getType(), 0.0), dim, false, APFloat(1.0));
  return setResult(op, reshape(op, op.wrap(type, products), op.resultMeta(0).sizes));
}

/// Rows of powers: the running product of a one and x, x, x ...
static Error lowerVandermonde(OpContext &op) {
  Tensor given = castTo(op, op.tensor("x"), op.resultMeta(0).dtype);
  ASSIGN_OR_RETURN(Tensor x, withDimension(op, given));
  if (x.getNumElements() == 0)
    return op.error("expected a tensor with elements");
  int64_t count = op.optionalInteger("N").value_or(x.sizes.back()), dim = x.rank();
  if (count < 1)
    return op.error("argument 'N': expected a positive number, found " + Twine(count));
  Shape column(x.sizes), powers(x.sizes);
  column.push_back(1);
  powers.push_back(count);
  RETURN_IF_ERROR(countElements(op, powers).takeError());
  Tensor factors = op.wrap(x.dtype, column, splat(op.b, op.tensorType(x.dtype, column), 1.0));
  if (count > 1) {
    powers.back() = count - 1;
    ASSIGN_OR_RETURN(x, reshape(op, x, column));
    ASSIGN_OR_RETURN(x, expand(op, x, powers));
    ASSIGN_OR_RETURN(factors, concatenate(op, {factors, x}, dim));
  }
  Value terms = op.get(factors);
  Value products = mlir::memopt::LinearScanOp::create(
      op.b, terms, splat(op.b, terms.getType(), 0.0), dim, false, APFloat(1.0));
  return setResult(op, op.wrap(x.dtype, products));
}

static Error lowerLogCumsumExp(OpContext &op) {
  ASSIGN_OR_RETURN(auto operand, getOperand(op));
  auto &[self, dim] = operand;
  if (!isFloat(self.dtype))
    return op.error("expected a floating-point tensor, found " + getName(self.dtype));
  Value sums = mlir::memopt::LogSumExpScanOp::create(op.b, op.get(self), dim, false);
  return setResult(op, reshape(op, op.wrap(self.dtype, sums), op.resultMeta(0).sizes));
}

template <ReduceKind kind> static Error lowerCumulativeExtreme(OpContext &op) {
  ASSIGN_OR_RETURN(auto operand, getOperand(op));
  auto &[self, dim] = operand;
  if (op.getNumResults() != 2)
    return op.error("expected two results, found " + Twine(op.getNumResults()));
  bool isByte = self.dtype == DType::U8 || self.dtype == DType::Bool;
  Value compared = op.get(isByte ? castTo(op, self, DType::I32) : self);
  Tensor positions =
      op.wrap(DType::I64, mlir::memopt::ArgextremeScanOp::create(
                              op.b, op.tensorType(DType::I64, self.sizes), compared, kind, dim));
  ASSIGN_OR_RETURN(Tensor values, gatherAlong(op, self, positions, dim));
  ASSIGN_OR_RETURN(values, reshape(op, values, op.resultMeta(0).sizes));
  op.setResult(0, values);
  ASSIGN_OR_RETURN(positions, reshape(op, positions, op.resultMeta(1).sizes));
  op.setResult(1, positions);
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Differences and integrals
//===----------------------------------------------------------------------===//

/// Differences of neighbours; of truth values, whether they differ.
static Expected<Tensor> differences(OpContext &op, const Tensor &self, int64_t dim) {
  int64_t length = self.sizes[dim] - 1;
  if (length < 1)
    return op.error("expected at least two elements in dimension " + Twine(dim) + " of " +
                    toString(self.sizes));
  ASSIGN_OR_RETURN(Tensor left, slice(op, self, dim, 0, 1, length));
  ASSIGN_OR_RETURN(Tensor right, slice(op, self, dim, 1, 1, length));
  DType type = self.dtype;
  return elementwise(
      op, {right, left}, type, type,
      [&](Builder &b, ValueRange v) -> Value {
        if (type == DType::Bool)
          return arith::XOrIOp::create(b, v[0], v[1]);
        return isFloat(type) ? arith::SubFOp::create(b, v[0], v[1]).getResult()
                             : arith::SubIOp::create(b, v[0], v[1]).getResult();
      },
      [](ArrayRef<int64_t> v) { return int64_t(uint64_t(v[0]) - uint64_t(v[1])); });
}

/// n times, after joining `prepend` and `append`.
static Error lowerDiff(OpContext &op) {
  Tensor self = op.tensor("self");
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  if (self.rank() == 0 || op.integer("n") < 0)
    return op.error("expected a tensor with dimensions");
  if (op.integer("n") == 0) // what stands in front and behind is left out, too
    return setResult(op, op.copy(self));
  std::vector<Tensor> parts;
  for (const std::optional<Tensor> &part :
       {op.optionalTensor("prepend"), std::optional<Tensor>(self), op.optionalTensor("append")})
    if (part)
      parts.push_back(*part);
  ASSIGN_OR_RETURN(Tensor result, concatenate(op, parts, dim));
  for (int64_t i = 0; i < op.integer("n"); ++i) {
    ASSIGN_OR_RETURN(result, differences(op, result, dim));
  }
  return setResult(op, op.copy(result));
}

/// (y[k] + y[k + 1]) / 2 times the distance, for each pair of neighbours along `dim`.
static Expected<Tensor> trapezoids(OpContext &op, int64_t dim) {
  SmallVector<StringRef> operands{"y"};
  if (op.hasParameter("x"))
    operands.push_back("x");
  RETURN_IF_ERROR(op.checkNoBytes(operands));
  DType type = op.resultMeta(0).dtype;
  Tensor y = castTo(op, op.tensor("y"), type);
  int64_t length = y.rank() ? y.sizes[dim] - 1 : 0;
  if (length < 1 || !isFloat(type))
    return op.error("expected at least two numbers in dimension " + Twine(dim) + " of " +
                    toString(y.sizes));
  ASSIGN_OR_RETURN(Tensor left, slice(op, y, dim, 0, 1, length));
  ASSIGN_OR_RETURN(Tensor right, slice(op, y, dim, 1, 1, length));
  Operand distance = Scalar{true, false, 1.0, 0};
  if (op.hasParameter("dx"))
    distance = op.scalar("dx");
  if (op.hasParameter("x")) {
    Tensor x = castTo(op, op.tensor("x"), type);
    int64_t along = x.rank() == 1 ? 0 : dim - y.rank() + x.rank();
    ASSIGN_OR_RETURN(Tensor steps, differences(op, x, along));
    if (x.rank() == 1) {
      ASSIGN_OR_RETURN(steps, placeAt(op, steps, y.rank(), dim));
    }
    distance = steps;
  }
  return elementwise(op, {left, right, distance}, type, type,
                     [](Builder &b, ValueRange v) -> Value {
                       Value sum = arith::AddFOp::create(b, v[0], v[1]);
                       Value half = arith::MulFOp::create(b, sum, v[2]);
                       return arith::MulFOp::create(b, half, splat(b, half.getType(), 0.5));
                     });
}

template <bool isRunning> static Error lowerTrapezoid(OpContext &op) {
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", op.tensor("y").rank()));
  ASSIGN_OR_RETURN(Tensor parts, trapezoids(op, dim));
  Value areas = op.get(parts);
  if (!isRunning)
    return setResult(op, op.wrap(parts.dtype, reduceValue(op.b, areas, ReduceKind::Add, dim)));
  Value sums = mlir::memopt::LinearScanOp::create(op.b, splat(op.b, areas.getType(), 1.0), areas,
                                                  dim, false, APFloat(0.0));
  return setResult(op, op.wrap(parts.dtype, sums));
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerScans(OpTable &table) {
  table.add("aten.cumsum.default", "Tensor self, int dim, dtype? dtype=None", lowerCumsum);
  table.add("aten.cumprod.default", "Tensor self, int dim, dtype? dtype=None", lowerCumprod);
  table.add("aten.linalg_vander.default", "Tensor x, int? N=None", lowerVandermonde);
  table.add("aten.logcumsumexp.default", "Tensor self, int dim", lowerLogCumsumExp);
  table.add("aten.cummax.default", "Tensor self, int dim", lowerCumulativeExtreme<ReduceKind::Max>);
  table.add("aten.cummin.default", "Tensor self, int dim", lowerCumulativeExtreme<ReduceKind::Min>);
  table.add("aten.diff.default",
            "Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None",
            lowerDiff);
  constexpr StringLiteral byDistance = "Tensor y, Scalar dx=1, int dim=-1";
  constexpr StringLiteral byPlaces = "Tensor y, Tensor x, int dim=-1";
  table.add("aten.trapezoid.dx", byDistance, lowerTrapezoid<false>);
  table.add("aten.trapezoid.x", byPlaces, lowerTrapezoid<false>);
  table.add("aten.trapz.dx", "Tensor y, float dx=1, int dim=-1", lowerTrapezoid<false>);
  table.add("aten.trapz.x", byPlaces, lowerTrapezoid<false>);
  table.add("aten.cumulative_trapezoid.dx", byDistance, lowerTrapezoid<true>);
  table.add("aten.cumulative_trapezoid.x", byPlaces, lowerTrapezoid<true>);
}
