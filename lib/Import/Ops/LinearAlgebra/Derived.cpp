//===- Derived.cpp - ranks, conditions and roots -------------- -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What PyTorch computes from the decompositions: ranks, condition numbers, norms by singular values,
// least squares, square roots and polar decompositions.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/OpTable.h"
#include "memopt/Import/Ops/LinearAlgebra/Matrices.h"
#include "memopt/Import/Ops/Reductions/Reductions.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::memopt::ReduceKind;

//===----------------------------------------------------------------------===//
// Tolerances
//===----------------------------------------------------------------------===//

namespace {
/// Up to where a singular value counts as none: a number, or one for each matrix.
struct Tolerance {
  std::optional<Element> matrices;
  std::optional<double> number;
  bool isGiven() const { return matrices || number; }
};
} // namespace

static Expected<Tolerance> getTolerance(OpContext &op, StringRef name, Element values) {
  if (!op.hasParameter(name) || !op.has(name))
    return Tolerance();
  if (!op.isTensor(name))
    return Tolerance{std::nullopt, op.number(name)};
  DType type = op.tensor(op.hasParameter("input") ? "input" : "self").dtype;
  Tensor tensor = castTo(op, op.tensor(name), type);
  int64_t count = tensor.getNumElements();
  if (count != 1 && count != sizesOf(values)[0])
    return op.error("argument '" + name + "': expected a number or one for each matrix");
  ASSIGN_OR_RETURN(tensor, reshape(op, tensor, {count, 1, 1}));
  return Tolerance{Element(op.b, op.get(tensor)), std::nullopt};
}

/// The larger of atol and rtol times the largest singular value. Without rtol that is what rounding
/// leaves, or nothing where there is an atol.
static Expected<Element> findLimit(OpContext &op, Element values, int64_t most, StringRef absolute,
                                   StringRef relative, bool defaultsToRounding = true) {
  ASSIGN_OR_RETURN(Tolerance atol, getTolerance(op, absolute, values));
  ASSIGN_OR_RETURN(Tolerance rtol, getTolerance(op, relative, values));
  bool isDouble = mlir::getElementTypeOrSelf(values.getType()).isF64();
  double rounding = (isDouble ? 0x1p-52 : 0x1p-23) * double(most);
  Element top = largest(values, 2), none = top.like(0);
  Element least = atol.matrices ? over(*atol.matrices, top) : none + atol.number.value_or(0);
  Element share = rtol.matrices ? over(*rtol.matrices, top) : none + rtol.number.value_or(0);
  if (!rtol.isGiven() && defaultsToRounding)
    share = select(greater(least, 0), 0.0, top.like(rounding));
  return over(largerOf(least, top * share), values);
}

/// The names of the parameters of a row with these tolerances.
static std::pair<StringRef, StringRef> nameTolerances(OpContext &op) {
  if (op.hasParameter("rcond"))
    return {"", "rcond"};
  return op.hasParameter("tol") ? std::pair<StringRef, StringRef>("tol", "")
                                : std::pair<StringRef, StringRef>("atol", "rtol");
}

static Error lowerRank(OpContext &op) {
  ASSIGN_OR_RETURN(Element a,
                   getForSingularValues(op, op.hasParameter("input") ? "input" : "self"));
  if (op.flag("hermitian"))
    a = mirrorLower(a);
  Element values = withoutGradient(singularValues(withoutGradient(a)));
  auto [absolute, relative] = nameTolerances(op);
  ASSIGN_OR_RETURN(Element limit, findLimit(op, values, std::max(countRows(a), countColumns(a)),
                                            absolute, relative,
                                            /*defaultsToRounding=*/absolute != "tol"));
  Value counts = convert(op.b, greater(values, limit), DType::Bool, DType::I64);
  return setMatrices(op, 0, total({op.b, counts}, 2));
}

