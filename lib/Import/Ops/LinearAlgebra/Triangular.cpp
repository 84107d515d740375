//===- Triangular.cpp - triangular solves and Cholesky -------- -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where no library does it, a triangular solve is a loop over the rows: each, once known, is taken
// off the others. The factor of Cholesky comes row by row, too.
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
using Builder = mlir::ImplicitLocOpBuilder;

//===----------------------------------------------------------------------===//
// Solves
//===----------------------------------------------------------------------===//

/// What a library computes of a triangle and of `b`. That of a transposed `b` is the transposed one of
/// `b` as it lies, with the triangle on its right; so neither is copied to be turned.
static Element computeOfTriangle(LinearAlgebraKind kind, Element a, Element b, bool upper,
                                 bool unit) {
  auto [stored, isTurned] = readThrough(a);
  auto [sides, isRight] = readThrough(b);
  SolveFlags flags{/*upper=*/upper != isTurned, unit, isTurned != isRight, isRight};
  Element x = compute(kind, {{a.getBuilder(), stored}, {b.getBuilder(), sides}}, flags)[0];
  return isRight ? turn(x) : x;
}

Element memopt::pt2::multiplyTriangle(Element a, Element b, bool upper) {
  if (hasLibrary(a))
    return computeOfTriangle(LinearAlgebraKind::TriangularProduct, a, b, upper, /*unit=*/false);
  return product(a, b);
}

/// Without a gradient. A row of the result is what is left of it, by the element on the diagonal.
static Element substitute(Element a, Element b, bool upper, bool unit) {
  if (hasLibrary(a))
    return computeOfTriangle(LinearAlgebraKind::TriangularSolve, a, b, upper, unit);
  Element columns = asSlices(turn(a));
  Loop loop = repeat(countRows(a), /*reverse=*/upper, {}, {columns}, {b}, [&](const Turn &at) {
    Element left = at.carried[0], column = turn(asRow(at.slices[0])), row = rowNumbers(left);
    Element number = over(at.number, left), own = rowNumbers(column);
    Element x = total(select(equals(row, number), left, 0.0), 1);
    if (!unit)
      x = x / over(total(select(equals(own, over(at.number, own)), column, 0.0), 1), x);
    Element isLeft = upper ? less(row, number) : greater(row, number);
    Element next = select(isLeft, left - over(column, left) * over(x, left), left);
    return Yields{{next}, {x}};
  });
  return fromSlices(loop.made[0]);
}

Element memopt::pt2::solveTriangular(Element a, Element b, bool upper, bool unit) {
  Element x = substitute(a, b, upper, unit);
  return withBackward(x, {a, b}, [&](Elements reaching) -> Matrices {
    Element toB = substitute(turn(a), reaching[0], !upper, unit);
    Element toA = -outerProduct(toB, turn(x));
    return {upper ? upperPart(toA, unit) : lowerPart(toA, unit), toB};
  })[0];
}

static Error lowerSolve(OpContext &op, StringRef ofA, StringRef ofB, bool upper, bool left) {
  ASSIGN_OR_RETURN(auto both, getTogether(op, op.tensor(ofA), op.tensor(ofB)));
  auto [a, b] = both;
  bool unit = op.flag("unitriangular");
  if (countRows(a) != countColumns(a) || countRows(a) != (left ? countRows(b) : countColumns(b)))
    return op.error("expected a square matrix and rows that fit it");
  RETURN_IF_ERROR(checkRows(op, a, kMostTriangular, "a triangular solve"));
  return setMatrices(op, 0,
                     left ? solveTriangular(a, b, upper, unit)
                          : turn(solveTriangular(turn(a), turn(b), !upper, unit)));
}

static Error lowerSolveTriangular(OpContext &op) {
  return lowerSolve(op, "self", "B", op.flag("upper"), op.flag("left"));
}

/// The older spelling, which gives its matrix back.
static Error lowerTriangularSolve(OpContext &op) {
  ASSIGN_OR_RETURN(auto both, getTogether(op, op.tensor("A"), op.tensor("self")));
  auto [a, b] = both;
  bool turned = op.flag("transpose"), upper = op.flag("upper") != turned;
  if (countRows(a) != countColumns(a) || countRows(a) != countRows(b))
    return op.error("expected a square matrix and rows that fit it");
  RETURN_IF_ERROR(checkRows(op, a, kMostTriangular, "a triangular solve"));
  if (op.getNumResults() > 1 && op.isUsed(1)) {
    RETURN_IF_ERROR(setMatrices(op, 1, a));
  }
  return setMatrices(op, 0,
                     solveTriangular(turned ? turn(a) : a, b, upper, op.flag("unitriangular")));
}

//===----------------------------------------------------------------------===//
// Cholesky
//===----------------------------------------------------------------------===//

