//===- LinearAlgebraTest.cpp - matrices taken apart and put together --------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a call gives is multiplied in f64 to what it was given. Factors that are meant to be
// orthogonal are held to that, values to their order.
//
//===----------------------------------------------------------------------===//

#include "MatrixTesting.h"
#include "memopt-runtime/threads/ThreadPool.h"

using namespace memopt;
using namespace memopt::librarytest;
using nlohmann::json;

namespace {

using Matrix = MatrixOf<double>;

struct Sizes {
  int64_t batch, rows, columns;
};
/// Blocks of LAPACK have 32 or 64 columns.
const Sizes anySizes[] = {{1, 1, 1}, {3, 3, 3},     {2, 40, 40},  {2, 7, 3},
                          {2, 3, 7}, {1, 150, 150}, {1, 170, 60}, {1, 60, 170}};
const Sizes squareSizes[] = {{1, 1, 1}, {3, 3, 3}, {2, 40, 40}, {1, 150, 150}};

template <typename T> constexpr const char *typeName() {
  return std::is_same_v<T, double> ? "f64" : "f32";
}

json describe(const char *kind, const char *type, Sizes sizes, json more = json::object()) {
  json descriptor = {{"kind", kind},
                     {"dtype", type},
                     {"batch", sizes.batch},
                     {"rows", sizes.rows},
                     {"columns", sizes.columns}};
  descriptor.update(more);
  return descriptor;
}

/// By how much results may differ that are sums of so many products.
template <typename T> double tolerance(Sizes sizes) {
  double rounding = std::is_same_v<T, double> ? 0x1p-52 : 0x1p-23;
  return 20 * rounding * double(std::max(sizes.rows, sizes.columns));
}

template <typename T> std::vector<T> randomMatrices(Sizes sizes) {
  return randomValues<T>(sizes.batch * sizes.rows * sizes.columns, 7);
}

/// Symmetric in their lower triangles, with numbers above that nobody may read.
template <typename T> std::vector<T> symmetricMatrices(Sizes sizes, bool isPositive) {
  std::vector<T> values = randomMatrices<T>(sizes);
  int64_t n = sizes.rows;
  for (int64_t b = 0; b < sizes.batch; ++b)
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) {
        T &value = values[size_t((b * n + i) * n + j)];
        if (j > i)
          value = std::numeric_limits<T>::quiet_NaN();
        else if (i == j && isPositive)
          value = T(n) + value;
      }
  return values;
}

Matrix mirrored(const Matrix &a) { return a.lower() + a.lower(1).turned(); }

template <typename T> class LinearAlgebra : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(LinearAlgebra, Types);

//===----------------------------------------------------------------------===//
// Decompositions
//===----------------------------------------------------------------------===//

TYPED_TEST(LinearAlgebra, CholeskyFactorsMultiplyToTheMatrix) {
  using T = TypeParam;
  for (Sizes s : squareSizes) {
    int64_t n = s.rows;
    std::vector<Buffer> buffers{Buffer::of(symmetricMatrices<T>(s, true)),
                                Buffer(s.batch * n * n * int64_t(sizeof(T)))};
    EXPECT_EQ(runCall(describe("cholesky", typeName<T>(), s), buffers), "lapack");
    for (int64_t b = 0; b < s.batch; ++b) {
      Matrix a = mirrored(Matrix::of<T>(buffers[0], b, n, n));
      Matrix low = Matrix::of<T>(buffers[1], b, n, n);
      EXPECT_EQ(low.values, low.lower().values) << "zeros above the diagonal";
      EXPECT_LT(distance(low * low.turned(), a), tolerance<T>(s) * double(n));
    }
  }
}

