//===- Reflections.cpp - QR decompositions -------------------- -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Householder's reflections with LAPACK's signs: by the target's library, or each an iteration of a
// loop over the columns.
//
// Products of reflections that the model brings are products of matrices and a solve: with the vectors
// as columns of V, their factors as D, and S the upper triangle of V^T V without its diagonal,
//
//   H_1 ... H_k = I - V (I + D S)^-1 D V^T
//
// (Joffrain and others, Accumulating Householder transformations, revisited, 2006), whatever the
// factors are, zeros among them. Gradients are those of products and solves; none keeps what each
// reflection made.
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
// Reflections
//===----------------------------------------------------------------------===//

namespace {
/// The matrix I - factor v v^T that turns what is below the diagonal of a column into zeros.
struct Reflection {
  Element v, factor; ///< [batch, rows, 1] and [batch, 1, 1]
  Element head;      ///< the element of v on the diagonal, [batch, 1, 1]
};
} // namespace

static Reflection reflectColumn(Element whole, Element number) {
  Element isColumn = equals(columnNumbers(whole), over(number, whole));
  Element column = total(select(isColumn, whole, 0.0), 2), row = rowNumbers(column);
  Element at = over(number, row), below = select(greater(row, at), column, 0.0);
  Element head = total(select(equals(row, at), column, 0.0), 1), rest = total(below * below, 1);
  head = head + copySign(sqrt(head * head + rest), head);
  Element v = select(equals(row, at), over(head, below), below);
  // Where nothing is left to reflect nothing is.
  return {v, select(equals(rest, 0), 0.0, 2 / (rest + head * head)), head};
}

static Element apply(Element v, Element factor, Element to) {
  Element along = total(over(v, to) * to, 1);
  return to - over(v, to) * over(over(factor, along) * along, to);
}

/// Q [rows, columns] and R of a matrix of at least as many rows, without a gradient.
static std::pair<Element, Element> decompose(Element a) {
  if (hasLibrary(a)) {
    Matrices found = compute(LinearAlgebraKind::Reflections, a);
    Element q = compute(LinearAlgebraKind::ReflectionProduct, {found[0], found[1]})[0];
    return {q, upperPart(take(found[0], 1, 0, countColumns(a)))};
  }
  int64_t m = countRows(a), n = countColumns(a), count = std::min(n, m - 1);
  Element both = join(a, makeIdentity(a, m, m), 2);
  if (count)
    both = repeat(count, false, {}, {}, {both}, [&](const Turn &at) {
             Reflection found = reflectColumn(at.carried[0], at.number);
             return Yields{{apply(found.v, found.factor, at.carried[0])}, {}};
           }).last[0];
  Element r = upperPart(take(take(both, 2, 0, n), 1, 0, n));
  return {take(turn(take(both, 2, n, m)), 2, 0, n), r};
}

std::pair<Element, Element> memopt::pt2::reflect(Element a) {
  auto [q, r] = decompose(a);
  Matrices made = withBackward({q, r}, {a}, [&, q = q, r = r](Elements reaching) -> Matrices {
    Element m = product(r, turn(reaching[1])) - product(turn(reaching[0]), q);
    m = mirrorLower(m);
    Element right = turn(reaching[0] + product(q, m));
    return {turn(solveTriangular(r, right, /*upper=*/true))};
  });
  return {made[0], made[1]};
}

/// All Q and R, as many rows as columns or not.
static Error lowerDecomposition(OpContext &op, bool complete) {
  StringRef name = op.hasParameter("A") ? "A" : "self";
  ASSIGN_OR_RETURN(Element a, getMatrices(op, name));
  int64_t m = countRows(a), n = countColumns(a);
  if (complete && m > n)
    return op.error("the complete QR decomposition of a matrix with " + Twine(m) + " rows and " +
                    Twine(n) + " columns is not supported; the reduced one is");
  RETURN_IF_ERROR(checkRows(op, a, kMostRows, "the QR decomposition"));
  auto [q, r] = reflect(take(a, 2, 0, std::min(m, n)));
  if (m < n)
    r = join(r, product(turn(q), take(a, 2, m, n - m)), 2);
  RETURN_IF_ERROR(setMatrices(op, 0, q));
  return setMatrices(op, 1, r);
}

static Error lowerQr(OpContext &op) {
  StringRef mode = op.text("mode");
  if (mode == "r")
    return op.error("the mode 'r' is not supported, 'reduced' is");
  return lowerDecomposition(op, mode == "complete");
}
static Error lowerOlderQr(OpContext &op) { return lowerDecomposition(op, !op.flag("some")); }

//===----------------------------------------------------------------------===//
// Products of reflections
//===----------------------------------------------------------------------===//

