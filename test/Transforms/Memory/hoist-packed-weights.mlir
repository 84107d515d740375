// RUN: memopt-opt %s -memopt-lower-to-linalg -memopt-form-kernels -memopt-hoist-invariants=budget=1000000 -memopt-plan-memory=budget=1000000 \
// RUN:   -memopt-verify-planned --remarks-filter='memopt-hoist-invariants' --remark-format=emitRemark 2> %t.remarks | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK < %t.remarks
// RUN: memopt-opt %s -memopt-lower-to-linalg -memopt-form-kernels -memopt-hoist-invariants -memopt-plan-memory -memopt-verify-planned \
// RUN:   | FileCheck %s --check-prefix=FREE

// Weights that a loop does not change are packed once in front of it, where the budget has room: the convolution and its
// second run share them, the gradient of the input has its own. Those that the loop writes are packed by their call.
// Nobody gets packed weights who says no bytes: they are twice the parameters.

// REMARK: Kernels=0, PackedWeights=2, Results=2
// FREE-NOT: pack_weights

memopt.variable @w : tensor<32x16x3x3xf32> role <parameter> {trainable}
memopt.variable @changing : tensor<32x32x3x3xf32> role <gradient>
memopt.variable @sum : tensor<32x16x3x3xf32> role <gradient>
// CHECK-LABEL: func.func @train_step
func.func @train_step(%x: tensor<2x10x10x16xf32> {memopt.name = "x"}) {
  // CHECK-DAG: %[[FORWARD:.*]] = memopt.library_call #memopt.pack_weights<#memopt.convolution<kind = forward, {{.*}} packed = [[BYTES:[0-9]+]],
  // CHECK-DAG: %[[BACKWARD:.*]] = memopt.library_call #memopt.pack_weights<#memopt.convolution<kind = backward_data,
  // CHECK: memopt.repeat count(4) next_batch
  // CHECK-SAME: %[[FIRST:[a-z_0-9]+]] = %[[FORWARD]] :
  // CHECK-SAME: %[[SECOND:[a-z_0-9]+]] = %[[BACKWARD]] :
  // CHECK-NOT: memopt.read @w
  // CHECK-COUNT-2: kind = forward, {{.*}} packed = [[BYTES]], {{.*}}%[[FIRST]])
  // CHECK: kind = forward, {{.*}} weight = [32, 32, 3, 3], {{.*}} groups = 1, type = f32
  // CHECK: kind = backward_data, {{.*}}%[[SECOND]])
  memopt.repeat count(4) next_batch (%batch = %x : tensor<2x10x10x16xf32>) {
    %w = memopt.read @w : tensor<32x16x3x3xf32>
    %y = memopt.convolution %batch, %w {layout = #memopt.layout<channels_last>, strides = array<i64: 1, 1>,
      padding_low = array<i64: 1, 1>, padding_high = array<i64: 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64}
      : (tensor<2x10x10x16xf32>, tensor<32x16x3x3xf32>) -> tensor<2x10x10x32xf32>
    %again = memopt.convolution %batch, %w {memopt.phase = #memopt.phase<backward>, layout = #memopt.layout<channels_last>, strides = array<i64: 1, 1>,
      padding_low = array<i64: 1, 1>, padding_high = array<i64: 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64}
      : (tensor<2x10x10x16xf32>, tensor<32x16x3x3xf32>) -> tensor<2x10x10x32xf32>
    %old = memopt.read @changing : tensor<32x32x3x3xf32>
    %z = memopt.convolution %y, %old {layout = #memopt.layout<channels_last>, strides = array<i64: 1, 1>,
      padding_low = array<i64: 1, 1>, padding_high = array<i64: 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64}
      : (tensor<2x10x10x32xf32>, tensor<32x32x3x3xf32>) -> tensor<2x10x10x32xf32>
    %dx = memopt.convolution_backward_data %z, %w {input_shape = array<i64: 2, 10, 10, 16>, layout = #memopt.layout<channels_last>, strides = array<i64: 1, 1>,
      padding_low = array<i64: 1, 1>, padding_high = array<i64: 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64}
      : (tensor<2x10x10x32xf32>, tensor<32x16x3x3xf32>) -> tensor<2x10x10x16xf32>
    %part = memopt.convolution_backward_weights %again, %z {layout = #memopt.layout<channels_last>, strides = array<i64: 1, 1>,
      padding_low = array<i64: 1, 1>, padding_high = array<i64: 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64}
      : (tensor<2x10x10x32xf32>, tensor<2x10x10x32xf32>) -> tensor<32x32x3x3xf32>
    memopt.write %part, @changing : tensor<32x32x3x3xf32>
    %dw = memopt.convolution_backward_weights %dx, %again {layout = #memopt.layout<channels_last>, strides = array<i64: 1, 1>,
      padding_low = array<i64: 1, 1>, padding_high = array<i64: 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64}
      : (tensor<2x10x10x16xf32>, tensor<2x10x10x32xf32>) -> tensor<32x16x3x3xf32>
    memopt.write %dw, @sum : tensor<32x16x3x3xf32>
  }
  return
}
