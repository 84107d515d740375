// RUN: memopt-opt %s --split-input-file --memopt-choose-layout | FileCheck %s

// Between convolutions nothing moves; the step's argument is transposed once, the result back.

// CHECK-LABEL: func.func @chain
// CHECK-SAME:  %[[X:.*]]: tensor<2x3x8x8xf32>, %[[W:.*]]: tensor<4x3x3x3xf32>, %[[V:.*]]: tensor<4x4x1x1xf32>
func.func @chain(%x: tensor<2x3x8x8xf32>, %w: tensor<4x3x3x3xf32>, %v: tensor<4x4x1x1xf32>, %bias: tensor<4xf32>)
    -> tensor<2x4x8x8xf32> {
  // CHECK: %[[XT:.*]] = memopt.transpose %[[X]] {permutation = array<i64: 0, 2, 3, 1>}
  // CHECK: %[[C:.*]] = memopt.convolution %[[XT]], %[[W]] {{.*}}layout = #memopt.layout<channels_last>{{.*}} -> tensor<2x8x8x4xf32>
  %0 = memopt.convolution %x, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 1, 1>,
    padding_high = array<i64: 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64}
    : (tensor<2x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<2x4x8x8xf32>
  // CHECK: %[[B:.*]] = memopt.broadcast %{{.*}} {dimensions = array<i64: 3>} : (tensor<4xf32>) -> tensor<2x8x8x4xf32>
  %1 = memopt.broadcast %bias {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4x8x8xf32>
  // CHECK: arith.addf %[[C]], %[[B]] : tensor<2x8x8x4xf32>
  %2 = arith.addf %0, %1 : tensor<2x4x8x8xf32>
  // CHECK: memopt.relu
  %3 = memopt.relu %2 : tensor<2x4x8x8xf32>
  // CHECK-NOT: memopt.transpose
  // CHECK: %[[Y:.*]] = memopt.convolution
  %4 = memopt.convolution %3, %v {strides = array<i64: 1, 1>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64}
    : (tensor<2x4x8x8xf32>, tensor<4x4x1x1xf32>) -> tensor<2x4x8x8xf32>
  // CHECK: %[[R:.*]] = memopt.transpose %[[Y]] {permutation = array<i64: 0, 3, 1, 2>}
  // CHECK: return %[[R]]
  return %4 : tensor<2x4x8x8xf32>
}

// -----

// With one channel, and with one pixel, only names change.

// CHECK-LABEL: func.func @reshapes
// CHECK-SAME:  %[[X:.*]]: tensor<2x1x8x8xf32>
func.func @reshapes(%x: tensor<2x1x8x8xf32>, %w: tensor<4x1x8x8xf32>) -> tensor<2x4xf32> {
  // CHECK: %[[A:.*]] = tensor.collapse_shape %[[X]] {{\[}}[0], [1, 2], [3]] {memopt.phase = #memopt.phase<forward>} : tensor<2x1x8x8xf32> into tensor<2x8x8xf32>
  // CHECK: %[[B:.*]] = tensor.expand_shape %[[A]] {{\[}}[0], [1], [2, 3]] output_shape [2, 8, 8, 1] {memopt.phase = #memopt.phase<forward>}
  // CHECK: %[[C:.*]] = memopt.convolution %[[B]]
  %0 = memopt.convolution %x, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 0, 0>, memopt.phase = #memopt.phase<forward>,
    padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64}
    : (tensor<2x1x8x8xf32>, tensor<4x1x8x8xf32>) -> tensor<2x4x1x1xf32>
  // CHECK: %[[D:.*]] = tensor.collapse_shape %[[C]] {{\[}}[0], [1, 2, 3]] : tensor<2x1x1x4xf32> into tensor<2x4xf32>
  %1 = tensor.collapse_shape %0 [[0], [1, 2, 3]] : tensor<2x4x1x1xf32> into tensor<2x4xf32>
  // CHECK: return %[[D]]
  return %1 : tensor<2x4xf32>
}

// -----

// Dimensions named by attributes move along.

