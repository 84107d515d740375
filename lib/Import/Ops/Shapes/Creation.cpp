//===- Creation.cpp - tensors made of nothing -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Integer and boolean tensors are known. Constant floating-point ones are one number that waits for
// its broadcast.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/Formula.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
namespace arith = mlir::arith;

static Expected<Tensor> fill(OpContext &op, ArrayRef<int64_t> sizes, const Scalar &value) {
  DType type = op.resultMeta(0).dtype;
  RETURN_IF_ERROR(countElements(op, sizes).takeError());
  if (isFloat(type))
    return op.wrap(type, sizes, splat(op.b, op.tensorType(type, Shape(sizes.size(), 1)), value));
  if (value.isFloat && !(std::abs(value.real) < 9e18))
    return op.error("expected an integer, found " + toString(value.real));
  int64_t integer = value.isFloat ? int64_t(value.real) : value.integer;
  if (type == DType::Bool && value.isFloat)
    integer = value.real != 0;
  return op.wrap(ConstantTensor::splat(type, sizes, integer));
}

static Scalar wholeNumber(int64_t value) {
  Scalar result;
  result.integer = value;
  return result;
}

template <int64_t value> static Error lowerConstant(OpContext &op) {
  return setResult(op, fill(op, op.integers("size"), wholeNumber(value)));
}
template <int64_t value> static Error lowerConstantLike(OpContext &op) {
  return setResult(op, fill(op, op.tensor("self").sizes, wholeNumber(value)));
}
static Error lowerFull(OpContext &op) {
  return setResult(op, fill(op, op.integers("size"), op.scalar("fill_value")));
}
static Error lowerFullLike(OpContext &op) {
  return setResult(op, fill(op, op.tensor("self").sizes, op.scalar("fill_value")));
}
static Error lowerScalarTensor(OpContext &op) {
  return setResult(op, fill(op, {}, op.scalar("s")));
}

/// In place: `x.fill_(v)`.
static Error lowerFill(OpContext &op) {
  return setResult(op, fill(op, op.tensor("self").sizes, op.scalar("value")));
}

//===----------------------------------------------------------------------===//
// Ranges
//===----------------------------------------------------------------------===//

/// The integer that a number is, if it is one; PyTorch takes -1.0 for -1 where a type is integral.
static std::optional<int64_t> getInteger(const Scalar &scalar) {
  constexpr double most = 9007199254740992; // 2^53: integers are exact up to here
  if (!scalar.isFloat)
    return scalar.integer;
  if (std::trunc(scalar.real) != scalar.real || !(std::abs(scalar.real) <= most))
    return std::nullopt;
  return int64_t(scalar.real);
}

/// As many numbers as the file says; it has computed the count from the same bounds.
static Error range(OpContext &op, const Scalar &start, const Scalar &step) {
  const TensorMeta &meta = op.resultMeta(0);
  if (meta.sizes.size() != 1 || meta.getNumElements() == 0)
    return op.error("expected a result with one dimension and elements, found " +
                    toString(meta.sizes));
  RETURN_IF_ERROR(checkFoldable(op, meta.sizes));
  if (!isFloat(meta.dtype)) {
    std::optional<int64_t> first = getInteger(start), stride = getInteger(step);
    if (!first || !stride)
      return op.error("expected integer bounds for a range of " + getName(meta.dtype));
    return setResult(op, op.wrap(ConstantTensor::iota(meta.dtype, *first, *stride, meta.sizes[0])));
  }
  constexpr int64_t most = 1 << 20;
  if (meta.sizes[0] > most)
    return op.error("a range of " + Twine(meta.sizes[0]) + " numbers; the limit is " + Twine(most));
  SmallVector<mlir::Attribute> elements;
  for (int64_t i = 0; i != meta.sizes[0]; ++i)
    elements.push_back(op.b.getFloatAttr(op.elementType(meta.dtype),
                                         start.asDouble() + double(i) * step.asDouble()));
  auto attr = mlir::DenseElementsAttr::get(op.resultType(0), elements);
  return setResult(op, op.wrap(meta.dtype, arith::ConstantOp::create(op.b, attr)));
}

static Error checkCount(OpContext &op, const Scalar &start, const Scalar &end, const Scalar &step) {
  double span = (end.asDouble() - start.asDouble()) / step.asDouble();
  if (!(std::ceil(span) == double(op.resultMeta(0).getNumElements())))
    return op.error("a range from " + toString(start.asDouble()) + " to " +
                    toString(end.asDouble()) + " by " + toString(step.asDouble()) +
                    " does not have " + Twine(op.resultMeta(0).getNumElements()) + " elements");
  return range(op, start, step);
}

static Error lowerArange(OpContext &op) {
  return checkCount(op, wholeNumber(0), op.scalar("end"), wholeNumber(1));
}
static Error lowerArangeStart(OpContext &op) {
  return checkCount(op, op.scalar("start"), op.scalar("end"), wholeNumber(1));
}
static Error lowerArangeStep(OpContext &op) {
  return checkCount(op, op.scalar("start"), op.scalar("end"), op.scalar("step"));
}

