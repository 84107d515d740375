//===- Products.cpp - the products that LAPACK is made of -------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Functions of the BLAS by their Fortran names, in the place of those of the reference library,
// which are plain loops; of real numbers: products of matrices by the runtime's own inner loops, triangles by halves
// down to small ones, and the matrices by vectors that most time goes into. Packed operands lie on
// the stack, 240 KiB of it. All matrices lie column by column; sums are made in an order that
// follows from sizes alone.
//
//===----------------------------------------------------------------------===//

#include "Products.h"
#include "memopt-runtime/kernels/own/BlockKernels.h"

using namespace memopt::libraries;

const char *memopt::libraries::getLapackName() { return lapackName; }

namespace memopt::libraries {

#define MEMOPT_DECLARE_LOOPS(isa)                                                                  \
  namespace isa {                                                                                  \
  template <typename T> const ColumnLoops<T> &getColumnLoops();                                    \
  }
MEMOPT_DECLARE_LOOPS(baseline)
#ifdef __x86_64__
MEMOPT_DECLARE_LOOPS(avx2)
MEMOPT_DECLARE_LOOPS(avx512)
#endif

template <typename T> const ColumnLoops<T> &columnLoops() {
#ifdef __x86_64__
  switch (instructionSet()) {
  case InstructionSet::Avx512:
    return avx512::getColumnLoops<T>();
  case InstructionSet::Avx2:
    return avx2::getColumnLoops<T>();
  case InstructionSet::Baseline:
    break;
  }
#endif
  return baseline::getColumnLoops<T>();
}

template const ColumnLoops<float> &columnLoops();
template const ColumnLoops<double> &columnLoops();

} // namespace memopt::libraries

//===----------------------------------------------------------------------===//
// Products of matrices
//===----------------------------------------------------------------------===//

namespace {
constexpr int64_t tileRows = 64, tileColumns = 48, tileDepth = 128;
/// Panels have at most 32 lanes, so that the last of them is filled up by less than that.
constexpr int64_t mostLanes = 32;
} // namespace

/// The result's columns are the rows of the runtime's products.
template <typename T>
__attribute__((noinline)) // once on the stack, however deep the halves go
void memopt::libraries::addRealProduct(int64_t m, int64_t n, int64_t depth, T factor, View<T> a,
                                       View<T> b, T *c, int64_t step, int64_t stride, Part part) {
  const auto &kernels = blockKernels<T, T>();
  alignas(64) T left[tileDepth * (tileColumns + mostLanes)];
  alignas(64) T right[tileDepth * (tileRows + mostLanes)];
  constexpr int64_t tileStride = tileRows + mostLanes;
  alignas(64) T tile[(tileColumns + mostLanes) * tileStride];
  const T *lanes[std::max(tileRows, tileColumns)];
  for (int64_t d = 0; d < depth; d += tileDepth) {
    int64_t steps = std::min(tileDepth, depth - d);
    for (int64_t top = 0; top < m; top += tileRows) {
      int64_t rows = std::min(tileRows, m - top);
      for (int64_t i = 0; i < rows; ++i)
        lanes[i] = a.at(top + i, d);
      int64_t width = kernels.columnsPerPanel, rightPanels = (rows + width - 1) / width;
      kernels.packLanes({right, width, steps}, 0, lanes, rows, steps, a.column);
      for (int64_t first = 0; first < n; first += tileColumns) {
        int64_t columns = std::min(tileColumns, n - first);
        if ((part == Part::Lower && top + rows <= first) ||
            (part == Part::Upper && top >= first + columns))
          continue;
        for (int64_t j = 0; j < columns; ++j)
          lanes[j] = b.at(d, first + j);
        int64_t height = kernels.rowsPerPanel, leftPanels = (columns + height - 1) / height;
        kernels.packLanes({left, height, steps}, 0, lanes, columns, steps, b.row);
        kernels.multiply(leftPanels, rightPanels, steps, left, steps * height, 1, height, right,
                         steps * width, width, tile, tileStride, /*accumulate=*/false,
                         /*bias=*/nullptr);
        for (int64_t j = 0; j < columns; ++j) {
          T *column = c + (first + j) * stride + top * step;
          const T *sums = tile + j * tileStride;
          int64_t begin = part == Part::Lower ? std::max<int64_t>(first + j - top, 0) : 0;
          int64_t end = part == Part::Upper ? std::min(first + j - top + 1, rows) : rows;
          for (int64_t i = begin; i < end; ++i)
            column[i * step] += factor * sums[i];
        }
      }
    }
  }
}
template void memopt::libraries::addRealProduct(int64_t, int64_t, int64_t, float, View<float>,
                                                View<float>, float *, int64_t, int64_t, Part);
