// RUN: memopt-opt %s -memopt-split-batch=ranks=2 -split-input-file | FileCheck %s
// RUN: memopt-opt %s -memopt-split-batch="ranks=2 batches=3" -split-input-file | FileCheck %s --check-prefix=LOOP
// RUN: memopt-opt %s -memopt-split-batch="ranks=2 batches=3 scatter=true" -split-input-file | FileCheck %s --check-prefix=SCATTER

// Without iterations there is no loop: sums of a rank become sums of all ranks, and a mean divides by the samples of all.

memopt.variable @w : tensor<8xf32> role <parameter> {trainable}
// LOOP-LABEL: func.func @mean
// CHECK-LABEL: func.func @mean
func.func @mean(%x: tensor<4x8xf32>) -> tensor<f32> {
  // CHECK-NOT: memopt.repeat
  // CHECK: %[[COUNT:.*]] = arith.constant dense<6.400000e+01>
  // CHECK: %[[PART:.*]] = memopt.reduce %{{.*}} {dimensions = array<i64: 0, 1>
  // CHECK: %[[TOTAL:.*]] = memopt.collective <all_reduce> %[[PART]] over 2 : tensor<f32> -> tensor<f32>
  // CHECK: %[[OWN:.*]] = memopt.collective <all_reduce> %{{.*}} over 2 {phase = #memopt.phase<backward>} : tensor<8xf32> -> tensor<8xf32>
  // CHECK: %[[LOSS:.*]] = arith.divf %[[TOTAL]], %[[COUNT]]
  // CHECK: memopt.commit %[[LOSS]]
  // CHECK: memopt.gradient %[[OWN]], @w
  // CHECK: arith.subf %{{.*}}, %[[OWN]]
  // A rank's iterations are added up by itself, and then over the ranks.
  // LOOP: arith.constant dense<1.920000e+02>
  // LOOP: memopt.repeat count(3) next_batch
  // LOOP: memopt.accumulate
  // LOOP: {{^    \}$}}
  // LOOP: %[[SUM:.*]] = memopt.read @sum.w
  // LOOP: memopt.collective <all_reduce> %[[SUM]] over 2
  %w = memopt.read @w : tensor<8xf32>
  %rows = memopt.broadcast %w {dimensions = array<i64: 1>} : (tensor<8xf32>) -> tensor<4x8xf32>
  %y = arith.mulf %x, %rows : tensor<4x8xf32>
  %total = memopt.reduce %y {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<f32>
  %count = memopt.count %y {dimensions = array<i64: 0, 1>} : (tensor<4x8xf32>) -> tensor<f32>
  %loss = arith.divf %total, %count : tensor<f32>
  memopt.commit %loss : tensor<f32>
  %gradient = memopt.reduce %x {dimensions = array<i64: 0>, kind = #memopt.reduce<add>, memopt.phase = #memopt.phase<backward>} : (tensor<4x8xf32>) -> tensor<8xf32>
  memopt.gradient %gradient, @w {memopt.phase = #memopt.phase<backward>} : tensor<8xf32>
  %old = memopt.read @w {memopt.phase = #memopt.phase<optimizer>} : tensor<8xf32>
  %new = arith.subf %old, %gradient {memopt.phase = #memopt.phase<optimizer>} : tensor<8xf32>
  memopt.write %new, @w {memopt.phase = #memopt.phase<optimizer>} : tensor<8xf32>
  return %loss : tensor<f32>
}

// -----

// A running mean moves once for each rank, in their order, on every rank; behind the commit, as all state.

memopt.variable @w : tensor<8xf32> role <parameter>
memopt.variable @mean : tensor<8xf32> role <buffer>
// CHECK-LABEL: func.func @running
// LOOP-LABEL: func.func @running
func.func @running(%x: tensor<4x8xf32>) -> tensor<f32> {
  // CHECK: %[[BATCH:.*]] = arith.divf %{{.*}} : tensor<8xf32>
  // CHECK: memopt.commit
  // CHECK: %[[OLD:.*]] = memopt.read @mean
  // CHECK: %[[ALL:.*]] = memopt.collective <all_gather> %[[BATCH]] over 2 {phase = #memopt.phase<optimizer>} : tensor<8xf32> -> tensor<2x8xf32>
  // CHECK: tensor.extract_slice %[[ALL]][0, 0] [1, 8] [1, 1]
  // CHECK: %[[FIRST:.*]] = arith.addf %[[OLD]]
  // CHECK: tensor.extract_slice %[[ALL]][1, 0] [1, 8] [1, 1]
  // CHECK: %[[SECOND:.*]] = arith.addf %[[FIRST]]
  // CHECK: memopt.write %[[SECOND]], @mean
  // In a loop they move at each iteration, in the loop's own variable.
  // LOOP: memopt.repeat
  // LOOP: memopt.collective <all_gather>
  // LOOP: memopt.write %{{.*}}, @loop.mean
  // LOOP: {{^    \}$}}
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
  return %loss : tensor<f32>
}

// -----

// A gradient whose update is shared out: each iteration adds up this rank's part of the sum over ranks, or, without
// `scatter`, the part is taken of the whole in the end.

memopt.variable @w : tensor<8xf32> role <parameter> {trainable}
// SCATTER: memopt.variable @sum.w : tensor<16xf32>
// LOOP: memopt.variable @sum.w : tensor<8xf32>
// CHECK-LABEL: func.func @shared_out
// LOOP-LABEL: func.func @shared_out
// SCATTER-LABEL: func.func @shared_out
func.func @shared_out(%x: tensor<4x8xf32>) -> tensor<f32> {
  // CHECK: %[[SUM:.*]] = memopt.collective <all_reduce>
  // CHECK: memopt.collective <own_shard>
  // LOOP: memopt.repeat
  // LOOP: memopt.accumulate %{{.*}} : (tensor<8xf32>, tensor<8xf32>)
  // LOOP: memopt.collective <own_shard>
  // SCATTER: memopt.repeat
  // SCATTER: %[[PART:.*]] = memopt.collective <reduce_scatter> %{{.*}} over 2 {{.*}} : tensor<8xf32> -> tensor<16xf32>
  // SCATTER: memopt.accumulate %{{.*}}, %[[PART]]
  // SCATTER: memopt.read @sum.w
  // SCATTER-NOT: own_shard
  %loss = memopt.reduce %x {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<f32>
  memopt.commit %loss : tensor<f32>
  %gradient = memopt.reduce %x {dimensions = array<i64: 0>, kind = #memopt.reduce<add>, memopt.phase = #memopt.phase<backward>} : (tensor<4x8xf32>) -> tensor<8xf32>
  %own = memopt.collective <own_shard> %gradient over 2 {phase = #memopt.phase<optimizer>} : tensor<8xf32> -> tensor<16xf32>
  memopt.gradient %own, @w {memopt.phase = #memopt.phase<backward>, shard = #memopt.shard<ranks = 2, shape = [8]>} : tensor<16xf32>
  return %loss : tensor<f32>
}

// -----

// Gradients that are shared out as one vector are accumulated as its shards, with one sum over ranks in each iteration.

memopt.variable @a : tensor<8xf32> role <parameter> {trainable}
memopt.variable @b : tensor<8xf32> role <parameter> {trainable}
// SCATTER: memopt.variable @sum.b : tensor<16xf32>
// SCATTER-NOT: memopt.variable @sum.a
// SCATTER-LABEL: func.func @together
func.func @together(%x: tensor<4x8xf32>) -> tensor<f32> {
  // SCATTER: memopt.repeat
  // SCATTER: %[[ALL:.*]] = memopt.pack %{{.*}}, %{{.*}} at [0, 16]
  // SCATTER: %[[PART:.*]] = memopt.collective <reduce_scatter> %[[ALL]] over 2 {{.*}} : tensor<24xf32> -> tensor<16xf32>
  // SCATTER: memopt.accumulate %{{.*}}, %[[PART]]
  // SCATTER: memopt.read @sum.b
  // SCATTER-NOT: memopt.pack
  // SCATTER-NOT: own_shard
  %loss = memopt.reduce %x {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<f32>
  memopt.commit %loss : tensor<f32>
  %first = memopt.reduce %x {dimensions = array<i64: 0>, kind = #memopt.reduce<add>, memopt.phase = #memopt.phase<backward>} : (tensor<4x8xf32>) -> tensor<8xf32>
  %double = arith.addf %x, %x {memopt.phase = #memopt.phase<backward>} : tensor<4x8xf32>
  %second = memopt.reduce %double {dimensions = array<i64: 0>, kind = #memopt.reduce<add>, memopt.phase = #memopt.phase<backward>} : (tensor<4x8xf32>) -> tensor<8xf32>
  %all = memopt.pack %first, %second at [0, 16] {memopt.phase = #memopt.phase<optimizer>} : (tensor<8xf32>, tensor<8xf32>) -> tensor<24xf32>
  %own = memopt.collective <own_shard> %all over 2 {phase = #memopt.phase<optimizer>} : tensor<24xf32> -> tensor<16xf32>
  memopt.gradient %own, @a {memopt.phase = #memopt.phase<backward>, shard = #memopt.shard<ranks = 2, shape = [8]>} : tensor<16xf32>
  memopt.gradient %own, @b {memopt.phase = #memopt.phase<backward>, shard = #memopt.shard<ranks = 2, shape = [8], first = 16>} : tensor<16xf32>
  return %loss : tensor<f32>
}

// -----

// Two members may be one value, as gradients of the biases of parallel layers are.

memopt.variable @a : tensor<8xf32> role <parameter> {trainable}
memopt.variable @b : tensor<8xf32> role <parameter> {trainable}
// SCATTER-LABEL: func.func @twice
func.func @twice(%x: tensor<4x8xf32>) -> tensor<f32> {
  // SCATTER: memopt.repeat
  // SCATTER: %[[SUM:.*]] = memopt.reduce {{.*}} -> tensor<8xf32>
  // SCATTER: %[[ALL:.*]] = memopt.pack %[[SUM]], %[[SUM]] at [0, 16]
  // SCATTER: %[[PART:.*]] = memopt.collective <reduce_scatter> %[[ALL]]
  // SCATTER: memopt.accumulate %{{.*}}, %[[PART]]
  // SCATTER-NOT: memopt.pack
  %loss = memopt.reduce %x {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<f32>
  memopt.commit %loss : tensor<f32>
  %sum = memopt.reduce %x {dimensions = array<i64: 0>, kind = #memopt.reduce<add>, memopt.phase = #memopt.phase<backward>} : (tensor<4x8xf32>) -> tensor<8xf32>
  %all = memopt.pack %sum, %sum at [0, 16] {memopt.phase = #memopt.phase<optimizer>} : (tensor<8xf32>, tensor<8xf32>) -> tensor<24xf32>
  %own = memopt.collective <own_shard> %all over 2 {phase = #memopt.phase<optimizer>} : tensor<24xf32> -> tensor<16xf32>
  memopt.gradient %own, @a {memopt.phase = #memopt.phase<backward>, shard = #memopt.shard<ranks = 2, shape = [8]>} : tensor<16xf32>
  memopt.gradient %own, @b {memopt.phase = #memopt.phase<backward>, shard = #memopt.shard<ranks = 2, shape = [8], first = 16>} : tensor<16xf32>
  return %loss : tensor<f32>
}
