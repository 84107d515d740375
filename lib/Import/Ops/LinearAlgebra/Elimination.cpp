//===- Elimination.cpp - inverses, solves and determinants ---- -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Elimination with pivots: the target's library factors the matrix and solves by the factors. Else a
// loop takes the row with the largest element of a column off all others. Rows stay where they are,
// and their order counts at the end.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/OpTable.h"
#include "memopt/Import/Ops/LinearAlgebra/Matrices.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::memopt::LinearAlgebraKind;
using mlir::memopt::ReduceKind;

//===----------------------------------------------------------------------===//
// Elimination
//===----------------------------------------------------------------------===//

namespace {
struct Eliminated {
  Element inverse;
  Element pivots; ///< [batch, n, 1]
  Element sign;   ///< of their order, [batch, 1, 1]
};
} // namespace

static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// X of A X = B by what a library gives of A, which has NaN where A is singular.
static Element solveByFactors(const Matrices &factors, Element b, bool transposed = false) {
  SolveFlags flags;
  flags.transposed = transposed;
  return compute(LinearAlgebraKind::LuSolve, {factors[0], factors[1], b}, flags)[0];
}

/// The diagonal of U, [batch, n, 1].
static Element pivotsOf(const Matrices &factors) { return turn(diagonalOf(factors[0])); }

/// Factors whose matrix is singular are NaN, so that what is solved by them is, too.
static Matrices markSingular(Matrices factors) {
  Element smallest = total(abs(pivotsOf(factors)), 1, ReduceKind::Min);
  factors[0] = select(over(equals(smallest, 0), factors[0]), kNaN, factors[0]);
  return factors;
}

static Eliminated eliminateByLibrary(Element a) {
  Matrices factors = compute(LinearAlgebraKind::Lu, a);
  Element exchanges = numbersAsColumn(factors[1]), number = rowNumbers(exchanges);
  Element pivots = pivotsOf(factors);
  Element sign = select(equals(exchanges, number), pivots.like(1), pivots.like(-1));
  return {solveByFactors(markSingular(factors), identityLike(a)), pivots,
          total(sign, 1, ReduceKind::Mul)};
}

/// Gauss and Jordan, and a step that corrects the inverse. A pivot of zero divides by one, so that
/// determinants stay numbers; the inverse has NaN then.
static Eliminated eliminate(Element a) {
  if (hasLibrary(a))
    return eliminateByLibrary(a);
  int64_t n = countRows(a);
  Element both = join(a, identityLike(a), 2), used = take(a, 2, 0, 1).like(0);
  Loop loop = repeat(n, false, {}, {}, {both, used}, [&](const Turn &at) {
    Element both = at.carried[0], used = at.carried[1];
    Element isColumn = equals(columnNumbers(both), over(at.number, both));
    Element column = total(select(isColumn, both, 0.0), 2), row = rowNumbers(column);
    Element size = select(greater(used, 0), -1.0, abs(column));
    Element isBest = equals(size, over(largest(size, 1), size));
    Element place = total(select(isBest, row, double(n)), 1, ReduceKind::Min);
    Element isOwn = equals(row, over(place, row)), isOwnRow = over(isOwn, both);
    Element pivot = total(select(isOwn, column, 0.0), 1),
            own = total(select(isOwnRow, both, 0.0), 1);
    own = own / over(select(equals(pivot, 0), 1.0, pivot), own);
    Element next = select(isOwnRow, over(own, both), both - over(column, both) * over(own, both));
    return Yields{{next, select(isOwn, 1.0, used)}, {pivot, place}};
  });
  Element pivots = fromSlices(loop.made[0]), places = fromSlices(loop.made[1]);
  Element numbers = over(places, rowNumbers(a)), isPlace = equals(numbers, columnNumbers(a));
  Element picks = select(isPlace, a.like(1), a.like(0));
  Element inverse = product(picks, take(loop.last[0], 2, n, n));
  inverse = inverse + product(inverse, identityLike(a) - product(a, inverse));
  Element smallest = total(abs(pivots), 1, ReduceKind::Min);
  inverse = select(over(equals(smallest, 0), inverse), kNaN, inverse);
  // By the pairs that are out of order.
  Element isTurned =
      less(over(turn(places), numbers), numbers) & less(rowNumbers(a), columnNumbers(a));
  Element sign = total(select(isTurned, a.like(-1), a.like(1)), {1, 2}, ReduceKind::Mul);
  return {inverse, pivots, sign};
}