template void memopt::libraries::addRealProduct(int64_t, int64_t, int64_t, double, View<double>,
                                                View<double>, double *, int64_t, int64_t, Part);

//===----------------------------------------------------------------------===//
// Matrices by vectors
//===----------------------------------------------------------------------===//

namespace {

/// Vectors are gathered into pieces that lie together.
constexpr int64_t pieceLength = 512;

/// y += factor a x, of an m x n matrix, or with `isTurned` y += factor a^T x.
template <typename T>
void addMatrixVector(bool isTurned, int64_t m, int64_t n, T factor, const T *a, int64_t stride,
                     Steps<const T> x, Steps<T> y) {
  const auto &loops = columnLoops<T>();
  alignas(64) T read[pieceLength], sums[pieceLength];
  for (int64_t top = 0; top < m; top += pieceLength)
    for (int64_t first = 0; first < n; first += pieceLength) {
      int64_t rows = std::min(pieceLength, m - top), columns = std::min(pieceLength, n - first);
      int64_t readFrom = isTurned ? top : first, readCount = isTurned ? rows : columns;
      int64_t writeTo = isTurned ? first : top, writeCount = isTurned ? columns : rows;
      for (int64_t i = 0; i < readCount; ++i)
        read[i] = x[readFrom + i];
      std::fill(sums, sums + writeCount, T(0));
      const T *piece = a + first * stride + top;
      (isTurned ? loops.addDots : loops.addColumns)(rows, columns, piece, stride, read, sums);
      for (int64_t i = 0; i < writeCount; ++i)
        y[writeTo + i] += factor * sums[i];
    }
}

/// y += factor a x, of a symmetric matrix of which one triangle is read: small squares on the
/// diagonal element by element, what lies beside them as it is and turned.
template <typename T>
void addSymmetric(bool upper, int64_t n, T factor, const T *a, int64_t stride, Steps<const T> x,
                  Steps<T> y) {
  constexpr int64_t square = 32;
  for (int64_t first = 0; first < n; first += square) {
    int64_t count = std::min(square, n - first);
    for (int64_t j = first; j < first + count; ++j)
      for (int64_t i = first; i < first + count; ++i)
        y[i] +=
            factor * ((i < j) == upper || i == j ? a[j * stride + i] : a[i * stride + j]) * x[j];
    int64_t begin = upper ? 0 : first + count, rows = upper ? first : n - begin;
    if (rows == 0)
      continue;
    const T *beside = a + first * stride + begin;
    addMatrixVector(false, rows, count, factor, beside, stride, x.from(first), y.from(begin));
    addMatrixVector(true, rows, count, factor, beside, stride, x.from(begin), y.from(first));
  }
}

} // namespace

//===----------------------------------------------------------------------===//
// By their names
//===----------------------------------------------------------------------===//