/// LAPACK's form: R above, and below the diagonal the vectors by their heads.
static Error lowerPacked(OpContext &op) {
  ASSIGN_OR_RETURN(Element a, getMatrices(op, "self"));
  RETURN_IF_ERROR(checkRows(op, a, kMostRows, "the QR decomposition"));
  if (hasLibrary(a)) {
    Matrices found = compute(LinearAlgebraKind::Reflections, a);
    RETURN_IF_ERROR(setMatrices(op, 0, withoutGradient(found[0])));
    return setMatrices(op, 1, withoutGradient(found[1]));
  }
  int64_t m = countRows(a), n = countColumns(a), size = std::min(m, n);
  Loop loop = repeat(size, false, {}, {}, {a}, [&](const Turn &at) {
    Element whole = at.carried[0], number = over(at.number, whole);
    Reflection found = reflectColumn(whole, at.number);
    Element factor = found.factor * found.head * found.head;
    Element isBelow = greater(rowNumbers(whole), number) & equals(columnNumbers(whole), number);
    Element isVector = isBelow & differs(over(found.factor, whole), 0);
    Element scaled = whole / over(select(equals(found.head, 0), 1.0, found.head), whole);
    Element isRest = lessOrEqual(number, columnNumbers(whole)) & !isBelow;
    Element next = select(isRest, apply(found.v, found.factor, whole), whole);
    return Yields{{select(isVector, scaled, next)}, {factor}};
  });
  RETURN_IF_ERROR(setMatrices(op, 0, withoutGradient(loop.last[0])));
  return setMatrices(op, 1, withoutGradient(fromSlices(loop.made[0])));
}

/// The product of reflections, whose vectors have ones on the diagonal, times a matrix: the first
/// reflection is applied last, or with `reversed` first. `findAcross` gives V^T times that matrix.
static Element multiplyReflections(Element vectors, Element factors, Element to, bool reversed,
                                   function_ref<Element(Element)> findAcross) {
  vectors = take(vectors, 2, 0, countColumns(factors));
  vectors = lowerPart(vectors, 1) + identityLike(vectors);
  Element scales = turn(factors), among = product(turn(vectors), vectors);
  Element unit = over(scales, among) * among, across = findAcross(vectors);
  if (reversed) {
    across = solveTriangular(turn(unit), across, /*upper=*/false, /*unit=*/true);
    return to - product(vectors, over(scales, across) * across);
  }
  across = over(scales, across) * across;
  return to - product(vectors, solveTriangular(unit, across, /*upper=*/true, /*unit=*/true));
}
static Element multiplyReflections(Element vectors, Element factors, Element to, bool reversed) {
  return multiplyReflections(vectors, factors, to, reversed,
                             [&](Element v) { return product(turn(v), to); });
}

/// The vectors, and their factors as rows.
static Expected<std::pair<Element, Element>> getReflections(OpContext &op, StringRef vectors,
                                                            StringRef factors) {
  ASSIGN_OR_RETURN(Element v, getMatrices(op, vectors));
  Tensor tau = op.tensor(factors);
  if (tau.rank() < 1)
    return op.error("argument '" + factors + "': expected a tensor with dimensions");
  Shape row(tau.sizes);
  row.insert(row.end() - 1, 1);
  ASSIGN_OR_RETURN(tau, reshape(op, tau, row));
  ASSIGN_OR_RETURN(Element factor, getMatrices(op, tau));
  if (sizesOf(v)[0] != sizesOf(factor)[0] || countColumns(factor) > countColumns(v) ||
      countColumns(factor) > countRows(v))
    return op.error("expected at most as many factors as vectors");
  RETURN_IF_ERROR(checkRows(op, v, kMostTriangular, "the product of reflections"));
  return std::pair(v, factor);
}

static Error lowerHouseholderProduct(OpContext &op) {
  StringRef vectors = op.hasParameter("tau") ? "input" : "self";
  ASSIGN_OR_RETURN(auto both,
                   getReflections(op, vectors, op.hasParameter("tau") ? "tau" : "input2"));
  auto [v, factor] = both;
  Element start = makeIdentity(v, countRows(v), countColumns(v));
  auto takeRows = [&](Element vectors) { return turn(take(vectors, 1, 0, countColumns(start))); };
  return setMatrices(op, 0, multiplyReflections(v, factor, start, false, takeRows));
}

static Error lowerMultiplication(OpContext &op) {
  ASSIGN_OR_RETURN(auto both, getReflections(op, "self", "input2"));
  auto [v, factor] = both;
  ASSIGN_OR_RETURN(Element to, getMatrices(op, "input3"));
  bool left = op.flag("left"), transpose = op.flag("transpose");
  if (sizesOf(to)[0] != sizesOf(v)[0] || (left ? countRows(to) : countColumns(to)) != countRows(v))
    return op.error("expected matrices that fit the reflections");
  if (left)
    return setMatrices(op, 0, multiplyReflections(v, factor, to, transpose));
  return setMatrices(op, 0, turn(multiplyReflections(v, factor, turn(to), !transpose)));
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerReflections(OpTable &table) {
  table.add("aten.linalg_qr.default", "Tensor A, str mode='reduced'", lowerQr);
  table.add("aten.qr.default", "Tensor self, bool some=True", lowerOlderQr);
  table.add("aten.geqrf.default", "Tensor self", lowerPacked);
  table.add("aten.linalg_householder_product.default", "Tensor input, Tensor tau",
            lowerHouseholderProduct);
  table.add("aten.orgqr.default", "Tensor self, Tensor input2", lowerHouseholderProduct);
  table.add("aten.ormqr.default",
            "Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False",
            lowerMultiplication);
}
