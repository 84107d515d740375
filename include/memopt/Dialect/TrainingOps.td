//===- TrainingOps.td - optimizers, random bits -*- tablegen -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_TRAININGOPS_TD
#define MEMOPT_DIALECT_TRAININGOPS_TD

include "memopt/Dialect/MemoptBase.td"

def Memopt_DropoutMaskOp : Memopt_PureOp<"dropout_mask", [Memopt_Draws]> {
  let summary = "Random booleans, true with probability 1 - p";
  let description = [{
    An element is `u >= p * 2^32`; u is the word of the element's number (`memopt.random_word`). This number is the
    row-major index of the element. If the tensor is a part of a larger one, `first` is the number of its first element
    in the larger tensor, and `strides` are those of the larger tensor. So the parts of a batch draw the same masks as
    the whole batch. The same operands always give the same bits. So a recomputed mask is identical, and no mask need be
    saved.

    Example: `%m = memopt.dropout_mask %seed, %step {probability = 0.1 : f64, id = 3 : i64} : (tensor<i64>, tensor<i64>) -> tensor<4x8xi1>`
  }];
  let arguments = (ins Memopt_IntTensor:$seed, Memopt_IntTensor:$step, Optional<Memopt_IntTensor>:$first,
    F64Attr:$probability, I64Attr:$id, OptionalAttr<DenseI64ArrayAttr>:$strides);
  let results = (outs Memopt_BoolTensor:$result);
  let hasVerifier = 1;
  let builders = [OpBuilder<(ins "::mlir::Type":$type, "::mlir::Value":$seed, "::mlir::Value":$step,
    "::mlir::FloatAttr":$probability, "::mlir::IntegerAttr":$id), [{
      build($_builder, $_state, type, seed, step, ::mlir::Value(), probability, id, ::mlir::DenseI64ArrayAttr());
    }]>];
}

def Memopt_RandomOp : Memopt_PureOp<"random", [Memopt_Draws]> {
  let summary = "Random numbers of a distribution";
  let description = [{
    Elements are numbered as in `memopt.dropout_mask`, and made from words (`memopt.random_word`). An element uses the
    word of its number. If it needs two words, w0 and w1, they are those from twice its number on.

    - `uniform` lies in [0, 1): the upper 24 bits of w0 in f32, 53 bits of both words in f64.
    - `normal` has mean 0 and variance 1: sqrt(-2 ln u) cos(2 pi v), with u and v from w0 and w1 (Box and Muller, A Note
      on the Generation of Random Normal Deviates, 1958).
    - `exponential` has rate 1: -ln u.

    In the last two u and v lie inside of (0, 1): they are the middles of 2^23 equal parts (f64: 2^31), chosen by the
    upper bits. A recomputed draw gives the same numbers.

    Example: `%n = memopt.random %seed, %step {distribution = #memopt.distribution<normal>, id = 3 : i64} : (tensor<i64>, tensor<i64>) -> tensor<4x8xf32>`
  }];
  let arguments = (ins Memopt_IntTensor:$seed, Memopt_IntTensor:$step, Optional<Memopt_IntTensor>:$first,
    Memopt_DistributionAttr:$distribution, I64Attr:$id, OptionalAttr<DenseI64ArrayAttr>:$strides);
  let results = (outs Memopt_TensorOf<[F32, F64]>:$result);
  let hasVerifier = 1;
  let builders = [OpBuilder<(ins "::mlir::Type":$type, "::mlir::Value":$seed, "::mlir::Value":$step,
    "::mlir::memopt::Distribution":$distribution, "int64_t":$id), [{
      build($_builder, $_state, type, seed, step, ::mlir::Value(), distribution, id, ::mlir::DenseI64ArrayAttr());
    }]>];
}

def Memopt_StochasticRoundOp : Memopt_PureOp<"stochastic_round"> {
  let summary = "Rounds up or down at random, right on average";
  let description = [{
    A number between two neighbours of the result's type is rounded up with a probability that is its position between
    the two (Gupta et al., Deep Learning with Limited Numerical Precision, ICML 2015). So an update that is much smaller
    than the last bit of a parameter still changes it sometimes. An element uses the lower 16 bits of the word of its
    row-major number (`memopt.random_word`). Infinities and NaN stay. The same operands give the same bits.

    Example: `%r = memopt.stochastic_round %x, %seed, %step {id = 3 : i64} : (tensor<4xf32>, tensor<i64>, tensor<i64>) -> tensor<4xbf16>`
  }];
  let arguments = (ins Memopt_TensorOf<[F32]>:$input, Memopt_IntTensor:$seed, Memopt_IntTensor:$step, I64Attr:$id);
  let results = (outs Memopt_TensorOf<[BF16]>:$result);
  let hasVerifier = 1;
}

