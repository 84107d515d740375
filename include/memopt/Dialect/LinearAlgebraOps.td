//===- LinearAlgebraOps.td - decompositions of matrices -*- tablegen -*----===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_LINEARALGEBRAOPS_TD
#define MEMOPT_DIALECT_LINEARALGEBRAOPS_TD

include "memopt/Dialect/MemoptBase.td"

def Memopt_LinearAlgebraOp : Memopt_PureOp<"linear_algebra", [Memopt_ComputedInFull]> {
  let summary = "Matrices taken apart, or solved by, one by one";
  let description = [{
    Of f32 or f64 matrices `[batch, rows, columns]`, `k` the smaller of rows and columns:

    | kind | operands | results |
    |---|---|---|
    | `cholesky` | symmetric A, whose lower triangle is read | L with L L^T = A, and zeros above |
    | `eigenvectors` | symmetric A, whose lower triangle is read | eigenvalues `[batch, rows]`, which ascend, and the vectors as columns |
    | `singular_vectors` | A | U `[batch, rows, k]`, S `[batch, k]`, which descend, and V^T `[batch, k, columns]` |
    | `reflections` | A | R above, and below the diagonal the vectors without their heads, which are 1; factors `[batch, k]` |
    | `reflection_product` | such vectors, no fewer rows than columns, and `width` factors `[batch, width]` | the first columns of the product of the reflections |
    | `lu` | A | U above, and below the diagonal L without its ones; the row that each row is exchanged with in turn `[batch, k]`, and the row that each row was `[batch, rows]`, i64 from 0 |
    | `lu_solve` | what `lu` gives of square A: the factors and the exchanges `[batch, rows]`; and B `[batch, rows, width]` | X of A X = B, or with `transposed` of A^T X = B |
    | `triangular_solve` | square A, of which the lower triangle is read, or with `upper` the other, and B `[batch, rows, width]` | X of A X = B, or with `transposed` of A^T X = B. With `unit` A has ones on its diagonal, which is not read. With `right` X of X A = B, or of X A^T = B, where B is `[batch, width, rows]` |
    | `triangular_product` | the same | A B, A^T B, B A or B A^T |

    With `pairs` the matrices are complex: they, right sides and factors have a last dimension of 2 more, for real and imaginary part,
    while eigenvalues and singular values are real. A is Hermitian then where it is symmetric above, `transposed` is conjugated, too,
    and V^T is V^H.

    Signs, pivots and orders are LAPACK's. A matrix that has no Cholesky decomposition, or whose values do not converge, gives NaN,
    and so does one with an element that is not finite, or with an exchange with no row. No gradient comes through: formulas say it (`memopt.custom_gradient`).

    Example: `%values, %vectors = memopt.linear_algebra %a {kind = #memopt.algebra<eigenvectors>} : (tensor<2x8x8xf64>) -> (tensor<2x8xf64>, tensor<2x8x8xf64>)`
  }];
  let arguments = (ins Variadic<Memopt_Tensor>:$inputs, Memopt_LinearAlgebraKindAttr:$kind, UnitAttr:$upper, UnitAttr:$unit,
    UnitAttr:$transposed, UnitAttr:$right, UnitAttr:$pairs);
  let results = (outs Variadic<Memopt_Tensor>:$outputs);
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// What a library is asked to compute for it.
    ::mlir::memopt::LinearAlgebraAttr getCall(::llvm::function_ref<::mlir::InFlightDiagnostic()> emitError);
  }];
}

#endif // MEMOPT_DIALECT_LINEARALGEBRAOPS_TD