static Error lowerPseudoInverse(OpContext &op) {
  ASSIGN_OR_RETURN(Element a, getForSingularValues(op, "self"));
  bool isSymmetric = op.hasParameter("hermitian") && op.flag("hermitian");
  Element read = isSymmetric ? mirrorLower(a) : a;
  int64_t most = std::max(countRows(a), countColumns(a));
  ASSIGN_OR_RETURN(Element inverse,
                   pseudoInverse(a, read, [&, names = nameTolerances(op)](Element values) {
                     return findLimit(op, values, most, names.first, names.second);
                   }));
  return setMatrices(op, 0, inverse);
}

/// Of matrices of full rank, by reflections; the least of all solutions where there are several.
static Error lowerLeastSquares(OpContext &op) {
  for (size_t place : {1, 2, 3})
    if (op.isUsed(place))
      return op.error("residuals, ranks and singular values are not supported, the solution is");
  Tensor self = op.tensor("self"), right = op.tensor("b");
  bool isVector = right.rank() + 1 == self.rank();
  if (isVector) {
    ASSIGN_OR_RETURN(right, asColumns(op, right));
  }
  ASSIGN_OR_RETURN(auto both, getTogether(op, self, right));
  auto [a, b] = both;
  if (countRows(a) != countRows(b))
    return op.error("expected as many rows on the right, found " + toString(right.sizes));
  RETURN_IF_ERROR(checkRows(op, a, kMostRows, "least squares"));
  bool isTall = countRows(a) >= countColumns(a);
  auto [q, r] = reflect(isTall ? a : turn(a));
  if (isTall)
    return setMatrices(op, 0, solveTriangular(r, product(turn(q), b), /*upper=*/true));
  return setMatrices(op, 0, product(q, solveTriangular(turn(r), b, /*upper=*/false)));
}

//===----------------------------------------------------------------------===//
// Norms
//===----------------------------------------------------------------------===//

/// The norm of matrices by the sums of their columns (1) or rows (infinity), by all elements
/// (Frobenius, no number), or by singular values (2, or "nuc").
static Expected<Element> findNorm(OpContext &op, Element a, std::optional<double> order,
                                  StringRef name) {
  if (name == "nuc" || (order && std::abs(*order) == 2)) {
    RETURN_IF_ERROR(checkRows(op, a, kMostTurned, "the singular values"));
    Element values = singularValues(a);
    if (name == "nuc")
      return total(values, 2);
    return *order > 0 ? largest(values, 2) : total(values, 2, ReduceKind::Min);
  }
  if (name == "fro") {
    Reduction all{a, {1, 2}, /*keep=*/true};
    return Element(op.b, normOf(op, all, 2));
  }
  bool byColumns = order && std::abs(*order) == 1;
  if (!byColumns && !(order && std::isinf(*order)))
    return op.error("expected a norm 'fro', 'nuc', 1, 2, inf or one of these with a minus, found " +
                    (order ? toString(*order) : "'" + name.str() + "'"));
  Element sums = total(abs(a), byColumns ? 1 : 2);
  return total(sums, byColumns ? 2 : 1, *order > 0 ? ReduceKind::Max : ReduceKind::Min);
}

static Error lowerMatrixNorm(OpContext &op, std::optional<double> order, StringRef name,
                             ArrayRef<int64_t> named) {
  DType type = op.resultMeta(0).dtype;
  RETURN_IF_ERROR(op.checkReal(type));
  Tensor self = castTo(op, op.tensor("self"), type);
  SmallVector<int64_t, 2> dims;
  for (int64_t value : named) {
    ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", value, self.rank()));
    dims.push_back(dim);
  }
  if (dims.size() != 2 || self.rank() < 2 || dims[0] == dims[1])
    return op.error("expected the two dimensions of matrices in a tensor of rank " +
                    Twine(self.rank()));
  Shape permutation;
  for (int64_t dim = 0; dim != self.rank(); ++dim)
    if (!is_contained(dims, dim))
      permutation.push_back(dim);
  permutation.append(dims.begin(), dims.end());
  ASSIGN_OR_RETURN(Element a, getMatrices(op, permute(op, self, permutation)));
  ASSIGN_OR_RETURN(Element norm, findNorm(op, a, order, name));
  return setMatrices(op, 0, norm);
}

