//===- MemoptInterfaces.td - contracts between ops and passes -*- tablegen -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rules live on ops, passes only walk: a new op joins a pass by implementing the interface. Upstream
// ops (arith, math, tensor, linalg) get theirs as external models.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_INTERFACES_MEMOPTINTERFACES_TD
#define MEMOPT_INTERFACES_MEMOPTINTERFACES_TD

include "mlir/IR/OpBase.td"

def DifferentiableOpInterface : OpInterface<"DifferentiableOpInterface"> {
  let description = [{
    Reverse-mode differentiation (Griewank and Walther, Evaluating Derivatives, chapter 3). The autodiff
    pass visits ops from the loss backwards and asks each for the gradients of its operands.
  }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    InterfaceMethod<[{
        Builds the ops that map gradients of the results to gradients of the operands, at the builder's
        insertion point, which every operand and result of the op dominates. `resultGradients` has one
        entry per result, null where no gradient flows. `operandGradients` comes with one null entry per
        operand; the rule fills those operands that have a gradient, each of the operand's own type.
        `needed[i]` says whether anybody will use operand i's gradient; work for others may be skipped.
        Fails, with a diagnostic, when the op has no gradient for this use.
      }],
      "::llvm::LogicalResult", "differentiate",
      (ins "::mlir::OpBuilder &":$builder, "::llvm::ArrayRef<::mlir::Value>":$resultGradients,
           "::llvm::ArrayRef<bool>":$needed, "::llvm::MutableArrayRef<::mlir::Value>":$operandGradients)>
  ];
}

def CostOpInterface : OpInterface<"CostOpInterface"> {
  let description = [{ What an op costs, as plain counts; a machine model turns them into seconds. }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    InterfaceMethod<"Floating-point operations of one execution (a multiply-add counts as two).",
      "int64_t", "getFlops", (ins)>,
    InterfaceMethod<"Bytes read from and written to memory by one execution.",
      "int64_t", "getBytesMoved", (ins), "", [{
        return ::mlir::memopt::getOperandAndResultBytes($_op.getOperation());
      }]>,
    InterfaceMethod<"Bytes of scratch memory that one execution needs beside operands and results.",
      "int64_t", "getWorkspaceBytes", (ins), "", [{ return 0; }]>
  ];
}

def BatchDimensionOpInterface : OpInterface<"BatchDimensionOpInterface"> {
  let description = [{
    How a batch dimension travels from operands to results. It serves accumulation, compiling for another
    batch size, and sharding over ranks.
  }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    InterfaceMethod<[{
        `operandDims[i]` is the batch dimension of operand i, or -1 when it has none. Fills
        `resultDims` (one entry per result, -1 for none). Fails when samples would mix, other than by
        a reduction over the batch, which gives -1.
      }],
      "::llvm::LogicalResult", "inferBatchDimensions",
      (ins "::llvm::ArrayRef<int64_t>":$operandDims, "::llvm::MutableArrayRef<int64_t>":$resultDims)>
  ];
}

def RecomputableOpInterface : OpInterface<"RecomputableOpInterface"> {
  let description = [{
    Whether an op may run a second time to get its results back. Updates of running statistics, writes of
    state and reductions across ranks may not.
  }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    InterfaceMethod<"Whether a clone of this op gives the same bits and has no other effect.",
      "bool", "isRecomputable", (ins), "", [{ return ::mlir::isPure($_op.getOperation()); }]>
  ];
}

def InPlaceOpInterface : OpInterface<"InPlaceOpInterface"> {
  let description = [{
    Which result may be written over which operand's buffer: every element of the operand is read for the
    last time before, or by the same iteration that writes, the bytes that replace it.
  }];
  let cppNamespace = "::mlir::memopt";
  let methods = [
    InterfaceMethod<"Numbers of the operands whose buffer result `result` may take.",
      "::llvm::SmallVector<unsigned>", "getInPlaceOperands", (ins "unsigned":$result), "",
      [{ return {}; }]>
  ];
}

#endif // MEMOPT_INTERFACES_MEMOPTINTERFACES_TD
