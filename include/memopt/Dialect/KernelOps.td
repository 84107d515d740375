//===- KernelOps.td - the kernel graph -*- tablegen -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_KERNELOPS_TD
#define MEMOPT_DIALECT_KERNELOPS_TD

include "memopt/Dialect/MemoptBase.td"

def Memopt_KernelOp : Memopt_Op<"kernel", [IsolatedFromAbove, SingleBlock, Pure, Memopt_Recomputable,
    DeclareOpInterfaceMethods<CostOpInterface, ["getFlops", "getBytesMoved"]>,
    DeclareOpInterfaceMethods<InPlaceOpInterface, ["getInPlaceOperands"]>]> {
  let summary = "One generated kernel";
  let description = [{
    The body computes the results from its block arguments, one per operand. It holds `linalg.generic` on
    tensors, view ops (`tensor.extract_slice`, `expand_shape`, `collapse_shape`, `concat`,
    `memopt.transpose`, `memopt.broadcast`, `memopt.pad`), `tensor.empty`, `linalg.fill`, and constants.
    Only operands and results are buffers; a value inside lives in registers and is computed where it is
    read, so a view costs nothing.

    A result may take the buffer of an operand whose every element is read only by the iteration that
    writes the same element; `getInPlaceOperands` says which.
  }];
  let arguments = (ins Variadic<Memopt_Tensor>:$inputs);
  let results = (outs Variadic<Memopt_Tensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::Operation *getYield() { return getBody().front().getTerminator(); }
  }];
}

def Memopt_YieldOp : Memopt_Op<"yield", [Pure, Terminator, HasParent<"KernelOp">]> {
  let summary = "Gives a kernel its results";
  let arguments = (ins Variadic<Memopt_Tensor>:$values);
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
}

def Memopt_LibraryCallOp : Memopt_Op<"library_call", [Pure, Memopt_Recomputable,
    DeclareOpInterfaceMethods<CostOpInterface, ["getFlops", "getBytesMoved", "getWorkspaceBytes"]>]> {
  let summary = "One call of a library";
  let description = [{
    `descriptor` says everything that the call needs (kind, sizes, element strides); the runtime's
    LibraryCalls.h defines it. `operand_offsets[i]` is the element at which the call's view of operand i
    begins, so that slices and transposes cost nothing. `workspace` is the scratch that the library asked
    for; it is planned like a buffer.
  }];
  let arguments = (ins Variadic<Memopt_Tensor>:$inputs, DictionaryAttr:$descriptor,
    DenseI64ArrayAttr:$operand_offsets, I64Attr:$workspace, I64Attr:$flop_count);
  let results = (outs Variadic<Memopt_Tensor>:$results);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

#endif // MEMOPT_DIALECT_KERNELOPS_TD
