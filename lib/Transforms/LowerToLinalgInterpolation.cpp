//===- LowerToLinalgInterpolation.cpp - resizing and its gradient --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sizes are static, so which source elements make a result element, and with what weights, is a
// table per dimension, computed here in the arithmetic that PyTorch uses (UpSample.h: float for
// float data). The gradient is the same sum with the tables inverted: for each source element the
// results that it went into. Both directions are then one formula, exact inverses of each other and
// free of scatters.
//
//===----------------------------------------------------------------------===//

#include "LowerToLinalg.h"
#include "ScalarFormula.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// Terms of a sum per element of one dimension; shorter sums are filled up with weight 0.
struct Table {
  struct Term {
    int64_t index;
    double weight;
  };
  std::vector<SmallVector<Term, 4>> terms;

  size_t getLongest() const {
    size_t longest = 1;
    for (const auto &list : terms)
      longest = std::max(longest, list.size());
    return longest;
  }
};
} // namespace

/// PyTorch's area_pixel_compute_source_index and the weights around it, in type `T`.
template <typename T>
static Table createForwardTable(int64_t from, int64_t to, double scale, bool linear,
                                bool alignCorners) {
  Table table;
  for (int64_t i = 0; i < to; ++i) {
    table.terms.emplace_back();
    T step = static_cast<T>(scale);
    if (!linear) {
      int64_t source = static_cast<int64_t>(std::floor(static_cast<T>(i) * step));
      table.terms.back().push_back({std::clamp<int64_t>(source, 0, from - 1), 1.0});
      continue;
    }
    T position =
        alignCorners ? step * static_cast<T>(i) : step * (static_cast<T>(i) + T(0.5)) - T(0.5);
    position = std::max(position, T(0));
    int64_t low = std::min(static_cast<int64_t>(position), from - 1);
    T weight = std::clamp(position - static_cast<T>(low), T(0), T(1));
    if (low + 1 < from) {
      table.terms.back().push_back({low, static_cast<double>(T(1) - weight)});
      table.terms.back().push_back({low + 1, static_cast<double>(weight)});
    } else {
      table.terms.back().push_back({low, 1.0});
    }
  }
  return table;
}

static Table invert(const Table &table, int64_t from) {
  Table inverse;
  inverse.terms.resize(from);
  for (auto [i, terms] : llvm::enumerate(table.terms))
    for (const Table::Term &term : terms)
      if (term.weight != 0)
        inverse.terms[term.index].push_back({static_cast<int64_t>(i), term.weight});
  return inverse;
}

static int64_t getFirstSpatialDim(Layout layout) { return layout == Layout::ChannelsLast ? 1 : 2; }

template <typename OpType>
static SmallVector<Table> createTables(OpType op, RankedTensorType small, RankedTensorType large) {
  SmallVector<Table> tables;
  int64_t first = getFirstSpatialDim(op.getLayout());
  for (auto [dim, scale] : llvm::enumerate(op.getScales())) {
    int64_t from = small.getDimSize(dim + first), to = large.getDimSize(dim + first);
    bool linear = op.getLinear(), align = op.getAlignCorners();
    tables.push_back(small.getElementType().isF64()
                         ? createForwardTable<double>(from, to, scale, linear, align)
                         : createForwardTable<float>(from, to, scale, linear, align));
  }
  return tables;
}

/// Column `column` of the table: one index and one weight per element.
static std::pair<Value, Value> createColumn(ImplicitLocOpBuilder &b, const Table &table,
                                            size_t column, Type compute) {
  SmallVector<int32_t> indices;
  SmallVector<Attribute> weights;
  for (const auto &terms : table.terms) {
    bool exists = column < terms.size();
    indices.push_back(exists ? terms[column].index : 0);
    weights.push_back(b.getFloatAttr(compute, exists ? terms[column].weight : 0.0));
  }
  int64_t size = indices.size();
  auto indexType = RankedTensorType::get({size}, b.getI32Type());
  auto weightType = RankedTensorType::get({size}, compute);
  return {arith::ConstantOp::create(b, DenseElementsAttr::get(indexType, ArrayRef(indices))),
          arith::ConstantOp::create(b, DenseElementsAttr::get(weightType, weights))};
}

/// result[n, c, i...] = sum over terms of weight * source[n, c, index...]; `first` is the first of
/// the spatial dimensions.
static Lowered lowerResampling(ImplicitLocOpBuilder &b, Value source, RankedTensorType type,
                               ArrayRef<Table> tables, int64_t first) {
  Type element = type.getElementType(), compute = getComputeType(element);
  SmallVector<Read> reads;
  SmallVector<size_t> firstRead, lengths;
  for (auto [dim, table] : llvm::enumerate(tables)) {
    firstRead.push_back(reads.size());
    lengths.push_back(table.getLongest());
    for (size_t column = 0; column < lengths.back(); ++column) {
      auto [index, weight] = createColumn(b, table, column, compute);
      for (Value value : {index, weight})
        reads.push_back(readDims(b, value, type.getRank(), {static_cast<int64_t>(dim) + first}));
    }
  }
  return createPointwise(b, type.getShape(), reads, {element},
                         [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                           Formula f{inner, compute};
                           Value sum = f.number(0.0);
                           SmallVector<size_t> column(tables.size(), 0);
                           while (true) {
                             SmallVector<Value> at;
                             for (int64_t dim = 0; dim < type.getRank(); ++dim)
                               at.push_back(linalg::IndexOp::create(inner, dim));
                             Value weight;
                             for (size_t dim = 0; dim < tables.size(); ++dim) {
                               size_t read = firstRead[dim] + 2 * column[dim];
                               at[first + dim] = convertTo(inner, x[read], inner.getIndexType());
                               weight = weight ? f.mul(weight, x[read + 1]) : x[read + 1];
                             }
                             Value value = f.wide(tensor::ExtractOp::create(inner, source, at));
                             sum = f.add(sum, f.mul(weight, value));
                             size_t dim = tables.size();
                             while (dim > 0 && ++column[dim - 1] == lengths[dim - 1])
                               column[--dim] = 0;
                             if (dim == 0)
                               break;
                           }
                           return SmallVector<Value>{convertTo(inner, sum, element)};
                         });
}

static Lowered lowerInterpolate(InterpolateOp op, ImplicitLocOpBuilder &b) {
  RankedTensorType input = tensorTypeOf(op.getInput()), output = tensorTypeOf(op.getResult());
  return lowerResampling(b, op.getInput(), output, createTables(op, input, output),
                         getFirstSpatialDim(op.getLayout()));
}

static Lowered lowerInterpolateBackward(InterpolateBackwardOp op, ImplicitLocOpBuilder &b) {
  RankedTensorType input = tensorTypeOf(op.getResult()), output = tensorTypeOf(op.getGradient());
  SmallVector<Table> tables = createTables(op, input, output);
  int64_t first = getFirstSpatialDim(op.getLayout());
  for (auto [dim, table] : llvm::enumerate(tables))
    table = invert(table, input.getDimSize(dim + first));
  return lowerResampling(b, op.getGradient(), input, tables, first);
}

void memopt::populateInterpolationLowerings(LinalgLowerings &lowerings) {
  lowerings.add<InterpolateOp>(lowerInterpolate);
  lowerings.add<InterpolateBackwardOp>(lowerInterpolateBackward);
}
