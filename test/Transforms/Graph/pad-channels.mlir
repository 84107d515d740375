// RUN: memopt-opt %s --split-input-file --memopt-pad-channels | FileCheck %s

// A stem of 16 bits reads eight channels, of which five are zeros in the input and in the filter.

module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132>} {
// CHECK-LABEL: @stem
// CHECK-SAME: %[[X:.*]]: tensor<2x3x8x8xbf16>, %[[W:.*]]: tensor<16x3x3x3xbf16>
// CHECK-DAG: %[[XP:.*]] = memopt.pad %[[X]] {{.*}}high = array<i64: 0, 5, 0, 0>{{.*}} -> tensor<2x8x8x8xbf16>
// CHECK-DAG: %[[WP:.*]] = memopt.pad %[[W]] {{.*}}high = array<i64: 0, 5, 0, 0>{{.*}} -> tensor<16x8x3x3xbf16>
// CHECK: memopt.convolution %[[XP]], %[[WP]]
// CHECK-SAME: -> tensor<2x16x8x8xbf16>
func.func @stem(%x: tensor<2x3x8x8xbf16>, %w: tensor<16x3x3x3xbf16>) -> tensor<2x16x8x8xbf16> {
  %0 = memopt.convolution %x, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 1, 1>, padding_high = array<i64: 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x3x8x8xbf16>, tensor<16x3x3x3xbf16>) -> tensor<2x16x8x8xbf16>
  return %0 : tensor<2x16x8x8xbf16>
}
}

// -----

// So large an input is not made larger than the result; f32, and channels that are there, stay.

module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132>} {
// CHECK-LABEL: @others
// CHECK-NOT: memopt.pad
// CHECK: return
func.func @others(%x: tensor<2x3x8x8xbf16>, %w: tensor<7x3x3x3xbf16>, %y: tensor<2x3x8x8xf32>, %v: tensor<16x3x3x3xf32>, %z: tensor<2x8x8x8xbf16>, %u: tensor<16x8x3x3xbf16>) -> (tensor<2x7x8x8xbf16>, tensor<2x16x8x8xf32>, tensor<2x16x8x8xbf16>) {
  %0 = memopt.convolution %x, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 1, 1>, padding_high = array<i64: 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x3x8x8xbf16>, tensor<7x3x3x3xbf16>) -> tensor<2x7x8x8xbf16>
  %1 = memopt.convolution %y, %v {strides = array<i64: 1, 1>, padding_low = array<i64: 1, 1>, padding_high = array<i64: 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x3x8x8xf32>, tensor<16x3x3x3xf32>) -> tensor<2x16x8x8xf32>
  %2 = memopt.convolution %z, %u {strides = array<i64: 1, 1>, padding_low = array<i64: 1, 1>, padding_high = array<i64: 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x8x8x8xbf16>, tensor<16x8x3x3xbf16>) -> tensor<2x16x8x8xbf16>
  return %0, %1, %2 : tensor<2x7x8x8xbf16>, tensor<2x16x8x8xf32>, tensor<2x16x8x8xbf16>
}
}

// -----

// CHECK-LABEL: @processor
// CHECK-NOT: memopt.pad
// CHECK: return
func.func @processor(%x: tensor<2x3x8x8xbf16>, %w: tensor<16x3x3x3xbf16>) -> tensor<2x16x8x8xbf16> {
  %0 = memopt.convolution %x, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 1, 1>, padding_high = array<i64: 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x3x8x8xbf16>, tensor<16x3x3x3xbf16>) -> tensor<2x16x8x8xbf16>
  return %0 : tensor<2x16x8x8xbf16>
}
