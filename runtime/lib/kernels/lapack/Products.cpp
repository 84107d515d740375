//===- Products.cpp - the products that LAPACK is made of -------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Functions of the BLAS by their Fortran names, in the place of those of the reference library,
// which are plain loops: products of matrices by the runtime's own inner loops, triangles by halves
// down to small ones, and the matrices by vectors that most time goes into. Packed operands lie on
// the stack, 240 KiB of it. All matrices lie column by column; sums are made in an order that
// follows from sizes alone.
//
//===----------------------------------------------------------------------===//

#include "ColumnLoops.h"
#include "Lapack.h"
#include "memopt-runtime/kernels/own/BlockKernels.h"
#include <algorithm>

using namespace memopt::libraries;

const char *memopt::libraries::getLapackName() { return "lapack"; }

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

} // namespace memopt::libraries

namespace {

bool isLetter(const char *text, char upper) { return (*text & ~32) == upper; }

/// Element (i, j) of what is read lies at data[i * row + j * column].
template <typename T> struct View {
  const T *data;
  int64_t row, column;

  const T *at(int64_t i, int64_t j) const { return data + i * row + j * column; }
  View from(int64_t i, int64_t j) const { return {at(i, j), row, column}; }
  View turned() const { return {data, column, row}; }
};

template <typename T> View<T> viewOf(const char *trans, const T *data, int64_t stride) {
  return isLetter(trans, 'N') ? View<T>{data, 1, stride} : View<T>{data, stride, 1};
}

enum class Part { All, Lower, Upper };

//===----------------------------------------------------------------------===//
// Products of matrices
//===----------------------------------------------------------------------===//

constexpr int64_t tileRows = 64, tileColumns = 48, tileDepth = 128;
/// Panels have at most 32 lanes, so that the last of them is filled up by less than that.
constexpr int64_t mostLanes = 32;

/// c += factor a b, where `part` of the m x n matrix c is written. The result's columns are the rows
/// of the runtime's products.
template <typename T>
__attribute__((noinline)) // once on the stack, however deep the halves go
void addProduct(int64_t m, int64_t n, int64_t depth, T factor, View<T> a, View<T> b, T *c,
                int64_t stride, Part part = Part::All) {
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
                         steps * width, width, tile, tileStride, /*accumulate=*/false);
        for (int64_t j = 0; j < columns; ++j) {
          T *column = c + (first + j) * stride + top;
          const T *sums = tile + j * tileStride;
          int64_t begin = part == Part::Lower ? std::max<int64_t>(first + j - top, 0) : 0;
          int64_t end = part == Part::Upper ? std::min(first + j - top + 1, rows) : rows;
          for (int64_t i = begin; i < end; ++i)
            column[i] += factor * sums[i];
        }
      }
    }
  }
}

/// c = factor c; a factor of zero leaves nothing, NaN neither.
template <typename T>
void scale(int64_t m, int64_t n, T factor, T *c, int64_t stride, Part part = Part::All) {
  if (factor == 1)
    return;
  for (int64_t j = 0; j < n; ++j) {
    int64_t begin = part == Part::Lower ? j : 0, end = part == Part::Upper ? std::min(j + 1, m) : m;
    for (int64_t i = begin; i < end; ++i)
      c[j * stride + i] = factor == 0 ? T(0) : factor * c[j * stride + i];
  }
}

//===----------------------------------------------------------------------===//
// Triangles
//===----------------------------------------------------------------------===//

constexpr int64_t smallTriangle = 16;

/// A triangle as it is read; `upper` says which one it is then.
template <typename T> struct Triangle {
  View<T> view;
  bool upper, unit;
  Triangle from(int64_t i) const { return {view.from(i, i), upper, unit}; }
};

