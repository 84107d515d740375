// RUN: memopt-opt %s --memopt-mixed-precision="type=bf16" | FileCheck %s --check-prefix=NARROW
// RUN: memopt-opt %s --memopt-split-batch=batches=2 | FileCheck %s --check-prefix=PARTS

// Passes know ops by what the ops say of themselves: an activation, a norm and a draw that no pass has heard of are
// treated as those of the dialect are.

memopt.variable @w : tensor<4x4xf32> role <parameter> {trainable, names = ["w"]}
memopt.variable @s : tensor<4xf32> role <parameter> {trainable, names = ["s"]}

// An elementwise op computes in f32 between what is loaded and stored; a norm with a narrow form takes it, and what it
// scales by stays f32.
// NARROW: func.func @train_step
// NARROW: %[[P:.*]] = memopt.matmul {{.*}}bf16{{.*}} -> tensor<2x4xf32>
// NARROW: %[[PN:.*]] = arith.truncf %[[P]]
// NARROW: test.peak_norm %[[PN]], %{{.*}} : (tensor<2x4xbf16>, tensor<4xf32>) -> (tensor<2x4xbf16>, tensor<f32>)
// NARROW: test.glow %{{.*}} : tensor<2x4xf32>

// Micro-batches: the second one draws what the whole batch would draw for its samples.
// PARTS: memopt.repeat
// PARTS: %[[SAMPLE:.*]] = memopt.read @sample_offset
// PARTS: %[[FIRST:.*]] = arith.muli %[[SAMPLE]], %{{.*}} : tensor<i64>
// PARTS: test.noise %{{.*}}, %[[FIRST]] {{.*}}strides = array<i64: 4, 1>
func.func @train_step(%x: tensor<2x4xf32>) -> (tensor<f32> {memopt.role = "loss"}) {
  %w = memopt.read @w : tensor<4x4xf32>
  %s = memopt.read @s : tensor<4xf32>
  %p = memopt.matmul %x, %w : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %n, %peak = test.peak_norm %p, %s : (tensor<2x4xf32>, tensor<4xf32>) -> (tensor<2x4xf32>, tensor<f32>)
  %a = test.glow %n : tensor<2x4xf32>
  %noise = test.noise %a : (tensor<2x4xf32>) -> tensor<2x4xf32>
  %y = arith.addf %a, %noise : tensor<2x4xf32>
  %loss = memopt.reduce %y {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<2x4xf32>) -> tensor<f32>
  memopt.commit %loss : tensor<f32>
  return %loss : tensor<f32>
}
