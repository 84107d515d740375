//===- ComplexProducts.cpp - the same of complex numbers --------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// As Products.cpp. A product of matrices is four products of real and imaginary parts; a matrix by a
// vector is read as a real one of twice as many rows, by real numbers.
//
//===----------------------------------------------------------------------===//

#include "Products.h"

using namespace memopt::libraries;

/// Whoever asks for the name links this file, too.
const char *const memopt::libraries::lapackName = "lapack";

namespace {

/// Vectors are gathered into pieces that lie together; a piece of a matrix stays in a cache while it is
/// read twice.
constexpr int64_t pieceRows = 256, pieceColumns = 32;

/// How a matrix of a product by a vector is read.
enum class Reading { Plain, Transposed, Adjoint };

Reading readingOf(const char *trans) {
  return isLetter(trans, 'N')   ? Reading::Plain
         : isLetter(trans, 'C') ? Reading::Adjoint
                                : Reading::Transposed;
}

/// y += factor a x, of a piece.
template <typename R>
void addPlainPiece(int64_t rows, int64_t columns, std::complex<R> factor, const std::complex<R> *a,
                   int64_t stride, Steps<const std::complex<R>> x, Steps<std::complex<R>> y) {
  const auto &loops = columnLoops<R>();
  alignas(64) R factors[2][pieceColumns], sums[2][2 * pieceRows];
  for (int64_t j = 0; j < columns; ++j) {
    std::complex<R> scaled = multiply(factor, x[j]);
    factors[0][j] = scaled.real();
    factors[1][j] = scaled.imag();
  }
  for (int part : {0, 1}) {
    std::fill(sums[part], sums[part] + 2 * rows, R(0));
    loops.addColumns(2 * rows, columns, reinterpret_cast<const R *>(a), 2 * stride, factors[part],
                     sums[part]);
  }
  // (p + i q) (f + i g), where the first array has p f and q f, the second p g and q g.
  for (int64_t i = 0; i < rows; ++i)
    y[i] +=
        std::complex<R>(sums[0][2 * i] - sums[1][2 * i + 1], sums[0][2 * i + 1] + sums[1][2 * i]);
}

/// y += factor a^T x, or with a conjugated.
template <typename R>
void addTurnedPiece(bool isConjugated, int64_t rows, int64_t columns, std::complex<R> factor,
                    const std::complex<R> *a, int64_t stride, Steps<const std::complex<R>> x,
                    Steps<std::complex<R>> y) {
  const auto &loops = columnLoops<R>();
  alignas(64) R read[2][2 * pieceRows], sums[2][pieceColumns];
  R sign = isConjugated ? 1 : -1;
  for (int64_t i = 0; i < rows; ++i) {
    std::complex<R> value = x[i];
    read[0][2 * i] = value.real();
    read[0][2 * i + 1] = sign * value.imag();
    read[1][2 * i] = value.imag();
    read[1][2 * i + 1] = -sign * value.real();
  }
  for (int part : {0, 1}) {
    std::fill(sums[part], sums[part] + columns, R(0));
    loops.addDots(2 * rows, columns, reinterpret_cast<const R *>(a), 2 * stride, read[part],
                  sums[part]);
  }
  for (int64_t j = 0; j < columns; ++j)
    y[j] += multiply(factor, std::complex<R>(sums[0][j], sums[1][j]));
}

template <typename R>
void addMatrixVector(Reading reading, int64_t m, int64_t n, std::complex<R> factor,
                     const std::complex<R> *a, int64_t stride, Steps<const std::complex<R>> x,
                     Steps<std::complex<R>> y) {
  for (int64_t top = 0; top < m; top += pieceRows)
    for (int64_t first = 0; first < n; first += pieceColumns) {
      int64_t rows = std::min(pieceRows, m - top), columns = std::min(pieceColumns, n - first);
      const std::complex<R> *piece = a + first * stride + top;
      if (reading == Reading::Plain)
        addPlainPiece<R>(rows, columns, factor, piece, stride, x.from(first), y.from(top));
      else
        addTurnedPiece<R>(reading == Reading::Adjoint, rows, columns, factor, piece, stride,
                          x.from(top), y.from(first));
    }
}

/// y += factor a x, of a Hermitian matrix of which one triangle is read, and of its diagonal the real
/// parts.
template <typename R>
void addHermitian(bool upper, int64_t n, std::complex<R> factor, const std::complex<R> *a,
                  int64_t stride, Steps<const std::complex<R>> x, Steps<std::complex<R>> y) {
  constexpr int64_t square = 32;
  for (int64_t first = 0; first < n; first += square) {
    int64_t count = std::min(square, n - first);
    for (int64_t j = first; j < first + count; ++j) {
      std::complex<R> scaled = multiply(factor, x[j]);
      for (int64_t i = first; i < first + count; ++i) {
        std::complex<R> own = (i < j) == upper ? a[j * stride + i] : std::conj(a[i * stride + j]);
        y[i] += i == j ? a[j * stride + j].real() * scaled : multiply(own, scaled);
      }
    }
    int64_t begin = upper ? 0 : first + count, rows = upper ? first : n - begin;
    if (rows == 0)
      continue;
    const std::complex<R> *beside = a + first * stride + begin;
    addMatrixVector<R>(Reading::Plain, rows, count, factor, beside, stride, x.from(first),
                       y.from(begin));
    addMatrixVector<R>(Reading::Adjoint, rows, count, factor, beside, stride, x.from(begin),
                       y.from(first));
  }
}

/// A Hermitian matrix has a real diagonal, rounding or not.
template <typename R> void makeDiagonalReal(int64_t n, std::complex<R> *c, int64_t stride) {
  for (int64_t i = 0; i < n; ++i)
    c[i * (stride + 1)] = c[i * (stride + 1)].real();
}

/// An operand of a product that becomes Hermitian, and its adjoint.
template <typename R>
std::pair<View<std::complex<R>>, View<std::complex<R>>>
bothSides(const char *trans, const std::complex<R> *a, int64_t stride) {
  View<std::complex<R>> view = viewOf(trans, a, stride), other = view.turned();
  other.isConjugated = !view.isConjugated;
  return {view, other};
}

} // namespace

