//===- FlowOps.td - loops, borders, transfers and collectives of the kernel graph -*- tablegen -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_FLOWOPS_TD
#define MEMOPT_DIALECT_FLOWOPS_TD

include "memopt/Dialect/KernelOps.td"

def Memopt_RepeatOp : Memopt_Instruction<"repeat", (ins Variadic<Memopt_Tensor>:$inputs,
      ConfinedAttr<I64Attr, [IntPositive]>:$count, UnitAttr:$next_batch),
    [IsolatedFromAbove, SingleBlockImplicitTerminator<"YieldOp">, RecursiveMemoryEffects, Memopt_Recomputable,
     DeclareOpInterfaceMethods<CostOpInterface, ["getFlops", "getBytesMoved"]>,
     DeclareOpInterfaceMethods<InstructionOpInterface,
       ["getKindName", "getWork", "getRepeatCount", "getBodies"]>]> {
  let summary = "Runs its body several times";
  let description = [{
    A loop over micro-batches. State passes from one iteration to the next only through variables: an accumulator is a
    variable that the body reads and writes. Each block argument is another name of an operand, the same in every
    iteration. Values that are made inside are not visible outside. With `next_batch` each iteration begins with another
    batch in the arguments of the step, whose shapes are those of one iteration.

    In the kernel graph an operand lives to the end of the loop, and a value made inside to its last use in the
    iteration.

    Example:
    ```mlir
    memopt.repeat count(4) next_batch (%in = %x : tensor<8xf32>) {
      %old = memopt.read @sum : tensor<8xf32>
      %new = arith.addf %old, %in : tensor<8xf32>
      memopt.write %new, @sum : tensor<8xf32>
    }
    ```
  }];
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "`count` `(` $count `)` (`next_batch` $next_batch^)? custom<BoundRegion>($inputs, type($inputs), $body) attr-dict";
  let hasVerifier = 1;
  let skipDefaultBuilders = 1;
  /// The block has one argument for each input, and its terminator.
  let builders = [OpBuilder<(ins "::mlir::ValueRange":$inputs, "int64_t":$count, "bool":$nextBatch)>];
}

