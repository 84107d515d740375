//===- Factors.cpp - P L U by elimination with pivots --------- -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rows are exchanged as LAPACK exchanges them, so that the factors and the numbers of the exchanges
// are those that PyTorch has.
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
struct Exchanged {
  Element both;      ///< L below the diagonal, and U
  Element order;     ///< the row that each row was, [batch, rows, 1] i64
  Element exchanges; ///< [batch, count, 1] i64, from 0
};
struct Factors {
  Element low, up, order, exchanges;
};
} // namespace

/// Rows `at` and `place` exchanged.
static Element exchangeRows(Element a, Element at, Element place) {
  Element row = rowNumbers(a), isAt = equals(row, over(at, a)),
          isPlace = equals(row, over(place, a));
  Element first = total(select(isAt, a, 0.0), 1), second = total(select(isPlace, a, 0.0), 1);
  return select(isAt, over(second, a), select(isPlace, over(first, a), a));
}

static Exchanged eliminateInPlace(Element a, bool pivots) {
  if (pivots && hasLibrary(a)) {
    Matrices found = compute(LinearAlgebraKind::Lu, a);
    return {found[0], numbersAsColumn(found[2]), numbersAsColumn(found[1])};
  }
  int64_t m = countRows(a), count = std::min(m, countColumns(a));
  Element order = take(rowNumbers(a), 2, 0, 1);
  Loop loop = repeat(count, false, {}, {}, {a, order}, [&](const Turn &at) {
    Element a = at.carried[0], order = at.carried[1];
    Element place = over(at.number, take(order, 1, 0, 1));
    if (pivots) {
      Element isColumn = equals(columnNumbers(a), over(at.number, a));
      Element column = total(select(isColumn, a, 0.0), 2), row = rowNumbers(column);
      Element size = select(less(row, over(at.number, row)), -1.0, abs(column));
      Element isBest = equals(size, over(largest(size, 1), size));
      place = total(select(isBest, row, double(m)), 1, ReduceKind::Min);
      a = exchangeRows(a, at.number, place);
      order = exchangeRows(order, at.number, place);
    }
    Element number = over(at.number, a), row = rowNumbers(a), column = columnNumbers(a);
    Element own = total(select(equals(row, number), a, 0.0), 1);
    Element left = total(select(equals(column, number), a, 0.0), 2);
    Element isPivot = equals(columnNumbers(own), over(at.number, own));
    Element pivot = total(select(isPivot, own, 0.0), 2);
    Element factor = left / over(select(equals(pivot, 0), 1.0, pivot), left);
    Element rest =
        select(equals(column, number), over(factor, a), a - over(factor, a) * over(own, a));
    Element isRest = greater(row, number) & greaterOrEqual(column, number);
    return Yields{{select(isRest, rest, a), order}, {place}};
  });
  return {loop.last[0], loop.last[1], fromSlices(loop.made[0])};
}

/// The matrix whose row i is row order[i], as a product with ones and zeros; and the other way.
static Element makePermutation(Element order, Element like) {
  int64_t n = countRows(order);
  Element whole = makeIdentity(like, n, n);
  Element isOwn = equals(over(order, whole), columnNumbers(whole));
  return select(isOwn, whole.like(1), whole.like(0));
}

static Element lowerOf(Element both) {
  int64_t size = std::min(countRows(both), countColumns(both));
  Element low = take(both, 2, 0, size);
  return lowerPart(low, 1) + identityLike(low);
}
static Element upperOf(Element both) {
  return upperPart(take(both, 1, 0, std::min(countRows(both), countColumns(both))));
}

