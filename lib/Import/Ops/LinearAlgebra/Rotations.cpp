//===- Rotations.cpp - eigenvalues and singular values -------- -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The target's library, or else Jacobi's rotations. Each iteration turns all pairs of a pairing of the columns at once, by the
// angle that makes the element between them zero; the pairings of a tournament meet each pair once,
// and some rounds of it (sweeps) converge, quadratically at the end.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/OpTable.h"
#include "memopt/Import/Ops/LinearAlgebra/Matrices.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::memopt::LinearAlgebraKind;
using mlir::memopt::ReduceKind;
using Builder = mlir::ImplicitLocOpBuilder;

//===----------------------------------------------------------------------===//
// Rotations
//===----------------------------------------------------------------------===//

/// For each iteration the partner of each column; one without a partner has itself.
static SmallVector<int64_t> listPartners(int64_t n, int64_t sweeps) {
  SmallVector<int64_t> players = to_vector(seq<int64_t>(0, n + n % 2)), partners;
  int64_t count = players.size();
  for (int64_t round = 0; round != sweeps * (count - 1); ++round) {
    SmallVector<int64_t> partner = to_vector(seq<int64_t>(0, n));
    for (int64_t i = 0; i != count / 2; ++i) {
      int64_t a = players[i], b = players[count - 1 - i];
      if (a < n && b < n) {
        partner[a] = b;
        partner[b] = a;
      }
    }
    partners.append(partner);
    std::rotate(players.begin() + 1, players.end() - 1, players.end());
  }
  return partners;
}

/// The partners as slices of a loop, [turns, 1, n].
static Element makePartners(Element like, int64_t n) {
  Builder &b = like.getBuilder();
  int64_t sweeps = 7 + Log2_64_Ceil(uint64_t(n));
  SmallVector<int64_t> partners = listPartners(n, sweeps);
  auto type = RankedTensorType::get({int64_t(partners.size()) / n, 1, n}, b.getI64Type());
  return {b, mlir::arith::ConstantOp::create(
                 b, mlir::DenseElementsAttr::get(type, ArrayRef<int64_t>(partners)))};
}

/// Of a symmetric matrix the rotation of these pairs, by 45 degrees at most. Both columns of a pair
/// have the same bits of it, or else they would not stay orthogonal where rounding decides.
static Element makeRotation(Element a, Element partners) {
  Element partner = over(partners, a), row = rowNumbers(a), column = columnNumbers(a);
  Element isPartner = equals(row, partner), isOwn = equals(row, column);
  Element values = diagonalOf(a), others = total(select(isPartner, over(turn(values), a), 0.0), 1);
  Element ownNumber = columnNumbers(values), itsPartner = over(partners, values);
  Element isFirst = less(ownNumber, itsPartner), isSecond = less(itsPartner, ownNumber);
  Element gap = select(isFirst, others - values, select(isSecond, values - others, 0.0));
  Element across = total(select(isPartner, a + turn(a), 0.0), 1);
  across = select(isFirst | isSecond, across, 0.0) * copySign(gap.like(1), gap);
  // tan of half the angle whose tan is across / gap
  gap = abs(gap);
  Element scale = largerOf(gap, abs(across));
  scale = select(equals(scale, 0), 1.0, scale);
  Element x = gap / scale, y = across / scale, tangent = y / (x + sqrt(x * x + y * y));
  tangent = select(equals(across, 0), 0.0, tangent);
  Element cosine = 1 / sqrt(1 + tangent * tangent), sine = tangent * cosine;
  sine = select(isFirst, -sine, sine);
  return select(isOwn, over(cosine, a), select(isPartner, over(sine, a), 0.0));
}

/// Where each column goes, so that these values ascend or descend: ones in a matrix.
static Element makeOrder(Element values, bool descending) {
  int64_t n = countColumns(values);
  Builder &b = values.getBuilder();
  Element own(b, broadcastValue(b, values, {sizesOf(values)[0], n, n})), other = turn(own);
  Element before = descending ? greater(other, own) : less(other, own);
  Element ties = equals(other, own) & less(rowNumbers(own), columnNumbers(own));
  auto numbers = RankedTensorType::get(sizesOf(own), b.getI64Type());
  Element one(b, splat(b, numbers, 1.0));
  Element rank = total(select(before | ties, one, one.like(0)), 1); // of each column
  Element isPlace = equals(over(turn(rank), own), columnNumbers(own));
  return select(isPlace, own.like(1), own.like(0));
}

//===----------------------------------------------------------------------===//
// Eigenvalues
//===----------------------------------------------------------------------===//

