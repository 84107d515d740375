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

def Memopt_DropoutMaskOp : Memopt_PureOp<"dropout_mask", [Memopt_Batch]> {
  let summary = "Random booleans, true with probability 1 - p";
  let description = [{
    Counter-based (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC'11): Philox4x32-10 with
    key `seed`, counter (element index low, high, `step`, `id`); the first output word u gives
    `u >= p * 2^32`. The same operands give the same bits wherever and whenever it runs, so a recomputed
    mask is identical and nothing is saved.

    Example: `%m = memopt.dropout_mask %seed, %step {probability = 0.1 : f64, id = 3 : i64} : (tensor<i64>, tensor<i64>) -> tensor<4x8xi1>`
  }];
  let arguments = (ins Memopt_IntTensor:$seed, Memopt_IntTensor:$step, F64Attr:$probability, I64Attr:$id);
  let results = (outs Memopt_BoolTensor:$result);
  let hasVerifier = 1;
}

def Memopt_SgdStepOp : Memopt_PureOp<"sgd_step"> {
  let summary = "torch.optim.SGD's update of one tensor";
  let description = [{
    g += weight_decay * p; at step 1 buf = g, later buf = momentum * buf + (1 - dampening) * g;
    g = nesterov ? g + momentum * buf : buf; p -= lr * g. Without momentum the buffer is absent.
    `learning_rate` (f64) and `step` (i64, from 1) are scalars read at run time.
  }];
  let arguments = (ins Memopt_FloatTensor:$parameter, Memopt_FloatTensor:$gradient,
    Optional<Memopt_FloatTensor>:$buffer, Memopt_FloatTensor:$learning_rate, Memopt_IntTensor:$step,
    F64Attr:$momentum, F64Attr:$dampening, F64Attr:$weight_decay, UnitAttr:$nesterov);
  let results = (outs Memopt_FloatTensor:$new_parameter, Optional<Memopt_FloatTensor>:$new_buffer);
  let hasVerifier = 1;
}

def Memopt_AdamStepOp : Memopt_PureOp<"adam_step"> {
  let summary = "torch.optim.Adam's or AdamW's update of one tensor";
  let description = [{
    Kingma and Ba, Adam, algorithm 1; with `decoupled` the weight decay of Loshchilov and Hutter, Decoupled
    Weight Decay Regularization, algorithm 2. m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
    p -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps). The scalars are computed in f64.
  }];
  let arguments = (ins Memopt_FloatTensor:$parameter, Memopt_FloatTensor:$gradient,
    Memopt_FloatTensor:$first_moment, Memopt_FloatTensor:$second_moment,
    Memopt_FloatTensor:$learning_rate, Memopt_IntTensor:$step,
    F64Attr:$beta1, F64Attr:$beta2, F64Attr:$eps, F64Attr:$weight_decay, UnitAttr:$decoupled);
  let results = (outs Memopt_FloatTensor:$new_parameter, Memopt_FloatTensor:$new_first_moment,
    Memopt_FloatTensor:$new_second_moment);
  let hasVerifier = 1;
}

def Memopt_GlobalNormOp : Memopt_PureOp<"global_norm"> {
  let summary = "Euclidean norm over all elements of all operands";
  let arguments = (ins Variadic<Memopt_FloatTensor>:$inputs);
  let results = (outs Memopt_FloatTensor:$result);
  let description = [{ The result is a scalar. Serves clipping by global norm (Pascanu et al., 2013). }];
  let hasVerifier = 1;
}

def Memopt_AccumulateOp : Memopt_PureOp<"accumulate", [SameOperandsAndResultType,
    DeclareOpInterfaceMethods<InPlaceOpInterface, ["getInPlaceOperands"]>]> {
  let summary = "Adds a micro-batch's gradient to the sum so far";
  let description = [{ `result = sum + value`; the result may take `sum`'s buffer. }];
  let arguments = (ins Memopt_FloatTensor:$sum, Memopt_FloatTensor:$value);
  let results = (outs Memopt_FloatTensor:$result);
}

#endif // MEMOPT_DIALECT_TRAININGOPS_TD