Element memopt::pt2::inverse(Element a) {
  Element inverse = eliminate(a).inverse;
  return withBackward(inverse, a, [&](Element reaching) {
    return -product(turn(inverse), product(reaching, turn(inverse)));
  });
}

/// By the factors, also of the transposed matrix, whose solution is the gradient.
static Element solveByLibrary(Element a, Element b) {
  Matrices factors = markSingular(compute(LinearAlgebraKind::Lu, a));
  Element x = solveByFactors(factors, b);
  return withBackward(x, {a, b}, [&](Elements reaching) -> Matrices {
    Element toB = solveByFactors(factors, reaching[0], /*transposed=*/true);
    return {-product(toB, turn(x)), toB};
  })[0];
}

Element memopt::pt2::solve(Element a, Element b) {
  if (hasLibrary(a))
    return solveByLibrary(a, b);
  Element inverse = eliminate(a).inverse;
  auto solve = [](Element a, Element inverse, Element b) {
    Element x = product(inverse, b);
    return x + product(inverse, b - product(a, x));
  };
  Element x = solve(a, inverse, b);
  return withBackward(x, {a, b}, [&](Elements reaching) -> Matrices {
    Element toB = solve(turn(a), turn(inverse), reaching[0]);
    return {-product(toB, turn(x)), toB};
  })[0];
}

//===----------------------------------------------------------------------===//
// Inverses and solves
//===----------------------------------------------------------------------===//

template <StringLiteral const &name> static Error lowerInverse(OpContext &op) {
  ASSIGN_OR_RETURN(Element a, getSquare(op, name));
  RETURN_IF_ERROR(checkRows(op, a, kMostRows, "the inverse"));
  if (op.getNumResults() > 1)
    setInfo(op, 1);
  return setMatrices(op, 0, inverse(a));
}

static Error lowerSolve(OpContext &op) {
  Tensor a = op.tensor("A"), b = op.tensor("B");
  bool left = op.flag("left");
  bool isVector = b.rank() == 1 ||
                  (b.rank() == a.rank() - 1 && ArrayRef(b.sizes) == ArrayRef(a.sizes).drop_back());
  if (isVector) {
    ASSIGN_OR_RETURN(b, asColumns(op, b));
  }
  ASSIGN_OR_RETURN(auto both, getTogether(op, a, b));
  auto [matrix, right] = both;
  bool isLeft = left || isVector;
  if (countRows(matrix) != countColumns(matrix) ||
      countRows(matrix) != (isLeft ? countRows(right) : countColumns(right)))
    return op.error("expected a square matrix and rows that fit it, found " + toString(a.sizes) +
                    " and " + toString(b.sizes));
  RETURN_IF_ERROR(checkRows(op, matrix, kMostRows, "a solve"));
  if (op.getNumResults() > 1)
    setInfo(op, op.getNumResults() - 1);
  if (op.getNumResults() > 2) {
    RETURN_IF_ERROR(setFactors(op, 1, isLeft ? matrix : turn(matrix)));
  }
  return setMatrices(op, 0, isLeft ? solve(matrix, right) : turn(solve(turn(matrix), turn(right))));
}

