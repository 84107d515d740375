// RUN: memopt-opt %s --memopt-autodiff --memopt-insert-optimizer="settings='optimizer=sgd'" | FileCheck %s

// Forward writes to @w, which is read within limits. The update begins with what was written, and takes the place of that write; @v,
// which nobody else writes, begins with what it holds.

memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
memopt.variable @v : tensor<4xf32> role <parameter> {trainable}

func.func @train_step(%x: tensor<4xf32> {memopt.name = "x"}) -> tensor<f32> {
  %w = memopt.read @w : tensor<4xf32>
  %v = memopt.read @v : tensor<4xf32>
  %limit = arith.constant dense<1.0> : tensor<4xf32>
  %within = arith.minimumf %w, %limit : tensor<4xf32>
  memopt.write %within, @w : tensor<4xf32>
  %wx = arith.mulf %within, %x : tensor<4xf32>
  %y = arith.mulf %wx, %v : tensor<4xf32>
  %loss = memopt.reduce %y {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// CHECK-LABEL: func.func @train_step
// CHECK:       %[[WITHIN:.*]] = arith.minimumf
// CHECK-NOT:   memopt.write %[[WITHIN]]
// CHECK:       %[[W:.*]] = memopt.optimizer_step %[[WITHIN]],
// CHECK:       memopt.write %[[W]], @w
// CHECK-NOT:   memopt.write %{{.*}}, @w
// CHECK:       %[[OLD:.*]] = memopt.read @v {memopt.phase = #memopt.phase<optimizer>}
// CHECK:       %[[V:.*]] = memopt.optimizer_step %[[OLD]],
// CHECK:       memopt.write %[[V]], @v