TYPED_TEST(LinearAlgebra, EigenvectorsTurnTheMatrixIntoItsValues) {
  using T = TypeParam;
  for (Sizes s : squareSizes) {
    int64_t n = s.rows, size = sizeof(T);
    std::vector<Buffer> buffers{Buffer::of(symmetricMatrices<T>(s, false)),
                                Buffer(s.batch * n * size), Buffer(s.batch * n * n * size)};
    runCall(describe("eigenvectors", typeName<T>(), s), buffers);
    for (int64_t b = 0; b < s.batch; ++b) {
      Matrix a = mirrored(Matrix::of<T>(buffers[0], b, n, n));
      Matrix values = Matrix::of<T>(buffers[1], b, 1, n), v = Matrix::of<T>(buffers[2], b, n, n);
      EXPECT_TRUE(std::is_sorted(values.values.begin(), values.values.end()));
      Matrix scaled = v;
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < n; ++j)
          scaled(i, j) *= values(0, j);
      EXPECT_LT(distance(a * v, scaled), 4 * tolerance<T>(s));
      EXPECT_LT(distance(v.turned() * v, Matrix::identity(n, n)), tolerance<T>(s));
    }
  }
}

TYPED_TEST(LinearAlgebra, SingularVectorsMultiplyToTheMatrix) {
  using T = TypeParam;
  for (Sizes s : anySizes) {
    int64_t m = s.rows, n = s.columns, k = std::min(m, n), size = sizeof(T);
    std::vector<Buffer> buffers{Buffer::of(randomMatrices<T>(s)), Buffer(s.batch * m * k * size),
                                Buffer(s.batch * k * size), Buffer(s.batch * k * n * size)};
    runCall(describe("singular_vectors", typeName<T>(), s), buffers);
    for (int64_t b = 0; b < s.batch; ++b) {
      Matrix a = Matrix::of<T>(buffers[0], b, m, n), u = Matrix::of<T>(buffers[1], b, m, k);
      Matrix values = Matrix::of<T>(buffers[2], b, 1, k), vt = Matrix::of<T>(buffers[3], b, k, n);
      EXPECT_TRUE(std::is_sorted(values.values.rbegin(), values.values.rend()));
      EXPECT_LT(distance(u.turned() * u, Matrix::identity(k, k)), tolerance<T>(s));
      EXPECT_LT(distance(vt * vt.turned(), Matrix::identity(k, k)), tolerance<T>(s));
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < k; ++j)
          u(i, j) *= values(0, j);
      EXPECT_LT(distance(u * vt, a), 4 * tolerance<T>(s));
    }
  }
}

TYPED_TEST(LinearAlgebra, ReflectionsMultiplyToTheMatrix) {
  using T = TypeParam;
  for (Sizes s : anySizes) {
    int64_t m = s.rows, n = s.columns, k = std::min(m, n), size = sizeof(T);
    std::vector<Buffer> buffers{Buffer::of(randomMatrices<T>(s)), Buffer(s.batch * m * n * size),
                                Buffer(s.batch * k * size)};
    runCall(describe("reflections", typeName<T>(), s), buffers);
    if (m < n)
      continue; // products of reflections have no more columns than rows
    std::vector<Buffer> product{buffers[1], buffers[2], Buffer(s.batch * m * n * size)};
    runCall(describe("reflection_product", typeName<T>(), s, {{"width", k}}), product);
    for (int64_t b = 0; b < s.batch; ++b) {
      Matrix r = Matrix::of<T>(buffers[1], b, m, n).upper().cut(n, n);
      Matrix q = Matrix::of<T>(product[2], b, m, n);
      EXPECT_LT(distance(q.turned() * q, Matrix::identity(n, n)), tolerance<T>(s));
      EXPECT_LT(distance(q * r, Matrix::of<T>(buffers[0], b, m, n)), 4 * tolerance<T>(s));
    }
  }
}

