//===- NeuralNetworkOps.td - layers and losses -*- tablegen -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_NEURALNETWORKOPS_TD
#define MEMOPT_DIALECT_NEURALNETWORKOPS_TD

include "memopt/Dialect/MemoptBase.td"

//===----------------------------------------------------------------------===//
// Convolution and matmul: library calls
//===----------------------------------------------------------------------===//

class Memopt_ConvolutionBase<string mnemonic, list<Trait> traits = []>
    : Memopt_PureOp<mnemonic, [Memopt_ComputedByLibrary, Memopt_TiedByAttributes] # traits> {
  dag window = (ins DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$padding_low, DenseI64ArrayAttr:$padding_high,
    DenseI64ArrayAttr:$dilations, I64Attr:$groups,
    DefaultValuedAttr<Memopt_LayoutAttr, "::mlir::memopt::Layout::ChannelsFirst">:$layout);
  let hasVerifier = 1;
}

def Memopt_ConvolutionOp : Memopt_ConvolutionBase<"convolution", [Memopt_Differentiable]> {
  let summary = "Cross-correlation over one to three spatial dimensions";
  let description = [{
    `input` is [N, C, spatial...] (or [N, spatial..., C] when `layout` is channels_last), `filter` always
    [K, C / groups, spatial...], the result [N, K, spatial...] in the input's layout. Windows are as
    PyTorch's: size (in + low + high - dilation * (k - 1) - 1) / stride + 1, `dilations` 1 is dense.

    Example:
    ```mlir
    %y = memopt.convolution %x, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 1, 1>,
      padding_high = array<i64: 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64}
      : (tensor<2x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<2x4x8x8xf32>
    ```
  }];
  let arguments = !con((ins Memopt_FloatTensor:$input, Memopt_FloatTensor:$filter), window);
  let results = (outs Memopt_FloatTensor:$result);
}

def Memopt_ConvolutionBackwardDataOp
    : Memopt_ConvolutionBase<"convolution_backward_data", [Memopt_Differentiable]> {
  let summary = "Gradient of a convolution's input; also a transposed convolution";
  let description = [{ Attributes are those of the convolution that it differentiates. }];
  let arguments = !con((ins Memopt_FloatTensor:$gradient, Memopt_FloatTensor:$filter), window);
  let results = (outs Memopt_FloatTensor:$result);
}

def Memopt_ConvolutionBackwardWeightsOp : Memopt_ConvolutionBase<"convolution_backward_weights"> {
  let summary = "Gradient of a convolution's filter";
  let description = [{ Attributes are those of the convolution that it differentiates. }];
  let arguments = !con((ins Memopt_FloatTensor:$input, Memopt_FloatTensor:$gradient), window);
  let results = (outs Memopt_FloatTensor:$result);
}

