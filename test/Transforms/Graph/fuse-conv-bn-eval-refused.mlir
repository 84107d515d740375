// RUN: memopt-opt %s --split-input-file --memopt-fuse-conv-bn-eval="modules=all" | FileCheck %s
// RUN: memopt-opt %s --split-input-file --memopt-fuse-conv-bn-eval="modules=all" --remarks-filter=memopt-fuse-conv-bn-eval --remark-format=emitRemark 2>&1 | FileCheck %s --check-prefix=REMARK

// What cannot be fused stays as it is, and the remark says why.

// The batch's own statistics change with every weight: there is no number to scale a filter by.

// CHECK-LABEL: func.func @training
// CHECK: memopt.batch_norm
// REMARK: [Missed] {{.*}} Function=training |
// REMARK-SAME: Reason="it is in training mode and normalizes by the statistics of the batch", Remark="left 'bn' alone"
memopt.variable @conv.weight : tensor<4x3x3xf32> role <parameter> {trainable}
func.func @training(%x: tensor<2x3x8xf32>) -> (tensor<2x4x6xf32>, tensor<4xf32>) {
  %w = memopt.read @conv.weight : tensor<4x3x3xf32>
  %y = memopt.convolution %x, %w {strides = array<i64: 1>, padding_low = array<i64: 0>, padding_high = array<i64: 0>,
    dilations = array<i64: 1>, groups = 1 : i64} : (tensor<2x3x8xf32>, tensor<4x3x3xf32>) -> tensor<2x4x6xf32> loc("conv")
  %z, %mean, %variance = memopt.batch_norm %y {eps = 1.0e-05 : f64, operandSegmentSizes = array<i32: 1, 0, 0>}
    : (tensor<2x4x6xf32>) -> (tensor<2x4x6xf32>, tensor<4xf32>, tensor<4xf32>) loc("bn")
  return %z, %mean : tensor<2x4x6xf32>, tensor<4xf32>
}

// -----

// Nobody tracks the statistics.

// CHECK-LABEL: func.func @untracked
// REMARK: [Missed] {{.*}} Function=untracked |
// REMARK-SAME: Reason="it has no running statistics and normalizes by those of the batch", Remark="left 'bn' alone"
memopt.variable @conv.weight : tensor<4x3x3xf32> role <parameter> {trainable}
func.func @untracked(%x: tensor<2x3x8xf32>) -> tensor<2x4x6xf32> {
  %w = memopt.read @conv.weight : tensor<4x3x3xf32>
  %y = memopt.convolution %x, %w {strides = array<i64: 1>, padding_low = array<i64: 0>, padding_high = array<i64: 0>,
    dilations = array<i64: 1>, groups = 1 : i64} : (tensor<2x3x8xf32>, tensor<4x3x3xf32>) -> tensor<2x4x6xf32> loc("conv")
  %z, %mean, %variance = memopt.batch_norm %y {eps = 1.0e-05 : f64, operandSegmentSizes = array<i32: 1, 0, 0>}
    : (tensor<2x4x6xf32>) -> (tensor<2x4x6xf32>, tensor<4xf32>, tensor<4xf32>) loc("bn")
  return %z : tensor<2x4x6xf32>
}

// -----

// A second reader wants the convolution's result as it is, which would be computed twice.

