//===- LibraryAttributes.td - what libraries are asked to compute -*- tablegen -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One attribute for each kind of library call, behind LibraryCallAttrInterface. docs/LibraryCalls.md says what
// each computes and in which order its buffers come.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_LIBRARYATTRIBUTES_TD
#define MEMOPT_DIALECT_LIBRARYATTRIBUTES_TD

include "memopt/Dialect/MemoptDialect.td"
include "memopt/Interfaces/MemoptInterfaces.td"

class Memopt_LibraryCallAttr<string name, string attrMnemonic, list<string> overridden = []> : AttrDef<Memopt_Dialect,
    name, [DeclareAttrInterfaceMethods<LibraryCallAttrInterface, overridden>]> {
  let mnemonic = attrMnemonic;
  let genVerifyDecl = 1;
}

/// Extents or strides, printed as `[2, 3]`.
def Memopt_Numbers : OptionalArrayRefParameter<"int64_t">;
def Memopt_Flag : DefaultValuedParameter<"bool", "false">;

/// What a call has whose second operand may be packed weights.
defvar Memopt_packing = ["getAddend", "getPackedWeightBytes", "withPackedWeights"];

def Memopt_MatmulAttr : Memopt_LibraryCallAttr<"Matmul", "matmul", Memopt_packing> {
  let summary = "A product of matrices, or a batch of them";
  let description = [{
    `c[i..., m, n] = bias[n] + sum over k of a[i..., m, k] b[i..., k, n]`, i over `batch`. Strides have one
    entry for each batch dimension, then one for rows, then one for columns; 0 in an operand repeats it.
    Sums are made in `accumulator`, which is the type of a bias, too, but with `narrow_bias`, where it has `type`, as the
    result must then. With `bias` a vector of length n comes after `b`. The result has `result_type`, by default `type`, which is that of the operands. With `accumulate` the
    product is added to the last operand, which has the type and the layout of the result. With `counts_rows` or `counts_terms` a
    mask comes after them, of m or k elements: rows that it does not have are zeros before the bias, and terms that it does not have
    are left out of the sums. With `packed` the operand `b` is a vector of this number of bytes, in the library's own layout
    (`memopt.pack_weights`).

    Example: `#memopt.matmul<m = 4, n = 8, k = 16, a_strides = [16, 1], b_strides = [8, 1], c_strides = [8, 1],
    type = f32, accumulator = f32>`
  }];
  let parameters = (ins Memopt_Numbers:$batch, "int64_t":$m, "int64_t":$n, "int64_t":$k,
    Memopt_Numbers:$a_strides, Memopt_Numbers:$b_strides, Memopt_Numbers:$c_strides, Memopt_Flag:$bias,
    Memopt_Flag:$accumulate, "::mlir::Type":$type, "::mlir::Type":$accumulator,
    OptionalParameter<"::mlir::Type">:$result_type, Memopt_Flag:$narrow_bias, Memopt_Flag:$counts_rows,
    Memopt_Flag:$counts_terms, DefaultValuedParameter<"int64_t", "0">:$packed);
  let assemblyFormat = [{ `<` struct(custom<Numbers>($batch), $m, $n, $k, custom<Numbers>($a_strides),
    custom<Numbers>($b_strides), custom<Numbers>($c_strides), $bias, $accumulate, $type, $accumulator,
    $result_type, $narrow_bias, $counts_rows, $counts_terms, $packed) `>` }];
}

def Memopt_ConvolutionAttr : Memopt_LibraryCallAttr<"Convolution", "convolution", Memopt_packing> {
  let summary = "A convolution, the gradient of its input, or that of its weights";
  let description = [{
    `input` and `output` are `[N, C, spatial...]` and `[N, K, spatial...]` whatever the `layout` in memory;
    `weight` is `[K, C / groups, spatial...]`. A dilation of 1 is a dense filter. With `bias` (forward only)
    a vector of length K comes after the weights, in the type of the `accumulator`. With `relu` (forward only) numbers
    that are not above 0 are stored as 0, and NaN as NaN. The result has `result_type`, by default `type`, which is that
    of the operands. With `accumulate` (gradients of weights only) it is added to the last operand, which has the type
    and the layout of the result. With `packed` the weights are a vector of this number of bytes, in the library's own
    layout (`memopt.pack_weights`).

    Example: `#memopt.convolution<kind = forward, layout = channels_last, input = [1, 3, 8, 8],
    weight = [4, 3, 3, 3], output = [1, 4, 8, 8], strides = [1, 1], padding_lower = [1, 1],
    padding_upper = [1, 1], dilations = [1, 1], groups = 1, type = f32, accumulator = f32>`
  }];
  let parameters = (ins "::mlir::memopt::ConvolutionKind":$kind, "::mlir::memopt::Layout":$layout,
    Memopt_Numbers:$input, Memopt_Numbers:$weight, Memopt_Numbers:$output, Memopt_Numbers:$strides,
    Memopt_Numbers:$padding_lower, Memopt_Numbers:$padding_upper, Memopt_Numbers:$dilations, "int64_t":$groups,
    Memopt_Flag:$bias, Memopt_Flag:$relu, Memopt_Flag:$accumulate,
    DefaultValuedParameter<"int64_t", "0">:$packed, "::mlir::Type":$type, "::mlir::Type":$accumulator,
    OptionalParameter<"::mlir::Type">:$result_type);
  let assemblyFormat = [{ `<` struct($kind, $layout, custom<Numbers>($input), custom<Numbers>($weight),
    custom<Numbers>($output), custom<Numbers>($strides), custom<Numbers>($padding_lower),
    custom<Numbers>($padding_upper), custom<Numbers>($dilations), $groups, $bias, $relu, $accumulate,
    $packed, $type, $accumulator, $result_type) `>` }];
}