def Memopt_ScanOp : Memopt_Instruction<"scan", (ins Variadic<Memopt_Tensor>:$fixed,
      Variadic<Memopt_Tensor>:$slices, Variadic<Memopt_Tensor>:$carried, ConfinedAttr<I64Attr, [IntPositive]>:$count,
      DenseI64ArrayAttr:$firsts, UnitAttr:$reverse),
    [AttrSizedOperandSegments, IsolatedFromAbove, SingleBlock, RecursiveMemoryEffects,
     DeclareOpInterfaceMethods<RecomputableOpInterface, ["isRecomputable"]>,
     DeclareOpInterfaceMethods<CostOpInterface, ["getFlops", "getBytesMoved"]>,
     DeclareOpInterfaceMethods<IterationOpInterface, ["getIterationSpace", "resize"]>,
     DeclareOpInterfaceMethods<InstructionOpInterface,
       ["getKindName", "getWork", "getRepeatCount", "getBodies"]>]> {
  let summary = "Runs its body for each slice of tensors, with values that one iteration hands to the next";
  let description = [{
    A loop with a body that is a function of values: `lax.scan` of JAX, `scan` of PyTorch. The block's arguments
    are, in this order,

    - each `fixed` operand, the same in every iteration;
    - of each operand in `slices` the slice of its leading dimension that belongs to the iteration: number
      `firsts[k] + i` in iteration i, or with `reverse` number `firsts[k] + count - 1 - i`;
    - each `carried` value: the operand in the first iteration, then what the iteration before yielded.

    The body yields the next carried values, then a slice of each further result. Results are the last carried
    values, then the stacked slices, `count` of them, slice i at index i (with `reverse` at `count - 1 - i`).

    In the kernel graph nothing is copied: a slice is an address inside of its operand or result, and a carried
    value has one buffer, that of the operand, which the loop overwrites (the planner copies an operand that is
    needed otherwise).

    Example:
    ```mlir
    %last, %all = memopt.scan count(8) fixed(%w = %weight : tensor<4x4xf32>) slices(%x = %xs : tensor<2x4xf32> of tensor<8x2x4xf32>)
        carried(%h = %h0 : tensor<2x4xf32>) {
      %0 = memopt.matmul %h, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
      %1 = arith.addf %0, %x : tensor<2x4xf32>
      memopt.yield %1, %1 : tensor<2x4xf32>, tensor<2x4xf32>
    } -> tensor<2x4xf32>, tensor<8x2x4xf32>
    ```
  }];
  let results = (outs Variadic<Memopt_Tensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let skipDefaultBuilders = 1;
  /// With the block's arguments, no terminator and no results (see finish).
  let builders = [OpBuilder<(ins "::mlir::ValueRange":$fixed, "::mlir::ValueRange":$slices,
    "::llvm::ArrayRef<int64_t>":$firsts, "::mlir::ValueRange":$carried, "int64_t":$count, "bool":$reverse)>];
  let extraClassDeclaration = [{
    ::mlir::Block::BlockArgListType getFixedArguments() {
      return getBody().getArguments().take_front(getFixed().size());
    }
    ::mlir::Block::BlockArgListType getSliceArguments() {
      return getBody().getArguments().slice(getFixed().size(), getSlices().size());
    }
    ::mlir::Block::BlockArgListType getCarriedArguments() {
      return getBody().getArguments().take_back(getCarried().size());
    }
    ::mlir::memopt::YieldOp getYield();
    /// What the body yields: the next carried values, then slices.
    ::mlir::OperandRange getNextValues();
    ::mlir::OperandRange getYieldedSlices();
    ::mlir::ResultRange getLastValues() { return getResults().take_front(getCarried().size()); }
    ::mlir::ResultRange getStacked() { return getResults().drop_front(getCarried().size()); }
    /// Whether `argument` is a slice of the operand at its place.
    bool isSlice(::mlir::BlockArgument argument) {
      return argument.getArgNumber() >= getFixed().size() &&
             argument.getArgNumber() < getFixed().size() + getSlices().size();
    }
    /// The number of the slice that iteration 0 has, of those of operand or result; each iteration's is
    /// getStep() behind it.
    int64_t getFirstOfSlices(unsigned slice) {
      return getFirsts()[slice] + (getReverse() ? getRepeatCount() - 1 : 0);
    }
    int64_t getFirstOfStacked() { return getReverse() ? getRepeatCount() - 1 : 0; }
    int64_t getStep() { return getReverse() ? -1 : 1; }
    /// The op whose results are those that the body of `open` yields; it takes the place of `open`, which was made
    /// without results and whose body has its terminator by now.
    static ScanOp finish(::mlir::OpBuilder &builder, ScanOp open);
    /// The types of the results that follow from the body.
    ::llvm::SmallVector<::mlir::Type> getTypesOfBody();
  }];
}

def Memopt_CommitOp : Memopt_Instruction<"commit", (ins Memopt_FloatTensor:$loss),
    [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>, Memopt_Recomputable,
     DeclareOpInterfaceMethods<CostOpInterface, ["getFlops"]>,
     DeclareOpInterfaceMethods<InstructionOpInterface, ["getKindName", "getWork"]>]> {
  let summary = "The point before which no state may change";
  let description = [{
    Shows the runtime the loss before the step has changed a parameter, a buffer or optimizer state. If the loss is not
    finite, the step ends here, and all state is as it was. Every write of such a variable comes after this op.

    Example: `memopt.commit %loss : tensor<f32>`
  }];
  let assemblyFormat = "$loss attr-dict `:` type($loss)";
  let hasVerifier = 1;
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "::mlir::Value":$loss)>];
}

