// RUN: memopt-opt %s -memopt-split-batch="ranks=4 sync-batch-norm=true" -split-input-file | FileCheck %s
// RUN: memopt-opt %s -memopt-split-batch="ranks=4 batches=3 sync-batch-norm=true" -split-input-file | FileCheck %s --check-prefix=LOOP

// Means and variances of the ranks are merged, and the backward pass sums two vectors over them: a channel has 4 * 8 * 6
// = 192 elements. The running mean moves once. Gradients of scale and offset stay sums of a rank.

memopt.variable @scale : tensor<8xf32> role <parameter> {trainable}
memopt.variable @mean : tensor<8xf32> role <buffer>
memopt.variable @var : tensor<8xf32> role <buffer>
// CHECK-LABEL: func.func @norm
// LOOP-LABEL: func.func @norm
func.func @norm(%x: tensor<8x8x6xf32> {memopt.batch_dim = 0 : i64}) -> tensor<f32> {
  // CHECK: %{{.*}}, %[[M:.*]], %[[V:.*]] = memopt.batch_norm %{{[a-z0-9]*}} {eps
  // CHECK: %[[MEANS:.*]] = memopt.collective <all_reduce> %[[M]] over 4
  // CHECK: %[[MEAN:.*]] = arith.divf %[[MEANS]]
  // CHECK: %[[D:.*]] = arith.subf %[[M]], %[[MEAN]]
  // CHECK: %[[DD:.*]] = arith.mulf %[[D]], %[[D]]
  // CHECK: %[[W:.*]] = arith.addf %[[V]], %[[DD]]
  // CHECK: %[[VARS:.*]] = memopt.collective <all_reduce> %[[W]] over 4
  // CHECK: %[[VAR:.*]] = arith.divf %[[VARS]]
  // CHECK: math.rsqrt
  // CHECK: %{{.*}}, %[[DSCALE:.*]], %[[DOFFSET:.*]] = memopt.batch_norm_backward %{{.*}}, %[[MEAN]], %[[VAR]] {
  // CHECK: memopt.collective <all_reduce> %[[DSCALE]] over 4
  // CHECK: dense<1.920000e+02>
  // CHECK: memopt.collective <all_reduce> %[[DOFFSET]] over 4
  // CHECK: memopt.commit
  // CHECK-NOT: all_gather
  // CHECK: %[[OLD:.*]] = memopt.read @mean
  // CHECK: %[[NEW:.*]] = arith.addf %[[OLD]], %[[MEAN]]
  // CHECK: memopt.write %[[NEW]], @mean
  // Unbiased: of the elements of all ranks.
  // CHECK: dense<1.920000e+02>
  // CHECK: memopt.write %{{.*}}, @var
  // CHECK-NOT: memopt.write %{{.*}}, @mean
  // With iterations each merges its own; the batch of one iteration is that of all ranks.
  // LOOP: memopt.repeat count(3) next_batch
  // LOOP: memopt.collective <all_reduce>
  // LOOP: memopt.collective <all_reduce>
  // LOOP: memopt.write %{{.*}}, @loop.mean
  // LOOP: dense<1.920000e+02>
  // LOOP: memopt.write %{{.*}}, @loop.var
  // LOOP: {{^    \}$}}
  %scale = memopt.read @scale : tensor<8xf32>
  %y, %m, %v = "memopt.batch_norm"(%x, %scale) <{eps = 1.0e-05 : f64, axis = 1 : i64, operandSegmentSizes = array<i32: 1, 1, 0>}> : (tensor<8x8x6xf32>, tensor<8xf32>) -> (tensor<8x8x6xf32>, tensor<8xf32>, tensor<8xf32>)
  %squares = arith.mulf %y, %y : tensor<8x8x6xf32>
  %loss = memopt.reduce %squares {dimensions = array<i64: 0, 1, 2>, kind = #memopt.reduce<add>} : (tensor<8x8x6xf32>) -> tensor<f32>
  %count = memopt.count %x {dimensions = array<i64: 0, 2>} : (tensor<8x8x6xf32>) -> tensor<f32>
  %dx, %dscale, %doffset = "memopt.batch_norm_backward"(%y, %x, %scale, %m, %v) <{eps = 1.0e-05 : f64, axis = 1 : i64}> {memopt.phase = #memopt.phase<backward>} : (tensor<8x8x6xf32>, tensor<8x8x6xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> (tensor<8x8x6xf32>, tensor<8xf32>, tensor<8xf32>)
  memopt.gradient %dscale, @scale {memopt.phase = #memopt.phase<backward>} : tensor<8xf32>
  memopt.commit %loss : tensor<f32>
  %old = memopt.read @mean : tensor<8xf32>
  %new = arith.addf %old, %m : tensor<8xf32>
  memopt.write %new, @mean : tensor<8xf32>
  %counts = memopt.broadcast %count {dimensions = array<i64>} : (tensor<f32>) -> tensor<8xf32>
  %unbiased = arith.mulf %v, %counts : tensor<8xf32>
  memopt.write %unbiased, @var : tensor<8xf32>
  %sum = memopt.reduce %dx {dimensions = array<i64: 0, 2>, kind = #memopt.reduce<add>, memopt.phase = #memopt.phase<backward>} : (tensor<8x8x6xf32>) -> tensor<8xf32>
  %updated = arith.subf %scale, %sum {memopt.phase = #memopt.phase<optimizer>} : tensor<8xf32>
  memopt.write %updated, @scale {memopt.phase = #memopt.phase<optimizer>} : tensor<8xf32>
  return %loss : tensor<f32>
}
