//===- TilePasses.td - a step in parts that are no samples -*- tablegen -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_TILEPASSES_TD
#define MEMOPT_TRANSFORMS_TILEPASSES_TD

include "mlir/Pass/PassBase.td"

def HoistSlicesPass : Pass<"memopt-hoist-slices", "::mlir::func::FuncOp"> {
  let summary = "Cut what logits follow from instead of the logits: logits[:, :-1]";
  let description = [{
    Works on the imported graph. Where a slice of leading dimensions is all that reads what a linear layer makes, also
    through biases, scales, caps and casts, the slice is taken of the layer's input, if that has less than half as many
    elements. The layer computes nothing that is cut off, and nothing copies its result. Each kept element is
    the same sum.

    Remark: bytes of the sliced value before and after.
  }];
  let dependentDialects = ["::mlir::memopt::MemoptDialect", "::mlir::arith::ArithDialect",
                           "::mlir::tensor::TensorDialect"];
}

def PruneElementsPass : Pass<"memopt-prune-elements", "::mlir::ModuleOp"> {
  let summary = "Compute no element that nobody reads or that is zero: few frequencies of a transform";
  let description = [{
    Works on the imported graph. Where slices are all that reads a value, the ops in front of them compute what the slices
    take: a product with a constant matrix of cosines and sines those frequencies alone that the model reads. Where a value
    is zero but for some indices along a dimension, as behind writes into zeros, ops compute the rest, and a product with a
    constant matrix leaves the zeros out of its sums. Both go through elementwise ops, transposes, reshapes and
    concatenations. Dimensions are cut along which some product has half of its iterations, or fewer.

    Refused: zeros times what may be infinite or no number. So only finite constants of the model let zeros through a
    product.

    Remark: multiply-adds of all products before and after.
  }];
  let dependentDialects = ["::mlir::memopt::MemoptDialect", "::mlir::arith::ArithDialect",
                           "::mlir::tensor::TensorDialect"];
}

def PackRowsPass : Pass<"memopt-pack-rows", "::mlir::func::FuncOp"> {
  let summary = "Keep of each expert's rows for the backward pass those that count";
  let description = [{
    Works behind memopt-recompute-elementwise. Values with a row for each token, of which a mask chooses some
    (memopt.fill_rows), wait for the backward pass packed. A mask that holds where a table of choices has some number
    shares no place of the table with the mask of another number: of all experts together as many rows count as the table
    has elements. So the rows of all wait in one buffer, each where its choice stands in the table. They are written there
    in the forward pass, and read from there in the backward pass. Numbers do not change by a bit.

    Values are packed if that takes half of the bytes, or fewer: if there are twice as many experts as a token has
    choices.

    Remark: the number of values, and their bytes before and after.
  }];
  let dependentDialects = ["::mlir::memopt::MemoptDialect", "::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"];
}

def TileTokensPass : Pass<"memopt-tile-tokens", "::mlir::ModuleOp"> {
  let summary = "Process wide values for some tokens at a time: the logits of a large vocabulary";
  let description = [{
    Some products make much more for each token than they read, and their results do not fit in the caches. Such a product
    is written out for each tile of tokens, together with everything that reads its result: losses, their gradients, and
    the products of these. This part of the step must treat each token by itself, except for sums over tokens. Ops
    between two ops of the part belong to it, and no wide value may leave it. Ops join the part whose values nobody else
    needs whole: sums over tokens of what the part makes (gradients of norms and small layers, the loss), and ops in
    front of it that make what it reads out of fewer bytes that nobody keeps for it. The gradient of a mean loss needs only the
    count of labels, which follows from the labels.

    Where the gradient waits for a sum over tokens (a preference loss), the forward and the backward pass of the part are
    tiled each by itself. A tile of the second reads what the same tile of the first has left.

    Tiles follow from shapes, and sums are added tile by tile. So all numbers of `parts` give the same bits. In a part
    with several tiles, pointwise ops run once; products and reductions run once for each tile.

    With `modules` the ops of the modules with these names are cut into `module-parts`, however wide they are. If the
    gradient of such a module waits for other tokens, its forward pass runs again with its backward pass; each is a
    `memopt.scan`, whose carried values are the sums over tokens. The name `all` stands for every product that makes more
    than twice as much as it reads and whose gradient waits, with what is as wide behind it: the MLPs of a transformer.

    Error: a pattern that names no module, or a module that mixes tokens.
  }];
  let options = [
    Option<"parts", "parts", "int64_t", "0", "Parts of the tokens; 0: one for each tile, 1: whole">,
    ListOption<"modules", "modules", "std::string", "Modules that run in parts, or all">,
    Option<"moduleParts", "module-parts", "int64_t", "0", "Parts of their tokens; 0: one for each tile">
  ];
  let dependentDialects = ["::mlir::memopt::MemoptDialect", "::mlir::arith::ArithDialect",
                           "::mlir::tensor::TensorDialect"];
}

#endif // MEMOPT_TRANSFORMS_TILEPASSES_TD