def Memopt_TransferStartOp : Memopt_Instruction<"transfer_start", (ins Memopt_Tensor:$source,
      Memopt_SpaceAttr:$to, OptionalAttr<I64Attr>:$number),
    [Pure, Memopt_Recomputable, DeclareOpInterfaceMethods<CostOpInterface, ["getFlops", "getBytesMoved"]>,
     DeclareOpInterfaceMethods<InstructionOpInterface, ["getKindName", "getResource", "getWork"]>,
     DeclareOpInterfaceMethods<ListedOpInterface, ["getListName", "describe"]>]> {
  let summary = "Begins to copy a value to another space";
  let description = [{
    Both ends belong to the transfer until the `memopt.transfer_wait` that takes its token. Transfers run beside
    computation. Those of one resource (copies in, copies out, the disk) are done in the order of their starts.

    Example:
    ```mlir
    %t = memopt.transfer_start %x to <host> : tensor<4xf32>
    %y = memopt.transfer_wait %t : tensor<4xf32, #memopt.space<host>>
    ```
  }];
  let results = (outs Memopt_Token:$token);
  let assemblyFormat = "$source `to` $to attr-dict `:` type($source)";
  let hasVerifier = 1;
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "::mlir::Value":$source, "::mlir::memopt::Space":$to)>];
}

def Memopt_TransferWaitOp : Memopt_Instruction<"transfer_wait", (ins Memopt_Token:$token),
    [Pure, Memopt_Recomputable, DeclareOpInterfaceMethods<CostOpInterface, ["getFlops", "getBytesMoved"]>,
     DeclareOpInterfaceMethods<InstructionOpInterface, ["getKindName", "getWork"]>]> {
  let summary = "Waits for a transfer and gives its copy";
  let description = [{ The bytes of the copy are in use from the start on. A token is waited for once, in its own block. }];
  let results = (outs Memopt_Tensor:$result);
  let assemblyFormat = "$token attr-dict `:` type($result)";
  let hasVerifier = 1;
  let skipDefaultBuilders = 1;
  /// For what the token's start copies.
  let builders = [OpBuilder<(ins "::mlir::Value":$token)>];
}

def Memopt_CollectiveOp : Memopt_Instruction<"collective", (ins Memopt_CollectiveKindAttr:$kind, Memopt_Tensor:$input,
      ConfinedAttr<I64Attr, [IntPositive]>:$ranks, OptionalAttr<I64Attr>:$number),
    [Pure, DeclareOpInterfaceMethods<RecomputableOpInterface, ["isRecomputable"]>,
     DeclareOpInterfaceMethods<CostOpInterface, ["getFlops", "getBytesMoved"]>,
     DeclareOpInterfaceMethods<InstructionOpInterface, ["getKindName", "getWork"]>,
     DeclareOpInterfaceMethods<InPlaceOpInterface, ["getInPlaceOperands"]>,
     DeclareOpInterfaceMethods<ListedOpInterface, ["getListName", "describe"]>]> {
  let summary = "An operation of all ranks together";
  let description = [{
    With several ranks, one program runs on each of them, on its own samples. Every rank reaches its collectives in the
    same order. A collective returns when this rank has its result and the operand is free again.

    A tensor of n elements, in row-major order and padded with zeros, is cut into `ranks` shards of s elements. Shard r
    belongs to rank r.

    - `all_reduce`: the sum over all ranks, added from zero in the order of the ranks.
    - `reduce_scatter`: this rank's shard of that sum, s elements.
    - `all_gather`: the tensor whose shards the ranks have, without the padding.
    - `own_shard`: this rank's shard of a tensor that all ranks have. Nothing is sent.
    - `all_to_all`: this rank's shards of the tensors that the ranks have, one after the other in the order of the ranks.
      These are the terms of `reduce_scatter`, which devices add in a kernel.

    Sums are of f32, f64, i32 or i64. They are added in the same order as one rank adds the same number of micro-batches,
    so both have the same bits.

    Example:
    ```mlir
    %sum = memopt.collective <all_reduce> %g over 4 : tensor<10xf32> -> tensor<10xf32>
    %own = memopt.collective <reduce_scatter> %g over 4 : tensor<10xf32> -> tensor<3xf32>
    %all = memopt.collective <all_gather> %own over 4 : tensor<3xf32> -> tensor<10xf32>
    %terms = memopt.collective <all_to_all> %g over 4 : tensor<10xf32> -> tensor<12xf32>
    ```
  }];
  let results = (outs Memopt_Tensor:$result);
  let assemblyFormat = "$kind $input `over` $ranks attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let hasCanonicalizeMethod = 1;
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "::mlir::RankedTensorType":$result, "CollectiveKind":$kind, "::mlir::Value":$input,
    "int64_t":$ranks)>];
}