static Error lowerMatrixNormNumber(OpContext &op) {
  return lowerMatrixNorm(op, op.number("ord"), "", op.integers("dim"));
}
static Error lowerMatrixNormName(OpContext &op) {
  return lowerMatrixNorm(op, std::nullopt, op.text("ord"), op.integers("dim"));
}

/// torch.linalg.norm: of a vector over one dimension or all, of matrices over two.
static Error lowerAnyNorm(OpContext &op, std::optional<double> order, StringRef name) {
  int64_t rank = op.tensor("self").rank();
  bool hasOrder = order || !name.empty();
  bool isVector = op.has("dim") ? op.integers("dim").size() == 1 : !hasOrder || rank == 1;
  if (!isVector && hasOrder)
    return lowerMatrixNorm(op, order, name,
                           op.has("dim") ? op.integers("dim") : ArrayRef<int64_t>{-2, -1});
  if (!name.empty())
    return op.error("the norm '" + name + "' is one of matrices");
  return setVectorNorm(op, "dim", order.value_or(2));
}

static Error lowerAnyNormNumber(OpContext &op) {
  return lowerAnyNorm(op, op.has("ord") ? std::optional(op.number("ord")) : std::nullopt, "");
}
static Error lowerAnyNormName(OpContext &op) {
  return lowerAnyNorm(op, std::nullopt, op.text("ord"));
}

static Error lowerNuclearNorm(OpContext &op) {
  return lowerMatrixNorm(op, std::nullopt, "nuc",
                         op.hasParameter("dim") ? op.integers("dim") : ArrayRef<int64_t>{-2, -1});
}

static Error lowerCondition(OpContext &op, std::optional<double> order, StringRef name) {
  ASSIGN_OR_RETURN(Element a, getMatrices(op, "self"));
  if (order && std::abs(*order) == 2) {
    RETURN_IF_ERROR(checkRows(op, a, kMostTurned, "the singular values"));
    Element values = singularValues(a), most = largest(values, 2);
    Element least = total(values, 2, ReduceKind::Min);
    return setMatrices(op, 0, *order > 0 ? most / least : least / most);
  }
  if (countRows(a) != countColumns(a))
    return op.error("expected square matrices for a norm of this order");
  RETURN_IF_ERROR(checkRows(op, a, kMostRows, "the inverse"));
  ASSIGN_OR_RETURN(Element norm, findNorm(op, a, order, name));
  ASSIGN_OR_RETURN(Element ofInverse, findNorm(op, inverse(a), order, name));
  return setMatrices(op, 0, norm * ofInverse);
}

static Error lowerConditionNumber(OpContext &op) {
  return lowerCondition(op, op.has("p") ? op.number("p") : 2, "");
}
static Error lowerConditionName(OpContext &op) {
  return lowerCondition(op, std::nullopt, op.text("p"));
}

//===----------------------------------------------------------------------===//
// Roots
//===----------------------------------------------------------------------===//

/// The Y with H Y + Y H = X, of H with these eigenvectors and eigenvalues. Sums of roots divide
/// where the gradients of vectors would divide by differences.
static Element divideBySums(Element x, Element vectors, Element values) {
  Element inner = product(turn(vectors), product(x, vectors));
  inner = inner / (over(values, inner) + over(turn(values), inner));
  return product(vectors, product(inner, turn(vectors)));
}

static Error lowerSquareRoot(OpContext &op) {
  ASSIGN_OR_RETURN(Element a, getSquare(op, op.hasParameter("A") ? "A" : "self"));
  RETURN_IF_ERROR(checkRows(op, a, kMostTurned, "the eigenvalues"));
  auto [values, vectors] = eigenvectors(withoutGradient(a));
  Element roots = sqrt(values);
  Element root = product(vectors * over(roots, vectors), turn(vectors));
  root = withBackward(root, a, [&, vectors = vectors](Element reaching) {
    return divideBySums(0.5 * (reaching + turn(reaching)), vectors, roots);
  });
  return setMatrices(op, 0, root);
}

