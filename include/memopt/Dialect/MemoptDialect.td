//===- MemoptDialect.td - dialect, enums and attributes -*- tablegen -*----===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_MEMOPTDIALECT_TD
#define MEMOPT_DIALECT_MEMOPTDIALECT_TD

include "mlir/IR/AttrTypeBase.td"
include "memopt/Interfaces/MemoptEnums.td"
include "mlir/IR/OpBase.td"

def Memopt_Dialect : Dialect {
  let name = "memopt";
  let cppNamespace = "::mlir::memopt";
  let summary = "Training graphs whose memory is planned at compile time";
  let description = [{
    The dialect holds only what upstream has no op for: persistent state, neural-network ops with a
    gradient worth naming, optimizer steps, counter-based random ops, and the kernel graph. Elementwise
    arithmetic is `arith` and `math` on tensors of equal shape, views are `tensor` ops.

    Every tensor has a static shape. In the graph before kernels are formed a value is a mathematical
    tensor; in the kernel graph (ops `memopt.kernel`, `memopt.library_call`, `memopt.read`,
    `memopt.write`) every result is one packed row-major buffer.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect",
                           "::mlir::tensor::TensorDialect", "::mlir::linalg::LinalgDialect"];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let extraClassDeclaration = [{
    /// Discardable attributes. On arguments and results of the step: the name that users know.
    static constexpr llvm::StringLiteral kNameAttr = "memopt.name";
    /// On arguments: which dimension counts samples.
    static constexpr llvm::StringLiteral kBatchDimAttr = "memopt.batch_dim";
    /// On arguments: element type outside when it differs, such as "u8" for i8.
    static constexpr llvm::StringLiteral kDtypeAttr = "memopt.dtype";
    /// On arguments: a dictionary {min, max, ignore, reason} of integers that do not index outside a tensor.
    static constexpr llvm::StringLiteral kValidRangeAttr = "memopt.valid_range";
    /// On the module: dictionaries {module, op, min, max, what}, one for each place where the program checks
    /// indices or divisors while it runs (memopt.check).
    static constexpr llvm::StringLiteral kIndexSitesAttr = "memopt.index_sites";
    /// The variable of role `loss_scale`, by which the backward pass begins.
    static constexpr llvm::StringLiteral kLossScaleName = "loss_scale";
    /// On results: "loss", "prediction" or "output".
    static constexpr llvm::StringLiteral kRoleAttr = "memopt.role";
    /// Before kernels are formed, on clones made by recomputation: the instance number, which also keeps
    /// CSE from merging them. Instructions have an attribute of their own for it.
    static constexpr llvm::StringLiteral kCloneAttr = "memopt.clone";
    /// On ops of the forward pass, with a number for each of their first results: those of activations that may wait for
    /// the backward pass in fewer bits, else -1. The plan of a budget chooses among them.
    static constexpr llvm::StringLiteral kActivationsAttr = "memopt.activations";
    /// Before kernels are formed, on ops that make what an activation waits for the backward pass in.
    static constexpr llvm::StringLiteral kNarrowedAttr = "memopt.narrowed";
    /// On modules: the numbers of activations that a plan would keep in fewer bits.
    static constexpr llvm::StringLiteral kChosenActivationsAttr = "memopt.chosen_activations";
    /// Before kernels are formed, on ops of the backward pass and the optimizer (getPhase, setPhase).
    static constexpr llvm::StringLiteral kPhaseAttr = "memopt.phase";
    /// On arguments of the planned program: the byte offset in the device's arena.
    static constexpr llvm::StringLiteral kOffsetAttr = "memopt.offset";
    /// On the planned module: a PlannedAttr.
    static constexpr llvm::StringLiteral kPlannedAttr = "memopt.planned";
    /// On modules: the machine that they are compiled for, a TargetAttrInterface.
    static constexpr llvm::StringLiteral kTargetAttr = "memopt.target";
    /// On modules whose instructions memopt-schedule has moved: the numbers that these, in their present order, had in
    /// the program's own. Recomputation begins with both.
    static constexpr llvm::StringLiteral kProgramOrderAttr = "memopt.program_order";
    /// On modules: what connects the ranks that they are compiled for, a NetworkAttr.
    static constexpr llvm::StringLiteral kNetworkAttr = "memopt.network";
    /// On modules: what fusing convolutions and batch norms did, a dictionary {fused = [module, ...], refused = {module =
    /// reason, ...}, result_bytes, filter_bytes}.
    static constexpr llvm::StringLiteral kEfficientConvBnEvalAttr = "memopt.efficient_conv_bn_eval";
  }];
}

//===----------------------------------------------------------------------===//
// Enums
//===----------------------------------------------------------------------===//

class Memopt_EnumAttr<EnumAttrInfo info, string mnemonic> : EnumAttr<Memopt_Dialect, info, mnemonic> {
  let assemblyFormat = "`<` $value `>`";
}

def Memopt_RoleAttr : Memopt_EnumAttr<Memopt_Role, "role">;
def Memopt_SpaceAttr : Memopt_EnumAttr<Memopt_Space, "space">;
def Memopt_ResourceAttr : Memopt_EnumAttr<Memopt_Resource, "resource">;
def Memopt_PhaseAttr : Memopt_EnumAttr<Memopt_Phase, "phase">;
def Memopt_LayoutAttr : Memopt_EnumAttr<Memopt_Layout, "layout">;
def Memopt_ReduceKindAttr : Memopt_EnumAttr<Memopt_ReduceKind, "reduce">;
def Memopt_LinearAlgebraKindAttr : Memopt_EnumAttr<Memopt_LinearAlgebraKind, "algebra">;
def Memopt_ResamplingAttr : Memopt_EnumAttr<Memopt_Resampling, "resampling">;
def Memopt_DistributionAttr : Memopt_EnumAttr<Memopt_Distribution, "distribution">;
def Memopt_ScatterKindAttr : Memopt_EnumAttr<Memopt_ScatterKind, "scatter">;
def Memopt_CollectiveKindAttr : Memopt_EnumAttr<Memopt_CollectiveKind, "collective">;

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

def Memopt_ShardAttr : AttrDef<Memopt_Dialect, "Shard"> {
  let mnemonic = "shard";
  let summary = "How a variable is split over data-parallel ranks";
  let description = [{
    Rank `r` of `ranks` holds the r-th of `ranks` equal pieces of a tensor of this shape, flattened in row-major
    order and with zeros behind it (Rajbhandari et al., ZeRO, section 5). What carries the attribute has the type of
    one piece, a vector.

    Small tensors are cut together: then the pieces are those of a unit, a vector in which this tensor's elements begin
    at `first`.
  }];
  let parameters = (ins "int64_t":$ranks, ArrayRefParameter<"int64_t">:$shape, DefaultValuedParameter<"int64_t", "0">:$first);
  let assemblyFormat = "`<` struct($ranks, custom<Numbers>($shape), $first) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Of a tensor of type `whole`, which begins at an element of its unit.
    static ShardAttr getOf(RankedTensorType whole, int64_t ranks, int64_t first = 0) {
      return get(whole.getContext(), ranks, whole.getShape(), first);
    }
    /// The type of the tensor that pieces of type `piece` are of.
    RankedTensorType getWholeType(RankedTensorType piece) const { return piece.clone(getShape()); }
  }];
}

