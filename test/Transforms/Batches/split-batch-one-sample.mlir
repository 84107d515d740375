// RUN: memopt-opt %s --memopt-joint="ranks=2 optimizer='optimizer=sgd lr=0.1'" | FileCheck %s
// RUN: memopt-opt %s --memopt-joint="ranks=2 zero-stage=1 optimizer='optimizer=sgd lr=0.1'" | FileCheck %s --check-prefix=SHARD
// RUN: memopt-opt %s --memopt-joint="accumulative-counts=3 optimizer='optimizer=sgd lr=0.1'" | FileCheck %s --check-prefix=LOOP

// In a batch of one sample nothing is summed to get the gradient of what every sample adds, so it has the shape of a sample.
// It is a sum all the same: its mark and its update, or the shard of it that a rank updates, are those of all samples.

memopt.variable @w : tensor<8x4xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @train_step
// SHARD-LABEL: func.func @train_step
// LOOP-LABEL: func.func @train_step
func.func @train_step(%x: tensor<1x8x4xf32> {memopt.batch_dim = 0 : i64}) -> (tensor<f32> {memopt.role = "loss"}) {
  // CHECK: %[[OWN:.*]] = tensor.collapse_shape
  // CHECK: %[[SUM:.*]] = memopt.collective <all_reduce> %[[OWN]] over 2
  // CHECK: memopt.gradient %[[SUM]], @w
  // CHECK: memopt.optimizer_step %{{.*}}, %[[SUM]],
  // SHARD: %[[OWN:.*]] = tensor.collapse_shape
  // SHARD: %[[SUM:.*]] = memopt.collective <reduce_scatter> %[[OWN]] over 2
  // SHARD: memopt.gradient %[[SUM]], @w
  // SHARD: memopt.optimizer_step %{{.*}}, %[[SUM]],
  // LOOP: memopt.repeat count(3)
  // LOOP: memopt.accumulate
  // LOOP-NOT: memopt.gradient
  // LOOP: {{^    \}$}}
  // LOOP: %[[SUM:.*]] = memopt.read @sum.w
  // LOOP: memopt.gradient %[[SUM]], @w
  %w = memopt.read @w : tensor<8x4xf32>
  %rows = memopt.broadcast %w {dimensions = array<i64: 1, 2>} : (tensor<8x4xf32>) -> tensor<1x8x4xf32>
  %y = arith.mulf %x, %rows : tensor<1x8x4xf32>
  %loss = memopt.reduce %y {dimensions = array<i64: 0, 1, 2>, kind = #memopt.reduce<add>} : (tensor<1x8x4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}
