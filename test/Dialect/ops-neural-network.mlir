// RUN: memopt-opt %s | memopt-opt | FileCheck %s
// RUN: memopt-opt %s --mlir-print-op-generic | memopt-opt | FileCheck %s

// Every op of NeuralNetworkOps.td prints what it parsed.

// CHECK-LABEL: func.func @convolutions
func.func @convolutions(%x: tensor<2x3x8x8xf32>, %w: tensor<4x3x3x3xf32>, %last: tensor<2x8x8x4xf32>,
                        %grouped: tensor<4x2x3x3xf32>) {
  // 8 + 1 + 1 - 2 = 8 windows in each dimension.
  // CHECK: %[[Y:.*]] = memopt.convolution %{{.*}}, %{{.*}} {dilations = array<i64: 1, 1>, groups = 1 : i64, padding_high = array<i64: 1, 1>, padding_low = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<2x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<2x4x8x8xf32>
  %y = memopt.convolution %x, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 1, 1>,
    padding_high = array<i64: 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64}
    : (tensor<2x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<2x4x8x8xf32>
  // Channels last, in two groups; taps 2 apart reach over 5 pixels: (8 - 5) / 3 + 1 = 2 windows.
  // CHECK: memopt.convolution {{.*}}dilations = array<i64: 2, 2>, groups = 2 : i64, layout = #memopt.layout<channels_last>{{.*}} -> tensor<2x2x2x4xf32>
  %z = memopt.convolution %last, %grouped {strides = array<i64: 3, 3>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>, dilations = array<i64: 2, 2>, groups = 2 : i64,
    layout = #memopt.layout<channels_last>} : (tensor<2x8x8x4xf32>, tensor<4x2x3x3xf32>) -> tensor<2x2x2x4xf32>
  // CHECK: memopt.convolution_backward_data %[[Y]], %{{.*}} : (tensor<2x4x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<2x3x8x8xf32>
  %dx = memopt.convolution_backward_data %y, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 1, 1>,
    padding_high = array<i64: 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64}
    : (tensor<2x4x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<2x3x8x8xf32>
  // CHECK: memopt.convolution_backward_weights %{{.*}}, %[[Y]] {{.*}} : (tensor<2x3x8x8xf32>, tensor<2x4x8x8xf32>) -> tensor<4x3x3x3xf32>
  %dw = memopt.convolution_backward_weights %x, %y {strides = array<i64: 1, 1>, padding_low = array<i64: 1, 1>,
    padding_high = array<i64: 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64}
    : (tensor<2x3x8x8xf32>, tensor<2x4x8x8xf32>) -> tensor<4x3x3x3xf32>
  return
}

// CHECK-LABEL: func.func @products
func.func @products(%a: tensor<4x8xf32>, %b: tensor<16x8xf32>, %c: tensor<2x8x4xf64>, %d: tensor<2x8x3xf64>) {
  // CHECK: memopt.matmul %{{.*}}, %{{.*}} {transpose_b} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  %0 = memopt.matmul %a, %b {transpose_b} : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  // CHECK: memopt.matmul %{{.*}}, %{{.*}} {transpose_a} : (tensor<2x8x4xf64>, tensor<2x8x3xf64>) -> tensor<2x4x3xf64>
  %1 = memopt.matmul %c, %d {transpose_a} : (tensor<2x8x4xf64>, tensor<2x8x3xf64>) -> tensor<2x4x3xf64>
  return
}

// Four query heads share two key heads; values may be wider than keys.
// CHECK-LABEL: func.func @attention
func.func @attention(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x7x8xf32>, %v: tensor<2x2x7x6xf32>,
                     %mask: tensor<1x1x5x7xi1>, %seed: tensor<i64>, %step: tensor<i64>) {
  // CHECK: %[[R:.*]], %[[LSE:.*]] = memopt.attention %{{.*}}, %{{.*}}, %{{.*}} {causal, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>, scale = 2.500000e-01 : f64}
  %plain:2 = memopt.attention %q, %k, %v {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>, scale = 0.25 : f64, causal}
    : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x6xf32>) -> (tensor<2x4x5x6xf32>, tensor<2x4x5xf32>)
  // CHECK: memopt.attention {{.*}} {dropout = 1.000000e-01 : f64, id = 7 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 0>
  %full:2 = memopt.attention %q, %k, %v, %mask, %seed, %step
    {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 0>, scale = 0.25 : f64, dropout = 0.1 : f64, id = 7 : i64}
    : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x6xf32>, tensor<1x1x5x7xi1>, tensor<i64>, tensor<i64>)
    -> (tensor<2x4x5x6xf32>, tensor<2x4x5xf32>)
  // CHECK: memopt.attention_backward {{.*}}, %[[R]], %[[LSE]], %[[R]] {causal
  // CHECK-SAME: -> (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x6xf32>)
  %back:3 = memopt.attention_backward %q, %k, %v, %plain#0, %plain#1, %plain#0
    {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 1, 1, 1>, scale = 0.25 : f64, causal}
    : (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x6xf32>, tensor<2x4x5x6xf32>, tensor<2x4x5xf32>,
       tensor<2x4x5x6xf32>) -> (tensor<2x4x5x8xf32>, tensor<2x2x7x8xf32>, tensor<2x2x7x6xf32>)
  return
}