def Memopt_PlannedAttr : AttrDef<Memopt_Dialect, "Planned"> {
  let mnemonic = "planned";
  let summary = "What memory planning found, on the module";
  let description = [{
    By space, in the order device, host, disk: the height of the arena, and a proven bound that no layout of
    the same order of instructions is below.

    Example: `memopt.planned = #memopt.planned<arena_bytes = [1024, 0, 0], lower_bound_bytes = [1000, 0, 0]>`
  }];
  let parameters = (ins ArrayRefParameter<"int64_t">:$arena_bytes, ArrayRefParameter<"int64_t">:$lower_bound_bytes);
  let assemblyFormat = "`<` struct(custom<Numbers>($arena_bytes), custom<Numbers>($lower_bound_bytes)) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    int64_t getArenaBytesOf(Space space) const { return getArenaBytes()[static_cast<size_t>(space)]; }
    int64_t getLowerBoundOf(Space space) const { return getLowerBoundBytes()[static_cast<size_t>(space)]; }
  }];
}

def Memopt_NetworkAttr : AttrDef<Memopt_Dialect, "Network"> {
  let mnemonic = "network";
  let summary = "What connects ranks, on the module";
  let description = [{
    By level, from the inside out (the ranks of a host, the hosts of a rack): members, at most; nanoseconds before a
    message's first byte; bytes a second of one rank in one direction. The last level has no end. Without the attribute
    a collective is predicted as its bytes in memory.

    Example: `memopt.network = #memopt.network<members = [8, 1], latency = [6000, 12000], rate = [400000000000, 45000000000]>`
  }];
  let parameters = (ins ArrayRefParameter<"int64_t">:$members, ArrayRefParameter<"int64_t">:$latency,
    ArrayRefParameter<"int64_t">:$rate);
  let assemblyFormat = "`<` struct(custom<Numbers>($members), custom<Numbers>($latency), custom<Numbers>($rate)) `>`";
  let genVerifyDecl = 1;
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

def Memopt_Token : TypeDef<Memopt_Dialect, "Token"> {
  let mnemonic = "token";
  let summary = "Something in flight, between the instruction that started it and the one that waits";
}

#endif // MEMOPT_DIALECT_MEMOPTDIALECT_TD
