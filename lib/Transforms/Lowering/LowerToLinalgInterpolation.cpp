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
#include "memopt/Dialect/Formula.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// Terms of a sum per element of one dimension. Shorter sums are filled up with a term of theirs
/// and weight 0, so that a NaN goes where it belongs and nowhere else.
struct Table {
  struct Term {
    int64_t index;
    double weight;
  };
  std::vector<SmallVector<Term, 4>> terms;

  /// Whether some sum has no terms, so that even the filling is foreign to it.
  bool hasGaps() const {
    return llvm::any_of(terms, [](const auto &list) { return list.empty(); });
  }
  size_t getLongest() const {
    size_t longest = 1;
    for (const auto &list : terms)
      longest = std::max(longest, list.size());
    return longest;
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

namespace {
/// The weights of one dimension, in type `T`, as PyTorch computes them.
template <typename T> class TableBuilder {
public:
  TableBuilder(int64_t from, int64_t to, double scale, bool alignCorners)
      : from(from), to(to), step(static_cast<T>(scale)), alignCorners(alignCorners) {}

  Table build(Resampling mode) {
    for (int64_t i = 0; i < to; ++i) {
      table.terms.emplace_back();
      switch (mode) {
      case Resampling::Nearest:
        add(static_cast<int64_t>(std::floor(static_cast<T>(i) * step)), 1);
        break;
      case Resampling::NearestExact:
        add(static_cast<int64_t>(std::floor((static_cast<T>(i) + T(0.5)) * step)), 1);
        break;
      case Resampling::Linear:
        addLinear(i);
        break;
      case Resampling::Cubic:
        addCubic(i);
        break;
      case Resampling::Area:
        addArea(i);
        break;
      case Resampling::LinearAntialias:
        addFiltered(i, 1, [](T x) { return std::max(T(1) - std::abs(x), T(0)); });
        break;
      case Resampling::CubicAntialias:
        addFiltered(i, 2, [](T x) { return convolve(std::abs(x), T(-0.5)); });
        break;
      }
    }
    return std::move(table);
  }

private:
  /// Beyond the ends lie the elements at the ends.
  void add(int64_t index, T weight) {
    table.terms.back().push_back(
        {std::clamp<int64_t>(index, 0, from - 1), static_cast<double>(weight)});
  }

  /// area_pixel_compute_source_index
  T getPosition(int64_t i) const {
    return alignCorners ? step * static_cast<T>(i) : step * (static_cast<T>(i) + T(0.5)) - T(0.5);
  }

  void addLinear(int64_t i) {
    T position = std::max(getPosition(i), T(0));
    int64_t low = std::min(static_cast<int64_t>(position), from - 1);
    T weight = std::clamp(position - static_cast<T>(low), T(0), T(1));
    if (low + 1 == from)
      return add(low, 1);
    add(low, T(1) - weight);
    add(low + 1, weight);
  }

  /// Keys' kernel for x >= 0.
  static T convolve(T x, T a) {
    if (x < 1)
      return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : T(0);
  }

  void addCubic(int64_t i) {
    T position = getPosition(i), low = std::floor(position), t = position - low;
    for (int64_t tap = -1; tap <= 2; ++tap)
      add(static_cast<int64_t>(low) + tap, convolve(std::abs(t - static_cast<T>(tap)), T(-0.75)));
  }

  void addArea(int64_t i) {
    int64_t begin = i * from / to, end = ((i + 1) * from + to - 1) / to;
    for (int64_t source = begin; source < end; ++source)
      add(source, T(1) / static_cast<T>(end - begin));
  }

  /// A kernel that reaches `radius` elements, or as many steps where steps are longer.
  void addFiltered(int64_t i, int64_t radius, llvm::function_ref<T(T)> kernel) {
    T stretch = std::max(step, T(1)), support = static_cast<T>(radius) * stretch;
    T center = step * (static_cast<T>(i) + T(0.5));
    int64_t begin = std::max<int64_t>(static_cast<int64_t>(center - support + T(0.5)), 0);
    int64_t end = std::min<int64_t>(static_cast<int64_t>(center + support + T(0.5)), from);
    SmallVector<T> weights;
    T total = 0;
    for (int64_t source = begin; source < end; ++source) {
      weights.push_back(kernel((static_cast<T>(source) - center + T(0.5)) / stretch));
      total += weights.back();
    }
    for (auto [offset, weight] : llvm::enumerate(weights))
      add(begin + static_cast<int64_t>(offset), weight / total);
  }

  int64_t from, to;
  T step;
  bool alignCorners;
  Table table;
};
} // namespace

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
    bool align = op.getAlignCorners();
    tables.push_back(small.getElementType().isF64()
                         ? TableBuilder<double>(from, to, scale, align).build(op.getMode())
                         : TableBuilder<float>(from, to, scale, align).build(op.getMode()));
  }
  return tables;
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

/// Columns [begin, begin + count) of the table as constants [elements, count] (or [elements] for
/// one column): indices and weights. Shorter sums go on with their last term, of weight 0, so that
/// nothing is read that does not belong to them.
static std::pair<Value, Value> createColumns(ImplicitLocOpBuilder &b, const Table &table,
                                             size_t begin, size_t count, bool asVector,
                                             Type compute) {
  SmallVector<int32_t> indices;
  SmallVector<Attribute> weights;
  for (const auto &terms : table.terms)
    for (size_t column = begin; column < begin + count; ++column) {
      bool exists = column < terms.size();
      indices.push_back(exists ? terms[column].index : terms.empty() ? 0 : terms.back().index);
      weights.push_back(b.getFloatAttr(compute, exists ? terms[column].weight : 0.0));
    }
  SmallVector<int64_t> shape{static_cast<int64_t>(table.terms.size())};
  if (!asVector)
    shape.push_back(static_cast<int64_t>(count));
  auto indexType = RankedTensorType::get(shape, b.getI32Type());
  auto weightType = RankedTensorType::get(shape, compute);
  return {arith::ConstantOp::create(b, DenseElementsAttr::get(indexType, ArrayRef(indices))),
          arith::ConstantOp::create(b, DenseElementsAttr::get(weightType, weights))};
}

/// result[n, c, i...] = sum over terms of weight * source[n, c, index...], spelled out; `first` is
/// the first of the spatial dimensions.
static Value sumTogether(ImplicitLocOpBuilder &b, Value source, RankedTensorType type,
                         ArrayRef<Table> tables, int64_t first) {
  Type element = type.getElementType(), compute = getComputeType(element);
  bool hasGaps = llvm::any_of(tables, [](const Table &table) { return table.hasGaps(); });
  SmallVector<Read> reads;
  SmallVector<size_t> firstRead, lengths;
  for (auto [dim, table] : llvm::enumerate(tables)) {
    firstRead.push_back(reads.size());
    lengths.push_back(table.getLongest());
    for (size_t column = 0; column < lengths.back(); ++column) {
      auto [index, weight] = createColumns(b, table, column, 1, /*asVector=*/true, compute);
      for (Value value : {index, weight})
        reads.push_back(readDims(b, value, type.getRank(), {static_cast<int64_t>(dim) + first}));
    }
  }
  auto body = [&](ImplicitLocOpBuilder &inner, ValueRange x) {
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
      Value term = f.mul(weight, value);
      sum = f.add(sum, hasGaps ? f.unlessZero(weight, term) : term);
      size_t dim = tables.size();
      while (dim > 0 && ++column[dim - 1] == lengths[dim - 1])
        column[--dim] = 0;
      if (dim == 0)
        break;
    }
    return SmallVector<Value>{convertTo(inner, sum, element)};
  };
  return createPointwise(b, type.getShape(), reads, {element}, body).front();
}

