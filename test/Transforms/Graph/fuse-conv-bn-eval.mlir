// RUN: memopt-opt %s --split-input-file --memopt-fuse-conv-bn-eval="modules=all" | FileCheck %s
// RUN: memopt-opt %s --split-input-file --memopt-fuse-conv-bn-eval="modules=all" --remarks-filter=memopt-fuse-conv-bn-eval --remark-format=emitRemark 2>&1 | FileCheck %s --check-prefix=REMARK

// The filter is scaled by output channel, and the convolution's bias joins the shift. The result that nobody keeps any
// more has 2 x 4 x 6 x 6 x 4 = 1152 bytes, the scaled filter 4 x 3 x 3 x 3 x 4 = 432.

// CHECK: memopt.efficient_conv_bn_eval = {filter_bytes = 432 : i64, fused = ["net.bn"], refused = {}, result_bytes = 1152 : i64}
// CHECK-LABEL: func.func @bias
// CHECK-DAG: %[[W:.*]] = memopt.read @conv.weight
// CHECK-DAG: %[[B:.*]] = memopt.read @conv.bias
// CHECK-DAG: %[[ROOT:.*]] = math.rsqrt
// CHECK: %[[FACTOR:.*]] = arith.mulf %[[ROOT]]
// CHECK: %[[SHIFT:.*]] = arith.subf
// CHECK: %[[BIAS:.*]] = arith.mulf %[[B]], %[[FACTOR]] : tensor<4xf32>
// CHECK: %[[TOTAL:.*]] = arith.addf %[[SHIFT]], %[[BIAS]] : tensor<4xf32>
// CHECK: %[[ROWS:.*]] = memopt.broadcast %[[FACTOR]] {dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<4x3x3x3xf32>
// CHECK: %[[SCALED:.*]] = arith.mulf %[[W]], %[[ROWS]]
// CHECK: %[[Y:.*]] = memopt.convolution %{{.*}}, %[[SCALED]]
// CHECK: %[[ALL:.*]] = memopt.broadcast %[[TOTAL]] {dimensions = array<i64: 1>}
// CHECK: %[[Z:.*]] = arith.addf %[[Y]], %[[ALL]]
// CHECK-NOT: memopt.convolution
// CHECK: return %[[Z]]
// REMARK: [Passed] FuseConvBnEval | Category:memopt-fuse-conv-bn-eval | Function=bias | FilterBytes=432
// REMARK-SAME: Remark="fused 'net.bn' into 'memopt.convolution' in 'net.conv'", ResultBytes=1152
memopt.variable @conv.weight : tensor<4x3x3x3xf32> role <parameter> {trainable}
memopt.variable @conv.bias : tensor<4xf32> role <parameter> {trainable}
memopt.variable @bn.weight : tensor<4xf32> role <parameter> {trainable}
memopt.variable @bn.bias : tensor<4xf32> role <parameter> {trainable}
memopt.variable @bn.running_mean : tensor<4xf32> role <buffer>
memopt.variable @bn.running_var : tensor<4xf32> role <buffer>
func.func @bias(%x: tensor<2x3x8x8xf32>) -> tensor<2x4x6x6xf32> {
  %w = memopt.read @conv.weight : tensor<4x3x3x3xf32>
  %b = memopt.read @conv.bias : tensor<4xf32>
  %gamma = memopt.read @bn.weight : tensor<4xf32>
  %beta = memopt.read @bn.bias : tensor<4xf32>
  %mean = memopt.read @bn.running_mean : tensor<4xf32>
  %var = memopt.read @bn.running_var : tensor<4xf32>
  %eps = arith.constant dense<1.0e-05> : tensor<4xf32>
  %y = memopt.convolution %x, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 0, 0>, padding_high = array<i64: 0, 0>,
    dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<2x4x6x6xf32> loc("net.conv")
  %wide_bias = memopt.broadcast %b {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4x6x6xf32>
  %biased = arith.addf %y, %wide_bias : tensor<2x4x6x6xf32>
  %moved = arith.addf %var, %eps : tensor<4xf32>
  %root = math.rsqrt %moved : tensor<4xf32>
  %factor = arith.mulf %root, %gamma : tensor<4xf32>
  %centre = arith.mulf %mean, %factor : tensor<4xf32>
  %shift = arith.subf %beta, %centre : tensor<4xf32>
  %wide_factor = memopt.broadcast %factor {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4x6x6xf32>
  %scaled = arith.mulf %biased, %wide_factor : tensor<2x4x6x6xf32>
  %wide_shift = memopt.broadcast %shift {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4x6x6xf32>
  %z = arith.addf %scaled, %wide_shift : tensor<2x4x6x6xf32> loc("net.bn")
  return %z : tensor<2x4x6x6xf32>
}

// -----

// A transposed convolution of two groups has 8 inputs and 6 outputs: channel 3 g + j of the result belongs to the rows
// 4 g to 4 g + 3 of the filter, and there to column j.

// CHECK-LABEL: func.func @transposed
// CHECK-DAG: %[[W:.*]] = memopt.read @up.weight
// CHECK-DAG: %[[FACTOR:.*]] = math.rsqrt
// CHECK: %[[GROUPS:.*]] = tensor.expand_shape %[[W]] {{\[\[}}0, 1], [2], [3]] output_shape [2, 4, 3, 5]
// CHECK: %[[PAIRS:.*]] = tensor.expand_shape %[[FACTOR]] {{\[\[}}0, 1]] output_shape [2, 3]
// CHECK: %[[WIDE:.*]] = memopt.broadcast %[[PAIRS]] {dimensions = array<i64: 0, 2>} : (tensor<2x3xf32>) -> tensor<2x4x3x5xf32>
// CHECK: %[[PRODUCT:.*]] = arith.mulf %[[GROUPS]], %[[WIDE]]
// CHECK: %[[SCALED:.*]] = tensor.collapse_shape %[[PRODUCT]] {{\[\[}}0, 1], [2], [3]]
// CHECK: memopt.convolution_backward_data %{{.*}}, %[[SCALED]]
// Without a trained scale the result would not have been kept.
// REMARK: [Passed] {{.*}} Function=transposed
// REMARK-SAME: fused 'bn' into 'memopt.convolution_backward_data' in 'up'", ResultBytes=0
memopt.variable @up.weight : tensor<8x3x5xf32> role <parameter> {trainable}
memopt.variable @bn.running_mean : tensor<6xf32> role <buffer>
memopt.variable @bn.running_var : tensor<6xf32> role <buffer>
func.func @transposed(%x: tensor<2x8x6xf32>) -> tensor<2x6x10xf32> {
  %w = memopt.read @up.weight : tensor<8x3x5xf32>
  %mean = memopt.read @bn.running_mean : tensor<6xf32>
  %var = memopt.read @bn.running_var : tensor<6xf32>
  %eps = arith.constant dense<1.0e-05> : tensor<6xf32>
  %y = memopt.convolution_backward_data %x, %w {strides = array<i64: 1>, padding_low = array<i64: 0>, padding_high = array<i64: 0>,
    dilations = array<i64: 1>, groups = 2 : i64} : (tensor<2x8x6xf32>, tensor<8x3x5xf32>) -> tensor<2x6x10xf32> loc("up")
  %moved = arith.addf %var, %eps : tensor<6xf32>
  %root = math.rsqrt %moved : tensor<6xf32>
  %centre = arith.mulf %mean, %root : tensor<6xf32>
  %shift = arith.negf %centre : tensor<6xf32>
  %wide_factor = memopt.broadcast %root {dimensions = array<i64: 1>} : (tensor<6xf32>) -> tensor<2x6x10xf32>
  %scaled = arith.mulf %y, %wide_factor : tensor<2x6x10xf32>
  %wide_shift = memopt.broadcast %shift {dimensions = array<i64: 1>} : (tensor<6xf32>) -> tensor<2x6x10xf32>
  %z = arith.addf %scaled, %wide_shift : tensor<2x6x10xf32> loc("bn")
  return %z : tensor<2x6x10xf32>
}

// -----

// A linear layer's matrix is [outputs, inputs] where the product transposes it.

// CHECK-LABEL: func.func @linear
// CHECK-DAG: %[[W:.*]] = memopt.read @fc.weight
// CHECK-DAG: %[[FACTOR:.*]] = math.rsqrt
// CHECK: %[[WIDE:.*]] = memopt.broadcast %[[FACTOR]] {dimensions = array<i64: 0>} : (tensor<5xf32>) -> tensor<5x3xf32>
// CHECK: %[[SCALED:.*]] = arith.mulf %[[W]], %[[WIDE]]
// CHECK: memopt.matmul %{{.*}}, %[[SCALED]] {transpose_b}
memopt.variable @fc.weight : tensor<5x3xf32> role <parameter> {trainable}
memopt.variable @bn.running_mean : tensor<5xf32> role <buffer>
memopt.variable @bn.running_var : tensor<5xf32> role <buffer>
func.func @linear(%x: tensor<2x3xf32>) -> tensor<2x5xf32> {
  %w = memopt.read @fc.weight : tensor<5x3xf32>
  %mean = memopt.read @bn.running_mean : tensor<5xf32>
  %var = memopt.read @bn.running_var : tensor<5xf32>
  %eps = arith.constant dense<1.0e-05> : tensor<5xf32>
  %y = memopt.matmul %x, %w {transpose_b} : (tensor<2x3xf32>, tensor<5x3xf32>) -> tensor<2x5xf32> loc("fc")
  %moved = arith.addf %var, %eps : tensor<5xf32>
  %root = math.rsqrt %moved : tensor<5xf32>
  %centre = arith.mulf %mean, %root : tensor<5xf32>
  %shift = arith.negf %centre : tensor<5xf32>
  %wide_factor = memopt.broadcast %root {dimensions = array<i64: 1>} : (tensor<5xf32>) -> tensor<2x5xf32>
  %scaled = arith.mulf %y, %wide_factor : tensor<2x5xf32>
  %wide_shift = memopt.broadcast %shift {dimensions = array<i64: 1>} : (tensor<5xf32>) -> tensor<2x5xf32>
  %z = arith.addf %scaled, %wide_shift : tensor<2x5xf32> loc("bn")
  return %z : tensor<2x5xf32>
}

// -----

// As detectors spell out a frozen norm: everything has the rank of the input, factors stand in the other order.

// CHECK: fused = ["frozen"]
// CHECK-LABEL: func.func @spelled_out
// CHECK: %[[FACTOR:.*]] = tensor.collapse_shape %{{.*}} {{\[\[}}0, 1, 2]] : tensor<1x6x1xf32> into tensor<6xf32>
// CHECK: memopt.broadcast %[[FACTOR]] {dimensions = array<i64: 0>} : (tensor<6xf32>) -> tensor<6x3x5xf32>
// CHECK: memopt.convolution
memopt.variable @conv.weight : tensor<6x3x5xf32> role <parameter> {trainable}
memopt.variable @scale : tensor<6xf32> role <buffer>
memopt.variable @mean : tensor<6xf32> role <buffer>
memopt.variable @var : tensor<6xf32> role <buffer>
func.func @spelled_out(%x: tensor<2x3x8xf32>) -> tensor<2x6x4xf32> {
  %w = memopt.read @conv.weight : tensor<6x3x5xf32>
  %scale = memopt.read @scale : tensor<6xf32>
  %mean = memopt.read @mean : tensor<6xf32>
  %var = memopt.read @var : tensor<6xf32>
  %eps = arith.constant dense<1.0e-05> : tensor<1x6x1xf32>
  %y = memopt.convolution %x, %w {strides = array<i64: 1>, padding_low = array<i64: 0>, padding_high = array<i64: 0>,
    dilations = array<i64: 1>, groups = 1 : i64} : (tensor<2x3x8xf32>, tensor<6x3x5xf32>) -> tensor<2x6x4xf32> loc("conv")
  %scale3 = tensor.expand_shape %scale [[0, 1, 2]] output_shape [1, 6, 1] : tensor<6xf32> into tensor<1x6x1xf32>
  %mean3 = tensor.expand_shape %mean [[0, 1, 2]] output_shape [1, 6, 1] : tensor<6xf32> into tensor<1x6x1xf32>
  %var3 = tensor.expand_shape %var [[0, 1, 2]] output_shape [1, 6, 1] : tensor<6xf32> into tensor<1x6x1xf32>
  %moved = arith.addf %var3, %eps : tensor<1x6x1xf32>
  %root = math.rsqrt %moved : tensor<1x6x1xf32>
  %factor = arith.mulf %scale3, %root : tensor<1x6x1xf32>
  %centre = arith.mulf %mean3, %factor : tensor<1x6x1xf32>
  %shift = arith.negf %centre : tensor<1x6x1xf32>
  %wide_factor = memopt.broadcast %factor {dimensions = array<i64: 0, 1, 2>} : (tensor<1x6x1xf32>) -> tensor<2x6x4xf32>
  %scaled = arith.mulf %wide_factor, %y : tensor<2x6x4xf32>
  %wide_shift = memopt.broadcast %shift {dimensions = array<i64: 0, 1, 2>} : (tensor<1x6x1xf32>) -> tensor<2x6x4xf32>
  %z = arith.addf %wide_shift, %scaled : tensor<2x6x4xf32> loc("frozen")
  return %z : tensor<2x6x4xf32>
}
