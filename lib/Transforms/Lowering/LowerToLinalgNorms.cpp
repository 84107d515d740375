//===- LowerToLinalgNorms.cpp - layer, group and RMS normalization --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rows are normalized on their own: mean, then squared deviations from it (two passes over a row
// that is in cache), then the result. Gradients of scale and offset are sums over rows, in chunks.
//
//===----------------------------------------------------------------------===//

#include "LowerToLinalg.h"
#include "memopt/Dialect/Formula.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include <numeric>

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// A tensor whose dimensions `inner` (from `begin` on, or all but `outer`) are normalized together.
struct Rows {
  RankedTensorType type;
  Type compute;
  SmallVector<int64_t> outer, inner;
  int64_t count = 1;

  Rows(RankedTensorType type, int64_t begin)
      : Rows(type, llvm::to_vector(llvm::seq<int64_t>(0, begin))) {}
  Rows(RankedTensorType type, ArrayRef<int64_t> outer)
      : type(type), compute(getComputeType(type.getElementType())), outer(outer) {
    for (int64_t dim = 0; dim < type.getRank(); ++dim) {
      if (llvm::is_contained(outer, dim))
        continue;
      inner.push_back(dim);
      count *= type.getDimSize(dim);
    }
  }
  ArrayRef<int64_t> getDomain() const { return type.getShape(); }
  SmallVector<int64_t> getOuterShape() const {
    return llvm::map_to_vector(outer, [&](int64_t dim) { return type.getDimSize(dim); });
  }
  Read perRow(ImplicitLocOpBuilder &b, Value value) const {
    return readDims(b, value, type.getRank(), outer);
  }
  Read perColumn(ImplicitLocOpBuilder &b, Value value) const {
    return readDims(b, value, type.getRank(), inner);
  }
};
} // namespace

/// sum / n as a tensor of rows.
static Value createRowMean(ImplicitLocOpBuilder &b, const Rows &rows, Value total, Type element) {
  return createPointwise(b, rows.getOuterShape(), {readAll(b, total)}, ArrayRef<Type>{element},
                         [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                           Formula f{inner, rows.compute};
                           return SmallVector<Value>{
                               convertTo(inner, f.div(x[0], f.number(rows.count)), element)};
                         })
      .front();
}

/// 1 / sqrt(squares / n + eps) as a tensor of rows. With `spoilsOverflow` NaN where the squares
/// overflow: zero would make the result of a layer norm look like numbers.
static Value createRowDeviation(ImplicitLocOpBuilder &b, const Rows &rows, Value squares,
                                double eps, Type element, bool spoilsOverflow) {
  return createPointwise(b, rows.getOuterShape(), {readAll(b, squares)}, ArrayRef<Type>{element},
                         [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                           Formula f{inner, rows.compute};
                           Value mean = f.div(x[0], f.number(rows.count));
                           if (spoilsOverflow) // infinity - infinity
                             mean = f.add(mean, f.sub(mean, mean));
                           return SmallVector<Value>{
                               convertTo(inner, f.inverseRoot(mean, eps), element)};
                         })
      .front();
}

namespace {
struct RowStatistics {
  Value mean, inverse;
};
} // namespace

static RowStatistics createRowStatistics(ImplicitLocOpBuilder &b, const Rows &rows, Value input,
                                         double eps, Type element) {
  Accumulator sum{ReduceKind::Add, rows.compute};
  Value total =
      createPlainReduction(b, rows.getDomain(), rows.inner, {readAll(b, input)}, {sum},
                           [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                             return SmallVector<Value>{convertTo(inner, x[0], rows.compute)};
                           })
          .front();
  Value mean = createRowMean(b, rows, total, element);
  Value squares =
      createPlainReduction(b, rows.getDomain(), rows.inner,
                           {readAll(b, input), rows.perRow(b, mean)}, {sum},
                           [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                             Formula f{inner, rows.compute};
                             return SmallVector<Value>{f.square(f.sub(f.wide(x[0]), f.wide(x[1])))};
                           })
          .front();
  return {mean, createRowDeviation(b, rows, squares, eps, element, /*spoilsOverflow=*/true)};
}