/// The same along dimension `dim` alone, as a loop over terms.
static Value sumAlong(ImplicitLocOpBuilder &b, Value source, const Table &table, int64_t dim) {
  RankedTensorType from = tensorType(source);
  Type element = from.getElementType(), compute = getComputeType(element);
  SmallVector<int64_t> domain(from.getShape());
  int64_t rank = from.getRank(), terms = static_cast<int64_t>(table.getLongest());
  domain[dim] = static_cast<int64_t>(table.terms.size());
  SmallVector<int64_t> shape(domain);
  domain.push_back(terms);
  auto [index, weight] = createColumns(b, table, 0, terms, /*asVector=*/false, compute);
  SmallVector<Read> reads{readDims(b, index, rank + 1, {dim, rank}),
                          readDims(b, weight, rank + 1, {dim, rank})};
  auto body = [&](ImplicitLocOpBuilder &inner, ValueRange x) {
    Formula f{inner, compute};
    SmallVector<Value> at;
    for (int64_t other = 0; other < rank; ++other)
      at.push_back(linalg::IndexOp::create(inner, other));
    at[dim] = convertTo(inner, x[0], inner.getIndexType());
    Value value = f.wide(tensor::ExtractOp::create(inner, source, at));
    Value term = f.mul(x[1], value);
    return SmallVector<Value>{table.hasGaps() ? f.unlessZero(x[1], term) : term};
  };
  Value sum =
      createPlainReduction(b, domain, {rank}, reads, {{ReduceKind::Add, compute}}, body).front();
  if (compute == element)
    return sum;
  return createPointwise(b, shape, {readAll(b, sum)}, {element},
                         [&](ImplicitLocOpBuilder &inner, ValueRange x) {
                           return SmallVector<Value>{convertTo(inner, x[0], element)};
                         })
      .front();
}

