//===- KernelOps.td - the kernel graph -*- tablegen -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_KERNELOPS_TD
#define MEMOPT_DIALECT_KERNELOPS_TD

include "memopt/Dialect/LibraryAttributes.td"
include "memopt/Dialect/MemoptBase.td"

/// An op of the kernel graph. Besides its own arguments it has the attributes of every instruction
/// (InstructionOpInterface).
class Memopt_Instruction<string mnemonic, dag own, list<Trait> traits = []>
    : Memopt_Op<mnemonic, traits> {
  let arguments = !con(own, (ins DefaultValuedAttr<Memopt_PhaseAttr, "::mlir::memopt::Phase::Forward">:$phase,
    DefaultValuedAttr<I64Attr, "0">:$clone, OptionalAttr<DenseI64ArrayAttr>:$offsets));
}

def Memopt_KernelOp : Memopt_Instruction<"kernel", (ins Variadic<Memopt_Tensor>:$inputs),
    [IsolatedFromAbove, SingleBlock, Pure, Memopt_Recomputable,
     DeclareOpInterfaceMethods<CostOpInterface, ["getFlops", "getBytesMoved"]>,
     DeclareOpInterfaceMethods<InstructionOpInterface, ["getKindName", "getResource", "getWork"]>,
     DeclareOpInterfaceMethods<InPlaceOpInterface, ["getInPlaceOperands"]>]> {
  let summary = "One generated kernel";
  let description = [{
    The body computes the results from its block arguments, one per operand. It holds `linalg.generic` on
    tensors, views (ops of ViewOpInterface), `tensor.empty`, `linalg.fill`, and constants. Only operands and
    results are buffers; a value inside lives in registers and is computed where it is read, so a view costs
    nothing.

    A result may take the buffer of an operand whose every element is read only by the iteration that
    writes the same element; `getInPlaceOperands` says which.

    Operands and results lie in one space, that of the device or of the host, and so a kernel runs on the device
    or on the host. The body knows no spaces: its tensors are those of the operands and results as they would be
    on the device.

    Example:
    ```mlir
    %t = memopt.kernel (%in = %x : tensor<4x8xf32>) -> tensor<8x4xf32> {
      %0 = memopt.transpose %in {permutation = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
      memopt.yield %0 : tensor<8x4xf32>
    }
    ```
  }];
  let results = (outs Variadic<Memopt_Tensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "::mlir::TypeRange":$results, "::mlir::ValueRange":$inputs)>];
  let extraClassDeclaration = [{
    ::mlir::Operation *getYield() { return getBody().front().getTerminator(); }
  }];
}

def Memopt_YieldOp : Memopt_Op<"yield", [Pure, Terminator, ParentOneOf<["KernelOp", "RepeatOp", "ScanOp"]>]> {
  let summary = "Gives a kernel or an iteration its results, and ends the body of a repeat";
  let arguments = (ins Variadic<Memopt_Tensor>:$values);
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
  let builders = [OpBuilder<(ins), "">];
}

def Memopt_PackBitsOp : Memopt_Op<"pack_bits", [Pure, HasParent<"KernelOp">]> {
  let summary = "A boolean result of a kernel as bits";
  let description = [{
    Stores eight neighbours of the last dimension in a byte, the first in its lowest bit. Only a kernel's yield reads
    it: inside of a kernel a boolean is a lane of a mask, and no bytes exist.

    Example: `%bits = memopt.pack_bits %mask : (tensor<4x64xi1>) -> tensor<4x8xi8>`
  }];
  let arguments = (ins Memopt_Tensor:$input);
  let results = (outs Memopt_Tensor:$result);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Memopt_UnpackBitsOp : Memopt_Op<"unpack_bits", [Pure, HasParent<"KernelOp">]> {
  let summary = "The booleans of an operand of a kernel that holds bits";
  let description = [{
    What `memopt.pack_bits` stored; its operand is an operand of the kernel.

    Example: `%mask = memopt.unpack_bits %bits : (tensor<4x8xi8>) -> tensor<4x64xi1>`
  }];
  let arguments = (ins Memopt_Tensor:$input);
  let results = (outs Memopt_Tensor:$result);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Memopt_LibraryCallOp : Memopt_Instruction<"library_call", (ins Variadic<Memopt_Tensor>:$inputs,
      LibraryCallAttrInterface:$call, DenseI64ArrayAttr:$operand_offsets, I64Attr:$workspace,
      OptionalAttr<StrAttr>:$implementation, OptionalAttr<F64Attr>:$slowdown, UnitAttr:$flush_denormals,
      OptionalAttr<I64Attr>:$number),
    [Pure, Memopt_Recomputable, DeclareOpInterfaceMethods<CostOpInterface, ["getFlops", "getBytesMoved"]>,
     DeclareOpInterfaceMethods<InstructionOpInterface, ["getKindName", "getWork", "getWorkspaces"]>,
     DeclareOpInterfaceMethods<InPlaceOpInterface, ["getInPlaceOperands"]>,
     DeclareOpInterfaceMethods<ListedOpInterface, ["getListName", "describe"]>]> {
  let summary = "One call of a library";
  let description = [{
    `call` says what is computed. `operand_offsets[i]` is the element at which the call's view of operand i
    begins, so that slices and transposes cost nothing. `workspace` is the scratch, in bytes, that the
    `implementation` asks for; it is planned like a buffer. Where an implementation with less workspace than the
    preferred one was chosen, `slowdown` is its time by that one's, and the runtime keeps to the `workspace`. With
    `flush_denormals` denormal numbers count as zero, as calls that make gradients on a processor have it. In the
    planned program `number` is the call's place in the package's list.

    Example:
    ```mlir
    %c = memopt.library_call #memopt.matmul<m = 4, n = 4, k = 8, a_strides = [8, 1], b_strides = [4, 1],
        c_strides = [4, 1], type = f32, accumulator = f32> (%a, %b) {operand_offsets = array<i64: 0, 0>,
        workspace = 1024 : i64} : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
    ```
  }];
  let results = (outs Variadic<Memopt_Tensor>:$results);
  let assemblyFormat = "$call ` ` `(` operands `)` attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "::mlir::TypeRange":$results, "::mlir::ValueRange":$inputs,
    "LibraryCallAttrInterface":$call, "::llvm::ArrayRef<int64_t>":$operandOffsets,
    "const CallImplementation &":$implementation)>];
}

#endif // MEMOPT_DIALECT_KERNELOPS_TD
