//===- MemoptBase.td - what op definitions share -*- tablegen -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_MEMOPTBASE_TD
#define MEMOPT_DIALECT_MEMOPTBASE_TD

include "memopt/Dialect/MemoptDialect.td"
include "memopt/Interfaces/MemoptInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/SymbolInterfaces.td"

def Memopt_Differentiable : DeclareOpInterfaceMethods<DifferentiableOpInterface>;
def Memopt_Cost : DeclareOpInterfaceMethods<CostOpInterface, ["getFlops"]>;
def Memopt_Iteration : DeclareOpInterfaceMethods<IterationOpInterface, ["getIterationSpace"]>;
def Memopt_Indexing : DeclareOpInterfaceMethods<IndexingOpInterface>;
def Memopt_Tied : DeclareOpInterfaceMethods<LayoutOpInterface>;
def Memopt_TiedByAttributes : DeclareOpInterfaceMethods<LayoutOpInterface, ["permuteDimensions"]>;
def Memopt_View : DeclareOpInterfaceMethods<ViewOpInterface>;
def Memopt_Follows : DeclareOpInterfaceMethods<PrecisionOpInterface, ["getFollowedOperands"]>;
def Memopt_Elementwise : DeclareOpInterfaceMethods<PrecisionOpInterface, ["isElementwise"]>;
def Memopt_HasParameters : DeclareOpInterfaceMethods<ParameterOpInterface>;
def Memopt_Draws : DeclareOpInterfaceMethods<DrawOpInterface>;
def Memopt_HasBatchStatistics : DeclareOpInterfaceMethods<BatchStatisticsOpInterface>;
def Memopt_Recomputable : DeclareOpInterfaceMethods<RecomputableOpInterface>;

class Memopt_Op<string mnemonic, list<Trait> traits = []> : Op<Memopt_Dialect, mnemonic, traits>;

/// A pure function of tensors. All print as `memopt.op operands attributes : (types) -> types`.
class Memopt_PureOp<string mnemonic, list<Trait> traits = []>
    : Memopt_Op<mnemonic, [Pure, Memopt_Recomputable, Memopt_Cost, Memopt_Iteration] # traits> {
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}
/// One with a gradient and a batch dimension.
class Memopt_GraphOp<string mnemonic, list<Trait> traits = []>
    : Memopt_PureOp<mnemonic, [Memopt_Differentiable] # traits>;

/// Code generation has loops of its own for it; it is the only op of its kernel that computes, and
/// reads through views.
def Memopt_FillsKernel : NativeOpTrait<"FillsKernel"> { let cppNamespace = "::mlir::OpTrait"; }
/// A library computes it: form-library-calls makes it one call.
def Memopt_ComputedByLibrary : NativeOpTrait<"ComputedByLibrary"> {
  let cppNamespace = "::mlir::OpTrait";
}
/// A library computes it in the type of its operands: form-library-calls makes it one call, and no precision narrows it.
def Memopt_ComputedInFull : NativeOpTrait<"ComputedInFull"> { let cppNamespace = "::mlir::OpTrait"; }
/// Its library reads operands through strides, in whatever order their dimensions lie.
def Memopt_ReadsStrides : NativeOpTrait<"ReadsStrides"> {
  let cppNamespace = "::mlir::OpTrait";
}

/// Of its operands it uses the shapes alone.
def Memopt_ReadsShapeOnly : NativeOpTrait<"ReadsShapeOnly"> {
  let cppNamespace = "::mlir::OpTrait";
}

class Memopt_TensorOf<list<Type> types>
    : Type<And<[StaticShapeTensorOf<types>.predicate, CPred<"::mlir::memopt::hasBoundedShape($_self)">]>,
           StaticShapeTensorOf<types>.summary # " and at most 2^48 elements", "::mlir::TensorType">;
def Memopt_Tensor : Memopt_TensorOf<[F32, F64, BF16, F16, I64, I32, I16, I8, I1]>;
def Memopt_FloatTensor : Memopt_TensorOf<[F32, F64, BF16, F16]>;
def Memopt_IntTensor : Memopt_TensorOf<[I64, I32, I16, I8]>;
def Memopt_BoolTensor : Memopt_TensorOf<[I1]>;

#endif // MEMOPT_DIALECT_MEMOPTBASE_TD
