//===- IndexingOps.td - gathers, scatters, orders and scans -*- tablegen -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ops whose addresses, or whose order of evaluation, come from data. A gather becomes a
// linalg.generic; the others have loops of their own and fill a kernel alone.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_INDEXINGOPS_TD
#define MEMOPT_DIALECT_INDEXINGOPS_TD

include "memopt/Dialect/MemoptBase.td"

//===----------------------------------------------------------------------===//
// Gather and scatter
//===----------------------------------------------------------------------===//

def Memopt_GatherOp : Memopt_GraphOp<"gather", [Memopt_Indexing, Memopt_HasParameters]> {
  let summary = "Elements of a tensor at computed indices";
  let description = [{
    Dimension `indexed[k]` of the source is read at `indices[k]`, each of its other dimensions, in order, at the
    result's coordinate `positions[j]`. An index tensor has the result's rank, and size 1 along dimensions that
    it does not vary in. So with r the result's coordinates and one indexed dimension 0:

        result[r] = source[indices[0][r], r[positions[0]], r[positions[1]], ...]

    The result may be shorter than the source along a position. Undefined for indices outside the source:
    `memopt-check-indices` puts a `memopt.check` in front of what is not proven. The gradient is `memopt.scatter`, or another gather where the
    indices are known and name no element twice.

    Example, rows of a table: `indexed` dimension 0, columns along the result's dimension 2:
    ```mlir
    %1 = memopt.gather %t, %i {indexed = array<i64: 0>, positions = array<i64: 2>}
      : (tensor<256x64xf32>, tensor<4x128x1xi64>) -> tensor<4x128x64xf32>
    ```
  }];
  let arguments = (ins Memopt_Tensor:$source, Variadic<Memopt_IntTensor>:$indices, DenseI64ArrayAttr:$indexed,
    DenseI64ArrayAttr:$positions);
  let results = (outs Memopt_Tensor:$result);
  let hasVerifier = 1;
}

def Memopt_ScatterOp : Memopt_GraphOp<"scatter",
    [Memopt_FillsKernel, Memopt_Indexing, DeclareOpInterfaceMethods<InPlaceOpInterface, ["getInPlaceOperands"]>]> {
  let summary = "A tensor with elements changed at computed indices";
  let description = [{
    `result` is `input` after each element of `updates`, in row-major order, was combined with the element that
    a gather with the same `indices`, `indexed` and `positions` would read for it. `set` overwrites, so that of
    several updates of one element the last stays; sums are taken in the order of the updates, which fixes their
    bits. An update whose index lies outside is left out.

    The result may take `input`'s buffer. An input of zeros is never stored.

    Example, the gradient of the gather above:
    ```mlir
    %0 = memopt.scatter %zeros, %g, %i {kind = #memopt.scatter<add>, indexed = array<i64: 0>, positions = array<i64: 2>}
      : (tensor<256x64xf32>, tensor<4x128x64xf32>, tensor<4x128x1xi64>) -> tensor<256x64xf32>
    ```
  }];
  let arguments = (ins Memopt_Tensor:$input, Memopt_Tensor:$updates, Variadic<Memopt_IntTensor>:$indices,
    Memopt_ScatterKindAttr:$kind, DenseI64ArrayAttr:$indexed, DenseI64ArrayAttr:$positions);
  let results = (outs Memopt_Tensor:$result);
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Orders
//===----------------------------------------------------------------------===//

def Memopt_ArgsortOp : Memopt_PureOp<"argsort", [Memopt_FillsKernel]> {
  let summary = "Positions of the first elements in order";
  let description = [{
    Along `axis`, the positions of the input's elements in ascending (or `descending`) order, as many as the
    result has. Equal elements keep their order. NaN is greater than all numbers, as in PyTorch. The elements
    themselves, and their gradient, are a `memopt.gather`.

    Selection takes no memory beside the result: a heap of the elements wanted (Floyd, Algorithm 245: Treesort 3,
    1964), O(n log k).

    Example: `%i = memopt.argsort %x {axis = 1 : i64, descending} : (tensor<4x50xf32>) -> tensor<4x5xi64>`
  }];
  let arguments = (ins Memopt_Tensor:$input, I64Attr:$axis, UnitAttr:$descending);
  let results = (outs Memopt_IntTensor:$result);
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Scans
//===----------------------------------------------------------------------===//

def Memopt_LinearScanOp : Memopt_GraphOp<"linear_scan", [Memopt_FillsKernel, SameOperandsAndResultType]> {
  let summary = "y[k] = factors[k] * y[k - 1] + terms[k] along an axis";
  let description = [{
    `initial` stands for y[-1]; `reverse` begins at the end. Running sums have factors of 1, running products
    terms of 0 and an initial value of 1. The gradient of a linear recurrence is one in the other direction.

    Example: `%s = memopt.linear_scan %ones, %x {axis = 1 : i64} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>`
  }];
  let arguments = (ins Memopt_Tensor:$factors, Memopt_Tensor:$terms, I64Attr:$axis, UnitAttr:$reverse,
    DefaultValuedAttr<F64Attr, "0.0">:$initial);
  let results = (outs Memopt_Tensor:$result);
  let hasVerifier = 1;
}

def Memopt_LogSumExpScanOp : Memopt_GraphOp<"logsumexp_scan", [Memopt_FillsKernel, SameOperandsAndResultType]> {
  let summary = "y[k] = log(exp(y[k - 1]) + exp(x[k])) along an axis, without overflow";
  let description = [{
    `reverse` begins at the end.

    Example: `%s = memopt.logsumexp_scan %x {axis = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>`
  }];
  let arguments = (ins Memopt_FloatTensor:$input, I64Attr:$axis, UnitAttr:$reverse);
  let results = (outs Memopt_FloatTensor:$result);
  let hasVerifier = 1;
}

def Memopt_ArgextremeScanOp : Memopt_PureOp<"argextreme_scan", [Memopt_FillsKernel]> {
  let summary = "Position of the largest (or smallest) element so far along an axis";
  let description = [{
    `kind` is `max` or `min`. The last of equal elements counts, and the last NaN once there is one, as in
    PyTorch's cummax.

    Example: `%i = memopt.argextreme_scan %x {kind = #memopt.reduce<max>, axis = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xi64>`
  }];
  let arguments = (ins Memopt_Tensor:$input, Memopt_ReduceKindAttr:$kind, I64Attr:$axis);
  let results = (outs Memopt_IntTensor:$result);
  let hasVerifier = 1;
}

#endif // MEMOPT_DIALECT_INDEXINGOPS_TD
