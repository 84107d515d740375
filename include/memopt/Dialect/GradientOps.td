//===- GradientOps.td - what a model says about its gradients -*- tablegen -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ops that compute nothing: each gives back its first operands and tells autodiff what their
// gradients are. Autodiff removes them; in evaluation they are removed by lowering.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_GRADIENTOPS_TD
#define MEMOPT_DIALECT_GRADIENTOPS_TD

include "memopt/Dialect/MemoptBase.td"

def Memopt_GradientMark
    : DeclareOpInterfaceMethods<DifferentiableOpInterface, ["passesGradient", "isGradientMark"]>;

def Memopt_StopGradientOp : Memopt_PureOp<"stop_gradient", [SameOperandsAndResultType, Memopt_GradientMark]> {
  let summary = "The operand, through which no gradient flows";
  let description = [{
    What `detach` and `torch.no_grad` leave in a graph. A parameter that the loss depends on through such
    ops alone gets no gradient and never moves.

    Example: `%1 = memopt.stop_gradient %0 : (tensor<4xf32>) -> tensor<4xf32>`
  }];
  let arguments = (ins Memopt_FloatTensor:$input);
  let results = (outs Memopt_FloatTensor:$result);
}

def Memopt_IncomingGradientOp : Memopt_PureOp<"incoming_gradient", [SameOperandsAndResultType]> {
  let summary = "Stands for the gradient that will reach a value";
  let description = [{
    Inside the backward formula of `memopt.custom_gradient`: the gradient of its result number `result`,
    whose value is the operand. It has no value of its own; autodiff puts the gradient in its place.

    Example: `%g = memopt.incoming_gradient %y {result_number = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>`
  }];
  let arguments = (ins Memopt_FloatTensor:$value, I64Attr:$result_number);
  let results = (outs Memopt_FloatTensor:$result);
}

def Memopt_CustomGradientOp
    : Memopt_PureOp<"custom_gradient", [AttrSizedOperandSegments, Memopt_GradientMark]> {
  let summary = "Values with a backward formula of their own";
  let description = [{
    What a `torch.autograd.Function` leaves in a graph. The results are `values`. Their gradients do not flow
    into whatever computed them; instead `inputs[i]` gets `input_gradients[i]`, which the graph computes from
    `incoming` (one `memopt.incoming_gradient` for each value) and from anything else that is known here.
    Autodiff copies that formula into the backward pass.

    Example, a sign whose gradient is that of the identity:
    ```mlir
    %g = memopt.incoming_gradient %y {result_number = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
    %z = memopt.custom_gradient %y, %g, %x, %g
      {operandSegmentSizes = array<i32: 1, 1, 1, 1>}
      : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    ```
  }];
  let arguments = (ins Variadic<Memopt_Tensor>:$values, Variadic<Memopt_FloatTensor>:$incoming,
    Variadic<Memopt_FloatTensor>:$inputs, Variadic<Memopt_FloatTensor>:$input_gradients);
  let results = (outs Variadic<Memopt_Tensor>:$results);
  let hasVerifier = 1;
}

#endif // MEMOPT_DIALECT_GRADIENTOPS_TD