/// Tensors as the matrices of their first `ind` dimensions by the others.
static Error lowerTensorInverse(OpContext &op) {
  Tensor self = op.tensor("self");
  int64_t ind = op.integer("ind"), rows = 1;
  if (ind < 1 || ind >= self.rank())
    return op.error("argument 'ind': expected a number of dimensions, found " + Twine(ind));
  for (int64_t size : ArrayRef(self.sizes).take_front(ind))
    rows *= size;
  if (rows * rows != self.getNumElements())
    return op.error("expected a square matrix, found " + toString(self.sizes));
  ASSIGN_OR_RETURN(Tensor square, reshape(op, self, {rows, rows}));
  ASSIGN_OR_RETURN(Element a, getMatrices(op, square));
  RETURN_IF_ERROR(checkRows(op, a, kMostRows, "the inverse"));
  return setMatrices(op, 0, inverse(a));
}

static Error lowerTensorSolve(OpContext &op) {
  Tensor self = op.tensor("self"), other = op.tensor("other");
  int64_t rows = other.getNumElements(), rank = self.rank();
  if (rows * rows != self.getNumElements())
    return op.error("a system that is not square (" + toString(self.sizes) + " and " +
                    toString(other.sizes) + ") is not supported");
  if (op.has("dims")) { // to the end, in their order
    Shape order, moved;
    for (int64_t value : op.integers("dims")) {
      ASSIGN_OR_RETURN(int64_t dim, op.dimension("dims", value, rank));
      moved.push_back(dim);
    }
    for (int64_t dim = 0; dim != rank; ++dim)
      if (!is_contained(moved, dim))
        order.push_back(dim);
    order.append(moved);
    if (int64_t(order.size()) != rank)
      return op.error("argument 'dims' names a dimension twice");
    self = permute(op, self, order);
  }
  ASSIGN_OR_RETURN(Tensor square, reshape(op, self, {rows, rows}));
  ASSIGN_OR_RETURN(Tensor column, reshape(op, other, {rows, 1}));
  ASSIGN_OR_RETURN(Element a, getMatrices(op, square));
  ASSIGN_OR_RETURN(Element b, getMatrices(op, column));
  RETURN_IF_ERROR(checkRows(op, a, kMostRows, "a solve"));
  return setMatrices(op, 0, solve(a, b));
}

//===----------------------------------------------------------------------===//
// Determinants
//===----------------------------------------------------------------------===//

static Expected<Element> getForDeterminant(OpContext &op) {
  ASSIGN_OR_RETURN(Element a, getSquare(op, op.hasParameter("A") ? "A" : "self"));
  RETURN_IF_ERROR(checkRows(op, a, kMostRows, "the determinant"));
  return a;
}

static Error lowerDeterminant(OpContext &op) {
  ASSIGN_OR_RETURN(Element a, getForDeterminant(op));
  Eliminated found = eliminate(a);
  Element value = total(found.pivots, 1, ReduceKind::Mul) * found.sign;
  value = withBackward(value, a, [&](Element reaching) {
    Element factor = over(reaching * value, a);
    return select(equals(factor, 0), 0.0, factor * turn(found.inverse));
  });
  if (op.getNumResults() > 1) {
    RETURN_IF_ERROR(setFactors(op, 1, a));
  }
  return setMatrices(op, 0, value);
}

/// The sign, and the logarithm of the magnitude.
static std::pair<Element, Element> signAndLogarithm(Element a) {
  Eliminated found = eliminate(a);
  Element sign = total(signOf(found.pivots), 1, ReduceKind::Mul) * found.sign;
  Element size = total(log(abs(found.pivots)), 1);
  size = withBackward(size, a,
                      [&](Element reaching) { return over(reaching, a) * turn(found.inverse); });
  return {withoutGradient(sign), size};
}

static Error lowerSignAndLogarithm(OpContext &op) {
  ASSIGN_OR_RETURN(Element a, getForDeterminant(op));
  auto [sign, size] = signAndLogarithm(a);
  RETURN_IF_ERROR(setMatrices(op, 0, sign));
  if (op.getNumResults() > 2) {
    RETURN_IF_ERROR(setFactors(op, 2, a));
  }
  return setMatrices(op, 1, size);
}

