// RUN: memopt-opt %s --memopt-insert-optimizer="settings='lr=0.1 weight-decay=0.5 norm-decay-mult=0'" | FileCheck %s

// What scales a norm that no pass has heard of has the weight decay of norms, for the norm says so; a matrix keeps its own.

memopt.variable @w : tensor<4x4xf32> role <parameter> {trainable, names = ["w"]}
memopt.variable @s : tensor<4xf32> role <parameter> {trainable, names = ["s"]}

// CHECK: memopt.optimizer_step %{{.*}}, %arg1, {{.*}}weight_decay = 5.000000e-01
// CHECK: memopt.optimizer_step %{{.*}}, %arg2, {{.*}}weight_decay = 0.000000e+00
func.func @train_step(%x: tensor<2x4xf32>, %dw: tensor<4x4xf32>, %ds: tensor<4xf32>) -> tensor<2x4xf32> {
  %w = memopt.read @w : tensor<4x4xf32>
  %s = memopt.read @s : tensor<4xf32>
  %p = memopt.matmul %x, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %n, %peak = test.peak_norm %p, %s : (tensor<2x4xf32>, tensor<4xf32>) -> (tensor<2x4xf32>, tensor<f32>)
  memopt.gradient %dw, @w : tensor<4x4xf32>
  memopt.gradient %ds, @s : tensor<4xf32>
  return %n : tensor<2x4xf32>
}
