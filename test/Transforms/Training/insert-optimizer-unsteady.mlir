// RUN: memopt-opt %s --memopt-autodiff --memopt-insert-optimizer="settings='optimizer=adam'" | FileCheck %s
// RUN: memopt-opt %s --memopt-autodiff --memopt-insert-optimizer="settings='optimizer=adam' zero-stage=1 ranks=2" | FileCheck %s --check-prefix=SHARDS
// RUN: memopt-opt %s --memopt-autodiff --memopt-insert-optimizer="settings='optimizer=adam'" --memopt-guard-state --memopt-split-batch="parts=2 ranks=2" \
// RUN:   | FileCheck %s --check-prefix=SPLIT

// @w is updated in steps in which samples use it, as where a branch of the model takes it. In others it stays as it
// is, with its moments and its own count of updates. @v is updated always, and numbered as the run's steps are.

memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
memopt.variable @v : tensor<4xf32> role <parameter> {trainable}

// CHECK:     memopt.variable @optimizer.step.w : tensor<i64> role <optimizer_state>
// CHECK-NOT: @optimizer.step.v

func.func @train_step(%x: tensor<8x4xf32> {memopt.name = "x", memopt.batch_dim = 0 : i64}) -> tensor<f32> {
  %w = memopt.read @w : tensor<4xf32>
  %v = memopt.read @v : tensor<4xf32>
  %wv = arith.mulf %w, %v : tensor<4xf32>
  %wide = memopt.broadcast %wv {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<8x4xf32>
  %y = arith.mulf %x, %wide : tensor<8x4xf32>
  %loss = memopt.reduce %y {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<8x4xf32>) -> tensor<f32>
  %count = memopt.reduce %x {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<8x4xf32>) -> tensor<f32>
  memopt.updated_where %count, [@w] : tensor<f32>
  return %loss : tensor<f32>
}

// CHECK-LABEL: func.func @train_step
// CHECK:       %[[COUNT:.*]] = memopt.reduce %arg0 {dimensions = array<i64: 0, 1>
// CHECK-NOT:   memopt.updated_where
// CHECK:       %[[M:.*]] = memopt.read @optimizer.exp_avg.w
// CHECK:       %[[S:.*]] = memopt.read @optimizer.exp_avg_sq.w
// CHECK:       %[[ZERO:.*]] = arith.constant {{.*}}dense<0.000000e+00>
// CHECK:       %[[USED:.*]] = arith.cmpf ogt, %[[COUNT]], %[[ZERO]]
// CHECK:       %[[OLD:.*]] = memopt.read @optimizer.step.w
// CHECK:       %[[NEXT:.*]] = arith.addi %[[OLD]]
// CHECK:       %[[KEPT:.*]] = arith.select %[[USED]], %[[NEXT]], %[[OLD]]
// CHECK:       memopt.write %[[KEPT]], @optimizer.step.w
// CHECK:       %[[W:.*]] = memopt.read @w {memopt.phase = #memopt.phase<optimizer>}
// CHECK:       %[[NEW:[^,]*]], %[[STATE:.*]]:2 = memopt.optimizer_step %[[W]], %{{.*}}, %{{.*}}, %[[NEXT]], %[[M]], %[[S]]
// CHECK:       %[[EACH:.*]] = memopt.broadcast %[[USED]]
// CHECK:       %[[KEPT:.*]] = arith.select %[[EACH]], %[[NEW]], %[[W]]
// CHECK:       memopt.write %[[KEPT]], @w
// CHECK:       %[[KEPT:.*]] = arith.select %{{.*}}, %[[STATE]]#0, %[[M]]
// CHECK:       memopt.write %[[KEPT]], @optimizer.exp_avg.w
// CHECK:       %[[KEPT:.*]] = arith.select %{{.*}}, %[[STATE]]#1, %[[S]]
// CHECK:       memopt.write %[[KEPT]], @optimizer.exp_avg_sq.w
// CHECK:       memopt.optimizer_step
// CHECK-NOT:   arith.select

// A rank leaves its part as it is, and is updated by itself.

// SHARDS:     %[[OWN:.*]] = memopt.collective <own_shard> %{{.*}} : tensor<4xf32> -> tensor<16xf32>
// SHARDS:     %[[NEW:[^,]*]], %{{.*}} = memopt.optimizer_step
// SHARDS:     %[[KEPT:.*]] = arith.select %{{.*}}, %[[NEW]], %{{.*}} : tensor<16xi1>, tensor<16xf32>
// SHARDS:     memopt.collective <all_gather> %[[KEPT]]

// A step uses it where a micro-batch of a rank does.

// SPLIT: memopt.repeat count(2) next_batch (%[[X:.*]] =
// SPLIT:   %[[COUNT:.*]] = memopt.reduce %[[X]] {dimensions = array<i64: 0, 1>
// SPLIT:   %[[SUM:.*]] = memopt.accumulate %{{.*}}, %[[COUNT]]
// SPLIT:   memopt.write %[[SUM]], @[[TOTAL:.*]] {memopt
// SPLIT: %[[OWN:.*]] = memopt.read @[[TOTAL]] {memopt
// SPLIT: %[[ALL:.*]] = memopt.collective <all_reduce> %[[OWN]] over 2
// SPLIT: arith.cmpf ogt, %[[ALL]]
