//===- ComplexAlgebraTest.cpp - triangles, complex matrices, results in place ---===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// As LinearAlgebraTest.cpp, in complex numbers of f64: what a call gives is multiplied to what it was
// given. Real calls are tried where they have flags that complex ones have, too.
//
//===----------------------------------------------------------------------===//

#include "MatrixTesting.h"

using namespace memopt;
using namespace memopt::librarytest;
using nlohmann::json;

namespace {

using Number = std::complex<double>;

using Matrix = MatrixOf<Number>;

template <typename T> struct Type;
template <> struct Type<float> {
  using Real = float;
  static constexpr const char *name = "f32";
  static constexpr bool isPair = false;
};
template <> struct Type<double> {
  using Real = double;
  static constexpr const char *name = "f64";
  static constexpr bool isPair = false;
};
template <typename R> struct Type<std::complex<R>> {
  using Real = R;
  static constexpr const char *name = Type<R>::name;
  static constexpr bool isPair = true;
};

template <typename T> std::vector<T> makeValues(int64_t count, uint64_t seed) {
  using Real = typename Type<T>::Real;
  std::vector<Real> parts = randomValues<Real>(count * (Type<T>::isPair ? 2 : 1), seed);
  std::vector<T> values(size_t(count), T(0));
  std::memcpy(static_cast<void *>(values.data()), parts.data(), parts.size() * sizeof(Real));
  return values;
}

struct Sizes {
  int64_t batch, rows, columns;
  int64_t count() const { return batch * rows * columns; }
};
const Sizes anySizes[] = {{1, 1, 1}, {3, 3, 3}, {2, 40, 40}, {2, 7, 3}, {2, 3, 7}, {1, 90, 60}};
const Sizes squareSizes[] = {{1, 1, 1}, {3, 3, 3}, {2, 40, 40}, {1, 90, 90}};

template <typename T> json describe(const char *kind, Sizes s, json more = json::object()) {
  json descriptor = {{"kind", kind},   {"dtype", Type<T>::name}, {"batch", s.batch},
                     {"rows", s.rows}, {"columns", s.columns},   {"pairs", Type<T>::isPair}};
  descriptor.update(more);
  return descriptor;
}
template <typename T> double tolerance(Sizes s) {
  double rounding = std::is_same_v<typename Type<T>::Real, double> ? 0x1p-52 : 0x1p-23;
  return 30 * rounding * double(std::max(s.rows, s.columns));
}
template <typename T> Buffer make(int64_t elements) {
  return Buffer(elements * int64_t(sizeof(T)));
}

/// Hermitian in their lower triangles, with numbers above that nobody may read.
template <typename T> Buffer hermitian(Sizes s, bool isPositive) {
  using Real = typename Type<T>::Real;
  std::vector<T> values = makeValues<T>(s.count(), 7);
  for (int64_t at = 0; at < s.count(); ++at) {
    int64_t i = at / s.columns % s.rows, j = at % s.columns;
    if (j > i)
      values[size_t(at)] = T(std::numeric_limits<Real>::quiet_NaN());
    if (i == j)
      values[size_t(at)] = T(std::real(values[size_t(at)]) + (isPositive ? Real(2 * s.rows) : 0));
  }
  return Buffer::of(values);
}
Matrix mirrored(const Matrix &a) { return a.lower() + a.lower(1).turned(); }

template <typename T> class Algebra : public testing::Test {};
using Types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(Algebra, Types);
template <typename T> class ComplexAlgebra : public testing::Test {};
using ComplexTypes = testing::Types<std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(ComplexAlgebra, ComplexTypes);

//===----------------------------------------------------------------------===//
// Triangles
//===----------------------------------------------------------------------===//

TYPED_TEST(Algebra, TrianglesStandOnEitherSide) {
  using T = TypeParam;
  Sizes s{2, 37, 37};
  int64_t n = s.rows, width = 9;
  std::vector<T> values = makeValues<T>(s.count(), 7);
  for (T &value : values)
    value *= T(0.1);
  for (int64_t i = 0; i < s.batch * n; ++i)
    values[size_t(i * n + i % n)] += T(2);
  for (int flags = 0; flags < 32; ++flags) {
    bool upper = flags & 1, unit = flags & 2, transposed = flags & 4, right = flags & 8,
         solves = flags & 16;
    auto isRead = [&](int64_t i, int64_t j) { return i == j ? !unit : (j > i) == upper; };
    std::vector<T> given = values;
    for (int64_t i = 0; i < s.batch * n; ++i)
      for (int64_t j = 0; j < n; ++j)
        if (!isRead(i % n, j))
          given[size_t(i * n + j)] = T(std::numeric_limits<typename Type<T>::Real>::quiet_NaN());
    std::vector<Buffer> buffers{Buffer::of(given),
                                Buffer::of(makeValues<T>(s.batch * n * width, 11)),
                                make<T>(s.batch * n * width)};
    json call = describe<T>(solves ? "triangular_solve" : "triangular_product", s,
                            {{"width", width},
                             {"upper", upper},
                             {"unit", unit},
                             {"transposed", transposed},
                             {"right", right}});
    runCall(call, buffers);
    std::vector<Buffer> over{buffers[0], buffers[1]};
    runInPlace(call, over);
    EXPECT_TRUE(over[1].values<char>() == buffers[2].values<char>()) << call;
    int64_t rows = right ? width : n, columns = right ? n : width;
    for (int64_t b = 0; b < s.batch; ++b) {
      Matrix a = Matrix::of<T>(buffers[0], b, n, n).part(isRead);
      if (unit)
        a = a + Matrix::identity(n, n);
      if (transposed)
        a = a.turned();
      Matrix from = Matrix::of<T>(buffers[solves ? 2 : 1], b, rows, columns);
      EXPECT_LT(distance(right ? from * a : a * from,
                         Matrix::of<T>(buffers[solves ? 1 : 2], b, rows, columns)),
                4 * tolerance<T>(s))
          << call;
    }
  }
}

//===----------------------------------------------------------------------===//
// Decompositions
//===----------------------------------------------------------------------===//

TYPED_TEST(ComplexAlgebra, CholeskyFactorsMultiplyToTheMatrix) {
  using T = TypeParam;
  for (Sizes s : squareSizes) {
    int64_t n = s.rows;
    std::vector<Buffer> buffers{hermitian<T>(s, true), make<T>(s.count())};
    EXPECT_EQ(runCall(describe<T>("cholesky", s), buffers), "lapack");
    for (int64_t b = 0; b < s.batch; ++b) {
      Matrix low = Matrix::of<T>(buffers[1], b, n, n);
      EXPECT_EQ(low.values, low.lower().values) << "zeros above the diagonal";
      EXPECT_LT(distance(low * low.turned(), mirrored(Matrix::of<T>(buffers[0], b, n, n))),
                tolerance<T>(s) * double(n));
    }
  }
}

TYPED_TEST(ComplexAlgebra, EigenvectorsTurnTheMatrixIntoItsValues) {
  using T = TypeParam;
  using Real = typename Type<T>::Real;
  for (Sizes s : squareSizes) {
    int64_t n = s.rows;
    std::vector<Buffer> buffers{hermitian<T>(s, false), make<Real>(s.batch * n),
                                make<T>(s.count())};
    runCall(describe<T>("eigenvectors", s), buffers);
    for (int64_t b = 0; b < s.batch; ++b) {
      Matrix a = mirrored(Matrix::of<T>(buffers[0], b, n, n)),
             v = Matrix::of<T>(buffers[2], b, n, n);
      EXPECT_LT(distance(a * v, v.scaled(Matrix::of<Real>(buffers[1], b, 1, n))),
                4 * tolerance<T>(s));
      EXPECT_LT(distance(v.turned() * v, Matrix::identity(n, n)), tolerance<T>(s));
    }
  }
}

TYPED_TEST(ComplexAlgebra, SingularVectorsMultiplyToTheMatrix) {
  using T = TypeParam;
  using Real = typename Type<T>::Real;
  for (Sizes s : anySizes) {
    int64_t m = s.rows, n = s.columns, k = std::min(m, n);
    std::vector<Buffer> buffers{Buffer::of(makeValues<T>(s.count(), 7)), make<T>(s.batch * m * k),
                                make<Real>(s.batch * k), make<T>(s.batch * k * n)};
    runCall(describe<T>("singular_vectors", s), buffers);
    for (int64_t b = 0; b < s.batch; ++b) {
      Matrix u = Matrix::of<T>(buffers[1], b, m, k), vh = Matrix::of<T>(buffers[3], b, k, n);
      EXPECT_LT(distance(u.turned() * u, Matrix::identity(k, k)), tolerance<T>(s));
      EXPECT_LT(distance(vh * vh.turned(), Matrix::identity(k, k)), tolerance<T>(s));
      EXPECT_LT(distance(u.scaled(Matrix::of<Real>(buffers[2], b, 1, k)) * vh,
                         Matrix::of<T>(buffers[0], b, m, n)),
                4 * tolerance<T>(s));
    }
  }
}

TYPED_TEST(ComplexAlgebra, ReflectionsMultiplyToTheMatrix) {
  using T = TypeParam;
  for (Sizes s : anySizes) {
    int64_t m = s.rows, n = s.columns, k = std::min(m, n);
    std::vector<Buffer> buffers{Buffer::of(makeValues<T>(s.count(), 7)), make<T>(s.count()),
                                make<T>(s.batch * k)};
    runCall(describe<T>("reflections", s), buffers);
    if (m < n)
      continue; // products of reflections have no more columns than rows
    std::vector<Buffer> product{buffers[1], buffers[2], make<T>(s.count())};
    runCall(describe<T>("reflection_product", s, {{"width", k}}), product);
    for (int64_t b = 0; b < s.batch; ++b) {
      Matrix r = Matrix::of<T>(buffers[1], b, m, n).upper().cut(n, n);
      Matrix q = Matrix::of<T>(product[2], b, m, n);
      EXPECT_LT(distance(q.turned() * q, Matrix::identity(n, n)), tolerance<T>(s));
      EXPECT_LT(distance(q * r, Matrix::of<T>(buffers[0], b, m, n)), 4 * tolerance<T>(s));
    }
  }
}

TYPED_TEST(ComplexAlgebra, LuSolvesTheMatrixAndItsTransposed) {
  using T = TypeParam;
  for (Sizes s : squareSizes) {
    int64_t n = s.rows, width = 5;
    std::vector<Buffer> factors{Buffer::of(makeValues<T>(s.count(), 7)), make<T>(s.count()),
                                Buffer(s.batch * n * 8), Buffer(s.batch * n * 8)};
    runCall(describe<T>("lu", s), factors);
    for (bool transposed : {false, true}) {
      std::vector<Buffer> buffers{factors[1], factors[2],
                                  Buffer::of(makeValues<T>(s.batch * n * width, 5)),
                                  make<T>(s.batch * n * width)};
      runCall(describe<T>("lu_solve", s, {{"width", width}, {"transposed", transposed}}), buffers);
      for (int64_t b = 0; b < s.batch; ++b) {
        Matrix a = Matrix::of<T>(factors[0], b, n, n), x = Matrix::of<T>(buffers[3], b, n, width);
        double largest = 1;
        for (Number value : x.values)
          largest = std::max(largest, std::abs(value));
        EXPECT_LT(
            distance((transposed ? a.turned() : a) * x, Matrix::of<T>(buffers[2], b, n, width)),
            4 * largest * tolerance<T>(s));
      }
    }
  }
}

TYPED_TEST(ComplexAlgebra, AMatrixWithoutAnAnswerGivesNaN) {
  using T = TypeParam;
  std::vector<Buffer> buffers{Buffer::of(std::vector<T>{1, 0, T(0, 2), 1}), make<T>(4)};
  runCall(describe<T>("cholesky", {1, 2, 2}), buffers);
  EXPECT_TRUE(std::isnan(buffers[1].values<T>()[0].real()));
}

//===----------------------------------------------------------------------===//
// In place
//===----------------------------------------------------------------------===//

/// A result may lie where the matrix was.
TYPED_TEST(Algebra, AFactorTakesThePlaceOfItsMatrix) {
  using T = TypeParam;
  Sizes s{3, 40, 40};
  json call = describe<T>("cholesky", s);
  std::vector<Buffer> buffers{hermitian<T>(s, true), make<T>(s.count())}, over{buffers[0]};
  runCall(call, buffers);
  runInPlace(call, over);
  EXPECT_TRUE(over[0].values<char>() == buffers[1].values<char>());
}

} // namespace