/// b = a^-1 b, or a b, of an m x n matrix b.
template <bool solves, typename T>
void applyLeft(const Triangle<T> &a, int64_t m, int64_t n, T *b, int64_t stride) {
  // Solving takes the rows first that depend on no others, multiplying those last.
  bool goesDown = solves != a.upper;
  if (m > smallTriangle) {
    int64_t half = m / 2, rest = m - half;
    auto join = [&] {
      T factor = solves ? T(-1) : T(1);
      if (a.upper)
        addProduct(half, n, rest, factor, a.view.from(0, half), View<T>{b + half, 1, stride}, b,
                   stride);
      else
        addProduct(rest, n, half, factor, a.view.from(half, 0), View<T>{b, 1, stride}, b + half,
                   stride);
    };
    // What the other half is joined to is known, or not yet written over.
    auto first = [&] { applyLeft<solves>(a, half, n, b, stride); };
    auto second = [&] { applyLeft<solves>(a.from(half), rest, n, b + half, stride); };
    if (goesDown) {
      first();
      join();
      second();
      return;
    }
    second();
    join();
    first();
    return;
  }
  for (int64_t j = 0; j < n; ++j) {
    T *x = b + j * stride;
    for (int64_t turn = 0; turn < m; ++turn) {
      int64_t i = goesDown ? turn : m - 1 - turn;
      T sum = 0;
      for (int64_t k = a.upper ? i + 1 : 0; k < (a.upper ? m : i); ++k)
        sum += *a.view.at(i, k) * x[k];
      T own = a.unit ? T(1) : *a.view.at(i, i);
      x[i] = solves ? (a.unit ? x[i] - sum : (x[i] - sum) / own) : own * x[i] + sum;
    }
  }
}

/// b = b a^-1, or b a, of an m x n matrix b.
template <bool solves, typename T>
void applyRight(const Triangle<T> &a, int64_t m, int64_t n, T *b, int64_t stride) {
  bool goesRight = solves == a.upper;
  if (n > smallTriangle) {
    int64_t half = n / 2, rest = n - half;
    T *second = b + half * stride;
    auto join = [&] {
      T factor = solves ? T(-1) : T(1);
      if (a.upper)
        addProduct(m, rest, half, factor, View<T>{b, 1, stride}, a.view.from(0, half), second,
                   stride);
      else
        addProduct(m, half, rest, factor, View<T>{second, 1, stride}, a.view.from(half, 0), b,
                   stride);
    };
    if (goesRight) {
      applyRight<solves>(a, m, half, b, stride);
      join();
      applyRight<solves>(a.from(half), m, rest, second, stride);
      return;
    }
    applyRight<solves>(a.from(half), m, rest, second, stride);
    join();
    applyRight<solves>(a, m, half, b, stride);
    return;
  }
  const auto &loops = columnLoops<T>();
  for (int64_t turn = 0; turn < n; ++turn) {
    int64_t j = goesRight ? turn : n - 1 - turn;
    T *x = b + j * stride, own = a.unit ? T(1) : *a.view.at(j, j);
    if (!solves && !a.unit)
      for (int64_t i = 0; i < m; ++i)
        x[i] *= own;
    int64_t begin = a.upper ? 0 : j + 1, end = a.upper ? j : n;
    T factors[smallTriangle];
    for (int64_t k = begin; k < end; ++k)
      factors[k - begin] = solves ? -*a.view.at(k, j) : *a.view.at(k, j);
    if (end > begin)
      loops.addColumns(m, end - begin, b + begin * stride, stride, factors, x);
    if (solves && !a.unit)
      for (int64_t i = 0; i < m; ++i)
        x[i] /= own;
  }
}

template <bool solves, typename T>
void applyTriangle(const char *side, const char *uplo, const char *trans, const char *diag,
                   int64_t m, int64_t n, T factor, const T *a, int64_t aStride, T *b,
                   int64_t stride) {
  if (m == 0 || n == 0)
    return;
  scale(m, n, factor, b, stride);
  if (factor == 0)
    return;
  Triangle<T> triangle{viewOf(trans, a, aStride), isLetter(uplo, 'U') == isLetter(trans, 'N'),
                       isLetter(diag, 'U')};
  if (isLetter(side, 'L'))
    applyLeft<solves>(triangle, m, n, b, stride);
  else
    applyRight<solves>(triangle, m, n, b, stride);
}

//===----------------------------------------------------------------------===//
// Matrices by vectors
//===----------------------------------------------------------------------===//

/// Vectors are gathered into pieces that lie together.
constexpr int64_t pieceLength = 512;

template <typename T> struct Steps {
  T *data;
  int64_t step; ///< negative: the vector's first element is the last in memory

  Steps(T *data, int64_t count, int64_t step)
      : data(step < 0 ? data - (count - 1) * step : data), step(step) {}
  T &operator[](int64_t i) const { return data[i * step]; }
};

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

template <typename T> void scaleVector(int64_t count, T factor, Steps<T> y) {
  for (int64_t i = 0; i < count && factor != 1; ++i)
    y[i] = factor == 0 ? T(0) : factor * y[i];
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
    auto part = [](auto steps, int64_t from) {
      steps.data += from * steps.step;
      return steps;
    };
    addMatrixVector(false, rows, count, factor, beside, stride, part(x, first), part(y, begin));
    addMatrixVector(true, rows, count, factor, beside, stride, part(x, begin), part(y, first));
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
