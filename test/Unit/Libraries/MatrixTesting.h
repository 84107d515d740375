//===- MatrixTesting.h - matrices to hold results against ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TEST_UNIT_LIBRARIES_MATRIXTESTING_H
#define MEMOPT_TEST_UNIT_LIBRARIES_MATRIXTESTING_H

#include "LibraryCallTesting.h"
#include <complex>

namespace memopt::librarytest {

inline double conjugate(double value) { return value; }
inline std::complex<double> conjugate(std::complex<double> value) { return std::conj(value); }

/// A matrix in f64, of numbers that are real or complex, row by row.
template <typename Number> struct MatrixOf {
  int64_t rows, columns;
  std::vector<Number> values;

  MatrixOf(int64_t rows, int64_t columns)
      : rows(rows), columns(columns), values(size_t(rows * columns)) {}
  Number &operator()(int64_t i, int64_t j) { return values[size_t(i * columns + j)]; }
  Number operator()(int64_t i, int64_t j) const { return values[size_t(i * columns + j)]; }

  /// Matrix `number` of a buffer.
  template <typename T> static MatrixOf of(Buffer &buffer, int64_t number, int64_t m, int64_t n) {
    MatrixOf matrix(m, n);
    std::vector<T> all = buffer.values<T>();
    for (int64_t i = 0; i < m * n; ++i)
      matrix.values[size_t(i)] = Number(all[size_t(number * m * n + i)]);
    return matrix;
  }
  static MatrixOf identity(int64_t m, int64_t n) {
    MatrixOf matrix(m, n);
    for (int64_t i = 0; i < std::min(m, n); ++i)
      matrix(i, i) = 1;
    return matrix;
  }
  /// Transposed and conjugated.
  MatrixOf turned() const {
    MatrixOf result(columns, rows);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        result(j, i) = conjugate((*this)(i, j));
    return result;
  }
  /// Elements of which `keeps` says so, zeros elsewhere.
  template <typename Keeps> MatrixOf part(Keeps keeps) const {
    MatrixOf result = *this;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        if (!keeps(i, j))
          result(i, j) = 0;
    return result;
  }
  MatrixOf lower(int64_t less = 0) const {
    return part([&](int64_t i, int64_t j) { return j + less <= i; });
  }
  MatrixOf upper() const {
    return part([](int64_t i, int64_t j) { return j >= i; });
  }
  MatrixOf cut(int64_t m, int64_t n) const {
    MatrixOf result(m, n);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j)
        result(i, j) = (*this)(i, j);
    return result;
  }
  /// Each column by its number of `row`.
  MatrixOf scaled(const MatrixOf &row) const {
    MatrixOf result = *this;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        result(i, j) *= row(0, j);
    return result;
  }
};

template <typename Number>
MatrixOf<Number> operator*(const MatrixOf<Number> &a, const MatrixOf<Number> &b) {
  MatrixOf<Number> result(a.rows, b.columns);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t k = 0; k < a.columns; ++k)
      for (int64_t j = 0; j < b.columns; ++j)
        result(i, j) += a(i, k) * b(k, j);
  return result;
}
template <typename Number>
MatrixOf<Number> operator+(MatrixOf<Number> a, const MatrixOf<Number> &b) {
  for (size_t i = 0; i < a.values.size(); ++i)
    a.values[i] += b.values[i];
  return a;
}

/// The largest difference of two elements; NaN if one is NaN.
template <typename Number> double distance(const MatrixOf<Number> &a, const MatrixOf<Number> &b) {
  EXPECT_EQ(a.values.size(), b.values.size());
  double most = 0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    double difference = std::abs(a.values[i] - b.values[i]);
    most = difference > most || std::isnan(difference) ? difference : most;
  }
  return most;
}

} // namespace memopt::librarytest

#endif // MEMOPT_TEST_UNIT_LIBRARIES_MATRIXTESTING_H
