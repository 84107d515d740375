// RUN: rm -rf %t && mkdir %t
// RUN: memopt-compile %s --optimizer=sgd --device-memory=4MiB -o %t/tiles.memopt --quiet
// RUN: memopt-compile %s --optimizer=sgd --tile=head:2 -o %t/two.memopt --quiet
// RUN: memopt-compile %s --optimizer=sgd --tile=off -o %t/whole.memopt --quiet
// RUN: memopt-run %t/tiles.memopt --steps=3 --lr=4 --init=random --quiet --check-memory --report=%t/tiles.json --save=%t/tiles
// RUN: memopt-run %t/two.memopt --steps=3 --lr=4 --init=random --quiet --check-memory --report=%t/two.json --save=%t/two
// RUN: memopt-run %t/whole.memopt --steps=3 --lr=4 --init=random --quiet --check-memory --report=%t/whole.json --save=%t/whole
// RUN: %python %support/compare_runs.py %t/whole.json %t/tiles.json --budget=4194304
// RUN: %python %support/compare_runs.py %t/whole.json %t/two.json
// RUN: cmp %t/whole/model.safetensors %t/tiles/model.safetensors
// RUN: cmp %t/whole/model.safetensors %t/two/model.safetensors
// RUN: not memopt-compile %s --optimizer=sgd --tile=off --device-memory=4MiB -o %t/none.memopt 2>&1 | FileCheck %s --check-prefix=WHOLE
// RUN: not memopt-compile %s --optimizer=sgd --tile=head -o %t/none.memopt 2>&1 | FileCheck %s --check-prefix=BAD
// RUN: not memopt-compile %s --optimizer=sgd --tile=nothing:8 -o %t/none.memopt 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// Logits of 96 tokens over a vocabulary of 16,384 are 6 MiB, those of a tile 2 MiB. Whole, in two parts and in three
// tiles the steps have the same bits.

// WHOLE: error: {{.*}}4194304
// BAD: --tile expects MODULE,...:N, head:N, all:N or off, found 'head'
// UNKNOWN: no module matches 'nothing'
memopt.variable @h : tensor<96x8xf32> role <parameter> {trainable, names = ["h"]}
memopt.variable @w : tensor<16384x8xf32> role <parameter> {trainable, names = ["w"]}
memopt.variable @b : tensor<16384xf32> role <parameter> {trainable, names = ["b"]}
func.func @train_step() -> (tensor<f32> {memopt.name = "loss", memopt.role = "loss"}) {
  %h = memopt.read @h : tensor<96x8xf32>
  %w = memopt.read @w : tensor<16384x8xf32>
  %b = memopt.read @b : tensor<16384xf32>
  %labels = memopt.iota {dimension = 0 : i64} : () -> tensor<96xi64>
  %product = memopt.matmul %h, %w {transpose_b} : (tensor<96x8xf32>, tensor<16384x8xf32>) -> tensor<96x16384xf32>
  %bias = memopt.broadcast %b {dimensions = array<i64: 1>} : (tensor<16384xf32>) -> tensor<96x16384xf32>
  %logits = arith.addf %product, %bias : tensor<96x16384xf32>
  %total, %count, %largest, %log_sum = memopt.cross_entropy %logits, %labels {label_smoothing = 0.1 : f64} : (tensor<96x16384xf32>, tensor<96xi64>) -> (tensor<f32>, tensor<f32>, tensor<96xf32>, tensor<96xf32>)
  %loss = arith.divf %total, %count : tensor<f32>
  return %loss : tensor<f32>
}
