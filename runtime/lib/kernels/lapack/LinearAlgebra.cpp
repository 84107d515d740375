//===- LinearAlgebra.cpp - calls that LAPACK computes -----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// LAPACK takes all of its memory from its caller and keeps no state. So each thread of a call has a
// slot of the workspace for one matrix at a time, and bits do not depend on who takes which.
//
// Matrices of tensors lie row by row, LAPACK's column by column. What depends on the order (pivots,
// reflections, signs) is computed of a copy that lies as LAPACK wants it, what does not as it lies.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/kernels/lapack/LinearAlgebra.h"
#include "Lapack.h"
#include "memopt-runtime/kernels/own/SlotTasks.h"
#include <cmath>
#include <limits>
#include <numeric>

using namespace memopt;
using namespace memopt::libraries;

namespace {

/// Cuts a slot of the workspace into arrays; with no base it counts the bytes.
class Slot {
public:
  explicit Slot(void *base) : base(static_cast<char *>(base)) {}
  template <typename T> T *take(int64_t count) {
    int64_t offset = bytes;
    bytes += (count * int64_t(sizeof(T)) + 63) / 64 * 64;
    return base ? reinterpret_cast<T *>(base + offset) : nullptr;
  }
  int64_t bytes = 0;

private:
  char *base;
};

template <typename T> bool isFinite(T value) { return std::isfinite(value); }
template <typename R> bool isFinite(std::complex<R> value) {
  return std::isfinite(value.real()) && std::isfinite(value.imag());
}

/// A matrix of `rows` lines is turned: element (i, j) goes to (j, i). Says whether all are finite.
template <typename From, typename To>
bool turn(const From *from, int64_t rows, int64_t columns, To *to) {
  constexpr int64_t tile = 16;
  bool areFinite = true;
  for (int64_t top = 0; top < rows; top += tile)
    for (int64_t left = 0; left < columns; left += tile)
      for (int64_t i = top; i < std::min(top + tile, rows); ++i)
        for (int64_t j = left; j < std::min(left + tile, columns); ++j) {
          From value = from[i * columns + j];
          areFinite &= isFinite(value);
          to[j * rows + i] = static_cast<To>(value);
        }
  return areFinite;
}

template <typename From, typename To> void copy(const From *from, int64_t count, To *to) {
  for (int64_t i = 0; i < count; ++i)
    to[i] = static_cast<To>(from[i]);
}

template <typename T> void fillWithNaN(T *to, int64_t count) {
  using R = typename RealOf<T>::Type;
  std::fill(to, to + count, T(std::numeric_limits<R>::quiet_NaN()));
}

/// Elements of type S, computed in T; values are real.
template <typename S, typename T> class LinearAlgebra final : public LibraryCall {
  using RealS = typename RealOf<S>::Type;
  using RealT = typename RealOf<T>::Type;

public:
  LinearAlgebra(const LinearAlgebraDescriptor &descriptor, int threads)
      : d(descriptor), slots(static_cast<int>(std::min<int64_t>(threads, d.batch))),
        m(static_cast<int>(d.rows)), n(static_cast<int>(d.columns)), k(static_cast<int>(d.least())),
        width(static_cast<int>(d.width)) {
    work = askForWork();
    Slot slot(nullptr);
    Memory::cut(*this, slot);
    slotBytes = slot.bytes;
  }

  int64_t workspaceBytes() const override { return slots * slotBytes; }
  std::string implementation() const override { return getLapackName(); }

  Status run(void *const *buffers, ThreadPool &pool) override {
    void *workspace = buffers[d.getBuffers().size()];
    runTasks(pool, d.batch, slots, slotBytes, workspace,
             [&](int64_t number, char *slot) { runMatrix(buffers, number, slot); });
    return Status::ok();
  }

private:
  /// What one matrix takes of the workspace.
  struct Memory {
    T *a, *other, *factors;
    RealT *values;
    WorkArrays<T> work;

    static Memory cut(const LinearAlgebra &call, Slot &slot) {
      const LinearAlgebraDescriptor &d = call.d;
      bool isSolve = call.isSolve(), isSame = std::is_same_v<S, T>;
      Memory memory{};
      // Solves, and what fits in the result, need no copy in the type of the tensors.
      if (!isSame || !(isSolve || d.kind == LinearAlgebraKind::Cholesky))
        memory.a = slot.take<T>(d.rows * d.columns);
      if (d.kind == LinearAlgebraKind::SingularVectors)
        memory.other = slot.take<T>((d.rows + d.columns) * d.least());
      if (isSolve && !isSame)
        memory.other = slot.take<T>(d.rows * d.width);
      bool hasFactors = d.kind == LinearAlgebraKind::Reflections ||
                        d.kind == LinearAlgebraKind::ReflectionProduct;
      bool hasValues =
          d.kind == LinearAlgebraKind::Eigenvectors || d.kind == LinearAlgebraKind::SingularVectors;
      memory.factors = slot.take<T>(hasFactors ? std::max(d.least(), d.width) : 0);
      memory.values = slot.take<RealT>(hasValues ? d.least() : 0);
      memory.work = {slot.take<T>(call.work.numbers), slot.take<RealT>(call.work.reals),
                     slot.take<int>(call.work.integers)};
      return memory;
    }
  };

  bool isSolve() const { return d.isOfTriangle() || d.kind == LinearAlgebraKind::LuSolve; }

  static int roundUp(T count) {
    RealT real = std::real(count);
    return static_cast<int>(std::nextafter(real, std::numeric_limits<RealT>::infinity())) + 1;
  }

  WorkSize askForWork() const {
    constexpr bool isComplex = RealOf<T>::isComplex;
    T numbers = 0;
    RealT reals = 0;
    int integers = 0;
    WorkArrays<T> asked{&numbers, &reals, &integers};
    switch (d.kind) {
    case LinearAlgebraKind::Eigenvectors:
      Lapack<T>::findEigenvectors(n, nullptr, nullptr, asked, {-1, -1, -1});
      return {roundUp(numbers), isComplex ? roundUp(reals) : 0, integers};
    case LinearAlgebraKind::SingularVectors: {
      Lapack<T>::findSingularVectors(m, n, nullptr, nullptr, nullptr, nullptr, asked, {-1, -1, -1});
      // Of real numbers LAPACK says in its documents how many.
      int longer = std::max(m, n);
      int most = std::max(5 * k * k + 5 * k, 2 * longer * k + 2 * k * k + k);
      return {roundUp(numbers), isComplex ? most : 0, 8 * k};
    }
    case LinearAlgebraKind::Reflections:
      Lapack<T>::reflect(m, n, nullptr, nullptr, &numbers, -1);
      return {roundUp(numbers), 0, 0};
    case LinearAlgebraKind::ReflectionProduct:
      Lapack<T>::multiplyReflections(m, n, width, nullptr, nullptr, &numbers, -1);
      return {roundUp(numbers), 0, 0};
    case LinearAlgebraKind::Lu:
      return {0, 0, k};
    case LinearAlgebraKind::Cholesky:
    case LinearAlgebraKind::LuSolve:
    case LinearAlgebraKind::TriangularSolve:
    case LinearAlgebraKind::TriangularProduct:
      break;
    }
    return {};
  }

  /// Matrix `number` of a buffer with so many elements for each.
  template <typename E = S> static E *at(void *buffer, int64_t number, int64_t elements) {
    return static_cast<E *>(buffer) + number * elements;
  }

  void runMatrix(void *const *buffers, int64_t number, char *memory) const {
    Slot slot(memory);
    Memory own = Memory::cut(*this, slot);
    int64_t whole = d.rows * d.columns;
    const S *a = at(buffers[0], number, whole);
    switch (d.kind) {
    case LinearAlgebraKind::Cholesky:
      return factor(own, a, at(buffers[1], number, whole));
    case LinearAlgebraKind::Eigenvectors:
      return findEigenvectors(own, a, at<RealS>(buffers[1], number, n),
                              at(buffers[2], number, whole));
    case LinearAlgebraKind::SingularVectors:
      return findSingularVectors(own, a, at(buffers[1], number, d.rows * k),
                                 at<RealS>(buffers[2], number, k),
                                 at(buffers[3], number, d.columns * k));
    case LinearAlgebraKind::Reflections:
      return reflect(own, a, at(buffers[1], number, whole), at(buffers[2], number, k));
    case LinearAlgebraKind::ReflectionProduct:
      return multiplyReflections(own, a, at(buffers[1], number, width),
                                 at(buffers[2], number, whole));
    case LinearAlgebraKind::Lu:
      return factorRows(own, a, at(buffers[1], number, whole),
                        static_cast<int64_t *>(buffers[2]) + number * k,
                        static_cast<int64_t *>(buffers[3]) + number * m);
    case LinearAlgebraKind::LuSolve:
      return solve(own, a, static_cast<const int64_t *>(buffers[1]) + number * n,
                   at(buffers[2], number, d.rows * width), at(buffers[3], number, d.rows * width));
    case LinearAlgebraKind::TriangularSolve:
    case LinearAlgebraKind::TriangularProduct:
      return solve(own, a, nullptr, at(buffers[1], number, d.rows * width),
                   at(buffers[2], number, d.rows * width));
    }
  }

  /// The lower triangle of rows is the upper one of columns.
  void factor(const Memory &own, const S *a, S *result) const {
    T *low = nullptr;
    if constexpr (std::is_same_v<S, T>)
      low = result;
    else
      low = own.a;
    bool areFinite = true;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) {
        areFinite &= j > i || isFinite(a[i * n + j]);
        low[i * n + j] = j > i ? T(0) : static_cast<T>(a[i * n + j]);
      }
    if (!areFinite || Lapack<T>::factorUpper(n, low) != 0) {
      for (int64_t i = 0; i < n; ++i)
        fillWithNaN(low + i * n, i + 1);
    }
    if constexpr (!std::is_same_v<S, T>)
      copy(low, int64_t(n) * n, result);
  }

