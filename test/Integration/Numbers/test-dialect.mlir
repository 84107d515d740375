// RUN: rm -rf %t && mkdir %t
// RUN: test-compile %s --optimizer=test-sign -o %t/own.memopt --explain 2>&1 | FileCheck %s --check-prefix=PLAN
// RUN: sed '/[/] OWN$/d; s,^//PLAIN ,,' %s > %t/plain.mlir
// RUN: test-compile %t/plain.mlir --optimizer=test-sign -o %t/plain.memopt
// RUN: memopt-run %t/own.memopt --steps=3 --lr=0.25 --quiet --check-memory --report=%t/own.json --save-gradients=%t/own.safetensors --save=%t/own
// RUN: memopt-run %t/plain.memopt --steps=3 --lr=0.25 --quiet --check-memory --report=%t/plain.json --save-gradients=%t/plain.safetensors --save=%t/plain
// RUN: %python %support/compare_runs.py %t/plain.json %t/own.json
// RUN: cmp %t/plain.safetensors %t/own.safetensors
// RUN: cmp %t/plain/model.safetensors %t/own/model.safetensors
// RUN: cmp %t/plain/optimizer.safetensors %t/own/optimizer.safetensors
// RUN: %python -c "import sys; sys.path.insert(0, '%S'); from tensor_files import read_safetensors as read; from pathlib import Path; \
// RUN:   print(*read(Path('%t/own/model.safetensors'))['w'].flat, *read(Path('%t/own/optimizer.safetensors')))" \
// RUN:   | FileCheck %s --check-prefix=MOVED
// RUN: not memopt-compile %s --optimizer=test-sign 2>&1 | FileCheck %s --check-prefix=UNKNOWN

// An instruction, a view and an optimizer that the tree knows nothing of, in a dialect of their own, are imported,
// differentiated, planned, generated, run and saved: with the bits of the ops that they stand for.

// PLAN-DAG: optimizer_state optimizer.sum.w
// PLAN-DAG: result of copy
// MOVED: 4.25 -3.25 0.25 -1.75 2.25 7.25 optimizer.sum.w
// UNKNOWN: error

memopt.variable @w : tensor<3x2xf32> role <parameter> {trainable, names = ["w"], initial = dense<[
  [5.0, -4.0], [1.0, -2.5], [3.0, 8.0]]> : tensor<3x2xf32>}
memopt.variable @scale : tensor<3x2xf32> role <parameter> {names = ["scale"], initial = dense<[
  [0.5, 2.0], [-1.0, 3.0], [0.25, 1.5]]> : tensor<3x2xf32>}
func.func @train_step() -> (tensor<f32> {memopt.name = "loss", memopt.role = "loss"}) {
  %w = memopt.read @w : tensor<3x2xf32>
  %scale = memopt.read @scale : tensor<3x2xf32>
  %factor = test.copy %scale : tensor<3x2xf32> // OWN
  %rolled = test.roll %w {by = 2} : tensor<3x2xf32> // OWN
  %scaled = arith.mulf %rolled, %factor : tensor<3x2xf32> // OWN
//PLAIN %low = tensor.extract_slice %w[1, 0] [2, 2] [1, 1] : tensor<3x2xf32> to tensor<2x2xf32>
//PLAIN %high = tensor.extract_slice %w[0, 0] [1, 2] [1, 1] : tensor<3x2xf32> to tensor<1x2xf32>
//PLAIN %rolled = tensor.concat dim(0) %low, %high : (tensor<2x2xf32>, tensor<1x2xf32>) -> tensor<3x2xf32>
//PLAIN %scaled = arith.mulf %rolled, %scale : tensor<3x2xf32>
  %square = arith.mulf %scaled, %scaled : tensor<3x2xf32>
  %loss = memopt.reduce %square {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1>} : (tensor<3x2xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}
