// RUN: memopt-opt %s --split-input-file --memopt-write-out-patches | FileCheck %s

// A patch embedding is a product of patches and filters: each element of the input once, its result with channels first.

module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132>} {
// CHECK-LABEL: @patches
// CHECK-SAME: %[[X:.*]]: tensor<2x3x8x12xf32>, %[[W:.*]]: tensor<5x3x4x4xf32>
// CHECK-DAG: %[[F:.*]] = tensor.collapse_shape %[[W]] {{\[\[}}0], [1, 2, 3]] : {{.*}} into tensor<5x48xf32>
// CHECK-DAG: %[[E:.*]] = tensor.expand_shape %[[X]] {{\[\[}}0], [1], [2, 3], [4, 5]] {{.*}} into tensor<2x3x2x4x3x4xf32>
// CHECK: %[[T:.*]] = memopt.transpose %[[E]] {permutation = array<i64: 0, 2, 4, 1, 3, 5>}
// CHECK: %[[P:.*]] = tensor.collapse_shape %[[T]] {{\[\[}}0, 1, 2], [3, 4, 5]] : {{.*}} into tensor<12x48xf32>
// CHECK: %[[M:.*]] = memopt.matmul %[[P]], %[[F]] {transpose_b} : {{.*}} -> tensor<12x5xf32>
// CHECK: %[[R:.*]] = tensor.expand_shape %[[M]] {{\[\[}}0, 1, 2], [3]] {{.*}} into tensor<2x2x3x5xf32>
// CHECK: %[[Y:.*]] = memopt.transpose %[[R]] {permutation = array<i64: 0, 3, 1, 2>}
// CHECK: return %[[Y]]
func.func @patches(%x: tensor<2x3x8x12xf32>, %w: tensor<5x3x4x4xf32>) -> tensor<2x5x2x3xf32> {
  %0 = memopt.convolution %x, %w {strides = array<i64: 4, 4>, padding_low = array<i64: 0, 0>, padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x3x8x12xf32>, tensor<5x3x4x4xf32>) -> tensor<2x5x2x3xf32>
  return %0 : tensor<2x5x2x3xf32>
}
}

// -----

// Windows that overlap, leave elements out, or hold one element stay.

module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132>} {
// CHECK-LABEL: @others
// CHECK-COUNT-4: memopt.convolution
func.func @others(%x: tensor<2x4x8x8xf32>, %w: tensor<5x4x4x4xf32>, %v: tensor<5x4x1x1xf32>, %u: tensor<5x4x3x3xf32>, %g: tensor<4x2x4x4xf32>) -> (tensor<2x5x3x3xf32>, tensor<2x5x8x8xf32>, tensor<2x5x2x2xf32>, tensor<2x4x2x2xf32>) {
  %0 = memopt.convolution %x, %w {strides = array<i64: 2, 2>, padding_low = array<i64: 0, 0>, padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x4x8x8xf32>, tensor<5x4x4x4xf32>) -> tensor<2x5x3x3xf32>
  %1 = memopt.convolution %x, %v {strides = array<i64: 1, 1>, padding_low = array<i64: 0, 0>, padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x4x8x8xf32>, tensor<5x4x1x1xf32>) -> tensor<2x5x8x8xf32>
  %2 = memopt.convolution %x, %u {strides = array<i64: 3, 3>, padding_low = array<i64: 0, 0>, padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x4x8x8xf32>, tensor<5x4x3x3xf32>) -> tensor<2x5x2x2xf32>
  %3 = memopt.convolution %x, %g {strides = array<i64: 4, 4>, padding_low = array<i64: 0, 0>, padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 2 : i64} : (tensor<2x4x8x8xf32>, tensor<4x2x4x4xf32>) -> tensor<2x4x2x2xf32>
  return %0, %1, %2, %3 : tensor<2x5x3x3xf32>, tensor<2x5x8x8xf32>, tensor<2x5x2x2xf32>, tensor<2x4x2x2xf32>
}
}

// -----

// A processor's libraries compute what there is.

// CHECK-LABEL: @processor
// CHECK: memopt.convolution
func.func @processor(%x: tensor<2x3x8x12xf32>, %w: tensor<5x3x4x4xf32>) -> tensor<2x5x2x3xf32> {
  %0 = memopt.convolution %x, %w {strides = array<i64: 4, 4>, padding_low = array<i64: 0, 0>, padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x3x8x12xf32>, tensor<5x3x4x4xf32>) -> tensor<2x5x2x3xf32>
  return %0 : tensor<2x5x2x3xf32>
}
