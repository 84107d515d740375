// RUN: memopt-opt %s --memopt-autodiff --mlir-print-debuginfo --mlir-print-local-scope | FileCheck %s

// A backward op has the location, which is the module path, of the op that it differentiates.

memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
func.func @train_step(%x: tensor<4xf32>) -> tensor<f32> {
  %0 = memopt.read @w : tensor<4xf32> loc("net.embed")
  %1 = math.exp %0 : tensor<4xf32> loc("net.exp")
  %2 = arith.mulf %1, %x : tensor<4xf32> loc("net.scale")
  %3 = memopt.reduce %2 {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32> loc("loss")
  // CHECK: arith.mulf %arg0, %1 {memopt.phase = #memopt.phase<backward>} : tensor<4xf32> loc("net.exp")
  // CHECK: memopt.gradient {{.*}} loc("net.embed")
  return %3 : tensor<f32>
}