/// (x - mean) * inverse * scale + offset; what is null is left out.
static Value createNormalized(ImplicitLocOpBuilder &b, const Rows &rows, Value input, Value mean,
                              Value inverse, std::optional<Read> scale,
                              std::optional<Read> offset) {
  SmallVector<Read> reads{readAll(b, input), rows.perRow(b, inverse)};
  for (std::optional<Read> read :
       {mean ? std::optional(rows.perRow(b, mean)) : std::nullopt, scale, offset})
    if (read)
      reads.push_back(*read);
  Type element = rows.type.getElementType();
  return createPointwise(b, rows.getDomain(), reads, {element},
                         [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                           Formula f{inner, rows.compute};
                           unsigned next = 2;
                           Value y = f.wide(x[0]);
                           if (mean)
                             y = f.sub(y, f.wide(x[next++]));
                           y = f.mul(y, f.wide(x[1]));
                           if (scale)
                             y = f.mul(y, f.wide(x[next++]));
                           if (offset)
                             y = f.add(y, f.wide(x[next++]));
                           return SmallVector<Value>{convertTo(inner, y, element)};
                         })
      .front();
}

//===----------------------------------------------------------------------===//
// Layer normalization
//===----------------------------------------------------------------------===//

static Lowered lowerLayerNorm(LayerNormOp op, ImplicitLocOpBuilder &b) {
  Rows rows(tensorType(op.getInput()), op.getBeginAttr().getInt());
  RowStatistics statistics =
      createRowStatistics(b, rows, op.getInput(), op.getEpsAttr().getValueAsDouble(),
                          tensorType(op.getMean()).getElementType());
  std::optional<Read> scale, offset;
  if (op.getScale())
    scale = rows.perColumn(b, op.getScale());
  if (op.getOffset())
    offset = rows.perColumn(b, op.getOffset());
  Value result =
      createNormalized(b, rows, op.getInput(), statistics.mean, statistics.inverse, scale, offset);
  return SmallVector<Value>{result, statistics.mean, statistics.inverse};
}

/// With h = (x - mean) * inverse and t = g * scale:
/// input' = inverse * (t - mean of t - h * mean of (t h)), scale' = sum g h, offset' = sum g.
static Lowered lowerLayerNormBackward(LayerNormBackwardOp op, ImplicitLocOpBuilder &b) {
  Rows rows(tensorType(op.getInput()), op.getBeginAttr().getInt());
  Accumulator sum{ReduceKind::Add, rows.compute};
  SmallVector<Read> reads{readAll(b, op.getGradient()), readAll(b, op.getInput()),
                          rows.perRow(b, op.getMean()), rows.perRow(b, op.getInverseDeviation())};
  unsigned common = reads.size();
  SmallVector<Read> scaled(reads);
  if (op.getScale())
    scaled.push_back(rows.perColumn(b, op.getScale()));
  auto normalize = [&](Formula &f, ValueRange x) {
    return f.mul(f.sub(f.wide(x[1]), f.wide(x[2])), f.wide(x[3]));
  };
  auto weigh = [&](Formula &f, ValueRange x) {
    return op.getScale() ? f.mul(f.wide(x[0]), f.wide(x[common])) : f.wide(x[0]);
  };
  SmallVector<Value> sums =
      createPlainReduction(b, rows.getDomain(), rows.inner, scaled, {sum, sum},
                           [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                             Formula f{inner, rows.compute};
                             Value weighed = weigh(f, x);
                             return SmallVector<Value>{weighed, f.mul(weighed, normalize(f, x))};
                           });
  Value first = createRowMean(b, rows, sums[0], rows.compute);
  Value second = createRowMean(b, rows, sums[1], rows.compute);
  scaled.push_back(rows.perRow(b, first));
  scaled.push_back(rows.perRow(b, second));
  Type element = tensorType(op.getInputGradient()).getElementType();
  Value input = createPointwise(b, rows.getDomain(), scaled, {element},
                                [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                                  Formula f{inner, rows.compute};
                                  Value m1 = x[x.size() - 2], m2 = x[x.size() - 1];
                                  Value rest =
                                      f.sub(f.sub(weigh(f, x), m1), f.mul(normalize(f, x), m2));
                                  return SmallVector<Value>{
                                      convertTo(inner, f.mul(f.wide(x[3]), rest), element)};
                                })
                    .front();
  SmallVector<Value> columns =
      createReduction(b, rows.getDomain(), rows.outer, reads, {sum, sum},
                      [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                        Formula f{inner, rows.compute};
                        Value gradient = f.wide(x[0]);
                        return SmallVector<Value>{f.mul(gradient, normalize(f, x)), gradient};
                      });
  SmallVector<Value> results{input};
  for (auto [value, result] : llvm::zip_equal(columns, op->getResults().drop_front())) {
    Type wanted = tensorType(result).getElementType();
    if (wanted != rows.compute)
      value = createPointwise(b, tensorType(value).getShape(), {readAll(b, value)},
                              ArrayRef<Type>{wanted},
                              [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                                return SmallVector<Value>{convertTo(inner, x[0], wanted)};
                              })
                  .front();
    results.push_back(value);
  }
  return results;
}

