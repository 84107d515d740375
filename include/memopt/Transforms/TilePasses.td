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

def TileTokensPass : Pass<"memopt-tile-tokens", "::mlir::ModuleOp"> {
  let summary = "Run what is wide for some tokens at a time: the logits of a large vocabulary";
  let description = [{
    A product that makes much more for each token than it reads, and whose result leaves the caches, is written out for
    each tile of tokens, together with all that reads it: losses, their gradients, the products of those. That part of
    the step must be pointwise in tokens but for sums over them; what lies between its ops is part of it, and no
    wide value may leave it. The gradient of a mean loss needs the count of labels alone, which follows from the labels.

    Tiles follow from shapes, and sums are added tile by tile, so that all numbers of `parts` give the same bits. In a
    part of several tiles pointwise ops run once, products and reductions once for each tile.

    With `modules` what runs in modules of these names is cut into `module-parts`, however wide it is. Where the gradient
    of such a module waits for more than its own tokens, its forward pass runs again with its backward pass.

    Error: a pattern that names no module, or a module that mixes tokens.
  }];
  let options = [
    Option<"parts", "parts", "int64_t", "0", "Parts of the tokens; 0: one for each tile, 1: whole">,
    ListOption<"modules", "modules", "std::string", "Modules that run in parts">,
    Option<"moduleParts", "module-parts", "int64_t", "0", "Parts of their tokens; 0: one for each tile">
  ];
  let dependentDialects = ["::mlir::memopt::MemoptDialect", "::mlir::arith::ArithDialect",
                           "::mlir::tensor::TensorDialect"];
}

#endif // MEMOPT_TRANSFORMS_TILEPASSES_TD