  void findEigenvectors(const Memory &own, const S *a, RealS *values, S *vectors) const {
    bool areFinite = true;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j <= i; ++j) {
        areFinite &= isFinite(a[i * n + j]);
        own.a[j * n + i] = static_cast<T>(a[i * n + j]);
      }
    if (!areFinite || Lapack<T>::findEigenvectors(n, own.a, own.values, own.work, work) != 0) {
      fillWithNaN(own.a, int64_t(n) * n);
      fillWithNaN(own.values, n);
    }
    copy(own.values, n, values);
    turn(own.a, n, n, vectors);
  }

  void findSingularVectors(const Memory &own, const S *a, S *u, RealS *s, S *vt) const {
    T *left = own.other, *right = left + d.rows * k;
    bool areFinite = turn(a, m, n, own.a);
    if (!areFinite ||
        Lapack<T>::findSingularVectors(m, n, own.a, own.values, left, right, own.work, work) != 0) {
      fillWithNaN(left, (d.rows + d.columns) * k);
      fillWithNaN(own.values, k);
    }
    copy(own.values, k, s);
    turn(left, k, m, u);
    turn(right, n, k, vt);
  }

  void reflect(const Memory &own, const S *a, S *result, S *factors) const {
    bool areFinite = turn(a, m, n, own.a);
    if (!areFinite ||
        Lapack<T>::reflect(m, n, own.a, own.factors, own.work.numbers, work.numbers) != 0) {
      fillWithNaN(own.a, d.rows * d.columns);
      fillWithNaN(own.factors, k);
    }
    turn(own.a, n, m, result);
    copy(own.factors, k, factors);
  }

  void multiplyReflections(const Memory &own, const S *vectors, const S *factors, S *result) const {
    turn(vectors, m, n, own.a);
    copy(factors, width, own.factors);
    if (Lapack<T>::multiplyReflections(m, n, width, own.a, own.factors, own.work.numbers,
                                       work.numbers) != 0)
      fillWithNaN(own.a, d.rows * d.columns);
    turn(own.a, n, m, result);
  }

  /// A pivot of zero is no failure: what divides by it says so. Exchanges count from 1 in LAPACK.
  void factorRows(const Memory &own, const S *a, S *result, int64_t *exchanges,
                  int64_t *order) const {
    bool areFinite = turn(a, m, n, own.a);
    int *pivots = own.work.integers;
    std::iota(pivots, pivots + k, 1);
    if (areFinite)
      Lapack<T>::factorRows(m, n, own.a, pivots);
    else
      fillWithNaN(own.a, d.rows * d.columns);
    turn(own.a, n, m, result);
    std::iota(order, order + m, 0);
    for (int64_t i = 0; i < k; ++i) {
      exchanges[i] = pivots[i] - 1;
      std::swap(order[i], order[exchanges[i]]);
    }
  }

  /// Row by row A X = B is X^T A^T = B^T column by column, where A^T is what lies there.
  void solveTriangle(const T *a, T *x, bool upper, bool unit) const {
    Lapack<T>::applyTriangle(d.kind != LinearAlgebraKind::TriangularProduct,
                             {/*left=*/d.right, !upper, d.transposed, unit}, d.right ? n : width,
                             d.right ? width : n, a, x);
  }

  /// The rows exchanged in turn, or back. Numbers come from outside: one of no row says so.
  bool exchange(const int64_t *exchanges, T *x, bool isBack) const {
    bool isLegal = std::all_of(exchanges, exchanges + n,
                               [&](int64_t place) { return place >= 0 && place < n; });
    for (int64_t turn = 0; isLegal && turn < n; ++turn) {
      int64_t i = isBack ? n - 1 - turn : turn;
      T *row = x + i * width, *other = x + exchanges[i] * width;
      if (row != other)
        std::swap_ranges(row, row + width, other);
    }
    return isLegal;
  }

  /// By LU factors and their exchanges, or by a triangle.
  void solveInPlace(const T *a, const int64_t *exchanges, T *x) const {
    if (!exchanges)
      return solveTriangle(a, x, d.upper, d.unit);
    bool isLegal = true;
    if (!d.transposed)
      isLegal = exchange(exchanges, x, /*isBack=*/false);
    for (bool upper : {d.transposed, !d.transposed})
      solveTriangle(a, x, upper, /*unit=*/!upper);
    if (d.transposed)
      isLegal = exchange(exchanges, x, /*isBack=*/true);
    if (!isLegal)
      fillWithNaN(x, d.rows * width);
  }

  void solve(const Memory &own, const S *a, const int64_t *exchanges, const S *b, S *result) const {
    int64_t sides = d.rows * width;
    if constexpr (std::is_same_v<S, T>) {
      if (b != result)
        copy(b, sides, result);
      solveInPlace(a, exchanges, result);
    } else {
      copy(a, d.rows * d.columns, own.a);
      copy(b, sides, own.other);
      solveInPlace(own.a, exchanges, own.other);
      copy(own.other, sides, result);
    }
  }

  const LinearAlgebraDescriptor d;
  const int slots, m, n, k, width;
  WorkSize work;
  int64_t slotBytes;
};

} // namespace

/// In the types of a call, whose elements may be pairs of these.
template <typename S, typename T>
static std::unique_ptr<LibraryCall> create(const LinearAlgebraDescriptor &d, int threads) {
  if (d.pairs)
    return std::make_unique<LinearAlgebra<std::complex<S>, std::complex<T>>>(d, threads);
  return std::make_unique<LinearAlgebra<S, T>>(d, threads);
}

std::unique_ptr<LibraryCall> libraries::createLinearAlgebra(const LinearAlgebraDescriptor &d,
                                                            int threads) {
  if (d.type == ElementType::F64)
    return create<double, double>(d, threads);
  return d.reference ? create<float, double>(d, threads) : create<float, float>(d, threads);
}