def Memopt_RandomWordOp : Memopt_Op<"random_word", [Pure, DeclareOpInterfaceMethods<ScalarOpInterface>]> {
  let summary = "32 random bits, by their number";
  let description = [{
    Counter-based (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC'11): with n = `first` + `number`,
    word n mod 4 of Philox4x32-10 with key `seed` and counter (n / 4 low, high, `step`, `id`). Kernels take four
    neighbours from one counter; `first` is the same for all elements of a tensor. Only inside of kernels.

    Example: `%w = memopt.random_word %c0, %n, %seed, %step {id = 3 : i64}`
  }];
  let arguments = (ins I64:$first, I64:$number, I64:$seed, I64:$step, I64Attr:$id);
  let results = (outs I32:$word);
  let assemblyFormat = "$first `,` $number `,` $seed `,` $step attr-dict";
}

def Memopt_OptimizerStepOp : Memopt_PureOp<"optimizer_step"> {
  let summary = "An optimizer's update of one tensor";
  let description = [{
    `optimizer` names a descriptor of lib/Transforms/Optimizers, whose rule says what is computed. `settings` are its
    hyperparameters for this tensor. `state` names the parts of the optimizer's state, in the order of `old_state` and
    `new_state`. A part in 8 bits has codes and, named with `.scale`, one scale for each block of 256 elements.

    `learning_rate` (f64) and `step` (i64, from 1) are scalars that are read at run time. So are the f64 scalars after
    the old state: the values of the hyperparameters that `inputs` names (`momentum`, `beta1`, `beta2`, `weight_decay`);
    `settings` has their initial values. Parameter and gradient may be narrower than the new parameter, which is rounded
    afterwards.

    Example:
    ```mlir
    %p1, %m1 = memopt.optimizer_step %p, %g, %lr, %step, %m {optimizer = "lion", state = ["exp_avg"],
        settings = {betas = array<f64: 0.9, 0.99>, weight_decay = 0.1 : f64}} : ...
    ```
  }];
  let arguments = (ins Memopt_FloatTensor:$parameter, Memopt_FloatTensor:$gradient,
    Memopt_FloatTensor:$learning_rate, Memopt_IntTensor:$step, Variadic<Memopt_Tensor>:$state_and_inputs,
    StrAttr:$optimizer, StrArrayAttr:$state, DictionaryAttr:$settings, OptionalAttr<StrArrayAttr>:$inputs);
  let results = (outs Memopt_FloatTensor:$new_parameter, Variadic<Memopt_Tensor>:$new_state);
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::OperandRange getOldState() { return getStateAndInputs().take_front(getState().size()); }
    /// The value of a hyperparameter that is an input; null where it is none.
    ::mlir::Value getInput(::llvm::StringRef name);
  }];
}

def Memopt_GlobalNormOp : Memopt_PureOp<"global_norm"> {
  let summary = "Euclidean norm over all elements of all operands";
  let arguments = (ins Variadic<Memopt_FloatTensor>:$inputs);
  let results = (outs Memopt_FloatTensor:$result);
  let description = [{ The result is a scalar. Serves clipping by global norm (Pascanu et al., 2013). }];
  let hasVerifier = 1;
}

def Memopt_AccumulateOp : Memopt_PureOp<"accumulate", [SameOperandsAndResultType, Memopt_Tied,
    DeclareOpInterfaceMethods<InPlaceOpInterface, ["getInPlaceOperands"]>]> {
  let summary = "Adds a micro-batch's gradient to the sum so far";
  let description = [{ `result = sum + value`; the result may take `sum`'s buffer. }];
  let arguments = (ins Memopt_FloatTensor:$sum, Memopt_FloatTensor:$value);
  let results = (outs Memopt_FloatTensor:$result);
}

#endif // MEMOPT_DIALECT_TRAININGOPS_TD