/// Values that ascend, and vectors; without a gradient.
static std::pair<Element, Element> rotateBoth(Element a) {
  if (hasLibrary(a)) {
    Matrices found = compute(LinearAlgebraKind::Eigenvectors, a);
    return {numbersAsRow(found[0]), found[1]};
  }
  int64_t n = countRows(a);
  a = mirrorLower(a);
  Element vectors = identityLike(a);
  if (n == 1)
    return {a, vectors};
  Element partners = makePartners(a, n);
  Loop loop = repeat(sizesOf(partners)[0], false, {}, {partners}, {a, vectors}, [](const Turn &at) {
    Element rotation = makeRotation(at.carried[0], at.slices[0]);
    Element turned = product(product(turn(rotation), at.carried[0]), rotation);
    return Yields{{turned, product(at.carried[1], rotation)}, {}};
  });
  Element values = diagonalOf(loop.last[0]), order = makeOrder(values, false);
  return {product(values, order), product(loop.last[1], order)};
}

/// What an entry of row i and column j is divided by: value j less value i, and 1 on the diagonal.
static Element makeGaps(Element values) {
  Builder &b = values.getBuilder();
  int64_t n = countColumns(values);
  Element whole(b, broadcastValue(b, values, {sizesOf(values)[0], n, n}));
  return whole - turn(whole) + identityLike(whole);
}

std::pair<Element, Element> memopt::pt2::eigenvectors(Element a) {
  auto [values, vectors] = rotateBoth(a);
  Matrices made =
      withBackward({values, vectors}, {a},
                   [&, values = values, vectors = vectors](Elements reaching) -> Matrices {
                     Element inner = product(turn(vectors), reaching[1]) / makeGaps(values);
                     inner = inner * (1 - identityLike(inner)) + diagonalMatrix(reaching[0]);
                     return {product(product(vectors, inner), turn(vectors))};
                   });
  return {made[0], made[1]};
}

Element memopt::pt2::eigenvalues(Element a) {
  auto [values, vectors] = rotateBoth(a);
  return withBackward(values, a, [&, vectors = vectors](Element reaching) {
    return product(vectors * over(reaching, vectors), turn(vectors));
  });
}

static Expected<Element> getSymmetric(OpContext &op, StringRef name) {
  ASSIGN_OR_RETURN(Element a, getSquare(op, name));
  RETURN_IF_ERROR(checkRows(op, a, kMostTurned, "the eigenvalues"));
  return op.text("UPLO").equals_insensitive("L") ? a : turn(a);
}

static Error lowerEigenvectors(OpContext &op) {
  ASSIGN_OR_RETURN(Element a, getSymmetric(op, op.hasParameter("A") ? "A" : "self"));
  if (!op.isUsed(1))
    return setMatrices(op, 0, eigenvalues(a));
  auto [values, vectors] = eigenvectors(a);
  RETURN_IF_ERROR(setMatrices(op, 0, values));
  return setMatrices(op, 1, vectors);
}

static Error lowerEigenvalues(OpContext &op) {
  ASSIGN_OR_RETURN(Element a, getSymmetric(op, "self"));
  return setMatrices(op, 0, eigenvalues(a));
}

//===----------------------------------------------------------------------===//
// Singular values
//===----------------------------------------------------------------------===//

/// Of at least as many rows as columns, without a gradient.
static SingularVectors rotateColumns(Element a) {
  if (hasLibrary(a)) {
    Matrices found = compute(LinearAlgebraKind::SingularVectors, a);
    return {found[0], numbersAsRow(found[1]), turn(found[2])};
  }
  int64_t n = countColumns(a);
  Element vectors = makeIdentity(a, n, n);
  if (n > 1) {
    Element partners = makePartners(a, n);
    Loop loop =
        repeat(sizesOf(partners)[0], false, {}, {partners}, {a, vectors}, [](const Turn &at) {
          Element rotation =
              makeRotation(product(turn(at.carried[0]), at.carried[0]), at.slices[0]);
          return Yields{{product(at.carried[0], rotation), product(at.carried[1], rotation)}, {}};
        });
    a = loop.last[0];
    vectors = loop.last[1];
  }
  Element sizes = sqrt(total(a * a, 1)), order = makeOrder(sizes, true);
  a = a / over(select(equals(sizes, 0), 1.0, sizes), a);
  return {product(a, order), product(sizes, order), product(vectors, order)};
}