static Error lowerPolar(OpContext &op) {
  ASSIGN_OR_RETURN(Element a, getForSingularValues(op, op.hasParameter("A") ? "A" : "self"));
  auto [left, s, v] = singularVectors(withoutGradient(a));
  Element u = product(left, turn(v)), h = product(v * over(s, v), turn(v));
  Matrices made = withBackward({u, h}, {a}, [&, s = s, v = v](Elements reaching) -> Matrices {
    Element inner = product(turn(u), reaching[0]) - product(reaching[1], h);
    inner = divideBySums(inner, v, s);
    Element result = product(u, reaching[1] + inner - turn(inner));
    if (countRows(u) > countColumns(u)) {
      Element outside = reaching[0] - product(u, product(turn(u), reaching[0]));
      result = result + product(outside, product(v / over(s, v), turn(v)));
    }
    return {result};
  });
  RETURN_IF_ERROR(setMatrices(op, 0, made[0]));
  return setMatrices(op, 1, made[1]);
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerDerivedAlgebra(OpTable &table) {
  table.add("aten.linalg_matrix_rank.default", "Tensor self, float tol, bool hermitian=False",
            lowerRank);
  table.add("aten.linalg_matrix_rank.tol_tensor", "Tensor input, Tensor tol, bool hermitian=False",
            lowerRank);
  table.add("aten.linalg_matrix_rank.atol_rtol_float",
            "Tensor self, float? atol=None, float? rtol=None, bool hermitian=False", lowerRank);
  table.add("aten.linalg_matrix_rank.atol_rtol_tensor",
            "Tensor input, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False", lowerRank);
  table.add("aten.linalg_pinv.default", "Tensor self, float rcond, bool hermitian=False",
            lowerPseudoInverse);
  table.add("aten.linalg_pinv.rcond_tensor", "Tensor self, Tensor rcond, bool hermitian=False",
            lowerPseudoInverse);
  table.add("aten.linalg_pinv.atol_rtol_float",
            "Tensor self, float? atol=None, float? rtol=None, bool hermitian=False",
            lowerPseudoInverse);
  table.add("aten.linalg_pinv.atol_rtol_tensor",
            "Tensor self, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False",
            lowerPseudoInverse);
  table.add("aten.pinverse.default", "Tensor self, float rcond=1e-15", lowerPseudoInverse);
  table.add("aten.linalg_lstsq.default",
            "Tensor self, Tensor b, float? rcond=None, str? driver=None", lowerLeastSquares);
  table.add("aten.linalg_norm.default",
            "Tensor self, Scalar? ord=None, int[]? dim=None, bool keepdim=False, "
            "dtype? dtype=None",
            lowerAnyNormNumber);
  table.add("aten.linalg_norm.ord_str",
            "Tensor self, str ord, int[]? dim=None, bool keepdim=False, dtype? dtype=None",
            lowerAnyNormName);
  table.add("aten.linalg_matrix_norm.default",
            "Tensor self, Scalar ord, int[] dim=[-2 -1], bool keepdim=False, dtype? dtype=None",
            lowerMatrixNormNumber);
  table.add("aten.linalg_matrix_norm.str_ord",
            "Tensor self, str ord='fro', int[] dim=[-2 -1], bool keepdim=False, "
            "dtype? dtype=None",
            lowerMatrixNormName);
  table.add("aten.nuclear_norm.default", "Tensor self, bool keepdim=False", lowerNuclearNorm);
  table.add("aten.nuclear_norm.dim", "Tensor self, int[] dim, bool keepdim=False",
            lowerNuclearNorm);
  table.add("aten.linalg_cond.default", "Tensor self, Scalar? p=None", lowerConditionNumber);
  table.add("aten.linalg_cond.p_str", "Tensor self, str p", lowerConditionName);
  table.add("aten.linalg_matrix_sqrth.default", "Tensor self", lowerSquareRoot);
  table.add("aten.linalg_polar.default", "Tensor A", lowerPolar);
}