TYPED_TEST(LinearAlgebra, LuFactorsMultiplyToTheExchangedRows) {
  using T = TypeParam;
  for (Sizes s : anySizes) {
    int64_t m = s.rows, n = s.columns, k = std::min(m, n), size = sizeof(T);
    std::vector<Buffer> buffers{Buffer::of(randomMatrices<T>(s)), Buffer(s.batch * m * n * size),
                                Buffer(s.batch * k * 8), Buffer(s.batch * m * 8)};
    runCall(describe("lu", typeName<T>(), s), buffers);
    for (int64_t b = 0; b < s.batch; ++b) {
      Matrix both = Matrix::of<T>(buffers[1], b, m, n), a = Matrix::of<T>(buffers[0], b, m, n);
      Matrix low = both.cut(m, k).lower(1) + Matrix::identity(m, k);
      Matrix exchanged = a, ordered(m, n);
      for (int64_t i = 0; i < k; ++i) {
        int64_t other = buffers[2].values<int64_t>()[size_t(b * k + i)];
        ASSERT_TRUE(other >= i && other < m);
        for (int64_t j = 0; j < n; ++j)
          std::swap(exchanged(i, j), exchanged(other, j));
      }
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j)
          ordered(i, j) = a(buffers[3].values<int64_t>()[size_t(b * m + i)], j);
      EXPECT_EQ(exchanged.values, ordered.values);
      EXPECT_LT(distance(low * both.cut(k, n).upper(), exchanged), 4 * tolerance<T>(s));
      for (double value : low.values)
        EXPECT_LE(std::abs(value), 1) << "the largest of a column is its pivot";
    }
  }
}

//===----------------------------------------------------------------------===//
// Solves
//===----------------------------------------------------------------------===//

TYPED_TEST(LinearAlgebra, TriangularSolvesReadTheirTriangleAlone) {
  using T = TypeParam;
  Sizes s{2, 45, 45};
  int64_t n = s.rows, width = 9, size = sizeof(T);
  std::vector<T> values = randomMatrices<T>(s);
  for (T &value : values)
    value *= T(0.1);
  for (int64_t i = 0; i < s.batch * n; ++i)
    values[size_t(i * n + i % n)] += 2;
  std::vector<T> sides = randomValues<T>(s.batch * n * width, 11);
  for (int flags = 0; flags < 8; ++flags) {
    bool upper = flags & 1, unit = flags & 2, transposed = flags & 4;
    auto isRead = [&](int64_t i, int64_t j) { return i == j ? !unit : (j > i) == upper; };
    std::vector<T> given = values;
    for (int64_t i = 0; i < s.batch * n; ++i)
      for (int64_t j = 0; j < n; ++j)
        if (!isRead(i % n, j))
          given[size_t(i * n + j)] = std::numeric_limits<T>::quiet_NaN();
    std::vector<Buffer> buffers{Buffer::of(given), Buffer::of(sides),
                                Buffer(s.batch * n * width * size)};
    json more = {{"width", width}, {"upper", upper}, {"unit", unit}, {"transposed", transposed}};
    runCall(describe("triangular_solve", typeName<T>(), s, more), buffers);
    for (int64_t b = 0; b < s.batch; ++b) {
      Matrix a = Matrix::of<T>(buffers[0], b, n, n).part(isRead);
      if (unit)
        a = a + Matrix::identity(n, n);
      Matrix x = Matrix::of<T>(buffers[2], b, n, width);
      EXPECT_LT(distance((transposed ? a.turned() : a) * x, Matrix::of<T>(buffers[1], b, n, width)),
                4 * tolerance<T>(s))
          << more;
    }
  }
}

TYPED_TEST(LinearAlgebra, LuSolvesTheMatrixAndItsTransposed) {
  using T = TypeParam;
  for (Sizes s : squareSizes) {
    int64_t n = s.rows, width = 5, size = sizeof(T);
    std::vector<Buffer> factors{Buffer::of(randomMatrices<T>(s)), Buffer(s.batch * n * n * size),
                                Buffer(s.batch * n * 8), Buffer(s.batch * n * 8)};
    runCall(describe("lu", typeName<T>(), s), factors);
    for (bool transposed : {false, true}) {
      std::vector<Buffer> buffers{factors[1], factors[2],
                                  Buffer::of(randomValues<T>(s.batch * n * width, 5)),
                                  Buffer(s.batch * n * width * size)};
      json more = {{"width", width}, {"transposed", transposed}};
      runCall(describe("lu_solve", typeName<T>(), s, more), buffers);
      for (int64_t b = 0; b < s.batch; ++b) {
        Matrix a = Matrix::of<T>(factors[0], b, n, n), x = Matrix::of<T>(buffers[3], b, n, width);
        double largest = 1;
        for (double value : x.values)
          largest = std::max(largest, std::abs(value));
        EXPECT_LT(
            distance((transposed ? a.turned() : a) * x, Matrix::of<T>(buffers[2], b, n, width)),
            4 * largest * tolerance<T>(s));
      }
    }
  }
}

