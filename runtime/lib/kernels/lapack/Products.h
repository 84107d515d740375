//===- Products.h - products of matrices, and triangles by halves --- -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the functions of the BLAS are made of, for real and complex numbers. Matrices lie column by
// column. Sums are made in an order that follows from sizes alone.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_KERNELS_LAPACK_PRODUCTS_H
#define MEMOPT_RUNTIME_LIB_KERNELS_LAPACK_PRODUCTS_H

#include "ColumnLoops.h"
#include "Lapack.h"
#include <algorithm>
#include <cstdint>
#include <utility>

namespace memopt::libraries {

/// Where complex products are (ComplexProducts.cpp).
extern const char *const lapackName;

inline bool isLetter(const char *text, char upper) { return (*text & ~32) == upper; }

/// The C++ library's product of complex numbers looks for infinities behind NaN; LAPACK's does not.
template <typename T> T multiply(T a, T b) { return a * b; }
template <typename R> std::complex<R> multiply(std::complex<R> a, std::complex<R> b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

/// Element (i, j) of what is read lies at data[i * row + j * column]; a complex one may be read
/// conjugated.
template <typename T> struct View {
  const T *data;
  int64_t row, column;
  bool isConjugated = false;

  const T *at(int64_t i, int64_t j) const { return data + i * row + j * column; }
  T get(int64_t i, int64_t j) const {
    if constexpr (RealOf<T>::isComplex)
      return isConjugated ? std::conj(*at(i, j)) : *at(i, j);
    else
      return *at(i, j);
  }
  View from(int64_t i, int64_t j) const { return {at(i, j), row, column, isConjugated}; }
  View turned() const { return {data, column, row, isConjugated}; }
};

template <typename T> View<T> viewOf(const char *trans, const T *data, int64_t stride) {
  return isLetter(trans, 'N') ? View<T>{data, 1, stride}
                              : View<T>{data, stride, 1, isLetter(trans, 'C')};
}

/// What of a matrix is written.
enum class Part { All, Lower, Upper };

/// c += factor a b, where `part` of the m x n matrix c is written. Elements of a column of c lie `step`
/// apart, columns `stride`.
template <typename T>
void addRealProduct(int64_t m, int64_t n, int64_t depth, T factor, View<T> a, View<T> b, T *c,
                    int64_t step, int64_t stride, Part part);
extern template void addRealProduct(int64_t, int64_t, int64_t, float, View<float>, View<float>,
                                    float *, int64_t, int64_t, Part);
extern template void addRealProduct(int64_t, int64_t, int64_t, double, View<double>, View<double>,
                                    double *, int64_t, int64_t, Part);

template <typename T>
void addProduct(int64_t m, int64_t n, int64_t depth, T factor, View<T> a, View<T> b, T *c,
                int64_t stride, Part part = Part::All) {
  addRealProduct(m, n, depth, factor, a, b, c, 1, stride, part);
}

/// Real and imaginary parts are matrices whose elements lie two apart: four products of them, or
/// eight with a factor that is not real.
template <typename R>
void addProduct(int64_t m, int64_t n, int64_t depth, std::complex<R> factor,
                View<std::complex<R>> a, View<std::complex<R>> b, std::complex<R> *c,
                int64_t stride, Part part = Part::All) {
  auto partOf = [](View<std::complex<R>> view, int imaginary) -> View<R> {
    return {reinterpret_cast<const R *>(view.data) + imaginary, 2 * view.row, 2 * view.column};
  };
  R *real = reinterpret_cast<R *>(c);
  for (int ofA : {0, 1})
    for (int ofB : {0, 1}) {
      // A product of two imaginary parts is real, and negative.
      R sign = (ofA && a.isConjugated ? -1 : 1) * (ofB && b.isConjugated ? -1 : 1);
      std::complex<R> scale = ofA && ofB ? -sign * factor : sign * factor;
      if (ofA != ofB)
        scale = {-scale.imag(), scale.real()};
      for (int target : {0, 1}) {
        R share = target ? scale.imag() : scale.real();
        if (share != 0)
          addRealProduct(m, n, depth, share, partOf(a, ofA), partOf(b, ofB), real + target, 2,
                         2 * stride, part);
      }
    }
}

/// c = factor c; a factor of zero leaves nothing, NaN neither.
template <typename T>
void scale(int64_t m, int64_t n, T factor, T *c, int64_t stride, Part part = Part::All) {
  if (factor == T(1))
    return;
  for (int64_t j = 0; j < n; ++j) {
    int64_t begin = part == Part::Lower ? j : 0, end = part == Part::Upper ? std::min(j + 1, m) : m;
    for (int64_t i = begin; i < end; ++i)
      c[j * stride + i] = factor == T(0) ? T(0) : multiply(factor, c[j * stride + i]);
  }
}

/// y += the sum over j of column j of a by factors[j].
template <typename T>
void addColumns(int64_t rows, int64_t columns, const T *a, int64_t stride, const T *factors, T *y) {
  if constexpr (!RealOf<T>::isComplex) {
    columnLoops<T>().addColumns(rows, columns, a, stride, factors, y);
    return;
  }
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < rows; ++i)
      y[i] += multiply(a[j * stride + i], factors[j]);
}

//===----------------------------------------------------------------------===//
// Triangles
//===----------------------------------------------------------------------===//

inline constexpr int64_t smallTriangle = 16;

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
        sum += multiply(a.view.get(i, k), x[k]);
      T own = a.unit ? T(1) : a.view.get(i, i);
      x[i] = solves ? (a.unit ? x[i] - sum : (x[i] - sum) / own) : multiply(own, x[i]) + sum;
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
  for (int64_t turn = 0; turn < n; ++turn) {
    int64_t j = goesRight ? turn : n - 1 - turn;
    T *x = b + j * stride, own = a.unit ? T(1) : a.view.get(j, j);
    if (!solves && !a.unit)
      for (int64_t i = 0; i < m; ++i)
        x[i] = multiply(x[i], own);
    int64_t begin = a.upper ? 0 : j + 1, end = a.upper ? j : n;
    T factors[smallTriangle];
    for (int64_t k = begin; k < end; ++k)
      factors[k - begin] = solves ? -a.view.get(k, j) : a.view.get(k, j);
    if (end > begin)
      addColumns(m, end - begin, b + begin * stride, stride, factors, x);
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
  if (factor == T(0))
    return;
  Triangle<T> triangle{viewOf(trans, a, aStride), isLetter(uplo, 'U') == isLetter(trans, 'N'),
                       isLetter(diag, 'U')};
  if (isLetter(side, 'L'))
    applyLeft<solves>(triangle, m, n, b, stride);
  else
    applyRight<solves>(triangle, m, n, b, stride);
}

//===----------------------------------------------------------------------===//
// Vectors
//===----------------------------------------------------------------------===//

template <typename T> struct Steps {
  T *data;
  int64_t step; ///< negative: the vector's first element is the last in memory

  Steps(T *data, int64_t count, int64_t step)
      : data(step < 0 ? data - (count - 1) * step : data), step(step) {}
  T &operator[](int64_t i) const { return data[i * step]; }
  Steps from(int64_t i) const {
    Steps rest = *this;
    rest.data += i * step;
    return rest;
  }
};

template <typename T> void scaleVector(int64_t count, T factor, Steps<T> y) {
  for (int64_t i = 0; i < count && factor != T(1); ++i)
    y[i] = factor == T(0) ? T(0) : multiply(factor, y[i]);
}

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_LIB_KERNELS_LAPACK_PRODUCTS_H