//===----------------------------------------------------------------------===//
// Group and RMS normalization
//===----------------------------------------------------------------------===//

/// Channels are cut into [groups, channels / groups], which makes a group a row.
static Lowered lowerGroupNorm(GroupNormOp op, ImplicitLocOpBuilder &b) {
  RankedTensorType type = tensorType(op.getInput());
  int64_t axis = op.getLayout() == Layout::ChannelsLast ? type.getRank() - 1 : 1;
  int64_t groups = op.getGroupsAttr().getInt(), perGroup = type.getDimSize(axis) / groups;
  SmallVector<int64_t> shape(type.getShape());
  shape[axis] = perGroup;
  shape.insert(shape.begin() + axis, groups);
  SmallVector<ReassociationIndices> cut;
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    cut.push_back({dim + (dim > axis ? 1 : 0)});
  cut[axis].push_back(axis + 1);
  auto grouped = RankedTensorType::get(shape, type.getElementType());
  Value input = tensor::ExpandShapeOp::create(b, grouped, op.getInput(), cut);
  Rows rows(grouped, {0, axis});
  RowStatistics statistics = createRowStatistics(b, rows, input, op.getEpsAttr().getValueAsDouble(),
                                                 tensorType(op.getMean()).getElementType());
  auto perChannel = [&](Value value) -> std::optional<Read> {
    if (!value)
      return std::nullopt;
    auto split = RankedTensorType::get({groups, perGroup}, tensorType(value).getElementType());
    SmallVector<ReassociationIndices> whole{{0, 1}};
    Value expanded = tensor::ExpandShapeOp::create(b, split, value, whole);
    return readDims(b, expanded, shape.size(), {axis, axis + 1});
  };
  Value normalized = createNormalized(b, rows, input, statistics.mean, statistics.inverse,
                                      perChannel(op.getScale()), perChannel(op.getOffset()));
  Value result = tensor::CollapseShapeOp::create(b, type, normalized, cut);
  return SmallVector<Value>{result, statistics.mean, statistics.inverse};
}

static Lowered lowerRmsNorm(RmsNormOp op, ImplicitLocOpBuilder &b) {
  Rows rows(tensorType(op.getInput()), op.getBeginAttr().getInt());
  Value squares = createPlainReduction(b, rows.getDomain(), rows.inner, {readAll(b, op.getInput())},
                                       {{ReduceKind::Add, rows.compute}},
                                       [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                                         Formula f{inner, rows.compute};
                                         return SmallVector<Value>{f.square(f.wide(x[0]))};
                                       })
                      .front();
  Value inverse =
      createRowDeviation(b, rows, squares, op.getEpsAttr().getValueAsDouble(), rows.compute,
                         /*spoilsOverflow=*/false);
  std::optional<Read> scale;
  if (op.getScale())
    scale = rows.perColumn(b, op.getScale());
  return SmallVector<Value>{
      createNormalized(b, rows, op.getInput(), Value(), inverse, scale, std::nullopt)};
}

void mlir::memopt::populateNormLowerings(LinalgLowerings &lowerings) {
  lowerings.add<LayerNormOp>(lowerLayerNorm);
  lowerings.add<LayerNormBackwardOp>(lowerLayerNormBackward);
  lowerings.add<GroupNormOp>(lowerGroupNorm);
  lowerings.add<RmsNormOp>(lowerRmsNorm);
}