TYPED_TEST(LinearAlgebra, AnExchangeWithNoRowGivesNoNumbers) {
  using T = TypeParam;
  Sizes s{2, 2, 2};
  std::vector<Buffer> buffers{Buffer::of(std::vector<T>{1, 0, 0, 1, 1, 0, 0, 1}),
                              Buffer::of(std::vector<int64_t>{0, 2, 0, 1}),
                              Buffer::of(std::vector<T>{5, 6, 7, 8}),
                              Buffer(4 * int64_t(sizeof(T)))};
  runCall(describe("lu_solve", typeName<T>(), s, {{"width", 1}}), buffers);
  std::vector<T> x = buffers[3].values<T>();
  EXPECT_TRUE(std::isnan(x[0]) && std::isnan(x[1]));
  EXPECT_EQ(x[2], 7);
  EXPECT_EQ(x[3], 8);
}

//===----------------------------------------------------------------------===//
// What has no answer
//===----------------------------------------------------------------------===//

TYPED_TEST(LinearAlgebra, AMatrixWithoutAnAnswerGivesNaNAndNoOtherDoes) {
  using T = TypeParam;
  constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  Sizes s{3, 2, 2};
  int64_t size = sizeof(T);
  // In the middle one that is not positive definite.
  std::vector<Buffer> buffers{Buffer::of(std::vector<T>{4, 0, 2, 5, 1, 0, 2, 1, 4, 0, 2, 5}),
                              Buffer(12 * size)};
  runCall(describe("cholesky", typeName<T>(), s), buffers);
  std::vector<T> low = buffers[1].values<T>();
  EXPECT_TRUE(std::isnan(low[4]) && low[5] == 0 && std::isnan(low[6]) && std::isnan(low[7]));
  EXPECT_EQ(std::vector<T>(low.begin(), low.begin() + 4), (std::vector<T>{2, 0, 1, 2}));
  EXPECT_EQ(std::vector<T>(low.begin() + 8, low.end()), (std::vector<T>{2, 0, 1, 2}));
  // In the middle one that has no number.
  std::vector<T> values{2, 0, 0, 3, nan, 0, 0, 3, 2, 0, 0, 3};
  for (T bad : {nan, std::numeric_limits<T>::infinity()}) {
    values[4] = bad;
    for (const char *kind : {"eigenvectors", "singular_vectors", "reflections", "lu"}) {
      std::vector<Buffer> parts{Buffer::of(values)};
      bool isLu = kind == std::string("lu"), isSvd = kind == std::string("singular_vectors");
      std::vector<int64_t> bytes{6 * size, 12 * size};
      if (isSvd)
        bytes = {12 * size, 6 * size, 12 * size};
      if (isLu)
        bytes = {12 * size, 48, 48};
      if (kind == std::string("reflections"))
        bytes = {12 * size, 6 * size};
      for (int64_t count : bytes)
        parts.emplace_back(count);
      runCall(describe(kind, typeName<T>(), s), parts);
      for (size_t part = 1; part < (isLu ? 2 : parts.size()); ++part) {
        std::vector<T> found = parts[part].values<T>();
        size_t each = found.size() / 3;
        for (size_t i = 0; i < found.size(); ++i)
          EXPECT_EQ(std::isnan(found[i]), i / each == 1) << kind << " " << part << " " << i;
      }
    }
  }
}

//===----------------------------------------------------------------------===//
// Bits, precision and refusals
//===----------------------------------------------------------------------===//