def Memopt_PackOp : Memopt_Op<"pack", [Pure]> {
  let summary = "Small tensors as one vector";
  let description = [{
    The elements of the operands in row-major order: those of operand i begin at element `firsts[i]` of the result, behind
    those of the operands before. The rest is zeros. So several tensors are cut over ranks together. Lowering makes a
    concatenation of it.

    Example: `%v = memopt.pack %a, %b at [0, 16] : (tensor<2x5xf32>, tensor<3xf32>) -> tensor<32xf32>`
  }];
  let arguments = (ins Variadic<Memopt_Tensor>:$inputs, DenseI64ArrayAttr:$firsts);
  let results = (outs Memopt_Tensor:$result);
  let assemblyFormat = "$inputs `at` $firsts attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Memopt_UnpackOp : Memopt_Op<"unpack", [Pure]> {
  let summary = "One of the tensors of a vector";
  let description = [{
    The elements of a vector from `first` on, as a tensor: what `memopt.pack` has put there. Lowering makes a slice of it.

    Example: `%b = memopt.unpack %v from 16 : tensor<32xf32> -> tensor<3xf32>`
  }];
  let arguments = (ins Memopt_Tensor:$input, I64Attr:$first);
  let results = (outs Memopt_Tensor:$result);
  let assemblyFormat = "$input `from` $first attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

def Memopt_CollectiveStartOp : Memopt_Instruction<"collective_start", (ins Memopt_CollectiveKindAttr:$kind,
      Memopt_Tensor:$input, ConfinedAttr<I64Attr, [IntPositive]>:$ranks, UnitAttr:$in_place,
      OptionalAttr<I64Attr>:$number),
    [Pure, DeclareOpInterfaceMethods<RecomputableOpInterface, ["isRecomputable"]>,
     DeclareOpInterfaceMethods<CostOpInterface, ["getFlops", "getBytesMoved"]>,
     DeclareOpInterfaceMethods<InstructionOpInterface, ["getKindName", "getResource", "getWork"]>,
     DeclareOpInterfaceMethods<ListedOpInterface, ["getListName", "describe"]>]> {
  let summary = "Begins an operation of all ranks together";
  let description = [{
    The operand and the result belong to the collective until the `memopt.collective_wait` that takes its token.
    Collectives run beside computation, one after the other, in the order of their starts, which is the same on all
    ranks.

    With `in_place` the sum of an `all_reduce` is made in the bytes of the operand, which nothing else reads.

    Example:
    ```mlir
    %t = memopt.collective_start <all_reduce> %g over 4 in_place : tensor<10xf32>
    %sum = memopt.collective_wait %t : tensor<10xf32>
    ```
  }];
  let results = (outs Memopt_Token:$token);
  let assemblyFormat = "$kind $input `over` $ranks (`in_place` $in_place^)? attr-dict `:` type($input)";
  let hasVerifier = 1;
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "CollectiveKind":$kind, "::mlir::Value":$input, "int64_t":$ranks, "bool":$inPlace)>];
  let extraClassDeclaration = [{
    /// What waits for it; null where nothing does.
    ::mlir::memopt::CollectiveWaitOp getWait();
  }];
}

def Memopt_CollectiveWaitOp : Memopt_Instruction<"collective_wait", (ins Memopt_Token:$token),
    [Pure, DeclareOpInterfaceMethods<RecomputableOpInterface, ["isRecomputable"]>,
     DeclareOpInterfaceMethods<CostOpInterface, ["getFlops", "getBytesMoved"]>,
     DeclareOpInterfaceMethods<InstructionOpInterface, ["getKindName", "getWork"]>]> {
  let summary = "Waits for a collective and gives its result";
  let description = [{ The bytes of the result are in use from the start on. A token is waited for once, in its own block. }];
  let results = (outs Memopt_Tensor:$result);
  let assemblyFormat = "$token attr-dict `:` type($result)";
  let hasVerifier = 1;
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "::mlir::RankedTensorType":$result, "::mlir::Value":$token)>];
  let extraClassDeclaration = [{
    ::mlir::memopt::CollectiveStartOp getStartOp();
    /// The operand whose bytes the result has; null where it has bytes of its own.
    ::mlir::Value getTakenOperand();
  }];
}

#endif // MEMOPT_DIALECT_FLOWOPS_TD