// CHECK-LABEL: func.func @activations
func.func @activations(%x: tensor<4x8xf32>) {
  // CHECK: memopt.relu %{{.*}} : tensor<4x8xf32>
  %0 = memopt.relu %x : tensor<4x8xf32>
  // CHECK: memopt.sigmoid %{{.*}} : tensor<4x8xf32>
  %1 = memopt.sigmoid %x : tensor<4x8xf32>
  // CHECK: memopt.softplus %{{.*}} : tensor<4x8xf32>
  %2 = memopt.softplus %x : tensor<4x8xf32>
  // CHECK: memopt.softmax %{{.*}} {axis = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %3 = memopt.softmax %x {axis = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  // CHECK: memopt.log_softmax %{{.*}} {axis = 0 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %4 = memopt.log_softmax %x {axis = 0 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// CHECK-LABEL: func.func @norms
func.func @norms(%x: tensor<2x6x4xf32>, %c: tensor<6xf32>, %l: tensor<6x4xf32>, %s: tensor<2xf32>, %f: tensor<4xf32>) {
  // CHECK: %{{.*}}, %[[MEAN:.*]], %[[VARIANCE:.*]] = memopt.batch_norm %{{.*}}, %{{.*}}, %{{.*}} {eps = 1.000000e-05 : f64, operandSegmentSizes = array<i32: 1, 1, 1>} : {{.*}} -> (tensor<2x6x4xf32>, tensor<6xf32>, tensor<6xf32>)
  %batch:3 = memopt.batch_norm %x, %c, %c {operandSegmentSizes = array<i32: 1, 1, 1>, eps = 1.0e-5 : f64}
    : (tensor<2x6x4xf32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<2x6x4xf32>, tensor<6xf32>, tensor<6xf32>)
  // Channels last, no scale or offset.
  // CHECK: memopt.batch_norm %{{.*}} {axis = 2 : i64, eps = 1.000000e-05 : f64, operandSegmentSizes = array<i32: 1, 0, 0>}
  %plain:3 = memopt.batch_norm %x {operandSegmentSizes = array<i32: 1, 0, 0>, eps = 1.0e-5 : f64, axis = 2 : i64}
    : (tensor<2x6x4xf32>) -> (tensor<2x6x4xf32>, tensor<4xf32>, tensor<4xf32>)
  // CHECK: memopt.batch_norm_backward %{{.*}}, %{{.*}}, %{{.*}}, %[[MEAN]], %[[VARIANCE]] {eps
  %batch_back:3 = memopt.batch_norm_backward %x, %x, %c, %batch#1, %batch#2 {eps = 1.0e-5 : f64}
    : (tensor<2x6x4xf32>, tensor<2x6x4xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>)
    -> (tensor<2x6x4xf32>, tensor<6xf32>, tensor<6xf32>)
  // CHECK: %{{.*}}, %[[M:.*]], %[[D:.*]] = memopt.layer_norm %{{.*}}, %{{.*}} {begin = 1 : i64, eps = 1.000000e-05 : f64, operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<2x6x4xf32>, tensor<6x4xf32>) -> (tensor<2x6x4xf32>, tensor<2xf32>, tensor<2xf32>)
  %layer:3 = memopt.layer_norm %x, %l {operandSegmentSizes = array<i32: 1, 1, 0>, begin = 1 : i64, eps = 1.0e-5 : f64}
    : (tensor<2x6x4xf32>, tensor<6x4xf32>) -> (tensor<2x6x4xf32>, tensor<2xf32>, tensor<2xf32>)
  // CHECK: memopt.layer_norm_backward %{{.*}}, %{{.*}}, %{{.*}}, %[[M]], %[[D]] {begin = 1 : i64}
  %layer_back:3 = memopt.layer_norm_backward %x, %x, %l, %layer#1, %layer#2 {begin = 1 : i64}
    : (tensor<2x6x4xf32>, tensor<2x6x4xf32>, tensor<6x4xf32>, tensor<2xf32>, tensor<2xf32>)
    -> (tensor<2x6x4xf32>, tensor<6x4xf32>, tensor<6x4xf32>)
  // Statistics are one pair for each sample and group.
  // CHECK: memopt.group_norm %{{.*}}, %{{.*}}, %{{.*}} {eps = 1.000000e-05 : f64, groups = 3 : i64, operandSegmentSizes = array<i32: 1, 1, 1>} : {{.*}} -> (tensor<2x6x4xf32>, tensor<2x3xf32>, tensor<2x3xf32>)
  %group:3 = memopt.group_norm %x, %c, %c {operandSegmentSizes = array<i32: 1, 1, 1>, groups = 3 : i64, eps = 1.0e-5 : f64}
    : (tensor<2x6x4xf32>, tensor<6xf32>, tensor<6xf32>) -> (tensor<2x6x4xf32>, tensor<2x3xf32>, tensor<2x3xf32>)
  // CHECK: memopt.rms_norm %{{.*}}, %{{.*}} {begin = 2 : i64, eps = 9.9999999999999995E-7 : f64} : (tensor<2x6x4xf32>, tensor<4xf32>) -> tensor<2x6x4xf32>
  %rms = memopt.rms_norm %x, %f {begin = 2 : i64, eps = 1.0e-6 : f64} : (tensor<2x6x4xf32>, tensor<4xf32>) -> tensor<2x6x4xf32>
  return
}

// CHECK-LABEL: func.func @losses
func.func @losses(%logits: tensor<4x10xf32>, %targets: tensor<4xi64>, %weights: tensor<10xf32>) {
  // PyTorch's default of -100 is not printed.
  // CHECK: %[[TOTAL:.*]], %{{.*}}, %[[L:.*]], %[[S:.*]] = memopt.cross_entropy %{{.*}}, %{{.*}} : (tensor<4x10xf32>, tensor<4xi64>) -> (tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<4xf32>)
  %0:4 = memopt.cross_entropy %logits, %targets
    : (tensor<4x10xf32>, tensor<4xi64>) -> (tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<4xf32>)
  // CHECK: memopt.cross_entropy %{{.*}}, %{{.*}}, %{{.*}} {ignore_index = 255 : i64, label_smoothing = 1.000000e-01 : f64}
  %1:4 = memopt.cross_entropy %logits, %targets, %weights {ignore_index = 255 : i64, label_smoothing = 0.1 : f64}
    : (tensor<4x10xf32>, tensor<4xi64>, tensor<10xf32>) -> (tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<4xf32>)
  // CHECK: memopt.cross_entropy_backward %{{.*}}, %{{.*}}, %[[L]], %[[S]], %[[TOTAL]] : (tensor<4x10xf32>, tensor<4xi64>, tensor<4xf32>, tensor<4xf32>, tensor<f32>) -> tensor<4x10xf32>
  %2 = memopt.cross_entropy_backward %logits, %targets, %0#2, %0#3, %0#0
    : (tensor<4x10xf32>, tensor<4xi64>, tensor<4xf32>, tensor<4xf32>, tensor<f32>) -> tensor<4x10xf32>
  return
}

// CHECK-LABEL: func.func @pools
func.func @pools(%x: tensor<2x3x8x8xf32>) {
  // CHECK: %[[P:.*]], %[[TAPS:.*]] = memopt.max_pool %{{.*}} {dilations = array<i64: 1, 1>, kernel = array<i64: 3, 3>, padding_high = array<i64: 1, 1>, padding_low = array<i64: 1, 1>, strides = array<i64: 2, 2>} : (tensor<2x3x8x8xf32>) -> (tensor<2x3x4x4xf32>, tensor<2x3x4x4xi8>)
  %max:2 = memopt.max_pool %x {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, padding_low = array<i64: 1, 1>,
    padding_high = array<i64: 1, 1>, dilations = array<i64: 1, 1>}
    : (tensor<2x3x8x8xf32>) -> (tensor<2x3x4x4xf32>, tensor<2x3x4x4xi8>)
  // CHECK: memopt.max_pool_backward %[[P]], %[[TAPS]] {{.*}} : (tensor<2x3x4x4xf32>, tensor<2x3x4x4xi8>) -> tensor<2x3x8x8xf32>
  %max_back = memopt.max_pool_backward %max#0, %max#1 {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>,
    padding_low = array<i64: 1, 1>, padding_high = array<i64: 1, 1>, dilations = array<i64: 1, 1>}
    : (tensor<2x3x4x4xf32>, tensor<2x3x4x4xi8>) -> tensor<2x3x8x8xf32>
  // CHECK: %[[A:.*]] = memopt.avg_pool %{{.*}} {count_padding, divisor = 3 : i64, kernel = array<i64: 2, 2>{{.*}} -> tensor<2x3x4x4xf32>
  %avg = memopt.avg_pool %x {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>, count_padding, divisor = 3 : i64} : (tensor<2x3x8x8xf32>) -> tensor<2x3x4x4xf32>
  // CHECK: memopt.avg_pool_backward %[[A]] {{.*}} : (tensor<2x3x4x4xf32>) -> tensor<2x3x8x8xf32>
  %avg_back = memopt.avg_pool_backward %avg {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>,
    padding_low = array<i64: 0, 0>, padding_high = array<i64: 0, 0>} : (tensor<2x3x4x4xf32>) -> tensor<2x3x8x8xf32>
  // CHECK: %[[I:.*]] = memopt.interpolate %{{.*}} {align_corners, mode = #memopt.resampling<linear>, scales = array<f64: 5.000000e-01, 5.000000e-01>} : (tensor<2x3x8x8xf32>) -> tensor<2x3x16x16xf32>
  %up = memopt.interpolate %x {scales = array<f64: 0.5, 0.5>, mode = #memopt.resampling<linear>, align_corners}
    : (tensor<2x3x8x8xf32>) -> tensor<2x3x16x16xf32>
  // CHECK: memopt.interpolate_backward %[[I]] {mode = #memopt.resampling<nearest>, scales = array<f64: 5.000000e-01, 5.000000e-01>} : (tensor<2x3x16x16xf32>) -> tensor<2x3x8x8xf32>
  %up_back = memopt.interpolate_backward %up {scales = array<f64: 0.5, 0.5>, mode = #memopt.resampling<nearest>}
    : (tensor<2x3x16x16xf32>) -> tensor<2x3x8x8xf32>
  return
}