TEST(LinearAlgebraCalls, BitsDoNotDependOnThreads) {
  Sizes s{5, 70, 50};
  auto run = [&](int createdFor, int running) {
    std::vector<Buffer> buffers{Buffer::of(randomMatrices<double>(s)), Buffer(5 * 70 * 50 * 8),
                                Buffer(5 * 50 * 8), Buffer(5 * 50 * 50 * 8)};
    runCall(describe("singular_vectors", "f64", s), buffers, createdFor, running);
    return std::tuple(buffers[1].values<char>(), buffers[2].values<char>(),
                      buffers[3].values<char>());
  };
  auto one = run(1, 1);
  EXPECT_TRUE(one == run(2, 2));
  EXPECT_TRUE(one == run(8, 2));
  EXPECT_TRUE(one == run(2, 4));
}

TEST(LinearAlgebraCalls, WorkspacesAreOfThreadsNotOfMatrices) {
  auto bytes = [](int64_t batch, int threads) {
    auto call = LibraryCall::create(describe("eigenvectors", "f64", {batch, 40, 40}), threads);
    return call.isOk() ? (*call)->workspaceBytes() : -1;
  };
  EXPECT_GT(bytes(1, 1), 3 * 40 * 40 * 8);
  EXPECT_EQ(bytes(1, 4), bytes(1, 1));
  EXPECT_EQ(bytes(100, 4), 4 * bytes(1, 1));
}

TEST(LinearAlgebraCalls, AReferenceIsComputedInDouble) {
  Sizes s{1, 60, 60};
  std::vector<float> values = randomMatrices<float>(s);
  auto solve = [&](bool reference) {
    json more = {{"reference", reference}};
    std::vector<Buffer> factors{Buffer::of(values), Buffer(60 * 60 * 4), Buffer(60 * 8),
                                Buffer(60 * 8)};
    runCall(describe("lu", "f32", s, more), factors);
    Matrix both = Matrix::of<float>(factors[1], 0, 60, 60), exchanged(60, 60);
    for (int64_t i = 0; i < 60; ++i)
      for (int64_t j = 0; j < 60; ++j)
        exchanged(i, j) = values[size_t(factors[3].values<int64_t>()[size_t(i)] * 60 + j)];
    return distance((both.lower(1) + Matrix::identity(60, 60)) * both.upper(), exchanged);
  };
  EXPECT_LT(solve(true), 0.7 * solve(false));
}

TEST(LinearAlgebraCalls, EachWrongDescriptionIsNamed) {
  auto refuse = [](const char *kind, json more) {
    return refusal(describe(kind, "f32", {2, 4, 4}, std::move(more)));
  };
  EXPECT_EQ(refuse("cholesky", json::object()), "");
  EXPECT_EQ(refuse("cholesky", {{"columns", 5}}),
            "library call 'cholesky': 'rows' and 'columns' must be equal");
  EXPECT_EQ(refuse("lu", {{"dtype", "bf16"}}), "library call 'lu': 'dtype' must be f32 or f64");
  EXPECT_EQ(refuse("lu", {{"width", 2}}),
            "library call 'lu': 'width' is of solves and products of triangles and reflections");
  EXPECT_EQ(refuse("lu_solve", {{"width", 2}, {"unit", true}}),
            "library call 'lu_solve': 'upper', 'unit' and 'right' are of triangles");
  EXPECT_EQ(refuse("eigenvectors", {{"transposed", true}}),
            "library call 'eigenvectors': 'transposed' is of solves and triangles");
  EXPECT_EQ(refuse("reflection_product", {{"width", 5}}),
            "library call 'reflection_product': 'columns' must not be more than 'rows', nor "
            "'width' more than 'columns'");
  EXPECT_EQ(refuse("singular_vectors", {{"rows", 20000}, {"columns", 20000}}),
            "library call 'singular_vectors': matrices have at most 2^14 rows and 2^24 columns, or "
            "the other way");
  EXPECT_EQ(refuse("lu", {{"batch", int64_t(1) << 47}}),
            "library call 'lu': the matrices has more than 2^48 elements");
  EXPECT_NE(refuse("lu", {{"rows", 0}}), "");
  EXPECT_NE(refuse("triangular_solve", json::object()), "") << "without a width";
}

} // namespace