/// Few terms at once; many one dimension after the other, those first that shrink most.
static Lowered lowerResampling(ImplicitLocOpBuilder &b, Value source, RankedTensorType type,
                               ArrayRef<Table> tables, int64_t first) {
  constexpr size_t fewTerms = 36;
  size_t terms = 1;
  for (const Table &table : tables)
    terms *= table.getLongest();
  if (terms <= fewTerms)
    return SmallVector<Value>{sumTogether(b, source, type, tables, first)};
  SmallVector<size_t> order = llvm::to_vector(llvm::seq<size_t>(0, tables.size()));
  auto growth = [&](size_t dim) {
    return static_cast<double>(tables[dim].terms.size()) /
           static_cast<double>(tensorType(source).getDimSize(dim + first));
  };
  llvm::stable_sort(order, [&](size_t a, size_t b) { return growth(a) < growth(b); });
  for (size_t dim : order)
    source = sumAlong(b, source, tables[dim], static_cast<int64_t>(dim) + first);
  return SmallVector<Value>{source};
}

static Lowered lowerInterpolate(InterpolateOp op, ImplicitLocOpBuilder &b) {
  RankedTensorType input = tensorType(op.getInput()), output = tensorType(op.getResult());
  return lowerResampling(b, op.getInput(), output, createTables(op, input, output),
                         getFirstSpatialDim(op.getLayout()));
}

static Lowered lowerInterpolateBackward(InterpolateBackwardOp op, ImplicitLocOpBuilder &b) {
  RankedTensorType input = tensorType(op.getResult()), output = tensorType(op.getGradient());
  SmallVector<Table> tables = createTables(op, input, output);
  int64_t first = getFirstSpatialDim(op.getLayout());
  for (auto [dim, table] : llvm::enumerate(tables))
    table = invert(table, input.getDimSize(dim + first));
  return lowerResampling(b, op.getGradient(), input, tables, first);
}

void mlir::memopt::populateInterpolationLowerings(LinalgLowerings &lowerings) {
  lowerings.add<InterpolateOp>(lowerInterpolate);
  lowerings.add<InterpolateBackwardOp>(lowerInterpolateBackward);
}