def Memopt_PackWeightsAttr : Memopt_LibraryCallAttr<"PackWeights", "pack_weights"> {
  let summary = "The weights of a call as the library reads them";
  let description = [{
    Copies plain weights into the layout in which the `call` reads them: the weights of a convolution, or the right operand
    of a product. Its `packed` is their number of bytes.

    Example: `#memopt.pack_weights<#memopt.convolution<kind = forward, layout = channels_last, input = [1, 3, 8, 8],
    weight = [4, 3, 3, 3], output = [1, 4, 8, 8], strides = [1, 1], padding_lower = [1, 1], padding_upper = [1, 1],
    dilations = [1, 1], groups = 1, packed = 864, type = f32, accumulator = f32>>`
  }];
  let parameters = (ins "::mlir::memopt::LibraryCallAttrInterface":$call);
  let assemblyFormat = "`<` $call `>`";
}

def Memopt_AttentionAttr : Memopt_LibraryCallAttr<"Attention", "attention"> {
  let summary = "Scaled dot-product attention, or the gradients of queries, keys and values";
  let description = [{
    Strides are `[batch, head, token, feature]`. A mask of type i1 says which keys take part; numbers are added to the
    scores. A size of 1 is repeated with a stride of 0. With `dmask_strides` the last result of the gradient is the
    gradient of the mask, summed over dimensions with a stride of 0. The numbers of a mask, its gradient and the
    logarithms of sums have the type of the `accumulator`, everything else has `type`. With a `dropout` above 0 the
    scalars seed and step come after the mask, and `id` distinguishes the masks of different calls. With `first` a third
    scalar is the number of the first score.

    Example: `#memopt.attention<kind = forward, batch = 2, heads = 4, kv_heads = 4, query_length = 16,
    key_length = 16, head_dim = 8, value_dim = 8, scale = 0.5 : f64, causal = true, q_strides = [512, 128, 8, 1],
    k_strides = [512, 128, 8, 1], v_strides = [512, 128, 8, 1], o_strides = [512, 128, 8, 1], type = f32,
    accumulator = f32>`
  }];
  let parameters = (ins "::mlir::memopt::AttentionKind":$kind, "int64_t":$batch, "int64_t":$heads,
    "int64_t":$kv_heads, "int64_t":$query_length, "int64_t":$key_length, "int64_t":$head_dim,
    "int64_t":$value_dim, "::mlir::FloatAttr":$scale, Memopt_Flag:$causal, Memopt_Numbers:$q_strides,
    Memopt_Numbers:$k_strides, Memopt_Numbers:$v_strides, Memopt_Numbers:$o_strides,
    Memopt_Numbers:$do_strides, Memopt_Numbers:$dq_strides, Memopt_Numbers:$dk_strides,
    Memopt_Numbers:$dv_strides, OptionalParameter<"::mlir::Type">:$mask_type, Memopt_Numbers:$mask_strides,
    Memopt_Numbers:$dmask_strides, OptionalParameter<"::mlir::FloatAttr">:$dropout, DefaultValuedParameter<"int64_t", "0">:$id,
    DefaultValuedParameter<"bool", "false">:$first, "::mlir::Type":$type, "::mlir::Type":$accumulator);
  let assemblyFormat = [{ `<` struct($kind, $batch, $heads, $kv_heads, $query_length, $key_length, $head_dim,
    $value_dim, $scale, $causal, custom<Numbers>($q_strides), custom<Numbers>($k_strides),
    custom<Numbers>($v_strides), custom<Numbers>($o_strides), custom<Numbers>($do_strides),
    custom<Numbers>($dq_strides), custom<Numbers>($dk_strides), custom<Numbers>($dv_strides), $mask_type,
    custom<Numbers>($mask_strides), custom<Numbers>($dmask_strides), $dropout, $id, $first, $type,
    $accumulator) `>` }];
}

def Memopt_LinearAlgebraAttr : Memopt_LibraryCallAttr<"LinearAlgebra", "linear_algebra", ["getReplaced"]> {
  let summary = "A decomposition of matrices, or what solves by one";
  let description = [{
    What `memopt.linear_algebra` of this `kind` computes, of `batch` matrices of `rows` by `columns` one behind the other. `width`
    is the number of right sides of a solve or of a product with a triangle, or of a product of reflections its factors, else 0.
    The flags are the op's. A result whose matrices have the size of an operand's may take its place.

    Example: `#memopt.linear_algebra<kind = cholesky, batch = 2, rows = 16, columns = 16, type = f32>`
  }];
  let parameters = (ins "::mlir::memopt::LinearAlgebraKind":$kind, "int64_t":$batch, "int64_t":$rows, "int64_t":$columns,
    DefaultValuedParameter<"int64_t", "0">:$width, Memopt_Flag:$upper, Memopt_Flag:$unit, Memopt_Flag:$transposed,
    Memopt_Flag:$right, Memopt_Flag:$pairs, "::mlir::Type":$type);
  let assemblyFormat = [{ `<` struct($kind, $batch, $rows, $columns, $width, $upper, $unit, $transposed, $right, $pairs,
    $type) `>` }];
}

#endif // MEMOPT_DIALECT_LIBRARYATTRIBUTES_TD