// CHECK-LABEL: func.func @second_reader
// REMARK: [Missed] {{.*}} Function=second_reader |
// REMARK-SAME: Reason="what it normalizes is also read by 'math.tanh' in 'gate'", Remark="left 'bn' alone"
memopt.variable @conv.weight : tensor<4x3x3xf32> role <parameter> {trainable}
memopt.variable @bn.running_mean : tensor<4xf32> role <buffer>
memopt.variable @bn.running_var : tensor<4xf32> role <buffer>
func.func @second_reader(%x: tensor<2x3x8xf32>) -> (tensor<2x4x6xf32>, tensor<2x4x6xf32>) {
  %w = memopt.read @conv.weight : tensor<4x3x3xf32>
  %mean = memopt.read @bn.running_mean : tensor<4xf32>
  %var = memopt.read @bn.running_var : tensor<4xf32>
  %y = memopt.convolution %x, %w {strides = array<i64: 1>, padding_low = array<i64: 0>, padding_high = array<i64: 0>,
    dilations = array<i64: 1>, groups = 1 : i64} : (tensor<2x3x8xf32>, tensor<4x3x3xf32>) -> tensor<2x4x6xf32> loc("conv")
  %eps = arith.constant dense<1.0e-05> : tensor<4xf32>
  %moved = arith.addf %var, %eps : tensor<4xf32>
  %root = math.rsqrt %moved : tensor<4xf32>
  %centre = arith.mulf %mean, %root : tensor<4xf32>
  %shift = arith.negf %centre : tensor<4xf32>
  %wide_factor = memopt.broadcast %root {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4x6xf32>
  %scaled = arith.mulf %y, %wide_factor : tensor<2x4x6xf32>
  %wide_shift = memopt.broadcast %shift {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4x6xf32>
  %z = arith.addf %scaled, %wide_shift : tensor<2x4x6xf32> loc("bn")
  %gate = math.tanh %y : tensor<2x4x6xf32> loc("gate")
  return %z, %gate : tensor<2x4x6xf32>, tensor<2x4x6xf32>
}

// -----

// So does one that reads it with the convolution's bias.

// CHECK-LABEL: func.func @second_reader_of_bias
// REMARK: [Missed] {{.*}} Function=second_reader_of_bias |
// REMARK-SAME: Reason="what it normalizes is also read by 'math.tanh' in 'gate'", Remark="left 'bn' alone"
memopt.variable @conv.weight : tensor<4x3x3xf32> role <parameter> {trainable}
memopt.variable @bn.running_mean : tensor<4xf32> role <buffer>
memopt.variable @bn.running_var : tensor<4xf32> role <buffer>
memopt.variable @conv.bias : tensor<4xf32> role <parameter> {trainable}
func.func @second_reader_of_bias(%x: tensor<2x3x8xf32>) -> (tensor<2x4x6xf32>, tensor<2x4x6xf32>) {
  %w = memopt.read @conv.weight : tensor<4x3x3xf32>
  %mean = memopt.read @bn.running_mean : tensor<4xf32>
  %var = memopt.read @bn.running_var : tensor<4xf32>
  %b = memopt.read @conv.bias : tensor<4xf32>
  %y = memopt.convolution %x, %w {strides = array<i64: 1>, padding_low = array<i64: 0>, padding_high = array<i64: 0>,
    dilations = array<i64: 1>, groups = 1 : i64} : (tensor<2x3x8xf32>, tensor<4x3x3xf32>) -> tensor<2x4x6xf32> loc("conv")
  %wide_bias = memopt.broadcast %b {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4x6xf32>
  %biased = arith.addf %y, %wide_bias : tensor<2x4x6xf32>
  %eps = arith.constant dense<1.0e-05> : tensor<4xf32>
  %moved = arith.addf %var, %eps : tensor<4xf32>
  %root = math.rsqrt %moved : tensor<4xf32>
  %centre = arith.mulf %mean, %root : tensor<4xf32>
  %shift = arith.negf %centre : tensor<4xf32>
  %wide_factor = memopt.broadcast %root {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4x6xf32>
  %scaled = arith.mulf %biased, %wide_factor : tensor<2x4x6xf32>
  %wide_shift = memopt.broadcast %shift {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4x6xf32>
  %z = arith.addf %scaled, %wide_shift : tensor<2x4x6xf32> loc("bn")
  %gate = math.tanh %biased : tensor<2x4x6xf32> loc("gate")
  return %z, %gate : tensor<2x4x6xf32>, tensor<2x4x6xf32>
}

// -----

// What stands before the norm has no filter.

// CHECK-LABEL: func.func @no_convolution
// REMARK: [Missed] {{.*}} Function=no_convolution |
// REMARK-SAME: Reason="it follows no convolution or linear layer, but 'memopt.relu' in 'act'", Remark="left 'bn' alone"
memopt.variable @bn.running_mean : tensor<4xf32> role <buffer>
memopt.variable @bn.running_var : tensor<4xf32> role <buffer>
func.func @no_convolution(%x: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
  %mean = memopt.read @bn.running_mean : tensor<4xf32>
  %var = memopt.read @bn.running_var : tensor<4xf32>
  %y = memopt.relu %x : tensor<2x4x6xf32> loc("act")
  %eps = arith.constant dense<1.0e-05> : tensor<4xf32>
  %moved = arith.addf %var, %eps : tensor<4xf32>
  %root = math.rsqrt %moved : tensor<4xf32>
  %centre = arith.mulf %mean, %root : tensor<4xf32>
  %shift = arith.negf %centre : tensor<4xf32>
  %wide_factor = memopt.broadcast %root {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4x6xf32>
  %scaled = arith.mulf %y, %wide_factor : tensor<2x4x6xf32>
  %wide_shift = memopt.broadcast %shift {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4x6xf32>
  %z = arith.addf %scaled, %wide_shift : tensor<2x4x6xf32> loc("bn")
  return %z : tensor<2x4x6xf32>
}

// -----

// Neither has an input.

// CHECK-LABEL: func.func @input
// REMARK: [Missed] {{.*}} Function=input |
// REMARK-SAME: Reason="it follows no convolution or linear layer, but an input of the step", Remark="left 'bn' alone"
memopt.variable @bn.running_mean : tensor<4xf32> role <buffer>
memopt.variable @bn.running_var : tensor<4xf32> role <buffer>
func.func @input(%x: tensor<2x4x6xf32>) -> tensor<2x4x6xf32> {
  %mean = memopt.read @bn.running_mean : tensor<4xf32>
  %var = memopt.read @bn.running_var : tensor<4xf32>
  %eps = arith.constant dense<1.0e-05> : tensor<4xf32>
  %moved = arith.addf %var, %eps : tensor<4xf32>
  %root = math.rsqrt %moved : tensor<4xf32>
  %centre = arith.mulf %mean, %root : tensor<4xf32>
  %shift = arith.negf %centre : tensor<4xf32>
  %wide_factor = memopt.broadcast %root {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4x6xf32>
  %scaled = arith.mulf %x, %wide_factor : tensor<2x4x6xf32>
  %wide_shift = memopt.broadcast %shift {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4x6xf32>
  %z = arith.addf %scaled, %wide_shift : tensor<2x4x6xf32> loc("bn")
  return %z : tensor<2x4x6xf32>
}

// -----

// A linear layer over a sequence has its features last, and PyTorch's norm takes dimension 1.

// CHECK-LABEL: func.func @another_axis
// REMARK: [Missed] {{.*}} Function=another_axis |
// REMARK-SAME: Reason="it does not normalize the channels of 'memopt.matmul' in 'fc'", Remark="left 'bn' alone"
memopt.variable @fc.weight : tensor<6x3xf32> role <parameter> {trainable}
memopt.variable @bn.running_mean : tensor<4xf32> role <buffer>
memopt.variable @bn.running_var : tensor<4xf32> role <buffer>
func.func @another_axis(%x: tensor<8x3xf32>) -> tensor<2x4x6xf32> {
  %w = memopt.read @fc.weight : tensor<6x3xf32>
  %mean = memopt.read @bn.running_mean : tensor<4xf32>
  %var = memopt.read @bn.running_var : tensor<4xf32>
  %rows = memopt.matmul %x, %w {transpose_b} : (tensor<8x3xf32>, tensor<6x3xf32>) -> tensor<8x6xf32> loc("fc")
  %y = tensor.expand_shape %rows [[0, 1], [2]] output_shape [2, 4, 6] : tensor<8x6xf32> into tensor<2x4x6xf32>
  %eps = arith.constant dense<1.0e-05> : tensor<4xf32>
  %moved = arith.addf %var, %eps : tensor<4xf32>
  %root = math.rsqrt %moved : tensor<4xf32>
  %centre = arith.mulf %mean, %root : tensor<4xf32>
  %shift = arith.negf %centre : tensor<4xf32>
  %wide_factor = memopt.broadcast %root {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4x6xf32>
  %scaled = arith.mulf %y, %wide_factor : tensor<2x4x6xf32>
  %wide_shift = memopt.broadcast %shift {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4x6xf32>
  %z = arith.addf %scaled, %wide_shift : tensor<2x4x6xf32> loc("bn")
  return %z : tensor<2x4x6xf32>
}

// -----

// Statistics made of the batch by other ops are those of the batch as well.

// CHECK-LABEL: func.func @statistics_of_batch
// REMARK: [Missed] {{.*}} Function=statistics_of_batch |
// REMARK-SAME: Reason="it normalizes by numbers that depend on the batch", Remark="left 'bn' alone"
memopt.variable @conv.weight : tensor<4x3x3xf32> role <parameter> {trainable}
memopt.variable @bn.running_mean : tensor<4xf32> role <buffer>
func.func @statistics_of_batch(%x: tensor<2x3x8xf32>, %var: tensor<4xf32>) -> tensor<2x4x6xf32> {
  %w = memopt.read @conv.weight : tensor<4x3x3xf32>
  %mean = memopt.read @bn.running_mean : tensor<4xf32>
  %y = memopt.convolution %x, %w {strides = array<i64: 1>, padding_low = array<i64: 0>, padding_high = array<i64: 0>,
    dilations = array<i64: 1>, groups = 1 : i64} : (tensor<2x3x8xf32>, tensor<4x3x3xf32>) -> tensor<2x4x6xf32> loc("conv")
  %eps = arith.constant dense<1.0e-05> : tensor<4xf32>
  %moved = arith.addf %var, %eps : tensor<4xf32>
  %root = math.rsqrt %moved : tensor<4xf32>
  %centre = arith.mulf %mean, %root : tensor<4xf32>
  %shift = arith.negf %centre : tensor<4xf32>
  %wide_factor = memopt.broadcast %root {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4x6xf32>
  %scaled = arith.mulf %y, %wide_factor : tensor<2x4x6xf32>
  %wide_shift = memopt.broadcast %shift {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4x6xf32>
  %z = arith.addf %scaled, %wide_shift : tensor<2x4x6xf32> loc("bn")
  return %z : tensor<2x4x6xf32>
}

// -----

// A filter that comes from the batch may be larger than what would be saved.

// CHECK-LABEL: func.func @weights_of_batch
// REMARK: [Missed] {{.*}} Function=weights_of_batch |
// REMARK-SAME: Reason="the weights of 'memopt.convolution' in 'conv' depend on the batch", Remark="left 'bn' alone"
memopt.variable @bn.running_mean : tensor<4xf32> role <buffer>
memopt.variable @bn.running_var : tensor<4xf32> role <buffer>
func.func @weights_of_batch(%x: tensor<2x3x8xf32>, %w: tensor<4x3x3xf32>) -> tensor<2x4x6xf32> {
  %mean = memopt.read @bn.running_mean : tensor<4xf32>
  %var = memopt.read @bn.running_var : tensor<4xf32>
  %y = memopt.convolution %x, %w {strides = array<i64: 1>, padding_low = array<i64: 0>, padding_high = array<i64: 0>,
    dilations = array<i64: 1>, groups = 1 : i64} : (tensor<2x3x8xf32>, tensor<4x3x3xf32>) -> tensor<2x4x6xf32> loc("conv")
  %eps = arith.constant dense<1.0e-05> : tensor<4xf32>
  %moved = arith.addf %var, %eps : tensor<4xf32>
  %root = math.rsqrt %moved : tensor<4xf32>
  %centre = arith.mulf %mean, %root : tensor<4xf32>
  %shift = arith.negf %centre : tensor<4xf32>
  %wide_factor = memopt.broadcast %root {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4x6xf32>
  %scaled = arith.mulf %y, %wide_factor : tensor<2x4x6xf32>
  %wide_shift = memopt.broadcast %shift {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4x6xf32>
  %z = arith.addf %scaled, %wide_shift : tensor<2x4x6xf32> loc("bn")
  return %z : tensor<2x4x6xf32>
}