// CHECK-LABEL: func.func @attributes
func.func @attributes(%g: tensor<2x8x8x4xf32>, %w: tensor<4x4x1x1xf32>, %s: tensor<4xf32>) -> tensor<4xf32> {
  %0 = memopt.transpose %g {permutation = array<i64: 0, 3, 1, 2>} : (tensor<2x8x8x4xf32>) -> tensor<2x4x8x8xf32>
  // The argument is channels-last under other numbers already.
  // CHECK-NOT: memopt.transpose
  // CHECK: memopt.convolution %arg0
  %1 = memopt.convolution %0, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64}
    : (tensor<2x4x8x8xf32>, tensor<4x4x1x1xf32>) -> tensor<2x4x8x8xf32>
  // CHECK: memopt.batch_norm {{.*}}axis = 3
  %2, %mean, %variance = memopt.batch_norm %1, %s, %s {eps = 1.0e-5 : f64, operandSegmentSizes = array<i32: 1, 1, 1>}
    : (tensor<2x4x8x8xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x4x8x8xf32>, tensor<4xf32>, tensor<4xf32>)
  // CHECK: memopt.group_norm {{.*}}layout = #memopt.layout<channels_last>
  %3, %m, %d = memopt.group_norm %2, %s, %s {eps = 1.0e-5 : f64, groups = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 1>}
    : (tensor<2x4x8x8xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<2x4x8x8xf32>, tensor<2x2xf32>, tensor<2x2xf32>)
  // CHECK: memopt.max_pool {{.*}}layout = #memopt.layout<channels_last>{{.*}} -> (tensor<2x4x4x4xf32>, tensor<2x4x4x4xi8>)
  %4, %taps = memopt.max_pool %3 {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>} : (tensor<2x4x8x8xf32>) -> (tensor<2x4x4x4xf32>, tensor<2x4x4x4xi8>)
  // CHECK: memopt.interpolate {{.*}}layout = #memopt.layout<channels_last>{{.*}} -> tensor<2x8x8x4xf32>
  %5 = memopt.interpolate %4 {scales = array<f64: 0.5, 0.5>, mode = #memopt.resampling<nearest>} : (tensor<2x4x4x4xf32>) -> tensor<2x4x8x8xf32>
  // CHECK: tensor.concat dim(3) {{.*}} -> tensor<2x8x8x8xf32>
  %6 = tensor.concat dim(1) %5, %3 : (tensor<2x4x8x8xf32>, tensor<2x4x8x8xf32>) -> tensor<2x8x8x8xf32>
  // CHECK: tensor.extract_slice {{.*}}[0, 0, 1, 2] [2, 8, 7, 6] [1, 1, 1, 1]
  %7 = tensor.extract_slice %6[0, 2, 0, 1] [2, 6, 8, 7] [1, 1, 1, 1] : tensor<2x8x8x8xf32> to tensor<2x6x8x7xf32>
  // CHECK: memopt.pad {{.*}}high = array<i64: 0, 0, 0, 2>, low = array<i64: 0, 0, 1, 0>
  %8 = memopt.pad %7 {low = array<i64: 0, 0, 0, 1>, high = array<i64: 0, 2, 0, 0>} : (tensor<2x6x8x7xf32>) -> tensor<2x8x8x8xf32>
  // CHECK: memopt.softmax {{.*}}axis = 3
  %9 = memopt.softmax %8 {axis = 1 : i64} : (tensor<2x8x8x8xf32>) -> tensor<2x8x8x8xf32>
  // Cutting channels keeps them last: [batch, groups, channels, height, width] lies as [0, 3, 4, 1, 2].
  // CHECK: tensor.expand_shape {{.*}} output_shape [2, 8, 8, 2, 4]
  %10 = tensor.expand_shape %9 [[0], [1, 2], [3], [4]] output_shape [2, 2, 4, 8, 8] : tensor<2x8x8x8xf32> into tensor<2x2x4x8x8xf32>
  // CHECK: memopt.reduce {{.*}}dimensions = array<i64: 0, 1, 2, 3>
  %11 = memopt.reduce %10 {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1, 3, 4>} : (tensor<2x2x4x8x8xf32>) -> tensor<4xf32>
  return %11 : tensor<4xf32>
}

// -----

// Gradients: the filter's has its own order.

