//===- ShapeOps.td - broadcasts, transposes, reductions, gathers -*- tablegen -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_SHAPEOPS_TD
#define MEMOPT_DIALECT_SHAPEOPS_TD

include "memopt/Dialect/MemoptBase.td"

def Memopt_BroadcastOp : Memopt_GraphOp<"broadcast", [Memopt_View, Memopt_TiedByAttributes]> {
  let summary = "Repeats a tensor along new or size-1 dimensions";
  let description = [{
    Dimension `i` of the input becomes dimension `dimensions[i]` of the result; the list increases
    strictly. Its size is the result's size there, or 1. Unlike `linalg.broadcast` it has no destination:
    in the graph a value is not yet a buffer.

    Example: `%1 = memopt.broadcast %0 {dimensions = array<i64: 1>} : (tensor<8xf32>) -> tensor<4x8xf32>`
  }];
  let arguments = (ins Memopt_Tensor:$input, DenseI64ArrayAttr:$dimensions);
  let results = (outs Memopt_Tensor:$result);
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Memopt_TransposeOp : Memopt_GraphOp<"transpose", [Memopt_View, Memopt_Tied]> {
  let summary = "Permutes dimensions";
  let description = [{
    Dimension `i` of the result is dimension `permutation[i]` of the input.

    Example: `%1 = memopt.transpose %0 {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>`
  }];
  let arguments = (ins Memopt_Tensor:$input, DenseI64ArrayAttr:$permutation);
  let results = (outs Memopt_Tensor:$result);
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Memopt_ReduceOp : Memopt_GraphOp<"reduce", [Memopt_TiedByAttributes]> {
  let summary = "Combines elements along dimensions, which vanish";
  let description = [{
    Floating-point sums are taken in f32 at least, in an order fixed by the shape alone. `max` and `min`
    give NaN when an element is NaN. The gradient of `max` and `min` is shared equally among ties,
    and among NaNs where there are any.

    Example: `%1 = memopt.reduce %0 {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4x8xf32>) -> tensor<8xf32>`
  }];
  let arguments = (ins Memopt_Tensor:$input, Memopt_ReduceKindAttr:$kind, DenseI64ArrayAttr:$dimensions);
  let results = (outs Memopt_Tensor:$result);
  let hasVerifier = 1;
}

def Memopt_PadOp : Memopt_GraphOp<"pad", [Memopt_View, Memopt_TiedByAttributes]> {
  let summary = "Surrounds a tensor with zeros";
  let description = [{
    `low[i]` zeros before and `high[i]` after dimension `i` (false for booleans). The gradient is the slice.

    Example: `%1 = memopt.pad %0 {low = array<i64: 1>, high = array<i64: 0>} : (tensor<3xf32>) -> tensor<4xf32>`
  }];
  let arguments = (ins Memopt_Tensor:$input, DenseI64ArrayAttr:$low, DenseI64ArrayAttr:$high);
  let results = (outs Memopt_Tensor:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Of IterationOpInterface: what surrounds a dimension is resized like the dimension.
    void resize(::mlir::TypeRange types);
  }];
}

def Memopt_ReverseOp : Memopt_GraphOp<"reverse", [SameOperandsAndResultType, Memopt_View]> {
  let summary = "Turns the order of elements around along dimensions";
  let description = [{
    Example: `%1 = memopt.reverse %0 {dimensions = array<i64: 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>`
  }];
  let arguments = (ins Memopt_Tensor:$input, DenseI64ArrayAttr:$dimensions);
  let results = (outs Memopt_Tensor:$result);
  let hasVerifier = 1;
}

def Memopt_IotaOp : Memopt_PureOp<"iota"> {
  let summary = "Each element is its own index along one dimension";
  let arguments = (ins I64Attr:$dimension);
  let results = (outs Memopt_Tensor:$result);
  let description = [{
    Example: `%0 = memopt.iota {dimension = 1 : i64} : () -> tensor<4x8xi64>`
  }];
  let hasVerifier = 1;
}

def Memopt_CountOp : Memopt_GraphOp<"count", [Memopt_ReadsShapeOnly]> {
  let summary = "The number of elements along dimensions";
  let description = [{
    What a mean over `dimensions` divides by. It stands in the graph as an op, and no constant, because the
    number of samples may still change: another batch size, accumulation over micro-batches. Its operand is not
    read. Lowering makes it the constant that it is by then.

    Example: `%n = memopt.count %x {dimensions = array<i64: 0, 1>} : (tensor<4x8xf32>) -> tensor<f32>`
  }];
  let arguments = (ins Memopt_Tensor:$input, DenseI64ArrayAttr:$dimensions);
  let results = (outs Memopt_FloatTensor:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    int64_t getCount();
  }];
}

def Memopt_EmbeddingOp : Memopt_GraphOp<"embedding", [Memopt_Indexing, Memopt_HasParameters]> {
  let summary = "Picks rows of a table";
  let description = [{
    `result[i..., :] = table[indices[i...], :]`. Indices outside of the table are an error of
    the data, which memopt-check-indices makes harmless. Rows equal to `padding_index` get no gradient.

    Example: `%1 = memopt.embedding %t, %i : (tensor<256x64xf32>, tensor<4x128xi64>) -> tensor<4x128x64xf32>`
  }];
  let arguments = (ins Memopt_FloatTensor:$table, Memopt_IntTensor:$indices, OptionalAttr<I64Attr>:$padding_index);
  let results = (outs Memopt_FloatTensor:$result);
  let hasVerifier = 1;
}

def Memopt_EmbeddingBackwardOp : Memopt_PureOp<"embedding_backward", [Memopt_FillsKernel, Memopt_Indexing]> {
  let summary = "Adds rows into a table of zeros";
  let description = [{
    `result[indices[i...], :] += gradient[i..., :]`, in the order of `i`, so that the bits are fixed. Rows
    whose index lies outside of the table are left out.
  }];
  let arguments = (ins Memopt_FloatTensor:$gradient, Memopt_IntTensor:$indices, OptionalAttr<I64Attr>:$padding_index);
  let results = (outs Memopt_FloatTensor:$result);
  let hasVerifier = 1;
}

#endif // MEMOPT_DIALECT_SHAPEOPS_TD
