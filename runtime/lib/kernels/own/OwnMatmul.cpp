//===- OwnMatmul.cpp - matmul by our own kernels ----------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/descriptors/MatmulDescriptor.h"
#include "memopt-runtime/kernels/own/BlockedProduct.h"

using namespace memopt;
using namespace memopt::libraries;

namespace {

/// Lines of a matrix, or of those that a list numbers, from one on.
struct Lines {
  int64_t begin, count, stride;
  const int64_t *list = nullptr;

  int64_t offset(int64_t i) const { return (list ? list[begin + i] : begin + i) * stride; }
};

/// One strided matrix as panels: lanes along one dimension, depth along the other.
template <typename S, typename T>
void packMatrix(Panels<T> panels, const S *first, const Lines &lanes, const Lines &depth) {
  const BlockKernels<S, T> &kernels = blockKernels<S, T>();
  // Read along the dimension that is contiguous.
  if (depth.list || (!lanes.list && lanes.stride == 1 && depth.stride != 1)) {
    const S *steps[maxBlockDepth];
    for (int64_t d = 0; d < depth.count; ++d)
      steps[d] = first + depth.offset(d) + lanes.offset(0);
    return kernels.packSteps(panels, 0, steps, depth.count, lanes.count, lanes.stride);
  }
  const S *lane[maxBlockColumns];
  for (int64_t i = 0; i < lanes.count; ++i)
    lane[i] = first + lanes.offset(i) + depth.offset(0);
  kernels.packLanes(panels, 0, lane, lanes.count, depth.count, depth.stride);
}

/// The numbers of the lines that a mask counts, in their order, and behind them those of the others.
struct CountedLines {
  const int64_t *list = nullptr;
  int64_t count = 0;