/// L and U of a square matrix whose rows are in their order.
static std::pair<Element, Element> factorSquare(Element a, Element both) {
  Element low = lowerOf(both), up = upperOf(both);
  Matrices made = withBackward({low, up}, {a}, [&](Elements reaching) -> Matrices {
    Element inner =
        lowerPart(product(turn(low), reaching[0]), 1) + upperPart(product(reaching[1], turn(up)));
    inner = solveTriangular(turn(low), inner, /*upper=*/true, /*unit=*/true);
    return {turn(solveTriangular(up, turn(inner), /*upper=*/true))};
  });
  return {made[0], made[1]};
}

static Factors factor(Element a, bool pivots) {
  int64_t m = countRows(a), n = countColumns(a), size = std::min(m, n);
  Exchanged found = eliminateInPlace(a, pivots);
  if (pivots)
    a = product(makePermutation(found.order, a), a);
  auto square = [&](Element x) { return take(take(x, 1, 0, size), 2, 0, size); };
  auto [low, up] = factorSquare(square(a), square(found.both));
  if (m > n) {
    Element below = solveTriangular(turn(up), turn(take(a, 1, n, m - n)), /*upper=*/false);
    low = join(low, turn(below), 1);
  }
  if (m < n)
    up = join(up, solveTriangular(low, take(a, 2, m, n - m), /*upper=*/false, /*unit=*/true), 2);
  return {low, up, found.order, found.exchanges};
}

//===----------------------------------------------------------------------===//
// Factors
//===----------------------------------------------------------------------===//

static Error lowerFactors(OpContext &op) {
  ASSIGN_OR_RETURN(Element a, getMatrices(op, "A"));
  RETURN_IF_ERROR(checkRows(op, a, kMostRows, "the LU decomposition"));
  bool pivots = op.flag("pivot");
  Factors found = factor(a, pivots);
  if (pivots) {
    RETURN_IF_ERROR(setMatrices(op, 0, turn(makePermutation(found.order, a))));
  }
  RETURN_IF_ERROR(setMatrices(op, 1, found.low));
  return setMatrices(op, 2, found.up);
}

static Error setExchanges(OpContext &op, size_t place, Element exchanges) {
  Value numbers = convert(op.b, exchanges + 1, DType::I64, DType::I32);
  return setMatrices(op, place, {op.b, numbers});
}

Error memopt::pt2::setFactors(OpContext &op, size_t place, Element a, bool pivots) {
  if (!op.isUsed(place) && !op.isUsed(place + 1))
    return Error::success();
  int64_t m = countRows(a), n = countColumns(a);
  Factors found = factor(a, pivots);
  Element both = padTo(lowerPart(found.low, 1), m, n) + padTo(found.up, m, n);
  RETURN_IF_ERROR(setMatrices(op, place, both));
  return setExchanges(op, place + 1, found.exchanges);
}

static Error lowerPackedFactors(OpContext &op) {
  ASSIGN_OR_RETURN(Element a, getMatrices(op, op.hasParameter("A") ? "A" : "self"));
  RETURN_IF_ERROR(checkRows(op, a, kMostRows, "the LU decomposition"));
  if (op.getNumResults() > 2)
    setInfo(op, 2);
  return setFactors(op, 0, a, op.flag("pivot"));
}

/// The row that each row was, from the exchanges [.., count] counted from 1.
static Expected<Element> getOrder(OpContext &op, StringRef name, int64_t rows) {
  Tensor pivots = op.tensor(name);
  if (isFloat(pivots.dtype) || pivots.rank() < 1 || pivots.getNumElements() == 0)
    return op.error("argument '" + name + "': expected numbers of rows");
  int64_t count = pivots.sizes.back(), batch = pivots.getNumElements() / count;
  Value numbers = op.get(castTo(op, pivots, DType::I64));
  Element exchanges(op.b, reshapeValue(op.b, numbers, {batch, count, 1}));
  auto type = op.tensorType(DType::I64, {batch, rows, 1});
  Element order(op.b, mlir::memopt::IotaOp::create(op.b, type, 1));
  return repeat(count, false, {}, {asSlices(exchanges - 1)}, {order},
                [](const Turn &at) {
                  return Yields{{exchangeRows(at.carried[0], at.number, asRow(at.slices[0]))}, {}};
                })
      .last[0];
}

