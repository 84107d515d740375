// RUN: memopt-opt %s -memopt-split-batch=ranks=1000 | FileCheck %s
// RUN: memopt-opt %s -memopt-split-batch="ranks=1000 batches=3" | FileCheck %s --check-prefix=LOOP

// Running statistics of many ranks move in a loop over the ranks, each buffer or group of buffers in a loop of its own, so that
// the program is no longer for a thousand ranks than for ten.

memopt.variable @w : tensor<8xf32> role <parameter>
memopt.variable @mean : tensor<8xf32> role <buffer>
memopt.variable @count : tensor<i64> role <buffer>
// CHECK-LABEL: func.func @running
// LOOP-LABEL: func.func @running
func.func @running(%x: tensor<4x8xf32>) -> tensor<f32> {
  // CHECK: %[[BATCH:.*]] = arith.divf %{{.*}} : tensor<8xf32>
  // CHECK: memopt.commit
  // CHECK: %[[OLD:.*]] = memopt.read @mean
  // CHECK: %[[ALL:.*]] = memopt.collective <all_gather> %[[BATCH]] over 1000 {phase = #memopt.phase<optimizer>} : tensor<8xf32> -> tensor<1000x8xf32>
  // CHECK: %[[LAST:.*]] = memopt.scan count(999) slices(%[[ROW:.*]] = %[[ALL]] : {{.*}}) carried(%[[MEAN:.*]] = %[[OLD]] : tensor<8xf32>)
  // CHECK-NEXT: %[[MOVED:.*]] = arith.addf %[[MEAN]], %[[ROW]]
  // CHECK-NEXT: memopt.yield %[[MOVED]]
  // The last rank's move is not in the loop: state changes behind the commit, and what a loop carries from its start.
  // CHECK: tensor.extract_slice %[[ALL]][999, 0] [1, 8] [1, 1]
  // CHECK: %[[NEW:.*]] = arith.addf %[[LAST]], %{{.*}}
  // CHECK: memopt.write %[[NEW]], @mean
  // CHECK: memopt.scan count(999) carried(%{{.*}} = %{{.*}} : tensor<i64>)
  // CHECK: arith.addi
  // CHECK: memopt.write %{{.*}}, @count
  // LOOP: memopt.repeat
  // LOOP: memopt.collective <all_gather>
  // LOOP: memopt.scan count(999)
  // LOOP: memopt.write %{{.*}}, @loop.mean
  %w = memopt.read @w : tensor<8xf32>
  %scale = memopt.broadcast %w {dimensions = array<i64: 1>} : (tensor<8xf32>) -> tensor<4x8xf32>
  %in = arith.mulf %x, %scale : tensor<4x8xf32>
  %sum = memopt.reduce %in {dimensions = array<i64: 0>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<8xf32>
  %rows = memopt.count %in {dimensions = array<i64: 0>} : (tensor<4x8xf32>) -> tensor<f32>
  %each = memopt.broadcast %rows {dimensions = array<i64>} : (tensor<f32>) -> tensor<8xf32>
  %batch = arith.divf %sum, %each : tensor<8xf32>
  %means = memopt.broadcast %batch {dimensions = array<i64: 1>} : (tensor<8xf32>) -> tensor<4x8xf32>
  %y = arith.subf %in, %means : tensor<4x8xf32>
  %loss = memopt.reduce %y {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<f32>
  memopt.commit %loss : tensor<f32>
  %old = memopt.read @mean {memopt.phase = #memopt.phase<optimizer>} : tensor<8xf32>
  %moved = arith.addf %old, %batch {memopt.phase = #memopt.phase<optimizer>} : tensor<8xf32>
  memopt.write %moved, @mean {memopt.phase = #memopt.phase<optimizer>} : tensor<8xf32>
  %n = memopt.read @count {memopt.phase = #memopt.phase<optimizer>} : tensor<i64>
  %one = arith.constant {memopt.phase = #memopt.phase<optimizer>} dense<1> : tensor<i64>
  %next = arith.addi %n, %one {memopt.phase = #memopt.phase<optimizer>} : tensor<i64>
  memopt.write %next, @count {memopt.phase = #memopt.phase<optimizer>} : tensor<i64>
  return %loss : tensor<f32>
}