  CountedLines() = default;
  CountedLines(const uint8_t *mask, int64_t length, int64_t *list) : list(list) {
    for (int64_t i = 0; i < length; ++i)
      if (mask[i])
        list[count++] = i;
    for (int64_t i = 0, next = count; i < length; ++i)
      if (!mask[i])
        list[next++] = i;
  }
};

template <typename S, typename T> class MatmulOperands final : public ProductOperands<S, T> {
public:
  /// The left operand is the caller's right one where they are exchanged.
  MatmulOperands(const MatmulDescriptor &d, bool isExchanged, void *const *buffers,
                 const CountedLines &counted)
      : d(d), rowList(d.counted == Counted::Rows ? counted.list : nullptr),
        termList(d.counted == Counted::Terms ? counted.list : nullptr),
        a(static_cast<const S *>(buffers[isExchanged ? 1 : 0])),
        b(static_cast<const S *>(buffers[isExchanged ? 0 : 1])),
        bias(d.bias ? static_cast<const Wide<S> *>(buffers[2]) : nullptr),
        addend(static_cast<const S *>(buffers[d.addendIndex()])),
        result(static_cast<S *>(buffers[d.resultIndex()])),
        c(buffers[d.addendIndex()], buffers[d.resultIndex()], d.wideResult, d.accumulate) {}

  void packRows(Panels<T> panels, int64_t product, int64_t rowBegin, int64_t rows,
                int64_t depthBegin, int64_t depth) const override {
    packMatrix(panels, a + offset(d.a, product), {rowBegin, rows, d.a.row, rowList},
               {depthBegin, depth, d.a.column, termList});
  }

  void packColumns(Panels<T> panels, int64_t product, int64_t columnBegin, int64_t columns,
                   int64_t depthBegin, int64_t depth) const override {
    packMatrix(panels, b + offset(d.b, product), {columnBegin, columns, d.b.column},
               {depthBegin, depth, d.b.row, termList});
  }

  void store(int64_t product, int64_t rowBegin, int64_t rows, int64_t columnBegin, int64_t columns,
             const T *block, int64_t stride) const override {
    Lines lines{rowBegin, rows, d.c.row, rowList};
    for (int64_t i = 0; i < rows; ++i) {
      int64_t first = offset(d.c, product) + lines.offset(i) + columnBegin * d.c.column;
      const T *source = block + i * stride;
      const Wide<S> *added = bias ? bias + columnBegin : nullptr;
      if (added) // to the rounded product, as a kernel behind the call would
        c.template setRow<Wide<S>>(first, d.c.column, columns,
                                   [=](int64_t j) { return Wide<S>(source[j]) + added[j]; });
      else
        c.template setRow<T>(first, d.c.column, columns, [=](int64_t j) { return source[j]; });
    }
  }

  PlacedBlock<const T *> findRows(int64_t product, int64_t row, int64_t depth) const override {
    if constexpr (std::is_same_v<S, T>)
      return {a + offset(d.a, product) + row * d.a.row + depth * d.a.column, d.a.row, d.a.column};
    return {};
  }

  PlacedBlock<T *> findResult(int64_t product, int64_t row, int64_t column) const override {
    if constexpr (std::is_same_v<S, T>)
      return {result + offset(d.c, product) + row * d.c.row + column, d.c.row, 1};
    return {};
  }

  void begin(int64_t product, int64_t rowBegin, int64_t rows, int64_t columnBegin,
             int64_t columns) const override {
    for (int64_t i = 0; addend != result && i < rows; ++i) {
      int64_t first = offset(d.c, product) + (rowBegin + i) * d.c.row + columnBegin;
      std::copy_n(addend + first, columns, result + first);
    }
  }

  const T *findBias(int64_t column) const override {
    if constexpr (std::is_same_v<S, T>)
      return bias ? bias + column : nullptr;
    return nullptr;
  }

  /// Rows of the list that are not multiplied.
  void storeZeros(int64_t rowBegin, int64_t rows) const {
    Lines lines{rowBegin, rows, d.c.row, rowList};
    const Wide<S> *added = bias;
    for (int64_t i = 0; i < rows; ++i)
      c.template setRow<T>(lines.offset(i), d.c.column, d.n,
                           [=](int64_t j) { return added ? T(added[j]) : T(0); });
  }

private:
  int64_t offset(const MatrixStrides &strides, int64_t product) const {
    int64_t sum = 0;
    for (size_t i = d.batch.size(); i-- > 0;) {
      sum += product % d.batch[i] * strides.batch[i];
      product /= d.batch[i];
    }
    return sum;
  }

  const MatmulDescriptor &d;
  const int64_t *rowList, *termList;
  const S *a, *b;
  const Wide<S> *bias;
  const S *addend;
  S *result;
  const AccumulatedElements<S> c;
};

/// A left operand whose rows lie along the depth, or across it in near steps, is read as it lies. A
/// result is written where it belongs if its rows begin on cache lines: others share lines, and each
/// part of the depth would write both. To an addend the sum of all depth is added, and not one part
/// of it after the other.
template <typename S, typename T> ProductPlaces findPlaces(const MatmulDescriptor &d) {
  ProductPlaces places;
  if (!std::is_same_v<S, T> || d.wideResult)
    return places;
  bool isNear = d.a.row == 1 && areNearSteps<S>(d.a.column);
  places.rows = d.counted == Counted::All && (d.a.column == 1 || isNear);
  constexpr int64_t line = 64;
  bool addsAtOnce = d.k <= blockKernels<S, T>().mostSteps && !d.bias;
  bool isAligned = d.c.row * static_cast<int64_t>(sizeof(S)) % line == 0;
  places.result =
      d.counted != Counted::Rows && d.c.column == 1 && (d.accumulate ? addsAtOnce : isAligned);
  places.adds = places.result && d.accumulate;
  return places;
}

/// Whether the transposed product is made. Where all of a step of the depth lies together in both
/// operands, the left one should be that which is read in place, and of two such ones the wider,
/// for the right one is packed. Where neither is, the result decides.
template <typename S> bool shouldExchange(const MatmulDescriptor &d) {
  if (d.a.row != 1 || d.b.column != 1 || d.bias || d.counted != Counted::All)
    return false;
  bool isLeftNear = areNearSteps<S>(d.a.column), isRightNear = areNearSteps<S>(d.b.row);
  if (isLeftNear != isRightNear)
    return isRightNear;
  return isLeftNear ? d.n > d.m : d.c.row == 1 && d.c.column != 1;
}

MatmulDescriptor exchange(MatmulDescriptor d) {
  std::swap(d.a, d.b);
  std::swap(d.m, d.n);
  for (MatrixStrides *matrix : {&d.a, &d.b, &d.c})
    std::swap(matrix->row, matrix->column);
  return d;
}

template <typename S, typename T> class OwnMatmul final : public LibraryCall {
public:
  OwnMatmul(const MatmulDescriptor &given, int threads)
      : isExchanged(shouldExchange<S>(given)), d(isExchanged ? exchange(given) : given),
        product(std::vector<ProductShape>(d.batchCount(), {d.m, d.n, d.k}), threads,
                findPlaces<S, T>(d)) {}

  int64_t workspaceBytes() const override { return listBytes() + product.workspaceBytes(); }
  std::string implementation() const override { return product.name(); }
  /// The right operand of an exchanged product is no weight.
  int64_t packedWeightBytes() const override {
    bool mayPack = !d.packedBytes && !d.reference && !isExchanged && d.hasFewRows();
    return mayPack ? product.packedColumnBytes() : 0;
  }
  Status run(void *const *buffers, ThreadPool &pool) override {
    char *workspace = static_cast<char *>(buffers[d.resultIndex() + 1]);
    CountedLines counted;
    ProductLimits limits;
    if (d.counted != Counted::All) {
      counted = CountedLines(static_cast<const uint8_t *>(buffers[d.maskIndex()]), d.maskLength(),
                             reinterpret_cast<int64_t *>(workspace));
      (d.counted == Counted::Rows ? limits.rows : limits.depth) = counted.count;
    }
    MatmulOperands<S, T> operands(d, isExchanged, buffers, counted);
    product.run(operands, workspace + listBytes(), pool, limits,
                d.packedBytes ? buffers[1] : nullptr);
    if (d.counted == Counted::Rows)
      pool.parallelFor(d.m - counted.count, 16, [&](int64_t begin, int64_t end) {
        operands.storeZeros(counted.count + begin, end - begin);
      });
    return Status::ok();
  }

private:
  /// Of the numbers of the lines that are counted, which stand in front of the product's workspace.
  int64_t listBytes() const {
    return d.counted == Counted::All
               ? 0
               : alignBytes(d.maskLength() * static_cast<int64_t>(sizeof(int64_t)));
  }

  bool isExchanged;
  MatmulDescriptor d; ///< of the product that is made
  BlockedProduct<S, T> product;
};

/// Packs the right operand of a product, which is not exchanged.
template <typename S, typename T> class OwnPacking final : public LibraryCall {
public:
  OwnPacking(const MatmulDescriptor &d, int threads)
      : d(d), product({{d.m, d.n, d.k}}, threads, findPlaces<S, T>(d)) {}

  int64_t workspaceBytes() const override { return 0; }
  std::string implementation() const override { return product.name(); }
  Status run(void *const *buffers, ThreadPool &pool) override {
    void *operands[] = {nullptr, buffers[0], nullptr, nullptr, nullptr, nullptr};
    product.packColumns(MatmulOperands<S, T>(d, /*isExchanged=*/false, operands, CountedLines()),
                        buffers[1], pool);
    return Status::ok();
  }

private:
  MatmulDescriptor d;
  BlockedProduct<S, T> product;
};

} // namespace

std::unique_ptr<LibraryCall> libraries::createOwnMatmul(const MatmulDescriptor &d, int threads) {
  return d.packs ? createForTypes<OwnPacking>(d, threads) : createForTypes<OwnMatmul>(d, threads);
}
