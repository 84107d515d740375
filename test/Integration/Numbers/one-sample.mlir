// A step that was exported with one sample is given more before gradients stand: those of what the sample shared with the
// batch are sums over samples, however the batch is cut afterwards.

// RUN: memopt-compile %s --batch=4 --micro-batches=2 --emit=joint 2>&1 | FileCheck %s --check-prefixes=CHECK,PARTS
// RUN: memopt-compile %s --batch=2 --ranks=2 --zero-stage=3 --emit=joint 2>&1 | FileCheck %s --check-prefixes=CHECK,RANKS

// PARTS: remark: compiled for 4 samples instead of 1
// RANKS: remark: compiled for 2 samples instead of 1
// PARTS: memopt.repeat count(2)
// CHECK: memopt.reduce %{{.*}} {dimensions = array<i64: 0>, {{.*}}} : (tensor<2x5x3xf32>) -> tensor<5x3xf32>
memopt.variable @positions : tensor<5x3xf32> role <parameter> {init_value = 1.0 : f64, names = ["positions"], trainable}
func.func @train_step(%x: tensor<1x5x3xf32> {memopt.batch_dim = 0 : i64, memopt.name = "x"})
    -> (tensor<f32> {memopt.name = "loss", memopt.role = "loss"}) {
  %p = memopt.read @positions : tensor<5x3xf32>
  %flat = tensor.collapse_shape %x [[0, 1], [2]] : tensor<1x5x3xf32> into tensor<5x3xf32>
  %y = arith.mulf %flat, %p : tensor<5x3xf32>
  %sum = memopt.reduce %y {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<5x3xf32>) -> tensor<f32>
  return %sum : tensor<f32>
}