// CHECK-LABEL: func.func @backward
func.func @backward(%x: tensor<2x3x8xf32>, %g: tensor<2x4x8xf32>, %w: tensor<4x3x1xf32>) -> (tensor<2x3x8xf32>, tensor<4x3x1xf32>) {
  // CHECK: %[[G:.*]] = memopt.transpose %arg1 {permutation = array<i64: 0, 2, 1>}
  // CHECK: %[[DX:.*]] = memopt.convolution_backward_data %[[G]], %arg2 {{.*}}channels_last
  %0 = memopt.convolution_backward_data %g, %w {strides = array<i64: 1>, padding_low = array<i64: 0>,
    padding_high = array<i64: 0>, dilations = array<i64: 1>, groups = 1 : i64}
    : (tensor<2x4x8xf32>, tensor<4x3x1xf32>) -> tensor<2x3x8xf32>
  // CHECK: %[[X:.*]] = memopt.transpose %arg0 {permutation = array<i64: 0, 2, 1>}
  // CHECK: %[[DW:.*]] = memopt.convolution_backward_weights %[[X]], %[[G]] {{.*}}channels_last{{.*}} -> tensor<4x3x1xf32>
  %1 = memopt.convolution_backward_weights %x, %g {strides = array<i64: 1>, padding_low = array<i64: 0>,
    padding_high = array<i64: 0>, dilations = array<i64: 1>, groups = 1 : i64}
    : (tensor<2x3x8xf32>, tensor<2x4x8xf32>) -> tensor<4x3x1xf32>
  // CHECK: %[[R:.*]] = memopt.transpose %[[DX]]
  // CHECK: return %[[R]], %[[DW]]
  return %0, %1 : tensor<2x3x8xf32>, tensor<4x3x1xf32>
}

// -----

// Ops that need one order get it, also from inside regions; masks keep their bits.

// CHECK-LABEL: func.func @borders
func.func @borders(%x: tensor<2x3x4x4xf32>, %w: tensor<4x3x1x1xf32>, %seed: tensor<i64>) -> (tensor<2x4x16xf32>, tensor<2xf32>) {
  %0 = memopt.convolution %x, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64}
    : (tensor<2x3x4x4xf32>, tensor<4x3x1x1xf32>) -> tensor<2x4x4x4xf32>
  // CHECK: %[[M:.*]] = memopt.dropout_mask {{.*}} -> tensor<2x4x4x4xi1>
  // CHECK: memopt.transpose %[[M]] {permutation = array<i64: 0, 2, 3, 1>}
  %mask = memopt.dropout_mask %seed, %seed {probability = 0.5 : f64, id = 0 : i64} : (tensor<i64>, tensor<i64>) -> tensor<2x4x4x4xi1>
  // A constant is made as it is needed.
  // CHECK: arith.constant dense<0.000000e+00> : tensor<2x4x4x4xf32>
  %zero = arith.constant dense<0.0> : tensor<2x4x4x4xf32>
  // CHECK: %[[S:.*]] = arith.select
  %1 = arith.select %mask, %0, %zero : tensor<2x4x4x4xi1>, tensor<2x4x4x4xf32>
  // CHECK: %[[T:.*]] = memopt.transpose %[[S]] {permutation = array<i64: 0, 3, 1, 2>}
  // CHECK: linalg.generic
  // CHECK: tensor.extract %[[T]]
  %empty = tensor.empty() : tensor<2xf32>
  %diagonal = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%empty : tensor<2xf32>) {
  ^bb0(%o: f32):
    %i = linalg.index 0 : index
    %v = tensor.extract %1[%i, %i, %i, %i] : tensor<2x4x4x4xf32>
    linalg.yield %v : f32
  } -> tensor<2xf32>
  // CHECK: %[[F:.*]] = tensor.collapse_shape %[[S]] {{\[}}[0], [1, 2], [3]] : tensor<2x4x4x4xf32> into tensor<2x16x4xf32>
  %2 = tensor.collapse_shape %1 [[0], [1], [2, 3]] : tensor<2x4x4x4xf32> into tensor<2x4x16xf32>
  // CHECK: %[[R:.*]] = memopt.transpose %[[F]] {permutation = array<i64: 0, 2, 1>}
  // CHECK: return %[[R]]
  return %2, %diagonal : tensor<2x4x16xf32>, tensor<2xf32>
}

// -----

// Without convolutions everything stays.

// CHECK-LABEL: func.func @none
func.func @none(%x: tensor<2x3x4x4xf32>) -> tensor<2x3x4x4xf32> {
  // CHECK-NEXT: memopt.transpose %arg0 {permutation = array<i64: 0, 2, 3, 1>}
  // CHECK-NEXT: memopt.relu
  // CHECK-NEXT: memopt.transpose
  // CHECK-NEXT: return
  %0 = memopt.transpose %x {permutation = array<i64: 0, 2, 3, 1>} : (tensor<2x3x4x4xf32>) -> tensor<2x4x4x3xf32>
  %1 = memopt.relu %0 : tensor<2x4x4x3xf32>
  %2 = memopt.transpose %1 {permutation = array<i64: 0, 3, 1, 2>} : (tensor<2x4x4x3xf32>) -> tensor<2x3x4x4xf32>
  return %2 : tensor<2x3x4x4xf32>
}
