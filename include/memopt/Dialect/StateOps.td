//===- StateOps.td - persistent state -*- tablegen -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_STATEOPS_TD
#define MEMOPT_DIALECT_STATEOPS_TD

include "memopt/Dialect/MemoptBase.td"

def Memopt_VariableOp : Memopt_Op<"variable", [Symbol, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "A persistent tensor";
  let description = [{
    Declares one tensor that lives from step to step: a parameter, a buffer such as a running statistic, optimizer
    state, a kept gradient, a hyperparameter that the runtime writes before each step, or a part of the scale of the
    loss, which steps change themselves. `memopt.read` and `memopt.write` are the only accesses.

    `names` lists every name of the tensor in a checkpoint (tied weights have several); the symbol is the
    first. They are the names of PyTorch's state dict. The dict leaves out `transient` variables, which PyTorch calls
    non-persistent buffers. A transient variable without reads and writes is a constant that was folded into the graph.
    `initial` has the initial values. Without it `init_value` is a constant initial value; without both the variable was
    exported without data. `of` names the parameter to which optimizer state belongs, and `slot` is the part of the
    state, such as "momentum". `module_class` is the class of the PyTorch module that owns the tensor, if it is known.

    With `shard` the variable is this rank's part of a tensor. `initial` then has the values of the whole tensor.

    Small tensors are cut over ranks together, as one vector. A `joined` variable is this rank's part of such a unit:
    the step reads and writes it, and nothing outside of the step knows it. The variables of its tensors name it in
    `unit`; each has the type of the unit, and its `shard` says where in the unit the tensor begins. They have no bytes
    of their own, and no accesses.

    A variable occupies its bytes in `placement` during the whole run; in the planned program `offset` says
    where. A read gives a tensor in that space.

    Example:
    ```mlir
    memopt.variable @fc.weight : tensor<10x64xf32> role <parameter> {trainable, names = ["fc.weight"]}
    memopt.variable @lr : tensor<f64> role <hyperparameter>
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<Memopt_Tensor>:$type, Memopt_RoleAttr:$role,
    UnitAttr:$trainable, UnitAttr:$transient, OptionalAttr<StrArrayAttr>:$names, OptionalAttr<ElementsAttr>:$initial,
    OptionalAttr<F64Attr>:$init_value, OptionalAttr<FlatSymbolRefAttr>:$of, OptionalAttr<StrAttr>:$slot,
    OptionalAttr<StrAttr>:$module_class,
    DefaultValuedAttr<Memopt_SpaceAttr, "::mlir::memopt::Space::Device">:$placement,
    OptionalAttr<Memopt_ShardAttr>:$shard, OptionalAttr<FlatSymbolRefAttr>:$unit, UnitAttr:$joined,
    OptionalAttr<I64Attr>:$offset);
  let assemblyFormat = "$sym_name `:` $type `role` $role attr-dict";
  let hasVerifier = 1;
  let skipDefaultBuilders = 1;
  /// On the device, without values; its only name is the symbol.
  let builders = [OpBuilder<(ins "::llvm::StringRef":$name, "::mlir::RankedTensorType":$type,
    "::mlir::memopt::Role":$role)>];
  let extraClassDeclaration = [{
    ::mlir::RankedTensorType getTensorType() { return ::llvm::cast<::mlir::RankedTensorType>(getType()); }
    /// The type of the tensor that the variable is this rank's shard of, or its own.
    ::mlir::RankedTensorType getWholeType() {
      return getShard() ? getShard()->getWholeType(getTensorType()) : getTensorType();
    }
    /// Whether its bytes are those of its unit.
    bool liesInUnit() { return getUnit().has_value(); }
    /// Whether it is part of what a step changes for good: a refused step leaves it as it was.
    bool isState() {
      return getRole() == Role::Parameter || getRole() == Role::Buffer || getRole() == Role::OptimizerState ||
             getRole() == Role::LossScale;
    }
    /// The type of what is read and written: that of the tensor in the variable's space.
    ::mlir::RankedTensorType getPlacedType() { return inSpace(getTensorType(), getPlacement()); }
  }];
}

def Memopt_ReadOp : Memopt_Op<"read", [DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>, Memopt_Recomputable]> {
  let summary = "The value of a variable";
  let description = [{
    The variable's value at this point of the step: what the last `memopt.write` before it wrote, or what
    the step began with. In the planned program it costs nothing: it is the variable's own buffer.

    Example: `%w = memopt.read @fc.weight : tensor<10x64xf32>`
  }];
  let arguments = (ins FlatSymbolRefAttr:$variable);
  let results = (outs Memopt_Tensor:$result);
  let assemblyFormat = "$variable attr-dict `:` type($result)";
}

def Memopt_WriteOp : Memopt_Op<"write", [DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "Gives a variable a new value";
  let description = [{
    A step writes each variable at most once, after all its reads. The planner makes the value's producer
    write into the variable's own buffer where that is safe, and copies otherwise.

    Example: `memopt.write %new, @fc.weight : tensor<10x64xf32>`
  }];
  let arguments = (ins Memopt_Tensor:$value, FlatSymbolRefAttr:$variable);
  let assemblyFormat = "$value `,` $variable attr-dict `:` type($value)";
}

def Memopt_GradientOp : Memopt_Op<"gradient", [DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "Names a value as the gradient of the loss by a variable";
  let description = [{
    Made by autodiff, one for each trainable variable, and read by the optimizer pass. It stays in the
    program as a mark: the value is a buffer of its own once it has run, so that a user can look at it
    (`memopt-run --save-gradients`). It computes nothing. With `shard` the value is this rank's part of it.

    Example: `memopt.gradient %g, @fc.weight : tensor<10x64xf32>`
  }];
  let arguments = (ins Memopt_Tensor:$value, FlatSymbolRefAttr:$variable, OptionalAttr<Memopt_ShardAttr>:$shard);
  let assemblyFormat = "$value `,` $variable attr-dict `:` type($value)";
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "::mlir::Value":$value, "::mlir::FlatSymbolRefAttr":$variable)>];
  let extraClassDeclaration = [{
    /// The type of the tensor that the value is this rank's shard of, or the value's own.
    ::mlir::RankedTensorType getWholeType() {
      auto type = ::llvm::cast<::mlir::RankedTensorType>(getValue().getType());
      return getShard() ? getShard()->getWholeType(type) : type;
    }
  }];
}

def Memopt_UpdatedWhereOp : Memopt_Op<"updated_where", [DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "Says in which steps the optimizer updates variables";
  let description = [{
    A model that branches by its data may have no gradient for a parameter in a step, as for an expert that no token
    chooses. Its optimizer then leaves the parameter and its state as they are, where a gradient of zero would move
    them by momentum and weight decay. `count` is not negative and above zero where the samples at hand use the
    variables; they are updated where the sum over all samples of a step is. The optimizer pass reads and removes it.

    Example: `memopt.updated_where %count, [@experts.0.weight, @experts.0.bias] : tensor<f32>`
  }];
  let arguments = (ins Memopt_FloatTensor:$count, FlatSymbolRefArrayAttr:$variables);
  let assemblyFormat = "$count `,` $variables attr-dict `:` type($count)";
  let hasVerifier = 1;
}

#endif // MEMOPT_DIALECT_STATEOPS_TD
