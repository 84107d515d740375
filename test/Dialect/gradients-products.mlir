// RUN: memopt-opt %s --split-input-file --memopt-autodiff | FileCheck %s

// dA = G B^T, dB = A^T G.

memopt.variable @a : tensor<2x3xf32> role <parameter> {trainable}
memopt.variable @b : tensor<3x5xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<2x5xf32>
func.func @train_step(%g: tensor<2x5xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<2x3xf32>
  // CHECK: %[[B:.*]] = memopt.read @b
  %b = memopt.read @b : tensor<3x5xf32>
  %y = memopt.matmul %a, %b : (tensor<2x3xf32>, tensor<3x5xf32>) -> tensor<2x5xf32>
  %weighted = arith.mulf %y, %g : tensor<2x5xf32>
  // CHECK: %[[DA:.*]] = memopt.matmul %[[G]], %[[B]] {memopt.phase = #memopt.phase<backward>, transpose_b} : 
  // CHECK-NEXT: memopt.gradient %[[DA]], @a
  // CHECK-NEXT: %[[DB:.*]] = memopt.matmul %[[A]], %[[G]] {memopt.phase = #memopt.phase<backward>, transpose_a} : 
  // CHECK-NEXT: memopt.gradient %[[DB]], @b
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<2x5xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// A linear layer: no gradient needs a transposed copy.

memopt.variable @a : tensor<2x3xf32> role <parameter> {trainable}
memopt.variable @b : tensor<5x3xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<2x5xf32>
func.func @train_step(%g: tensor<2x5xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<2x3xf32>
  // CHECK: %[[B:.*]] = memopt.read @b
  %b = memopt.read @b : tensor<5x3xf32>
  %y = memopt.matmul %a, %b {transpose_b} : (tensor<2x3xf32>, tensor<5x3xf32>) -> tensor<2x5xf32>
  %weighted = arith.mulf %y, %g : tensor<2x5xf32>
  // CHECK: %[[DA:.*]] = memopt.matmul %[[G]], %[[B]] {memopt.phase = #memopt.phase<backward>} : 
  // CHECK-NEXT: memopt.gradient %[[DA]], @a
  // CHECK-NEXT: %[[DB:.*]] = memopt.matmul %[[G]], %[[A]] {memopt.phase = #memopt.phase<backward>, transpose_a} : 
  // CHECK-NEXT: memopt.gradient %[[DB]], @b
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<2x5xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// dA = B G^T, dB = A G.

memopt.variable @a : tensor<3x2xf32> role <parameter> {trainable}
memopt.variable @b : tensor<3x5xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<2x5xf32>
func.func @train_step(%g: tensor<2x5xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<3x2xf32>
  // CHECK: %[[B:.*]] = memopt.read @b
  %b = memopt.read @b : tensor<3x5xf32>
  %y = memopt.matmul %a, %b {transpose_a} : (tensor<3x2xf32>, tensor<3x5xf32>) -> tensor<2x5xf32>
  %weighted = arith.mulf %y, %g : tensor<2x5xf32>
  // CHECK: %[[DA:.*]] = memopt.matmul %[[B]], %[[G]] {memopt.phase = #memopt.phase<backward>, transpose_b} : 
  // CHECK-NEXT: memopt.gradient %[[DA]], @a
  // CHECK-NEXT: %[[DB:.*]] = memopt.matmul %[[A]], %[[G]] {memopt.phase = #memopt.phase<backward>} : 
  // CHECK-NEXT: memopt.gradient %[[DB]], @b
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<2x5xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// dA = B^T G^T, dB = G^T A^T.

memopt.variable @a : tensor<3x2xf32> role <parameter> {trainable}
memopt.variable @b : tensor<5x3xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<2x5xf32>
func.func @train_step(%g: tensor<2x5xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<3x2xf32>
  // CHECK: %[[B:.*]] = memopt.read @b
  %b = memopt.read @b : tensor<5x3xf32>
  %y = memopt.matmul %a, %b {transpose_a, transpose_b} : (tensor<3x2xf32>, tensor<5x3xf32>) -> tensor<2x5xf32>
  %weighted = arith.mulf %y, %g : tensor<2x5xf32>
  // CHECK: %[[DA:.*]] = memopt.matmul %[[B]], %[[G]] {memopt.phase = #memopt.phase<backward>, transpose_a, transpose_b} : 
  // CHECK-NEXT: memopt.gradient %[[DA]], @a
  // CHECK-NEXT: %[[DB:.*]] = memopt.matmul %[[G]], %[[A]] {memopt.phase = #memopt.phase<backward>, transpose_a, transpose_b} : 
  // CHECK-NEXT: memopt.gradient %[[DB]], @b
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<2x5xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// A convolution; both gradients keep its windows.

memopt.variable @a : tensor<2x3x8x8xf32> role <parameter> {trainable}
memopt.variable @w : tensor<4x3x3x3xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<2x4x4x4xf32>
func.func @train_step(%g: tensor<2x4x4x4xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<2x3x8x8xf32>
  // CHECK: %[[W:.*]] = memopt.read @w
  %w = memopt.read @w : tensor<4x3x3x3xf32>
  %y = memopt.convolution %a, %w {strides = array<i64: 2, 2>, padding_low = array<i64: 1, 1>, padding_high = array<i64: 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64}
    : (tensor<2x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<2x4x4x4xf32>
  %weighted = arith.mulf %y, %g : tensor<2x4x4x4xf32>
  // CHECK: %[[DA:.*]] = memopt.convolution_backward_data %[[G]], %[[W]]
  // CHECK-SAME: strides = array<i64: 2, 2>
  // CHECK-NEXT: memopt.gradient %[[DA]], @a
  // CHECK-NEXT: %[[DW:.*]] = memopt.convolution_backward_weights %[[A]], %[[G]]
  // CHECK-SAME: strides = array<i64: 2, 2>
  // CHECK-NEXT: memopt.gradient %[[DW]], @w
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1, 2, 3>} : (tensor<2x4x4x4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// A transposed convolution is the data gradient of a convolution; its own gradient is that convolution.

memopt.variable @a : tensor<2x4x4x4xf32> role <parameter> {trainable}
memopt.variable @w : tensor<4x3x3x3xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<2x3x8x8xf32>
func.func @train_step(%g: tensor<2x3x8x8xf32>) -> tensor<f32> {
  // CHECK: %[[A:.*]] = memopt.read @a
  %a = memopt.read @a : tensor<2x4x4x4xf32>
  // CHECK: %[[W:.*]] = memopt.read @w
  %w = memopt.read @w : tensor<4x3x3x3xf32>
  %y = memopt.convolution_backward_data %a, %w {strides = array<i64: 2, 2>, padding_low = array<i64: 1, 1>, padding_high = array<i64: 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64}
    : (tensor<2x4x4x4xf32>, tensor<4x3x3x3xf32>) -> tensor<2x3x8x8xf32>
  %weighted = arith.mulf %y, %g : tensor<2x3x8x8xf32>
  // CHECK: %[[DA:.*]] = memopt.convolution %[[G]], %[[W]]
  // CHECK-NEXT: memopt.gradient %[[DA]], @a
  // CHECK-NEXT: %[[DW:.*]] = memopt.convolution_backward_weights %[[G]], %[[A]]
  // CHECK-NEXT: memopt.gradient %[[DW]], @w
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1, 2, 3>} : (tensor<2x3x8x8xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Attention keeps its result and the logsumexp of each row, never the scores. One op gives all three
// gradients; mask, seed and step go along.

memopt.variable @q : tensor<1x2x4x3xf32> role <parameter> {trainable}
memopt.variable @k : tensor<1x1x4x3xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// CHECK-SAME:  %[[G:[^:]*]]: tensor<1x2x4x5xf32>
func.func @train_step(%g: tensor<1x2x4x5xf32>, %v: tensor<1x1x4x5xf32>, %m: tensor<1x1x4x4xi1>, %s: tensor<i64>, %n: tensor<i64>) -> tensor<f32> {
  // CHECK: %[[Q:.*]] = memopt.read @q
  %q = memopt.read @q : tensor<1x2x4x3xf32>
  // CHECK: %[[K:.*]] = memopt.read @k
  %k = memopt.read @k : tensor<1x1x4x3xf32>
  // CHECK: %[[O:.*]], %[[L:.*]] = memopt.attention
  %y, %l = memopt.attention %q, %k, %v, %m, %s, %n {causal, scale = 0.5 : f64, dropout = 0.1 : f64, id = 7 : i64,
    operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 0>}
    : (tensor<1x2x4x3xf32>, tensor<1x1x4x3xf32>, tensor<1x1x4x5xf32>, tensor<1x1x4x4xi1>, tensor<i64>, tensor<i64>)
    -> (tensor<1x2x4x5xf32>, tensor<1x2x4xf32>)
  %weighted = arith.mulf %y, %g : tensor<1x2x4x5xf32>
  // CHECK: %[[DQ:[^,]*]], %[[DK:[^,]*]], %{{[^,]*}} = memopt.attention_backward %[[Q]], %[[K]], %arg1, %arg2, %arg3, %arg4, %[[O]], %[[L]], %[[G]]
  // CHECK-SAME: causal, dropout = 1.000000e-01 : f64, id = 7 : i64
  // CHECK-DAG: memopt.gradient %[[DQ]], @q
  // CHECK-DAG: memopt.gradient %[[DK]], @k
  %loss = memopt.reduce %weighted {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1, 2, 3>} : (tensor<1x2x4x5xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// A mask of numbers that is trained has a gradient of its own shape, made with the others.

memopt.variable @bias : tensor<1x2x4x1xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
func.func @train_step(%x: tensor<3x2x4x5xf32>) -> tensor<f32> {
  // CHECK: %[[B:.*]] = memopt.read @bias
  %b = memopt.read @bias : tensor<1x2x4x1xf32>
  %y, %l = memopt.attention %x, %x, %x, %b {scale = 0.5 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0>}
    : (tensor<3x2x4x5xf32>, tensor<3x2x4x5xf32>, tensor<3x2x4x5xf32>, tensor<1x2x4x1xf32>)
    -> (tensor<3x2x4x5xf32>, tensor<3x2x4xf32>)
  // CHECK: %{{.*}}, %{{.*}}, %{{.*}}, %[[DB:.*]] = memopt.attention_backward %{{.*}}, %[[B]],
  // CHECK: memopt.gradient %[[DB]], @bias
  %loss = memopt.reduce %y {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1, 2, 3>} : (tensor<3x2x4x5xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}