static Error lowerLinspace(OpContext &op) {
  double start = op.number("start"), end = op.number("end");
  int64_t steps = op.integer("steps");
  if (steps < 1 || !isFloat(op.resultMeta(0).dtype) || steps != op.resultMeta(0).getNumElements())
    return op.error("expected a positive number of floating-point steps, found " + Twine(steps));
  Scalar first, step;
  first.isFloat = step.isFloat = true;
  first.real = start;
  step.real = steps > 1 ? (end - start) / double(steps - 1) : 0;
  return range(op, first, step);
}

/// Numbers from start to end at equal distances, which may be known only when the step runs; with a
/// base, its powers.
static Error lowerSpacing(OpContext &op) {
  const TensorMeta &meta = op.resultMeta(0);
  int64_t steps = op.integer("steps");
  if (steps < 1 || !isFloat(meta.dtype) || steps != meta.getNumElements())
    return op.error("expected a positive number of floating-point steps, found " + Twine(steps));
  RETURN_IF_ERROR(checkFoldable(op, meta.sizes));
  Tensor number = castTo(op, op.wrap(ConstantTensor::iota(DType::I64, 0, 1, steps)), DType::F64);
  double last = double(std::max<int64_t>(steps - 1, 1));
  ASSIGN_OR_RETURN(Tensor result,
                   elementwise(op, {op.operand("start"), op.operand("end"), number}, DType::F64,
                               DType::F64, inBuild([&](ArrayRef<Element> v) {
                                 Element value = v[0] + (v[1] - v[0]) * v[2] / last;
                                 return op.hasParameter("base")
                                            ? pow(value.like(op.number("base")), value)
                                            : value;
                               })));
  return setResult(op, castTo(op, result, meta.dtype));
}

static Error lowerEye(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  Shape sizes{op.integer("n"), op.optionalInteger("m").value_or(op.integer("n"))};
  RETURN_IF_ERROR(checkFoldable(op, sizes));
  Constant known = ConstantTensor::generate(isFloat(type) ? DType::I32 : type, sizes,
                                            [](ArrayRef<int64_t> i) { return i[0] == i[1]; });
  return setResult(op, castTo(op, op.wrap(known), type));
}

void memopt::pt2::registerCreation(OpTable &table) {
#define KIND "dtype? dtype=None, ignored layout, ignored device, ignored pin_memory"
#define LIKE KIND ", ignored memory_format"
  table.add("aten.full.default", "int[] size, Scalar fill_value, " KIND, lowerFull);
  table.add("aten.zeros.default", "int[] size, " KIND, lowerConstant<0>);
  table.add("aten.ones.default", "int[] size, " KIND, lowerConstant<1>);
  table.add("aten.full_like.default", "Tensor self, Scalar fill_value, " LIKE, lowerFullLike);
  table.add("aten.zeros_like.default", "Tensor self, " LIKE, lowerConstantLike<0>);
  table.add("aten.ones_like.default", "Tensor self, " LIKE, lowerConstantLike<1>);
  table.add("aten.new_full.default", "Tensor self, int[] size, Scalar fill_value, " KIND,
            lowerFull);
  table.add("aten.new_zeros.default", "Tensor self, int[] size, " KIND, lowerConstant<0>);
  table.add("aten.new_ones.default", "Tensor self, int[] size, " KIND, lowerConstant<1>);
  // Memory whose content does not matter: zeros.
  table.add("aten.empty.memory_format", "int[] size, " LIKE, lowerConstant<0>);
  table.add("aten.empty_like.default", "Tensor self, " LIKE, lowerConstantLike<0>);
  table.add("aten.new_empty.default", "Tensor self, int[] size, " KIND, lowerConstant<0>);
  table.add("aten.eye.default", "int n, int? m=None, " KIND, lowerEye);
  table.add("aten.eye.m", "int n, int? m=None, " KIND, lowerEye);
  table.add("aten.linspace.default", "Scalar start, Scalar end, int steps, " KIND, lowerLinspace);
  table.add("aten.linspace.Tensor_Tensor", "Tensor start, Tensor end, int steps, " KIND,
            lowerSpacing);
  table.add("aten.linspace.Tensor_Scalar", "Tensor start, Scalar end, int steps, " KIND,
            lowerSpacing);
  table.add("aten.linspace.Scalar_Tensor", "Scalar start, Tensor end, int steps, " KIND,
            lowerSpacing);
  table.add("aten.logspace.default", "Scalar start, Scalar end, int steps, float base=10.0, " KIND,
            lowerSpacing);
  table.add("aten.logspace.Tensor_Tensor",
            "Tensor start, Tensor end, int steps, float base=10.0, " KIND, lowerSpacing);
  table.add("aten.logspace.Tensor_Scalar",
            "Tensor start, Scalar end, int steps, float base=10.0, " KIND, lowerSpacing);
  table.add("aten.logspace.Scalar_Tensor",
            "Scalar start, Tensor end, int steps, float base=10.0, " KIND, lowerSpacing);
  table.add("aten.scalar_tensor.default", "Scalar s, " KIND, lowerScalarTensor);
  table.add("aten.fill.Scalar", "Tensor self, Scalar value", lowerFill);
  table.add("aten.zero.default", "Tensor self", lowerConstantLike<0>);
  table.add("aten.arange.default", "Scalar end, " KIND, lowerArange);
  table.add("aten.arange.start", "Scalar start, Scalar end, " KIND, lowerArangeStart);
  table.add("aten.arange.start_step", "Scalar start, Scalar end, Scalar step=1, " KIND,
            lowerArangeStep);
#undef LIKE
#undef KIND
}