static Error lowerLogDeterminant(OpContext &op) {
  ASSIGN_OR_RETURN(Element a, getForDeterminant(op));
  auto [sign, size] = signAndLogarithm(a);
  return setMatrices(op, 0, select(less(sign, 0), kNaN, size));
}

//===----------------------------------------------------------------------===//
// The exponential
//===----------------------------------------------------------------------===//

/// The series of a matrix that is halved until it is small, squared again as often. Squaring
/// doubles an error, so it is made no smaller than eighteen terms need, as in PyTorch.
static Element exponential(Element a) {
  constexpr int64_t most = 10;
  bool isDouble = mlir::getElementTypeOrSelf(a.getType()).isF64();
  Element norm = withoutGradient(largest(total(abs(a), 2), 1));
  Matrices isAbove;
  Element scale = norm.like(1);
  for (int64_t halvings = 0; halvings != most; ++halvings) {
    isAbove.push_back(greater(norm, (isDouble ? 1.09 : 3.0) * double(1 << halvings)));
    scale = select(isAbove.back(), 0.5 * scale, scale);
  }
  Element x = a * over(scale, a), one = identityLike(a), square = product(x, x);
  Element cube = product(square, x);
  SmallVector<double> factorials{1};
  for (int64_t k = 1; k <= 18; ++k)
    factorials.push_back(factorials.back() * double(k));
  Element result = cube / factorials[18];
  for (int64_t k = 5; k >= 0; --k) {
    Element terms =
        one / factorials[3 * k] + x / factorials[3 * k + 1] + square / factorials[3 * k + 2];
    result = terms + (k == 5 ? result : product(cube, result));
  }
  for (Element again : isAbove)
    result = select(over(again, result), product(result, result), result);
  return result;
}

static Error lowerExponential(OpContext &op) {
  ASSIGN_OR_RETURN(Element a, getSquare(op, "self"));
  return setMatrices(op, 0, exponential(a));
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

static constexpr StringLiteral kA = "A", kSelf = "self";

void memopt::pt2::registerElimination(OpTable &table) {
  table.add("aten.linalg_inv.default", "Tensor A", lowerInverse<kA>);
  table.add("aten.linalg_inv_ex.default", "Tensor A, bool check_errors=False", lowerInverse<kA>);
  table.add("aten.inverse.default", "Tensor self", lowerInverse<kSelf>);
  table.add("aten.linalg_solve.default", "Tensor A, Tensor B, bool left=True", lowerSolve);
  table.add("aten.linalg_solve_ex.default",
            "Tensor A, Tensor B, bool left=True, bool check_errors=False", lowerSolve);
  // What PyTorch's own gradients call, with the factors that these read.
  table.add("aten._linalg_solve_ex.default",
            "Tensor A, Tensor B, bool left=True, bool check_errors=False", lowerSolve);
  table.add("aten._linalg_det.default", "Tensor A", lowerDeterminant);
  table.add("aten._linalg_slogdet.default", "Tensor A", lowerSignAndLogarithm);
  table.add("aten.linalg_tensorinv.default", "Tensor self, int ind=2", lowerTensorInverse);
  table.add("aten.linalg_tensorsolve.default", "Tensor self, Tensor other, int[]? dims=None",
            lowerTensorSolve);
  table.add("aten.linalg_det.default", "Tensor A", lowerDeterminant);
  table.add("aten.det.default", "Tensor self", lowerDeterminant);
  table.add("aten.linalg_slogdet.default", "Tensor A", lowerSignAndLogarithm);
  table.add("aten.slogdet.default", "Tensor self", lowerSignAndLogarithm);
  table.add("aten.logdet.default", "Tensor self", lowerLogDeterminant);
  table.add("aten.linalg_matrix_exp.default", "Tensor self", lowerExponential);
  table.add("aten.matrix_exp.default", "Tensor self", lowerExponential);
}
