// RUN: memopt-opt %s --memopt-autodiff --memopt-insert-optimizer | FileCheck %s

// The step is the one public function, whatever its name.

memopt.variable @w : tensor<f32> role <parameter> {trainable}
// CHECK-LABEL: func.func @anything(
func.func @anything(%x: tensor<f32>) -> tensor<f32> {
  %w = memopt.read @w : tensor<f32>
  %y = arith.mulf %w, %x : tensor<f32>
  // CHECK: memopt.gradient %{{.*}}, @w
  // CHECK: memopt.optimizer_step
  return %y : tensor<f32>
}