def Memopt_MatmulOp : Memopt_GraphOp<"matmul", [Memopt_ComputedByLibrary, Memopt_ReadsStrides]> {
  let summary = "Matrix product over the last two dimensions, batched over the others";
  let description = [{
    `op(a) [.., M, K] x op(b) [.., K, N] -> [.., M, N]`, op transposing the last two dimensions when asked.
    Batch dimensions are equal on all three.

    Example: `%c = memopt.matmul %a, %b {transpose_b} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>`
  }];
  let arguments = (ins Memopt_FloatTensor:$a, Memopt_FloatTensor:$b, UnitAttr:$transpose_a, UnitAttr:$transpose_b);
  let results = (outs Memopt_FloatTensor:$result);
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

def Memopt_AttentionOp : Memopt_GraphOp<"attention",
    [AttrSizedOperandSegments, Memopt_ComputedByLibrary, Memopt_ReadsStrides,
     DeclareOpInterfaceMethods<PrecisionOpInterface, ["getNarrowOperands"]>,
     DeclareOpInterfaceMethods<DrawOpInterface, ["drawsNumbers"]>]> {
  let summary = "softmax(scale * q k^T + mask) v, never holding the scores";
  let description = [{
    `query` [B, H, T, D], `key` [B, G, S, D], `value` [B, G, S, E], G dividing H (grouped queries share a
    head). `mask` broadcasts to [B, H, T, S] with sizes 1; booleans say what takes part, floats are added. With
    `causal` key j is seen by query i when j <= i. `seed` and `step` are given when `dropout` > 0; bits are
    those of `memopt.dropout_mask` over the [B, H, T, S] scores, numbered from `first`. Rows that see nothing give zeros.
    `logsumexp` [B, H, T] is what the backward pass needs to rebuild the probabilities block by block (Dao
    et al., FlashAttention, algorithms 2 and 4).
  }];
  let arguments = (ins Memopt_FloatTensor:$query, Memopt_FloatTensor:$key, Memopt_FloatTensor:$value,
    Optional<Memopt_Tensor>:$mask, Optional<Memopt_IntTensor>:$seed, Optional<Memopt_IntTensor>:$step,
    Optional<Memopt_IntTensor>:$first, F64Attr:$scale, UnitAttr:$causal, DefaultValuedAttr<F64Attr, "0.0">:$dropout,
    DefaultValuedAttr<I64Attr, "0">:$id);
  let results = (outs Memopt_FloatTensor:$result, Memopt_FloatTensor:$logsumexp);
  let hasVerifier = 1;
}

def Memopt_AttentionBackwardOp : Memopt_PureOp<"attention_backward",
    [AttrSizedOperandSegments, Memopt_ComputedByLibrary, Memopt_ReadsStrides,
     DeclareOpInterfaceMethods<DrawOpInterface, ["drawsNumbers"]>]> {
  let summary = "Gradients of query, key and value, and of a mask that is added";
  let description = [{
    `mask_gradient` has the mask's shape: the gradient of the scores, summed over what the mask was repeated over,
    batch by batch. Like the others it is made from tiles of scores, which are never held as a whole.
  }];
  let arguments = (ins Memopt_FloatTensor:$query, Memopt_FloatTensor:$key, Memopt_FloatTensor:$value,
    Optional<Memopt_Tensor>:$mask, Optional<Memopt_IntTensor>:$seed, Optional<Memopt_IntTensor>:$step,
    Optional<Memopt_IntTensor>:$first, Memopt_FloatTensor:$output, Memopt_FloatTensor:$logsumexp, Memopt_FloatTensor:$gradient,
    F64Attr:$scale, UnitAttr:$causal, DefaultValuedAttr<F64Attr, "0.0">:$dropout,
    DefaultValuedAttr<I64Attr, "0">:$id);
  let results = (outs Memopt_FloatTensor:$query_gradient, Memopt_FloatTensor:$key_gradient,
    Memopt_FloatTensor:$value_gradient, Optional<Memopt_FloatTensor>:$mask_gradient);
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Activations whose gradient is better taken from the result
//===----------------------------------------------------------------------===//

class Memopt_ActivationOp<string mnemonic, string formula, Trait precision = Memopt_Elementwise>
    : Memopt_GraphOp<mnemonic, [SameOperandsAndResultType, Memopt_Tied, precision,
                                DeclareOpInterfaceMethods<InPlaceOpInterface, ["getInPlaceOperands"]>]> {
  let summary = formula;
  let arguments = (ins Memopt_FloatTensor:$input);
  let results = (outs Memopt_FloatTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}
def Memopt_ReluOp : Memopt_ActivationOp<"relu", "max(x, 0), NaN where x is; the gradient passes there and where the result is positive",
  DeclareOpInterfaceMethods<PrecisionOpInterface, ["getFollowedOperands", "isElementwise"]>>;
def Memopt_SigmoidOp : Memopt_ActivationOp<"sigmoid", "1 / (1 + exp(-x)); the gradient is y (1 - y)">;
def Memopt_SoftplusOp : Memopt_ActivationOp<"softplus", "log(1 + exp(x)) without overflow; the gradient is sigmoid(x)">;

//===----------------------------------------------------------------------===//
// Normalization and softmax
//===----------------------------------------------------------------------===//

def Memopt_BatchNormOp : Memopt_GraphOp<"batch_norm", [AttrSizedOperandSegments, Memopt_TiedByAttributes,
    Memopt_Follows, Memopt_HasParameters, Memopt_HasBatchStatistics]> {
  let summary = "Batch normalization by the statistics of this batch";
  let description = [{
    Normalizes each channel (dimension `axis`) over all other dimensions: (x - mean) / sqrt(variance + eps)
    * scale + offset. `variance` is the biased one. Running statistics are updated by ops of their own.
  }];
  let arguments = (ins Memopt_FloatTensor:$input, Optional<Memopt_FloatTensor>:$scale,
    Optional<Memopt_FloatTensor>:$offset, F64Attr:$eps, DefaultValuedAttr<I64Attr, "1">:$axis);
  let results = (outs Memopt_FloatTensor:$result, Memopt_FloatTensor:$mean, Memopt_FloatTensor:$variance);
  let hasVerifier = 1;
}

def Memopt_BatchNormBackwardOp : Memopt_PureOp<"batch_norm_backward", [Memopt_TiedByAttributes,
    Memopt_HasBatchStatistics]> {
  let summary = "Gradients of a batch normalization's input, scale and offset";
  let arguments = (ins Memopt_FloatTensor:$gradient, Memopt_FloatTensor:$input,
    Optional<Memopt_FloatTensor>:$scale, Memopt_FloatTensor:$mean, Memopt_FloatTensor:$variance,
    F64Attr:$eps, DefaultValuedAttr<I64Attr, "1">:$axis);
  let results = (outs Memopt_FloatTensor:$input_gradient, Memopt_FloatTensor:$scale_gradient,
    Memopt_FloatTensor:$offset_gradient);
  let hasVerifier = 1;
}

def Memopt_LayerNormOp : Memopt_GraphOp<"layer_norm", [AttrSizedOperandSegments, Memopt_HasParameters]> {
  let summary = "Layer normalization over the last dimensions";
  let description = [{
    Normalizes over the dimensions from `begin` on. `scale` and `offset` have just those dimensions; `mean`
    and `inverse_deviation` (1 / sqrt(variance + eps)) the dimensions before.
  }];
  let arguments = (ins Memopt_FloatTensor:$input, Optional<Memopt_FloatTensor>:$scale,
    Optional<Memopt_FloatTensor>:$offset, I64Attr:$begin, F64Attr:$eps);
  let results = (outs Memopt_FloatTensor:$result, Memopt_FloatTensor:$mean, Memopt_FloatTensor:$inverse_deviation);
  let hasVerifier = 1;
}

def Memopt_LayerNormBackwardOp : Memopt_PureOp<"layer_norm_backward"> {
  let summary = "Gradients of a layer normalization's input, scale and offset";
  let arguments = (ins Memopt_FloatTensor:$gradient, Memopt_FloatTensor:$input,
    Optional<Memopt_FloatTensor>:$scale, Memopt_FloatTensor:$mean, Memopt_FloatTensor:$inverse_deviation,
    I64Attr:$begin);
  let results = (outs Memopt_FloatTensor:$input_gradient, Memopt_FloatTensor:$scale_gradient,
    Memopt_FloatTensor:$offset_gradient);
  let hasVerifier = 1;
}

def Memopt_GroupNormOp : Memopt_GraphOp<"group_norm", [AttrSizedOperandSegments, Memopt_TiedByAttributes,
    Memopt_HasParameters]> {
  let summary = "Group normalization (Wu and He, 2018)";
  let description = [{
    Splits channels (dimension 1, or the last when `layout` is channels_last) into `groups` and normalizes each sample's group over its channels and all
    spatial dimensions. `scale` and `offset` [C]; `mean` and `inverse_deviation` [N, groups].
  }];
  let arguments = (ins Memopt_FloatTensor:$input, Optional<Memopt_FloatTensor>:$scale,
    Optional<Memopt_FloatTensor>:$offset, I64Attr:$groups, F64Attr:$eps,
    DefaultValuedAttr<Memopt_LayoutAttr, "::mlir::memopt::Layout::ChannelsFirst">:$layout);
  let results = (outs Memopt_FloatTensor:$result, Memopt_FloatTensor:$mean, Memopt_FloatTensor:$inverse_deviation);
  let hasVerifier = 1;
}

def Memopt_RmsNormOp : Memopt_GraphOp<"rms_norm", [Memopt_HasParameters]> {
  let summary = "x / sqrt(mean(x^2) + eps) * scale over the dimensions from `begin` on (Zhang and Sennrich, 2019)";
  let arguments = (ins Memopt_FloatTensor:$input, Optional<Memopt_FloatTensor>:$scale, I64Attr:$begin, F64Attr:$eps);
  let results = (outs Memopt_FloatTensor:$result);
  let hasVerifier = 1;
}

class Memopt_SoftmaxBase<string mnemonic, string text, list<Trait> traits = []>
    : Memopt_GraphOp<mnemonic, [SameOperandsAndResultType, Memopt_TiedByAttributes] # traits> {
  let summary = text;
  let arguments = (ins Memopt_FloatTensor:$input, I64Attr:$axis);
  let results = (outs Memopt_FloatTensor:$result);
  let hasVerifier = 1;
}
def Memopt_SoftmaxOp : Memopt_SoftmaxBase<"softmax", "exp(x) / sum(exp(x)) along `axis`", [Memopt_Follows]>;
def Memopt_LogSoftmaxOp : Memopt_SoftmaxBase<"log_softmax", "x - log(sum(exp(x))) along `axis`">;

//===----------------------------------------------------------------------===//
// Losses
//===----------------------------------------------------------------------===//

def Memopt_CrossEntropyOp : Memopt_GraphOp<"cross_entropy", [Memopt_Indexing]> {
  let summary = "Sum and count of softmax cross entropies";
  let description = [{
    `logits` [N, C], `targets` [N] class indices. `total` is the sum of -log softmax(logits)[target] over rows
    whose target is not `ignore_index`, `count` the number of these rows; with `class_weights` [C] both are
    weighted. A mean is `total / count`, spelled out, so that accumulation and data parallelism can divide by
    the count over the whole batch. `label_smoothing` mixes the target with the uniform distribution as
    PyTorch does. `largest` and `log_sum` [N] are kept for the gradient: a row's largest logit, and
    log sum exp(logits - largest). Their sum would be rounded at the size of the logits, and 1 - p of a target
    that is predicted well with it. Other targets outside [0, C) are an error of the data.
  }];
  let arguments = (ins Memopt_FloatTensor:$logits, Memopt_IntTensor:$targets,
    Optional<Memopt_FloatTensor>:$class_weights, DefaultValuedAttr<I64Attr, "-100">:$ignore_index,
    DefaultValuedAttr<F64Attr, "0.0">:$label_smoothing);
  let results = (outs Memopt_FloatTensor:$total, Memopt_FloatTensor:$count, Memopt_FloatTensor:$largest,
    Memopt_FloatTensor:$log_sum);
  let hasVerifier = 1;
}

def Memopt_CrossEntropyBackwardOp : Memopt_PureOp<"cross_entropy_backward", [Memopt_Indexing]> {
  let summary = "Gradient of the logits: gradient * (softmax - target)";
  let description = [{ `gradient` is the scalar gradient of `total`. }];
  let arguments = (ins Memopt_FloatTensor:$logits, Memopt_IntTensor:$targets,
    Optional<Memopt_FloatTensor>:$class_weights, Memopt_FloatTensor:$largest, Memopt_FloatTensor:$log_sum,
    Memopt_FloatTensor:$gradient, DefaultValuedAttr<I64Attr, "-100">:$ignore_index,
    DefaultValuedAttr<F64Attr, "0.0">:$label_smoothing);
  let results = (outs Memopt_FloatTensor:$result);
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Pooling and interpolation
//===----------------------------------------------------------------------===//

class Memopt_PoolBase<string mnemonic, list<Trait> traits = []> : Memopt_PureOp<mnemonic, [Memopt_TiedByAttributes] # traits> {
  dag window = (ins DenseI64ArrayAttr:$kernel, DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$padding_low,
    DenseI64ArrayAttr:$padding_high,
    DefaultValuedAttr<Memopt_LayoutAttr, "::mlir::memopt::Layout::ChannelsFirst">:$layout);
  let hasVerifier = 1;
}

def Memopt_MaxPoolOp : Memopt_PoolBase<"max_pool", [Memopt_Differentiable, Memopt_Follows]> {
  let summary = "Largest element of each window";
  let description = [{
    `input` [N, C, spatial...] or channels last. Padding never wins; NaN does. `taps` says which element of
    the window won, row-major inside the window, the first among equals.
  }];
  let arguments = !con((ins Memopt_FloatTensor:$input), window, (ins DenseI64ArrayAttr:$dilations));
  let results = (outs Memopt_FloatTensor:$result, Memopt_IntTensor:$taps);
}

def Memopt_MaxPoolBackwardOp : Memopt_PoolBase<"max_pool_backward"> {
  let summary = "Sends each window's gradient to its winner";
  let arguments = !con((ins Memopt_FloatTensor:$gradient, Memopt_IntTensor:$taps), window,
    (ins DenseI64ArrayAttr:$dilations));
  let results = (outs Memopt_FloatTensor:$result);
}

def Memopt_AvgPoolOp : Memopt_PoolBase<"avg_pool", [Memopt_Differentiable, Memopt_Follows]> {
  let summary = "Mean of each window";
  let description = [{
    Divides by `divisor` when it is positive, else by the window's size, padding counted when
    `count_padding` is set.
  }];
  let arguments = !con((ins Memopt_FloatTensor:$input), window,
    (ins UnitAttr:$count_padding, DefaultValuedAttr<I64Attr, "0">:$divisor));
  let results = (outs Memopt_FloatTensor:$result);
}

def Memopt_AvgPoolBackwardOp : Memopt_PoolBase<"avg_pool_backward"> {
  let summary = "Spreads each window's gradient over it";
  let arguments = !con((ins Memopt_FloatTensor:$gradient), window,
    (ins UnitAttr:$count_padding, DefaultValuedAttr<I64Attr, "0">:$divisor));
  let results = (outs Memopt_FloatTensor:$result);
}

def Memopt_InterpolateOp : Memopt_GraphOp<"interpolate", [Memopt_TiedByAttributes, Memopt_Follows]> {
  let summary = "Resizes spatial dimensions";
  let description = [{
    `input` [N, C, spatial...] or channels last. `scales[i]` is the source step per result element in spatial
    dimension i, as PyTorch computes it; `align_corners` has PyTorch's meaning. Element i of a dimension is, by `mode`:

    - `nearest`: the element at floor(i s); `nearest_exact`: at floor((i + 1/2) s)
    - `linear`: between two elements; `cubic`: of four, by the cubic convolution of Keys (1981) with a = -3/4
    - `area`: the mean of elements floor(i n / m) to ceil((i + 1) n / m) - 1 of n, for m elements (adaptive pooling)
    - `linear_antialias`, `cubic_antialias` (a = -1/2): a weighted mean of all elements that the kernel, stretched
      by the step, reaches

    A dimension's weights are known at compile time, so the gradient is the same kind of sum.

    Example: `%y = memopt.interpolate %x {scales = array<f64: 0.5, 0.5>, mode = #memopt.resampling<linear>} : (tensor<2x3x4x4xf32>) -> tensor<2x3x8x8xf32>`
  }];
  let arguments = (ins Memopt_FloatTensor:$input, DenseF64ArrayAttr:$scales, Memopt_ResamplingAttr:$mode,
    UnitAttr:$align_corners,
    DefaultValuedAttr<Memopt_LayoutAttr, "::mlir::memopt::Layout::ChannelsFirst">:$layout);
  let results = (outs Memopt_FloatTensor:$result);
  let hasVerifier = 1;
}

def Memopt_InterpolateBackwardOp : Memopt_PureOp<"interpolate_backward", [Memopt_TiedByAttributes]> {
  let summary = "Gradient of an interpolation's input";
  let arguments = (ins Memopt_FloatTensor:$gradient, DenseF64ArrayAttr:$scales, Memopt_ResamplingAttr:$mode,
    UnitAttr:$align_corners,
    DefaultValuedAttr<Memopt_LayoutAttr, "::mlir::memopt::Layout::ChannelsFirst">:$layout);
  let results = (outs Memopt_FloatTensor:$result);
  let hasVerifier = 1;
}

#endif // MEMOPT_DIALECT_NEURALNETWORKOPS_TD
