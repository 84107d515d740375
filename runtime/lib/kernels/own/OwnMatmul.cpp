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

/// One strided matrix as panels: lanes along one dimension, depth along the other.
template <typename S, typename T>
void packMatrix(Panels<T> panels, const S *first, int64_t lanes, int64_t laneStride, int64_t depth,
                int64_t depthStride) {
  const BlockKernels<S, T> &kernels = blockKernels<S, T>();
  // Read along the dimension that is contiguous.
  if (laneStride == 1 && depthStride != 1) {
    const S *steps[maxBlockDepth];
    for (int64_t d = 0; d < depth; ++d)
      steps[d] = first + d * depthStride;
    return kernels.packSteps(panels, 0, steps, depth, lanes, 1);
  }
  const S *lane[maxBlockColumns];
  for (int64_t i = 0; i < lanes; ++i)
    lane[i] = first + i * laneStride;
  kernels.packLanes(panels, 0, lane, lanes, depth, depthStride);
}

template <typename S, typename T> class MatmulOperands final : public ProductOperands<S, T> {
public:
  MatmulOperands(const MatmulDescriptor &d, void *const *buffers)
      : d(d), a(static_cast<const S *>(buffers[0])), b(static_cast<const S *>(buffers[1])),
        bias(d.bias ? static_cast<const Wide<S> *>(buffers[2]) : nullptr),
        c(buffers[d.addendIndex()], buffers[d.resultIndex()], d.wideResult, d.accumulate) {}

  void packRows(Panels<T> panels, int64_t product, int64_t rowBegin, int64_t rows,
                int64_t depthBegin, int64_t depth) const override {
    const S *first = a + offset(d.a, product) + rowBegin * d.a.row + depthBegin * d.a.column;
    packMatrix(panels, first, rows, d.a.row, depth, d.a.column);
  }

  void packColumns(Panels<T> panels, int64_t product, int64_t columnBegin, int64_t columns,
                   int64_t depthBegin, int64_t depth) const override {
    const S *first = b + offset(d.b, product) + depthBegin * d.b.row + columnBegin * d.b.column;
    packMatrix(panels, first, columns, d.b.column, depth, d.b.row);
  }

  void store(int64_t product, int64_t rowBegin, int64_t rows, int64_t columnBegin, int64_t columns,
             const T *block, int64_t stride) const override {
    for (int64_t i = 0; i < rows; ++i) {
      int64_t first = offset(d.c, product) + (rowBegin + i) * d.c.row + columnBegin * d.c.column;
      const T *source = block + i * stride;
      const Wide<S> *added = bias ? bias + columnBegin : nullptr;
      if (added)
        c.template setRow<T>(first, d.c.column, columns,
                             [=](int64_t j) { return source[j] + T(added[j]); });
      else
        c.template setRow<T>(first, d.c.column, columns, [=](int64_t j) { return source[j]; });
    }
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
  const S *a, *b;
  const Wide<S> *bias;
  const AccumulatedElements<S> c;
};

template <typename S, typename T> class OwnMatmul final : public LibraryCall {
public:
  OwnMatmul(const MatmulDescriptor &d, int threads)
      : d(d), product(std::vector<ProductShape>(d.batchCount(), {d.m, d.n, d.k}), threads) {}

  int64_t workspaceBytes() const override { return product.workspaceBytes(); }
  std::string implementation() const override { return product.name(); }
  Status run(void *const *buffers, ThreadPool &pool) override {
    product.run(MatmulOperands<S, T>(d, buffers), buffers[d.resultIndex() + 1], pool);
    return Status::ok();
  }

private:
  MatmulDescriptor d;
  BlockedProduct<S, T> product;
};

} // namespace

std::unique_ptr<LibraryCall> libraries::createOwnMatmul(const MatmulDescriptor &d, int threads) {
  return createForTypes<OwnMatmul>(d, threads);
}