/// The upper factor, without a gradient. One row of it for each turn: that of the matrix which is
/// left, divided by the root of its own element; its products with its elements are taken off the
/// rows. What lies below the diagonal is rounding.
static Element factorRows(Element a) {
  Loop loop = repeat(countRows(a), false, {}, {}, {a}, [](const Turn &at) {
    Element left = at.carried[0], number = over(at.number, left);
    Element row = total(select(equals(rowNumbers(left), number), left, 0.0), 1);
    Element isOwn = equals(columnNumbers(row), over(at.number, row));
    row = row / over(sqrt(total(select(isOwn, row, 0.0), 2)), row);
    return Yields{{left - over(turn(row), left) * over(row, left)}, {row}};
  });
  return fromSlices(loop.made[0]);
}

/// Without a gradient.
static Element factorLower(Element a) {
  if (hasLibrary(a))
    return compute(LinearAlgebraKind::Cholesky, a)[0];
  return turn(upperPart(factorRows(mirrorLower(a))));
}

Element memopt::pt2::cholesky(Element a) {
  Element low = factorLower(a);
  return withBackward(low, a, [&](Element reaching) {
    // Each of these may take the place of the one before: what is symmetric is made so at the end,
    // where kernels read both halves.
    Element inner = multiplyTriangle(turn(low), lowerPart(reaching), /*upper=*/true);
    inner = lowerPart(inner) - 0.5 * inner * identityLike(inner);
    inner = substitute(turn(low), inner, /*upper=*/true, false);
    inner = turn(substitute(turn(low), turn(inner), /*upper=*/true, false));
    return 0.5 * (inner + turn(inner));
  });
}

static Error lowerCholesky(OpContext &op) {
  ASSIGN_OR_RETURN(Element a, getSquare(op, "self"));
  RETURN_IF_ERROR(checkRows(op, a, kMostTriangular, "the Cholesky decomposition"));
  bool upper = op.flag("upper");
  Element low = cholesky(upper ? turn(a) : a);
  if (op.getNumResults() > 1)
    setInfo(op, 1);
  return setMatrices(op, 0, upper ? turn(low) : low);
}

/// X of L L^T X = B. PyTorch's gradient of L is that of a matrix whose both parts are read.
static Element solveByFactor(Element low, Element b) {
  auto solve = [&](Element right) {
    return substitute(turn(low), substitute(low, right, false, false), true, false);
  };
  Element x = solve(b);
  return withBackward(x, {low, b}, [&](Elements reaching) -> Matrices {
    Element toB = solve(reaching[0]);
    // -(d x^T + x d^T) L. With few right sides the rows x^T L come first.
    if (3 * countColumns(x) < countRows(x)) {
      auto part = [&](Element a, Element b) {
        return outerProduct(a, turn(multiplyTriangle(turn(low), b, /*upper=*/true)));
      };
      return {-(part(toB, x) + part(x, toB)), toB};
    }
    Element across = product(toB, turn(x));
    return {-product(across + turn(across), low), toB};
  })[0];
}

static Error lowerCholeskySolve(OpContext &op) {
  ASSIGN_OR_RETURN(auto both, getTogether(op, op.tensor("input2"), op.tensor("self")));
  auto [low, b] = both;
  if (countRows(low) != countColumns(low) || countRows(low) != countRows(b))
    return op.error("expected a square matrix and rows that fit it");
  RETURN_IF_ERROR(checkRows(op, low, kMostTriangular, "a solve"));
  return setMatrices(op, 0, solveByFactor(op.flag("upper") ? turn(low) : low, b));
}

static Error lowerCholeskyInverse(OpContext &op) {
  ASSIGN_OR_RETURN(Element low, getSquare(op, "self"));
  RETURN_IF_ERROR(checkRows(op, low, kMostTriangular, "a solve"));
  low = op.flag("upper") ? turn(low) : low;
  return setMatrices(op, 0, solveByFactor(low, identityLike(low)));
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerTriangularSolves(OpTable &table) {
  table.add("aten.cholesky.default", "Tensor self, bool upper=False", lowerCholesky);
  table.add("aten.linalg_cholesky.default", "Tensor self, bool upper=False", lowerCholesky);
  table.add("aten.linalg_cholesky_ex.default",
            "Tensor self, bool upper=False, bool check_errors=False", lowerCholesky);
  table.add("aten.cholesky_solve.default", "Tensor self, Tensor input2, bool upper=False",
            lowerCholeskySolve);
  table.add("aten.cholesky_inverse.default", "Tensor self, bool upper=False", lowerCholeskyInverse);
  table.add("aten.linalg_solve_triangular.default",
            "Tensor self, Tensor B, bool upper, bool left=True, bool unitriangular=False",
            lowerSolveTriangular);
  table.add(
      "aten.triangular_solve.default",
      "Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False",
      lowerTriangularSolve);
}
