//===- TestOps.td - ops of nobody's, for tests -*- tablegen -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What somebody outside of the tree would add: the passes meet these ops through interfaces alone.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TEST_LIB_TESTOPS_TD
#define MEMOPT_TEST_LIB_TESTOPS_TD

include "memopt/Conversion/Host/HostInterfaces.td"
include "memopt/Conversion/Targets/TargetCode.td"
include "memopt/Dialect/KernelOps.td"
include "mlir/IR/AttrTypeBase.td"

def Test_Dialect : Dialect {
  let name = "test";
  let cppNamespace = "::memopt_test";
  let dependentDialects = ["::mlir::memopt::MemoptDialect"];
  let useDefaultAttributePrinterParser = 1;
}

def Test_MachineAttr : AttrDef<Test_Dialect, "Machine", [DeclareAttrInterfaceMethods<TargetAttrInterface,
    ["describe", "describeMachine", "getThreads", "getImplementations", "getLeanImplementations", "describeCall",
     "canReadMatrix", "mayWriteOverRows", "getCostFunction"]>]> {
  let mnemonic = "machine";
  let summary = "A machine whose library has three implementations of every call";
  let description = [{
    `roomy` wants 8192 bytes, `tight` 2048 and one and a half times as long, `bare` none and three times as long. An
    operation takes a nanosecond, a byte nothing.
  }];
}

def Test_DeviceAttr : AttrDef<Test_Dialect, "Device", [
    DeclareAttrInterfaceMethods<TargetAttrInterface,
      ["describe", "isDevice", "getImageName", "describeMachine", "getThreads", "getImplementations", "describeCall",
       "canReadMatrix", "mayWriteOverRows", "getCostFunction"]>,
    DeclareAttrInterfaceMethods<TargetCodeAttrInterface, ["getKernelOptions", "convertKernels", "emitText", "writeImage"]>]> {
  let mnemonic = "device";
  let summary = "A family of GPUs of its own, whose kernels become text";
  let description = [{ `units` are its multiprocessors. It has no libraries, so it computes no library call. }];
  let parameters = (ins "int64_t":$units);
  let assemblyFormat = "`<` struct(params) `>`";
}

def Test_RunOp : Op<Test_Dialect, "run", [
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
    DeclareOpInterfaceMethods<RecomputableOpInterface, ["isRecomputable"]>,
    DeclareOpInterfaceMethods<CostOpInterface, ["getFlops"]>,
    DeclareOpInterfaceMethods<InPlaceOpInterface, ["getInPlaceOperands"]>,
    DeclareOpInterfaceMethods<InstructionOpInterface,
      ["getKindName", "getResource", "getWork", "getWorkspaces"]>]> {
  let summary = "An instruction that says what it needs and computes nothing in particular";
  let description = [{
    Takes and gives tensors and tokens, and needs `scratch` bytes on the device for each entry. Result i may be written over operand `in_place[i]`, if that is there
    and not negative; with `pinned` it runs once. Its `flops` take the time of a convolution's where that is its
    `kind`, else of a product's.
  }];
  let arguments = (ins Variadic<AnyType>:$inputs, DefaultValuedStrAttr<StrAttr, "run">:$kind,
    DefaultValuedAttr<I64Attr, "0">:$flops,
    DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$scratch, DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$in_place,
    DefaultValuedAttr<Memopt_ResourceAttr, "::mlir::memopt::Resource::Compute">:$resource, UnitAttr:$pinned,
    DefaultValuedAttr<Memopt_PhaseAttr, "::mlir::memopt::Phase::Forward">:$phase,
    DefaultValuedAttr<I64Attr, "0">:$clone, OptionalAttr<DenseI64ArrayAttr>:$offsets);
  let results = (outs Variadic<AnyType>:$results);
  let assemblyFormat = "`(` operands `)` attr-dict `:` functional-type(operands, results)";
}

def Test_RollOp : Op<Test_Dialect, "roll", [
    Pure, SameOperandsAndResultType, Memopt_Cost, Memopt_Differentiable, Memopt_Iteration, Memopt_Recomputable,
    Memopt_View]> {
  let summary = "A view of its own: rows turned around by so many places";
  let description = [{ Row i of the result is row i - by of the input, modulo the number of rows; 0 < by < rows. }];
  let arguments = (ins Memopt_Tensor:$input, I64Attr:$by);
  let results = (outs Memopt_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input)";
}

def Test_CopyOp : Op<Test_Dialect, "copy", [
    Pure, SameOperandsAndResultType, Memopt_Cost, Memopt_Iteration, Memopt_Recomputable,
    DeclareOpInterfaceMethods<InstructionOpInterface, ["getKindName", "getResource", "getWork"]>,
    DeclareOpInterfaceMethods<HostInstructionOpInterface>]> {
  let summary = "An instruction of its own, in any graph: copies its operand, on the host's time";
  let arguments = (ins Memopt_Tensor:$input,
    DefaultValuedAttr<Memopt_PhaseAttr, "::mlir::memopt::Phase::Forward">:$phase,
    DefaultValuedAttr<I64Attr, "0">:$clone, OptionalAttr<DenseI64ArrayAttr>:$offsets);
  let results = (outs Memopt_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input)";
}

def Test_GlowOp : Op<Test_Dialect, "glow", [
    Pure, SameOperandsAndResultType, Memopt_Cost, Memopt_Elementwise, Memopt_Iteration, Memopt_Recomputable]> {
  let summary = "An activation of its own, which only says that it goes element by element";
  let arguments = (ins Memopt_FloatTensor:$input);
  let results = (outs Memopt_FloatTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input)";
}

def Test_PeakNormOp : Op<Test_Dialect, "peak_norm", [
    Pure, Memopt_Cost, Memopt_Follows, Memopt_HasBatchStatistics, Memopt_HasParameters, Memopt_Iteration,
    Memopt_Recomputable]> {
  let summary = "A norm of its own: divides by the largest element of the batch and scales";
  let description = [{ `input` [N, C], `scale` [C], `peak` a scalar. }];
  let arguments = (ins Memopt_FloatTensor:$input, Memopt_FloatTensor:$scale);
  let results = (outs Memopt_FloatTensor:$result, Memopt_FloatTensor:$peak);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}

def Test_NoiseOp : Op<Test_Dialect, "noise", [
    Pure, Memopt_Cost, Memopt_Draws, Memopt_Iteration, Memopt_Recomputable]> {
  let summary = "Random numbers of its own, like a tensor and numbered from `first` on";
  let arguments = (ins Memopt_FloatTensor:$like, Optional<Memopt_IntTensor>:$first,
    OptionalAttr<DenseI64ArrayAttr>:$strides);
  let results = (outs Memopt_FloatTensor:$result);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}

#endif // MEMOPT_TEST_LIB_TESTOPS_TD
