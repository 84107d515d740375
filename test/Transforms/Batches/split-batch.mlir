// RUN: memopt-opt %s -memopt-split-batch=batches=4 -split-input-file -verify-diagnostics | FileCheck %s
// RUN: memopt-opt %s -memopt-split-batch=parts=2 -split-input-file -verify-diagnostics | FileCheck %s --check-prefix=PARTS
// RUN: memopt-opt %s -memopt-split-batch="batches=2 element-type=bf16" -split-input-file -verify-diagnostics | FileCheck %s --check-prefix=BF16
// RUN: memopt-opt %s -memopt-split-batch -split-input-file | FileCheck %s --check-prefix=ONE

// What touches samples runs for each micro-batch; the gradient is a sum in a variable, the update runs once. A mean
// divides by the count of all batches.

memopt.variable @w : tensor<8xf32> role <parameter> {trainable}
// CHECK: memopt.variable @sum : tensor<f32> role <gradient>
// CHECK: memopt.variable @sum.w : tensor<8xf32> role <gradient>
// BF16: memopt.variable @sum : tensor<f32> role <gradient>
// BF16: memopt.variable @sum.w : tensor<8xbf16> role <gradient>
// ONE-NOT: memopt.repeat
// CHECK-LABEL: func.func @mean(%arg0: tensor<4x8xf32> {memopt.batch_dim = 0 : i64}) -> tensor<f32>
// PARTS-LABEL: func.func @mean(%arg0: tensor<2x8xf32> {memopt.batch_dim = 0 : i64}) -> tensor<f32>
func.func @mean(%x: tensor<4x8xf32>) -> tensor<f32> {
  // CHECK: %[[COUNT:.*]] = arith.constant dense<1.280000e+02>
  // PARTS: arith.constant dense<3.200000e+01>
  // The zeros of the loss and of the gradient come first.
  // CHECK-DAG: memopt.write %{{.*}}, @sum
  // CHECK-DAG: memopt.write %{{.*}}, @sum.w
  // CHECK: memopt.repeat count(4) next_batch (%[[X:.*]] = %arg0 : tensor<4x8xf32>) {
  // CHECK: %[[W:.*]] = memopt.read @w
  // CHECK: memopt.broadcast %[[W]]
  // CHECK: %[[PART:.*]] = memopt.reduce
  // CHECK: %[[OLD:.*]] = memopt.read @sum
  // CHECK: %[[NEW:.*]] = memopt.accumulate %[[OLD]], %[[PART]]
  // CHECK: memopt.write %[[NEW]], @sum
  // CHECK: memopt.reduce
  // CHECK: memopt.write %{{.*}}, @sum.w
  // CHECK: }
  // PARTS: memopt.repeat count(2) next_batch (%{{.*}} = %arg0 : tensor<2x8xf32>) {
  // A narrow accumulator is added to in the type of the gradient.
  // BF16: %[[OLD:.*]] = memopt.read @sum.w {{.*}} : tensor<8xbf16>
  // BF16: %[[WIDE:.*]] = arith.extf %[[OLD]]
  // BF16: %[[NEW:.*]] = memopt.accumulate %[[WIDE]]
  // BF16: %[[NARROW:.*]] = arith.truncf %[[NEW]]
  // BF16: memopt.write %[[NARROW]], @sum.w {{.*}} : tensor<8xbf16>
  %w = memopt.read @w : tensor<8xf32>
  %rows = memopt.broadcast %w {dimensions = array<i64: 1>} : (tensor<8xf32>) -> tensor<4x8xf32>
  %y = arith.mulf %x, %rows : tensor<4x8xf32>
  %total = memopt.reduce %y {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<f32>
  %count = memopt.count %y {dimensions = array<i64: 0, 1>} : (tensor<4x8xf32>) -> tensor<f32>
  // CHECK-DAG: %[[TOTAL:.*]] = memopt.read @sum {{.*}} : tensor<f32>
  // CHECK: %[[LOSS:.*]] = arith.divf %[[TOTAL]], %[[COUNT]]
  // CHECK: memopt.commit %[[LOSS]]
  %loss = arith.divf %total, %count : tensor<f32>
  memopt.commit %loss : tensor<f32>
  %gradient = memopt.reduce %x {dimensions = array<i64: 0>, kind = #memopt.reduce<add>, memopt.phase = #memopt.phase<backward>} : (tensor<4x8xf32>) -> tensor<8xf32>
  // CHECK: memopt.gradient %{{.*}}, @w
  memopt.gradient %gradient, @w {memopt.phase = #memopt.phase<backward>} : tensor<8xf32>
  %old = memopt.read @w {memopt.phase = #memopt.phase<optimizer>} : tensor<8xf32>
  %new = arith.subf %old, %gradient {memopt.phase = #memopt.phase<optimizer>} : tensor<8xf32>
  // CHECK: arith.subf
  // CHECK: memopt.write %{{.*}}, @w
  memopt.write %new, @w {memopt.phase = #memopt.phase<optimizer>} : tensor<8xf32>
  return %loss : tensor<f32>
}

// -----

// Of sums over samples no more are there for more batches: a mean of them divides by the features alone.

memopt.variable @w : tensor<8xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @mean_of_sums
func.func @mean_of_sums(%x: tensor<4x8xf32>) -> tensor<f32> {
  // CHECK-DAG: %[[FEATURES:.*]] = arith.constant dense<8.000000e+00>
  // CHECK-DAG: %[[UNIT:.*]] = arith.constant dense<1.000000e+00>
  %w = memopt.read @w : tensor<8xf32>
  %rows = memopt.broadcast %w {dimensions = array<i64: 1>} : (tensor<8xf32>) -> tensor<4x8xf32>
  %y = arith.mulf %x, %rows : tensor<4x8xf32>
  %sums = memopt.reduce %y {dimensions = array<i64: 0>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<8xf32>
  %squares = arith.mulf %sums, %sums : tensor<8xf32>
  // CHECK: memopt.repeat
  // CHECK: memopt.write %{{.*}}, @sum.w
  // CHECK: %[[TOTAL:.*]] = memopt.reduce
  // CHECK: %[[MEAN:.*]] = arith.divf %[[TOTAL]], %[[FEATURES]]
  %total = memopt.reduce %squares {dimensions = array<i64: 0>, kind = #memopt.reduce<add>} : (tensor<8xf32>) -> tensor<f32>
  %count = memopt.count %squares {dimensions = array<i64: 0>} : (tensor<8xf32>) -> tensor<f32>
  %mean = arith.divf %total, %count : tensor<f32>
  // CHECK: arith.divf %[[MEAN]], %[[UNIT]]
  %one = memopt.count %mean {dimensions = array<i64>} : (tensor<f32>) -> tensor<f32>
  %loss = arith.divf %mean, %one : tensor<f32>
  memopt.commit %loss : tensor<f32>
  %gradient = memopt.reduce %x {dimensions = array<i64: 0>, kind = #memopt.reduce<add>, memopt.phase = #memopt.phase<backward>} : (tensor<4x8xf32>) -> tensor<8xf32>
  memopt.gradient %gradient, @w {memopt.phase = #memopt.phase<backward>} : tensor<8xf32>
  return %loss : tensor<f32>
}
