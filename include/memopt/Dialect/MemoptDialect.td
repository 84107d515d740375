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
include "mlir/IR/EnumAttr.td"
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
  let hasOperationAttrVerify = 1;
  let extraClassDeclaration = [{
    /// Discardable attributes. On arguments and results of the step: the name that users know.
    static constexpr llvm::StringLiteral kNameAttr = "memopt.name";
    /// On arguments: which dimension counts samples.
    static constexpr llvm::StringLiteral kBatchDimAttr = "memopt.batch_dim";
    /// On arguments: element type outside when it differs, such as "u8" for i8.
    static constexpr llvm::StringLiteral kDtypeAttr = "memopt.dtype";
    /// On arguments: a dictionary {min, max, ignore, reason} of integers that do not index outside a tensor.
    static constexpr llvm::StringLiteral kValidRangeAttr = "memopt.valid_range";
    /// On results: "loss", "prediction" or "output".
    static constexpr llvm::StringLiteral kRoleAttr = "memopt.role";
    /// On clones made by recomputation: the instance number, which also keeps CSE from merging them.
    static constexpr llvm::StringLiteral kCloneAttr = "memopt.clone";
    /// On ops of the planned program: one byte offset per result, then one for the workspace if any.
    static constexpr llvm::StringLiteral kOffsetsAttr = "memopt.offsets";
    /// On variables and arguments of the planned program: the byte offset.
    static constexpr llvm::StringLiteral kOffsetAttr = "memopt.offset";
    /// On the planned module: height of the device arena, and the proven lower bound of any layout.
    static constexpr llvm::StringLiteral kArenaBytesAttr = "memopt.arena_bytes";
    static constexpr llvm::StringLiteral kLowerBoundAttr = "memopt.lower_bound_bytes";
    /// On ops made by autodiff, the optimizer and so on: "forward", "backward", "optimizer".
    static constexpr llvm::StringLiteral kPhaseAttr = "memopt.phase";
    /// On modules: a dictionary of the machine's rates, which costs are predicted from (CostModel.h).
    static constexpr llvm::StringLiteral kMachineAttr = "memopt.machine";
  }];
}

//===----------------------------------------------------------------------===//
// Enums
//===----------------------------------------------------------------------===//

class Memopt_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::mlir::memopt";
  let genSpecializedAttr = 0;
}
class Memopt_EnumAttr<EnumAttrInfo info, string mnemonic> : EnumAttr<Memopt_Dialect, info, mnemonic> {
  let assemblyFormat = "`<` $value `>`";
}

def Memopt_Role : Memopt_Enum<"Role", "what a variable is for", [
  I32EnumAttrCase<"Parameter", 0, "parameter">, I32EnumAttrCase<"Buffer", 1, "buffer">,
  I32EnumAttrCase<"OptimizerState", 2, "optimizer_state">, I32EnumAttrCase<"Gradient", 3, "gradient">,
  I32EnumAttrCase<"Hyperparameter", 4, "hyperparameter">]>;
def Memopt_RoleAttr : Memopt_EnumAttr<Memopt_Role, "role">;

def Memopt_Space : Memopt_Enum<"Space", "a memory space", [
  I32EnumAttrCase<"Device", 0, "device">, I32EnumAttrCase<"Host", 1, "host">,
  I32EnumAttrCase<"Disk", 2, "disk">]>;
def Memopt_SpaceAttr : Memopt_EnumAttr<Memopt_Space, "space">;

def Memopt_Layout : Memopt_Enum<"Layout", "order of an activation's dimensions", [
  I32EnumAttrCase<"ChannelsFirst", 0, "channels_first">,
  I32EnumAttrCase<"ChannelsLast", 1, "channels_last">]>;
def Memopt_LayoutAttr : Memopt_EnumAttr<Memopt_Layout, "layout">;

def Memopt_ReduceKind : Memopt_Enum<"ReduceKind", "combiner of a reduction", [
  I32EnumAttrCase<"Add", 0, "add">, I32EnumAttrCase<"Mul", 1, "mul">,
  I32EnumAttrCase<"Max", 2, "max">, I32EnumAttrCase<"Min", 3, "min">]>;
def Memopt_ReduceKindAttr : Memopt_EnumAttr<Memopt_ReduceKind, "reduce">;

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

def Memopt_ShardAttr : AttrDef<Memopt_Dialect, "Shard"> {
  let mnemonic = "shard";
  let summary = "How a variable is split over data-parallel ranks";
  let description = [{
    Rank `r` of `ranks` holds the r-th of `ranks` equal pieces of the tensor, flattened in row-major order
    and padded to a multiple of `ranks` elements (Rajbhandari et al., ZeRO, section 5).
  }];
  let parameters = (ins "int64_t":$ranks);
  let assemblyFormat = "`<` `ranks` `=` $ranks `>`";
  let genVerifyDecl = 1;
}

#endif // MEMOPT_DIALECT_MEMOPTDIALECT_TD
