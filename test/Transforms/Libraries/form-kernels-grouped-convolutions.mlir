// RUN: memopt-opt %s --split-input-file --memopt-form-kernels --memopt-verify-kernel-graph | FileCheck %s

// Which code runs a call of narrow groups, and in which workspace, is known when it is formed. Where the library's code
// for them would copy both activations (16 x 14 x 14 x 240 numbers are 3 MB), the runtime's own runs, which needs
// a few rows for each thread and sums for each part of the batch.

// CHECK-LABEL: @filter_gradient
// CHECK: memopt.library_call #memopt.convolution<kind = backward_weights
// CHECK-SAME: implementation = "memopt:{{[a-z0-9]+}}+groups"
// CHECK-SAME: workspace = {{[0-9]{5,6} }}
func.func @filter_gradient(%x: tensor<16x14x14x240xf32>, %dy: tensor<16x14x14x240xf32>) -> tensor<240x1x5x5xf32> {
  %dw = memopt.convolution_backward_weights %x, %dy {strides = array<i64: 1, 1>, padding_low = array<i64: 2, 2>,
      padding_high = array<i64: 2, 2>, dilations = array<i64: 1, 1>, groups = 240 : i64,
      layout = #memopt.layout<channels_last>}
      : (tensor<16x14x14x240xf32>, tensor<16x14x14x240xf32>) -> tensor<240x1x5x5xf32>
  return %dw : tensor<240x1x5x5xf32>
}

// -----

// Images whose channels come first are read as they lie.

// CHECK-LABEL: @channels_first
// CHECK: memopt.library_call #memopt.convolution<kind = forward
// CHECK-SAME: implementation = "memopt:{{[a-z0-9]+}}+groups"
// CHECK-SAME: workspace = {{[0-9]{5,6} }}
func.func @channels_first(%x: tensor<16x240x14x14xf32>, %w: tensor<240x1x5x5xf32>) -> tensor<16x240x14x14xf32> {
  %y = memopt.convolution %x, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 2, 2>,
      padding_high = array<i64: 2, 2>, dilations = array<i64: 1, 1>, groups = 240 : i64}
      : (tensor<16x240x14x14xf32>, tensor<240x1x5x5xf32>) -> tensor<16x240x14x14xf32>
  return %y : tensor<16x240x14x14xf32>
}

// -----

// A dense convolution is the library's.

// CHECK-LABEL: @dense
// CHECK: memopt.library_call #memopt.convolution<kind = forward
// CHECK-NOT: +groups
func.func @dense(%x: tensor<2x8x8x16xf32>, %w: tensor<16x16x3x3xf32>) -> tensor<2x8x8x16xf32> {
  %y = memopt.convolution %x, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 1, 1>,
      padding_high = array<i64: 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64,
      layout = #memopt.layout<channels_last>}
      : (tensor<2x8x8x16xf32>, tensor<16x16x3x3xf32>) -> tensor<2x8x8x16xf32>
  return %y : tensor<2x8x8x16xf32>
}