#define MEMOPT_DEFINE_BLAS(T, p)                                                                   \
  void p##gemm_(const char *transA, const char *transB, const int *m, const int *n, const int *k,  \
                const T *alpha, const T *a, const int *lda, const T *b, const int *ldb,            \
                const T *beta, T *c, const int *ldc, size_t, size_t) {                             \
    scale<T>(*m, *n, *beta, c, *ldc);                                                              \
    if (*alpha != 0)                                                                               \
      addProduct<T>(*m, *n, *k, *alpha, viewOf(transA, a, *lda), viewOf(transB, b, *ldb), c,       \
                    *ldc);                                                                         \
  }                                                                                                \
  void p##syrk_(const char *uplo, const char *trans, const int *n, const int *k, const T *alpha,   \
                const T *a, const int *lda, const T *beta, T *c, const int *ldc, size_t, size_t) { \
    Part part = isLetter(uplo, 'U') ? Part::Upper : Part::Lower;                                   \
    View<T> view = viewOf(trans, a, *lda);                                                         \
    scale<T>(*n, *n, *beta, c, *ldc, part);                                                        \
    if (*alpha != 0)                                                                               \
      addProduct<T>(*n, *n, *k, *alpha, view, view.turned(), c, *ldc, part);                       \
  }                                                                                                \
  void p##syr2k_(const char *uplo, const char *trans, const int *n, const int *k, const T *alpha,  \
                 const T *a, const int *lda, const T *b, const int *ldb, const T *beta, T *c,      \
                 const int *ldc, size_t, size_t) {                                                 \
    Part part = isLetter(uplo, 'U') ? Part::Upper : Part::Lower;                                   \
    View<T> left = viewOf(trans, a, *lda), right = viewOf(trans, b, *ldb);                         \
    scale<T>(*n, *n, *beta, c, *ldc, part);                                                        \
    if (*alpha == 0)                                                                               \
      return;                                                                                      \
    addProduct<T>(*n, *n, *k, *alpha, left, right.turned(), c, *ldc, part);                        \
    addProduct<T>(*n, *n, *k, *alpha, right, left.turned(), c, *ldc, part);                        \
  }                                                                                                \
  void p##trsm_(const char *side, const char *uplo, const char *trans, const char *diag,           \
                const int *m, const int *n, const T *alpha, const T *a, const int *lda, T *b,      \
                const int *ldb, size_t, size_t, size_t, size_t) {                                  \
    applyTriangle<true, T>(side, uplo, trans, diag, *m, *n, *alpha, a, *lda, b, *ldb);             \
  }                                                                                                \
  void p##trmm_(const char *side, const char *uplo, const char *trans, const char *diag,           \
                const int *m, const int *n, const T *alpha, const T *a, const int *lda, T *b,      \
                const int *ldb, size_t, size_t, size_t, size_t) {                                  \
    applyTriangle<false, T>(side, uplo, trans, diag, *m, *n, *alpha, a, *lda, b, *ldb);            \
  }                                                                                                \
  void p##gemv_(const char *trans, const int *m, const int *n, const T *alpha, const T *a,         \
                const int *lda, const T *x, const int *incx, const T *beta, T *y, const int *incy, \
                size_t) {                                                                          \
    bool isTurned = !isLetter(trans, 'N');                                                         \
    Steps<T> to(y, isTurned ? *n : *m, *incy);                                                     \
    scaleVector<T>(isTurned ? *n : *m, *beta, to);                                                 \
    if (*alpha != 0)                                                                               \
      addMatrixVector<T>(isTurned, *m, *n, *alpha, a, *lda,                                        \
                         Steps<const T>(x, isTurned ? *m : *n, *incx), to);                        \
  }                                                                                                \
  void p##symv_(const char *uplo, const int *n, const T *alpha, const T *a, const int *lda,        \
                const T *x, const int *incx, const T *beta, T *y, const int *incy, size_t) {       \
    Steps<T> to(y, *n, *incy);                                                                     \
    scaleVector<T>(*n, *beta, to);                                                                 \
    if (*alpha != 0)                                                                               \
      addSymmetric<T>(isLetter(uplo, 'U'), *n, *alpha, a, *lda, Steps<const T>(x, *n, *incx), to); \
  }
// LAPACK, which is what calls them, declares them in Fortran.
#pragma clang diagnostic ignored "-Wmissing-prototypes"
extern "C" {
MEMOPT_DEFINE_BLAS(float, s)
MEMOPT_DEFINE_BLAS(double, d)
}
