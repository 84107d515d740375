//===- ForeignOps.td - functions that the user gives in C -*- tablegen -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_FOREIGNOPS_TD
#define MEMOPT_DIALECT_FOREIGNOPS_TD

include "memopt/Dialect/KernelOps.td"

def Memopt_ForeignCallOp : Memopt_Instruction<"foreign_call", (ins Variadic<Memopt_Tensor>:$inputs,
      StrAttr:$function, StrAttr:$source, UnitAttr:$elementwise),
    [Pure, Memopt_Recomputable, DeclareOpInterfaceMethods<CostOpInterface, ["getFlops", "getBytesMoved"]>,
     DeclareOpInterfaceMethods<IterationOpInterface, ["getIterationSpace"]>,
     DeclareOpInterfaceMethods<InstructionOpInterface, ["getKindName", "getWork"]>]> {
  let summary = "A call of a function that the user gives in C";
  let description = [{
    `source` is compiled into the program. Its function `function` gets the addresses of the operands, those of the
    results, and then that of the sizes of all their dimensions, in the same order. It writes every element of the
    results, has no other effect, and gives the same results for the same operands: it may run again. With
    `elementwise` all operands and results have one shape, of which the function gets the number of elements alone, and
    an element of the results follows from the same elements of the operands, so that batches may be cut.

    It stands in the training graph, too, and has no gradient: that is another call (`memopt.custom_gradient`).

    Example:
    ```mlir
    %y = memopt.foreign_call "half" (%x) {source = "void half(const float *x, float *y, const int64_t *sizes) {
      for (int64_t i = 0; i < sizes[0]; ++i) y[i] = x[i] / 2; }"} : (tensor<4xf32>) -> tensor<4xf32>
    ```
  }];
  let results = (outs Variadic<Memopt_Tensor>:$results);
  let assemblyFormat = "$function ` ` `(` operands `)` attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

#endif // MEMOPT_DIALECT_FOREIGNOPS_TD