/// The same of any matrix.
static SingularVectors rotate(Element a) {
  if (countRows(a) >= countColumns(a))
    return rotateColumns(a);
  SingularVectors turned = rotateColumns(turn(a));
  return {turned.v, turned.s, turned.u};
}

SingularVectors memopt::pt2::singularVectors(Element a) {
  if (countRows(a) < countColumns(a)) {
    SingularVectors turned = singularVectors(turn(a));
    return {turned.v, turned.s, turned.u};
  }
  auto [u, s, v] = rotateColumns(a);
  Matrices made =
      withBackward({u, s, v}, {a}, [&, u = u, s = s, v = v](Elements reaching) -> Matrices {
        Element gaps = makeGaps(s * s);
        auto skew = [&](Element x) { return (x - turn(x)) / gaps; };
        Element inner = skew(product(turn(u), reaching[0]));
        inner = inner * over(s, inner) + over(turn(s), inner) * skew(product(turn(v), reaching[2]));
        inner = inner * (1 - identityLike(inner)) + diagonalMatrix(reaching[1]);
        Element result = product(u, inner);
        if (countRows(u) > countColumns(u)) {
          Element outside = reaching[0] - product(u, product(turn(u), reaching[0]));
          result = result + outside / over(s, outside);
        }
        return {product(result, turn(v))};
      });
  return {made[0], made[1], made[2]};
}

Element memopt::pt2::singularValues(Element a) {
  auto [u, s, v] = rotate(a);
  return withBackward(s, a, [&, u = u, v = v](Element reaching) {
    return product(u * over(reaching, u), turn(v));
  });
}

Expected<Element> memopt::pt2::pseudoInverse(Element a, Element read,
                                             function_ref<Expected<Element>(Element)> findLimit) {
  auto [u, s, v] = rotate(read);
  ASSIGN_OR_RETURN(Element limit, findLimit(s));
  Element counts = greater(s, limit);
  Element scaled = v * over(select(counts, 1 / select(counts, s, 1.0), 0.0), v);
  Element inverse = product(scaled, turn(u));
  // No singular vectors, which several equal values do not have.
  return withBackward(inverse, a, [&](Element reaching) {
    Element g = turn(reaching), turned = turn(inverse), across = product(g, inverse);
    Element inner = product(across, turned);
    Element rest = product(turned, product(inverse, g - product(across, a)));
    return inner - turn(product(inverse, across)) - product(a, product(inverse, inner)) + rest;
  });
}

/// U, S and V, which `turnsLast` gives transposed.
static Error lowerVectors(OpContext &op, StringRef name, bool full, bool turnsLast) {
  ASSIGN_OR_RETURN(Element a, getForSingularValues(op, name));
  if (!op.isUsed(0) && !op.isUsed(2))
    return setMatrices(op, 1, singularValues(a));
  if (full && countRows(a) != countColumns(a))
    return op.error("singular vectors of no singular value are not supported, as they are "
                    "arbitrary; give it full_matrices=False");
  auto [u, s, v] = singularVectors(a);
  RETURN_IF_ERROR(setMatrices(op, 0, u));
  RETURN_IF_ERROR(setMatrices(op, 1, s));
  return setMatrices(op, 2, turnsLast ? turn(v) : v);
}

static Error lowerSvd(OpContext &op) {
  return lowerVectors(op, "A", op.flag("full_matrices"), /*turnsLast=*/true);
}
static Error lowerOlderSvd(OpContext &op) {
  return lowerVectors(op, "self", !op.flag("some"), /*turnsLast=*/false);
}
static Error lowerSingularValues(OpContext &op) {
  ASSIGN_OR_RETURN(Element a, getForSingularValues(op, "A"));
  return setMatrices(op, 0, singularValues(a));
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerRotations(OpTable &table) {
  table.add("aten.linalg_eigh.default", "Tensor self, str UPLO='L'", lowerEigenvectors);
  table.add("aten._linalg_eigh.default", "Tensor A, str UPLO='L', bool compute_v=True",
            lowerEigenvectors);
  table.add("aten.linalg_eigvalsh.default", "Tensor self, str UPLO='L'", lowerEigenvalues);
  table.add("aten.linalg_svd.default", "Tensor A, bool full_matrices=True, str? driver=None",
            lowerSvd);
  table.add("aten._linalg_svd.default",
            "Tensor A, bool full_matrices=False, bool compute_uv=True, str? driver=None", lowerSvd);
  table.add("aten.svd.default", "Tensor self, bool some=True, bool compute_uv=True", lowerOlderSvd);
  table.add("aten.linalg_svdvals.default", "Tensor A, str? driver=None", lowerSingularValues);
}