//===----------------------------------------------------------------------===//
// By their names
//===----------------------------------------------------------------------===//

#define MEMOPT_DEFINE_COMPLEX_BLAS(R, p)                                                           \
  void p##gemm_(const char *transA, const char *transB, const int *m, const int *n, const int *k,  \
                const std::complex<R> *alpha, const std::complex<R> *a, const int *lda,            \
                const std::complex<R> *b, const int *ldb, const std::complex<R> *beta,             \
                std::complex<R> *c, const int *ldc, size_t, size_t) {                              \
    scale(*m, *n, *beta, c, *ldc);                                                                 \
    addProduct(*m, *n, *k, *alpha, viewOf(transA, a, *lda), viewOf(transB, b, *ldb), c, *ldc);     \
  }                                                                                                \
  void p##herk_(const char *uplo, const char *trans, const int *n, const int *k, const R *alpha,   \
                const std::complex<R> *a, const int *lda, const R *beta, std::complex<R> *c,       \
                const int *ldc, size_t, size_t) {                                                  \
    Part part = isLetter(uplo, 'U') ? Part::Upper : Part::Lower;                                   \
    auto [view, other] = bothSides(trans, a, *lda);                                                \
    scale(*n, *n, std::complex<R>(*beta), c, *ldc, part);                                          \
    addProduct(*n, *n, *k, std::complex<R>(*alpha), view, other, c, *ldc, part);                   \
    makeDiagonalReal(*n, c, *ldc);                                                                 \
  }                                                                                                \
  void p##her2k_(const char *uplo, const char *trans, const int *n, const int *k,                  \
                 const std::complex<R> *alpha, const std::complex<R> *a, const int *lda,           \
                 const std::complex<R> *b, const int *ldb, const R *beta, std::complex<R> *c,      \
                 const int *ldc, size_t, size_t) {                                                 \
    Part part = isLetter(uplo, 'U') ? Part::Upper : Part::Lower;                                   \
    auto [ofA, otherA] = bothSides(trans, a, *lda);                                                \
    auto [ofB, otherB] = bothSides(trans, b, *ldb);                                                \
    scale(*n, *n, std::complex<R>(*beta), c, *ldc, part);                                          \
    addProduct(*n, *n, *k, *alpha, ofA, otherB, c, *ldc, part);                                    \
    addProduct(*n, *n, *k, std::conj(*alpha), ofB, otherA, c, *ldc, part);                         \
    makeDiagonalReal(*n, c, *ldc);                                                                 \
  }                                                                                                \
  void p##trsm_(const char *side, const char *uplo, const char *trans, const char *diag,           \
                const int *m, const int *n, const std::complex<R> *alpha,                          \
                const std::complex<R> *a, const int *lda, std::complex<R> *b, const int *ldb,      \
                size_t, size_t, size_t, size_t) {                                                  \
    applyTriangle<true>(side, uplo, trans, diag, *m, *n, *alpha, a, *lda, b, *ldb);                \
  }                                                                                                \
  void p##trmm_(const char *side, const char *uplo, const char *trans, const char *diag,           \
                const int *m, const int *n, const std::complex<R> *alpha,                          \
                const std::complex<R> *a, const int *lda, std::complex<R> *b, const int *ldb,      \
                size_t, size_t, size_t, size_t) {                                                  \
    applyTriangle<false>(side, uplo, trans, diag, *m, *n, *alpha, a, *lda, b, *ldb);               \
  }                                                                                                \
  void p##gemv_(const char *trans, const int *m, const int *n, const std::complex<R> *alpha,       \
                const std::complex<R> *a, const int *lda, const std::complex<R> *x,                \
                const int *incx, const std::complex<R> *beta, std::complex<R> *y, const int *incy, \
                size_t) {                                                                          \
    using T = std::complex<R>;                                                                     \
    Reading reading = readingOf(trans);                                                            \
    bool isPlain = reading == Reading::Plain;                                                      \
    Steps<T> to(y, isPlain ? *m : *n, *incy);                                                      \
    scaleVector<T>(isPlain ? *m : *n, *beta, to);                                                  \
    if (*alpha != T(0))                                                                            \
      addMatrixVector<R>(reading, *m, *n, *alpha, a, *lda,                                         \
                         Steps<const T>(x, isPlain ? *n : *m, *incx), to);                         \
  }                                                                                                \
  void p##hemv_(const char *uplo, const int *n, const std::complex<R> *alpha,                      \
                const std::complex<R> *a, const int *lda, const std::complex<R> *x,                \
                const int *incx, const std::complex<R> *beta, std::complex<R> *y, const int *incy, \
                size_t) {                                                                          \
    using T = std::complex<R>;                                                                     \
    Steps<T> to(y, *n, *incy);                                                                     \
    scaleVector<T>(*n, *beta, to);                                                                 \
    if (*alpha != T(0))                                                                            \
      addHermitian<R>(isLetter(uplo, 'U'), *n, *alpha, a, *lda, Steps<const T>(x, *n, *incx), to); \
  }
// LAPACK, which is what calls them, declares them in Fortran.
#pragma clang diagnostic ignored "-Wmissing-prototypes"
extern "C" {
MEMOPT_DEFINE_COMPLEX_BLAS(float, c)
MEMOPT_DEFINE_COMPLEX_BLAS(double, z)
}
