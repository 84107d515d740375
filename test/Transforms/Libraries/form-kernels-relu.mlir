// RUN: memopt-opt %s -split-input-file -memopt-lower-to-linalg -memopt-form-kernels -memopt-verify-kernel-graph | FileCheck %s

// On a GPU a convolution of f32 stores the relu of what it gives, with a bias and without, where nobody else reads that.

// CHECK-LABEL: @both
// CHECK-SAME: %[[X:.*]]: tensor<2x8x8x4xf32>, %[[W:.*]]: tensor<8x4x3x3xf32>, %[[B:.*]]: tensor<8xf32>
// CHECK: %[[Y:.*]] = memopt.library_call #memopt.convolution<kind = forward
// CHECK-SAME: groups = 1, bias = true, relu = true, type = f32, accumulator = f32>
// CHECK-SAME: (%[[X]], %[[W]], %[[B]])
// CHECK-NEXT: return %[[Y]]
module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 4, image = "bitcode">} {
func.func @both(%x: tensor<2x8x8x4xf32>, %w: tensor<8x4x3x3xf32>, %b: tensor<8xf32>) -> tensor<2x8x8x8xf32> {
  %0 = memopt.convolution %x, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 1, 1>, padding_high = array<i64: 1, 1>,
      dilations = array<i64: 1, 1>, groups = 1 : i64, layout = #memopt.layout<channels_last>}
      : (tensor<2x8x8x4xf32>, tensor<8x4x3x3xf32>) -> tensor<2x8x8x8xf32>
  %1 = memopt.broadcast %b {dimensions = array<i64: 3>} : (tensor<8xf32>) -> tensor<2x8x8x8xf32>
  %2 = arith.addf %0, %1 : tensor<2x8x8x8xf32>
  %3 = memopt.relu %2 : tensor<2x8x8x8xf32>
  return %3 : tensor<2x8x8x8xf32>
}
}

// -----

// CHECK-LABEL: @alone
// CHECK: %[[Y:.*]] = memopt.library_call {{.*}} groups = 1, relu = true
// CHECK-NEXT: return %[[Y]]
module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 4, image = "bitcode">} {
func.func @alone(%x: tensor<2x8x8x4xf32>, %w: tensor<8x4x3x3xf32>) -> tensor<2x8x8x8xf32> {
  %0 = memopt.convolution %x, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 1, 1>, padding_high = array<i64: 1, 1>,
      dilations = array<i64: 1, 1>, groups = 1 : i64, layout = #memopt.layout<channels_last>}
      : (tensor<2x8x8x4xf32>, tensor<8x4x3x3xf32>) -> tensor<2x8x8x8xf32>
  %1 = memopt.relu %0 : tensor<2x8x8x8xf32>
  return %1 : tensor<2x8x8x8xf32>
}
}

// -----

// CHECK-LABEL: @read_twice
// CHECK: memopt.library_call
// CHECK-NOT: relu
// CHECK: memopt.kernel
module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 4, image = "bitcode">} {
func.func @read_twice(%x: tensor<2x8x8x4xf32>, %w: tensor<8x4x3x3xf32>) -> (tensor<2x8x8x8xf32>, tensor<2x8x8x8xf32>) {
  %0 = memopt.convolution %x, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 1, 1>, padding_high = array<i64: 1, 1>,
      dilations = array<i64: 1, 1>, groups = 1 : i64, layout = #memopt.layout<channels_last>}
      : (tensor<2x8x8x4xf32>, tensor<8x4x3x3xf32>) -> tensor<2x8x8x8xf32>
  %1 = memopt.relu %0 : tensor<2x8x8x8xf32>
  return %0, %1 : tensor<2x8x8x8xf32>, tensor<2x8x8x8xf32>
}
}

// -----

// Another slope below 0 is a kernel's work.

// CHECK-LABEL: @leaky
// CHECK: memopt.library_call
// CHECK-NOT: relu
// CHECK: memopt.kernel
module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 4, image = "bitcode">} {
func.func @leaky(%x: tensor<2x8x8x4xf32>, %w: tensor<8x4x3x3xf32>) -> tensor<2x8x8x8xf32> {
  %slope = arith.constant dense<0.1> : tensor<2x8x8x8xf32>
  %0 = memopt.convolution %x, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 1, 1>, padding_high = array<i64: 1, 1>,
      dilations = array<i64: 1, 1>, groups = 1 : i64, layout = #memopt.layout<channels_last>}
      : (tensor<2x8x8x4xf32>, tensor<8x4x3x3xf32>) -> tensor<2x8x8x8xf32>
  %zero = arith.constant dense<0.0> : tensor<2x8x8x8xf32>
  %small = arith.cmpf ole, %0, %zero : tensor<2x8x8x8xf32>
  %scaled = arith.mulf %0, %slope : tensor<2x8x8x8xf32>
  %1 = arith.select %small, %scaled, %0 : tensor<2x8x8x8xi1>, tensor<2x8x8x8xf32>
  return %1 : tensor<2x8x8x8xf32>
}
}

// -----

// oneDNN's relu makes 0 of NaN: on a processor it is a kernel.

// CHECK-LABEL: @processor
// CHECK: memopt.library_call
// CHECK-NOT: relu
// CHECK: memopt.kernel
func.func @processor(%x: tensor<2x8x8x4xf32>, %w: tensor<8x4x3x3xf32>) -> tensor<2x8x8x8xf32> {
  %0 = memopt.convolution %x, %w {strides = array<i64: 1, 1>, padding_low = array<i64: 1, 1>, padding_high = array<i64: 1, 1>,
      dilations = array<i64: 1, 1>, groups = 1 : i64, layout = #memopt.layout<channels_last>}
      : (tensor<2x8x8x4xf32>, tensor<8x4x3x3xf32>) -> tensor<2x8x8x8xf32>
  %1 = memopt.relu %0 : tensor<2x8x8x8xf32>
  return %1 : tensor<2x8x8x8xf32>
}
