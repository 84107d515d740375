// RUN: memopt-opt %s -memopt-guard-state -split-input-file | FileCheck %s
// RUN: memopt-opt %s -memopt-guard-state -memopt-lower-to-linalg -memopt-form-kernels -memopt-schedule -memopt-plan-memory -memopt-verify-planned -split-input-file | FileCheck %s --check-prefix=PLANNED

// A running statistic is updated in the middle of the forward pass. Its write moves behind the commit of the loss, with
// the op that only makes what is written, which belongs to the update from now on. What the loss needs stays.

memopt.variable @running : tensor<8xf32> role <buffer> {names = ["running"]}
// CHECK-LABEL: func.func @statistics
// CHECK: %[[MEAN:.*]] = memopt.reduce
// CHECK-NOT: memopt.write
// CHECK: %[[LOSS:.*]] = memopt.reduce
// CHECK-NEXT: memopt.commit %[[LOSS]] : tensor<f32>
// CHECK-NEXT: %[[NEW:.*]] = arith.addf %{{.*}}, %[[MEAN]] {memopt.phase = #memopt.phase<optimizer>}
// CHECK-NEXT: memopt.write %[[NEW]], @running {memopt.phase = #memopt.phase<optimizer>}
// In the planned program the kernel that writes the variable's bytes runs behind the commit.
// PLANNED-LABEL: func.func @statistics
// PLANNED: memopt.commit
// PLANNED: %[[NEW:.*]] = memopt.kernel
// PLANNED: memopt.write %[[NEW]], @running
func.func @statistics(%x: tensor<4x8xf32>) -> (tensor<f32> {memopt.role = "loss"}) {
  %mean = memopt.reduce %x {dimensions = array<i64: 0>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<8xf32>
  %old = memopt.read @running : tensor<8xf32>
  %new = arith.addf %old, %mean : tensor<8xf32>
  memopt.write %new, @running : tensor<8xf32>
  %loss = memopt.reduce %mean {dimensions = array<i64: 0>, kind = #memopt.reduce<add>} : (tensor<8xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// What the loss reads too cannot wait for it: only the write moves.

memopt.variable @running : tensor<f32> role <buffer> {names = ["running"]}
// CHECK-LABEL: func.func @shared
// CHECK: %[[NEW:.*]] = arith.addf
// CHECK: %[[LOSS:.*]] = arith.mulf %[[NEW]], %[[NEW]]
// CHECK-NEXT: memopt.commit %[[LOSS]]
// CHECK-NEXT: memopt.write %[[NEW]], @running
// The value gets a copy behind the commit, for its own kernel runs before.
// PLANNED-LABEL: func.func @shared
// PLANNED: memopt.kernel
// PLANNED: memopt.commit
// PLANNED: %[[COPY:.*]] = memopt.kernel
// PLANNED: memopt.write %[[COPY]], @running
func.func @shared(%x: tensor<f32>) -> tensor<f32> {
  %old = memopt.read @running : tensor<f32>
  %new = arith.addf %old, %x : tensor<f32>
  memopt.write %new, @running : tensor<f32>
  %loss = arith.mulf %new, %new : tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Nothing is written: nothing needs a border. Evaluation looks like this.

// CHECK-LABEL: func.func @evaluation
// CHECK-NOT: memopt.commit
func.func @evaluation(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}
