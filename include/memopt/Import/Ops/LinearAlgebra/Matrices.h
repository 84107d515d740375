//===- Matrices.h - formulas over matrices ----------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Words for lowerings about matrices: an Element here is a tensor [batch, rows, columns], whatever
// the number of batch dimensions that the operator was given. Rows [batch, 1, columns], columns
// [batch, rows, 1] and numbers [batch, 1, 1] are matrices, too.
//
// The target's library takes matrices apart (memopt.linear_algebra), or, where it does not, a loop of
// the program (memopt.scan) row by row, so that the graph does not grow with the matrix. No gradient
// goes through either: each decomposition says its own (withBackward).
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_IMPORT_OPS_LINEARALGEBRA_MATRICES_H
#define MEMOPT_IMPORT_OPS_LINEARALGEBRA_MATRICES_H

#include "memopt/Dialect/ApartOps.h"
#include "memopt/Import/Graph/Loops.h"

namespace memopt::pt2 {

using Matrices = llvm::SmallVector<Element>;

//===----------------------------------------------------------------------===//
// Arguments and results
//===----------------------------------------------------------------------===//

/// The matrices of a tensor, all its batch dimensions as one; refuses what is none, and those of no
/// elements.
llvm::Expected<Element> getMatrices(OpContext &op, const Tensor &tensor);
llvm::Expected<Element> getMatrices(OpContext &op, llvm::StringRef parameter);
/// The same of square ones.
llvm::Expected<Element> getSquare(OpContext &op, llvm::StringRef parameter);
/// Matrices whose singular values are asked for; refuses those that are too large for rotations.
llvm::Expected<Element> getForSingularValues(OpContext &op, llvm::StringRef parameter);
/// Vectors as matrices of one column.
llvm::Expected<Tensor> asColumns(OpContext &op, const Tensor &vectors);
/// Two tensors with their batch dimensions broadcast to one another.
llvm::Expected<std::pair<Element, Element>> getTogether(OpContext &op, const Tensor &a,
                                                        const Tensor &b);
/// Result `place` of the operator, in the shape that the file says.
llvm::Error setMatrices(OpContext &op, size_t place, Element value);
/// A result that says whether a solver failed: here that shows in the values, as NaN.
void setInfo(OpContext &op, size_t place);
/// Refuses matrices with more rows (or columns, what is less) than the program's loops are made
/// for, where loops take them apart.
llvm::Error checkRows(OpContext &op, Element a, int64_t most, llvm::StringRef what);

//===----------------------------------------------------------------------===//
// Parts
//===----------------------------------------------------------------------===//

llvm::ArrayRef<int64_t> sizesOf(mlir::Value value);
inline int64_t countRows(Element a) { return sizesOf(a)[1]; }
inline int64_t countColumns(Element a) { return sizesOf(a)[2]; }

/// The number of each element's row (column), i64.
Element rowNumbers(Element like);
Element columnNumbers(Element like);
/// `part` with the sizes of `whole`: a number, a row or a column repeated.
Element over(Element part, Element whole);
Element turn(Element a); ///< transposed
/// What a transposed operand was, and whether it was: products and solves read through it.
std::pair<mlir::Value, bool> readThrough(mlir::Value value);
Element product(Element a, Element b);
/// The same; a column by a row is elementwise code, which becomes part of the kernels around it.
Element outerProduct(Element a, Element b);
/// Ones on the diagonal.
Element identityLike(Element a);
Element makeIdentity(Element like, int64_t rows, int64_t columns);
/// What is on the diagonal and below it, without the `less` uppermost diagonals of that.
Element lowerPart(Element a, int64_t less = 0);
Element upperPart(Element a, int64_t less = 0);
/// The symmetric matrix that has this one's lower triangle.
Element mirrorLower(Element a);
/// The diagonal as a row; and a row as the diagonal of a matrix.
Element diagonalOf(Element a);
Element diagonalMatrix(Element row);
/// Over rows (1), columns (2) or both, which stay with size 1.
Element total(Element a, llvm::ArrayRef<int64_t> dimensions,
              mlir::memopt::ReduceKind kind = mlir::memopt::ReduceKind::Add);
Element largest(Element a, llvm::ArrayRef<int64_t> dimensions);
Element take(Element a, int64_t dimension, int64_t first, int64_t count);
Element join(Element a, Element b, int64_t dimension);
/// Rows of zeros behind the matrix, or columns.
Element padTo(Element a, int64_t rows, int64_t columns);

//===----------------------------------------------------------------------===//
// Library calls
//===----------------------------------------------------------------------===//

/// Whether a library of the module's target takes matrices apart.
bool hasLibrary(Element a);

/// What a solve by a library reads, and whether its matrix stands on the right; and whether matrices
/// are complex, which have a last dimension of two then.
struct SolveFlags {
  bool upper = false, unit = false, transposed = false, right = false, pairs = false;
};
/// The results of memopt.linear_algebra as they are, rows of numbers [batch, n] among them. The last
/// of `inputs` is the second operand of those kinds that have one.
Matrices compute(mlir::memopt::LinearAlgebraKind kind, Elements inputs, SolveFlags flags = {});
/// Numbers [batch, n] as a row or a column.
Element numbersAsRow(Element numbers);
Element numbersAsColumn(Element numbers);

//===----------------------------------------------------------------------===//
// Loops and gradients
//===----------------------------------------------------------------------===//

/// [batch, rows, columns] as slices [rows, batch, columns], one of them as a row, and back.
Element asSlices(Element a);
Element asRow(Element slice);
Element fromSlices(Element slices);

/// `values` with a gradient of their own: from what reaches each of them, what reaches each of the
/// inputs.
Matrices withBackward(Elements values, Elements inputs,
                      llvm::function_ref<Matrices(Elements)> backward);
inline Element withBackward(Element value, Element input,
                            llvm::function_ref<Element(Element)> backward) {
  return withBackward(Elements(value), Elements(input),
                      [&](Elements reaching) -> Matrices { return {backward(reaching[0])}; })[0];
}

//===----------------------------------------------------------------------===//
// Decompositions, with their gradients
//===----------------------------------------------------------------------===//

/// X of A X = B with a triangle A, whose other part is not read; `unit`: nor is its diagonal, which
/// is taken for ones (Triangular.cpp).
Element solveTriangular(Element a, Element b, bool upper, bool unit = false);
/// A B of a triangle A, whose other part is not read where a library multiplies.
Element multiplyTriangle(Element a, Element b, bool upper);
/// The lower factor of a symmetric matrix, of which the lower triangle is read; NaN where it is not
/// positive definite.
Element cholesky(Element a);

/// Elimination with pivots (Elimination.cpp). A singular matrix has NaN for its inverse.
Element inverse(Element a);
Element solve(Element a, Element b);

/// Results `place` and the next: L and U in one matrix, without the ones of L, and the exchanges of
/// rows, counted from 1; what nobody reads is left out (Factors.cpp).
llvm::Error setFactors(OpContext &op, size_t place, Element a, bool pivots = true);

/// Q and R with LAPACK's signs, of at least as many rows as columns (Reflections.cpp).
std::pair<Element, Element> reflect(Element a);

/// By rotations of pairs of columns where no library does it (Rotations.cpp). Eigenvalues [batch, 1, n] ascend; `a` is
/// symmetric, and its lower triangle is read. Without vectors equal eigenvalues have gradients,
/// too.
std::pair<Element, Element> eigenvectors(Element a);
Element eigenvalues(Element a);
/// U, S [batch, 1, n] descending and V of the reduced decomposition.
struct SingularVectors {
  Element u, s, v;
};
SingularVectors singularVectors(Element a);
Element singularValues(Element a);
/// The inverse of what singular values of `read` are above a limit, which follows from them. `read`
/// is `a`, or what is read of it; `a` gets the gradient.
llvm::Expected<Element>
pseudoInverse(Element a, Element read,
              llvm::function_ref<llvm::Expected<Element>(Element)> findLimit);
/// How large the matrices may be, where no library takes them apart, that turn by rotations, that
/// elimination and reflections take apart, and that are triangular or become it.
inline constexpr int64_t kMostTurned = 64, kMostRows = 512, kMostTriangular = 1024;

} // namespace memopt::pt2

#endif // MEMOPT_IMPORT_OPS_LINEARALGEBRA_MATRICES_H