static Error lowerUnpack(OpContext &op) {
  ASSIGN_OR_RETURN(Element both, getMatrices(op, "LU_data"));
  if (op.flag("unpack_pivots")) {
    ASSIGN_OR_RETURN(Element order, getOrder(op, "LU_pivots", countRows(both)));
    RETURN_IF_ERROR(setMatrices(op, 0, turn(makePermutation(order, both))));
  }
  if (!op.flag("unpack_data"))
    return Error::success();
  RETURN_IF_ERROR(setMatrices(op, 1, lowerOf(both)));
  return setMatrices(op, 2, upperOf(both));
}

//===----------------------------------------------------------------------===//
// Solves
//===----------------------------------------------------------------------===//

/// X of P L U X = B, or of its transpose.
static Element solveByFactors(Element both, Element order, Element b, bool adjoint) {
  Element permutation = makePermutation(order, b);
  if (adjoint) {
    b = solveTriangular(turn(both), b, /*upper=*/false);
    b = solveTriangular(turn(both), b, /*upper=*/true, /*unit=*/true);
    return product(turn(permutation), b);
  }
  b = solveTriangular(both, product(permutation, b), /*upper=*/false, /*unit=*/true);
  return solveTriangular(both, b, /*upper=*/true);
}

static Error lowerSolveByFactors(OpContext &op, const Tensor &factors, StringRef pivots,
                                 const Tensor &right, bool left, bool adjoint) {
  ASSIGN_OR_RETURN(auto operands, getTogether(op, factors, right));
  auto [both, b] = operands;
  if (countRows(both) != countColumns(both) ||
      countRows(both) != (left ? countRows(b) : countColumns(b)))
    return op.error("expected a square matrix and rows that fit it");
  RETURN_IF_ERROR(checkRows(op, both, kMostRows, "a solve"));
  ASSIGN_OR_RETURN(Element order, getOrder(op, pivots, countRows(both)));
  Shape batch{sizesOf(b)[0], countRows(order), 1};
  if (sizesOf(order)[0] != batch[0] && sizesOf(order)[0] != 1)
    return op.error("factors of another number of matrices are not supported");
  order = Element(op.b, broadcastValue(op.b, order, batch));
  return setMatrices(op, 0,
                     left ? solveByFactors(both, order, b, adjoint)
                          : turn(solveByFactors(both, order, turn(b), !adjoint)));
}

static Error lowerFactorSolve(OpContext &op) {
  return lowerSolveByFactors(op, op.tensor("LU"), "pivots", op.tensor("B"), op.flag("left"),
                             op.flag("adjoint"));
}
static Error lowerOlderFactorSolve(OpContext &op) {
  return lowerSolveByFactors(op, op.tensor("LU_data"), "LU_pivots", op.tensor("self"), true, false);
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerFactors(OpTable &table) {
  table.add("aten.linalg_lu.default", "Tensor A, bool pivot=True", lowerFactors);
  table.add("aten.linalg_lu_factor.default", "Tensor A, bool pivot=True", lowerPackedFactors);
  table.add("aten.linalg_lu_factor_ex.default",
            "Tensor A, bool pivot=True, bool check_errors=False", lowerPackedFactors);
  table.add("aten._lu_with_info.default", "Tensor self, bool pivot=True, bool check_errors=True",
            lowerPackedFactors);
  table.add("aten.lu_unpack.default",
            "Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True",
            lowerUnpack);
  table.add("aten.linalg_lu_solve.default",
            "Tensor LU, Tensor pivots, Tensor B, bool left=True, bool adjoint=False",
            lowerFactorSolve);
  table.add("aten.lu_solve.default", "Tensor self, Tensor LU_data, Tensor LU_pivots",
            lowerOlderFactorSolve);
}
