// RUN: memopt-opt %s -memopt-split-batch=batches=2 -split-input-file -verify-diagnostics | FileCheck %s

// The backward pass divides by the number of valid targets, of all batches: a loop of its own counts them, with nothing
// else in it.

memopt.variable @w : tensor<8x5xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @count
func.func @count(%x: tensor<4x8xf32>, %t: tensor<4xi64>) -> tensor<f32> {
  // CHECK: memopt.repeat count(2) next_batch
  // CHECK: memopt.cross_entropy
  // CHECK-NOT: memopt.cross_entropy_backward
  // CHECK: }
  // CHECK: %[[COUNT:.*]] = memopt.read @sum
  // CHECK: %[[SCALE:.*]] = arith.divf %{{.*}}, %[[COUNT]] {memopt.phase = #memopt.phase<backward>}
  // CHECK: memopt.repeat count(2) next_batch ({{.*}}, %[[IN:.*]] = %[[SCALE]] : tensor<f32>)
  // CHECK: memopt.cross_entropy_backward %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %[[IN]]
  // CHECK: memopt.write %{{.*}}, @sum.w
  // CHECK: }
  // The loss divides the total of the second loop by the count of the first.
  // CHECK: arith.divf %{{.*}}, %[[COUNT]] : tensor<f32>
  %w = memopt.read @w : tensor<8x5xf32>
  %y = memopt.matmul %x, %w : (tensor<4x8xf32>, tensor<8x5xf32>) -> tensor<4x5xf32>
  %total, %count, %max, %sum = memopt.cross_entropy %y, %t : (tensor<4x5xf32>, tensor<4xi64>) -> (tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<4xf32>)
  %loss = arith.divf %total, %count : tensor<f32>
  memopt.commit %loss : tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  %scale = arith.divf %one, %count {memopt.phase = #memopt.phase<backward>} : tensor<f32>
  %dy = memopt.cross_entropy_backward %y, %t, %max, %sum, %scale {memopt.phase = #memopt.phase<backward>} : (tensor<4x5xf32>, tensor<4xi64>, tensor<4xf32>, tensor<4xf32>, tensor<f32>) -> tensor<4x5xf32>
  %dw = memopt.matmul %x, %dy {transpose_a, memopt.phase = #memopt.phase<backward>} : (tensor<4x8xf32>, tensor<4x5xf32>) -> tensor<8x5xf32>
  memopt.gradient %dw, @w {memopt.phase = #memopt.phase<backward>} : tensor<8x5xf32>
  return %loss : tensor<f32>
}

// -----

// Running statistics move with each micro-batch, in a variable of the loop: state changes behind the commit. The count
// that makes the variance unbiased is that of the micro-batch.

memopt.variable @bn.running_var : tensor<8xf32> role <buffer>
// CHECK: memopt.variable @loop.bn.running_var : tensor<8xf32> role <gradient>
// CHECK-LABEL: func.func @statistics
func.func @statistics(%x: tensor<4x8xf32>) -> tensor<f32> {
  // CHECK: %[[STATE:.*]] = memopt.read @bn.running_var
  // CHECK: memopt.write %[[STATE]], @loop.bn.running_var
  // CHECK: memopt.repeat
  // CHECK: memopt.batch_norm
  // CHECK-DAG: memopt.read @loop.bn.running_var
  // CHECK-DAG: arith.constant dense<4.000000e+00>
  // CHECK: memopt.write %{{.*}}, @loop.bn.running_var
  // CHECK: }
  // CHECK: memopt.commit
  // CHECK: %[[MOVED:.*]] = memopt.read @loop.bn.running_var
  // CHECK: memopt.write %[[MOVED]], @bn.running_var
  // expected-remark @unknown {{module 'net.bn' takes statistics of each of 2 micro-batches, where one batch of all samples would have one}}
  %y, %mean, %variance = memopt.batch_norm %x {axis = 1 : i64, eps = 1.0e-5 : f64, operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>, tensor<8xf32>) loc("net.bn")
  %loss = memopt.reduce %y {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<f32>
  memopt.commit %loss : tensor<f32>
  %old = memopt.read @bn.running_var {memopt.phase = #memopt.phase<optimizer>} : tensor<8xf32>
  %count = memopt.count %x {dimensions = array<i64: 0>} : (tensor<4x8xf32>) -> tensor<f32>
  %counts = memopt.broadcast %count {dimensions = array<i64>} : (tensor<f32>) -> tensor<8xf32>
  %unbiased = arith.mulf %variance, %counts {memopt.phase = #memopt.phase<optimizer>} : tensor<8xf32>
  %new = arith.addf %old, %unbiased {memopt.phase = #memopt.phase<optimizer>} : tensor<8xf32>
  memopt.write %new, @bn.running_var {memopt.phase = #memopt.phase<optimizer>} : tensor<8xf32>
  return %loss : tensor<f32>
}

// -----

// A draw for some samples is that part of the draw for all of them: [3, 8, 8] here, of which an iteration has four
// samples, beginning at the number that the runtime writes.

memopt.variable @seed : tensor<i64> role <hyperparameter>
memopt.variable @step : tensor<i64> role <hyperparameter>
// CHECK: memopt.variable @sample_offset : tensor<i64> role <hyperparameter>
// CHECK-LABEL: func.func @draw
func.func @draw(%x: tensor<3x4x8xf32> {memopt.batch_dim = 1 : i64}) -> tensor<f32> {
  %seed = memopt.read @seed : tensor<i64>
  %step = memopt.read @step : tensor<i64>
  // CHECK: %[[SAMPLE:.*]] = memopt.read @sample_offset
  // CHECK: %[[EACH:.*]] = arith.constant dense<8> : tensor<i64>
  // CHECK: %[[FIRST:.*]] = arith.muli %[[SAMPLE]], %[[EACH]]
  // CHECK: memopt.dropout_mask %{{.*}}, %{{.*}}, %[[FIRST]] {{.*}}strides = array<i64: 64, 8, 1>
  %mask = memopt.dropout_mask %seed, %step {probability = 0.5 : f64, id = 0 : i64} : (tensor<i64>, tensor<i64>) -> tensor<3x4x8xi1>
  %zero = arith.constant dense<0.0> : tensor<3x4x8xf32>
  %kept = arith.select %mask, %x, %zero : tensor<3x4x8xi1>, tensor<3x4x8xf32>
  %loss = memopt.reduce %kept {dimensions = array<i64: 0, 1, 2>, kind = #memopt.reduce<add>} : (tensor<3x4x8xf32>) -> tensor<f32>
  memopt.commit %loss : tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Attention numbers its scores, [samples, 2, 3, 5], from the first sample's on.

memopt.variable @seed : tensor<i64> role <hyperparameter>
memopt.variable @step : tensor<i64> role <hyperparameter>
// CHECK-LABEL: func.func @attention
func.func @attention(%q: tensor<4x2x3x8xf32>, %k: tensor<4x2x5x8xf32>) -> tensor<f32> {
  %seed = memopt.read @seed : tensor<i64>
  %step = memopt.read @step : tensor<i64>
  // CHECK: %[[EACH:.*]] = arith.constant dense<30> : tensor<i64>
  // CHECK: %[[FIRST:.*]] = arith.muli %{{.*}}, %[[EACH]]
  // CHECK: memopt.attention %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %[[FIRST]] {{.*}}operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 1>
  %a, %lse = memopt.attention %q, %k, %k, %seed, %step {scale = 0.5 : f64, dropout = 0.4 : f64,
    operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 0>}
    : (tensor<4x2x3x8xf32>, tensor<4x2x5x8xf32>, tensor<4x2x5x8xf32>, tensor<i64>, tensor<i64>) -> (tensor<4x2x3x8xf32>, tensor<4x2x3xf32>)
  %loss = memopt.reduce %a {dimensions = array<i64: 0, 1, 2, 3>, kind = #memopt.reduce<add>} : (tensor<4x2x3x8xf32>) -> tensor<f32>
  memopt.commit %loss : tensor<f32>
  return %loss : tensor<f32>
}

// -----

// What counts features is the same number for any batch. A mean over the samples that goes back into them is that of the
// micro-batch, and so is what it divides by, however it was written.

memopt.variable @w : tensor<8xf32> role <parameter>
// CHECK-LABEL: func.func @means
func.func @means(%x: tensor<4x8xf32> {memopt.batch_dim = 0 : i64}) -> tensor<f32> {
  // CHECK: memopt.repeat count(2)
  %w = memopt.read @w : tensor<8xf32>
  %rows = memopt.broadcast %w {dimensions = array<i64: 1>} : (tensor<8xf32>) -> tensor<4x8xf32>
  %y = arith.mulf %x, %rows : tensor<4x8xf32>
  %rowSums = memopt.reduce %y {dimensions = array<i64: 1>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<4xf32>
  // CHECK: %[[FEATURES:.*]] = arith.constant dense<8.000000e+00> : tensor<f32>
  // CHECK: memopt.broadcast %[[FEATURES]] {{.*}} -> tensor<4xf32>
  %features = memopt.count %y {dimensions = array<i64: 1>} : (tensor<4x8xf32>) -> tensor<f32>
  %eachRow = memopt.broadcast %features {dimensions = array<i64>} : (tensor<f32>) -> tensor<4xf32>
  %rowMeans = arith.divf %rowSums, %eachRow : tensor<4xf32>
  %back = memopt.broadcast %rowMeans {dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<4x8xf32>
  %centered = arith.subf %y, %back : tensor<4x8xf32>
  // expected-remark @+1 {{takes statistics of each of 2 micro-batches}}
  %sums = memopt.reduce %centered {dimensions = array<i64: 0>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<8xf32>
  // CHECK: %[[SAMPLES:.*]] = arith.constant dense<4.000000e+00> : tensor<f32>
  // CHECK: %[[EACH:.*]] = memopt.broadcast %[[SAMPLES]] {{.*}} -> tensor<8xf32>
  // CHECK: arith.divf %{{.*}}, %[[EACH]] : tensor<8xf32>
  %samples = memopt.count %centered {dimensions = array<i64: 0>} : (tensor<4x8xf32>) -> tensor<f32>
  %each = memopt.broadcast %samples {dimensions = array<i64>} : (tensor<f32>) -> tensor<8xf32>
  %means = arith.divf %sums, %each : tensor<8xf32>
  %spread = memopt.broadcast %means {dimensions = array<i64: 1>} : (tensor<8xf32>) -> tensor<4x8xf32>
  %distance = arith.subf %centered, %spread : tensor<4x8xf32>
  %total = memopt.reduce %distance {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<f32>
  // CHECK: memopt.commit
  memopt.commit %total : tensor<f32>
  return %total : tensor<f32>
}

// -----

// Samples that are divided by a sum over all of them wait for its total, whose loop runs nothing but the sum.

memopt.variable @v : tensor<8xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @normalized_weights
func.func @normalized_weights(%x: tensor<4x8xf32>, %weight: tensor<4xf32>) -> tensor<f32> {
  // CHECK: memopt.repeat count(2) next_batch ({{.*}}, %[[W:.*]] = %arg1 : {{.*}}) {
  // CHECK-NOT: memopt.read @v
  // CHECK: memopt.reduce %[[W]]
  // CHECK: memopt.write %{{.*}}, @sum
  // CHECK: %[[TOTAL:.*]] = memopt.read @sum {{.*}} : tensor<f32>
  // CHECK: memopt.repeat count(2) next_batch ({{.*}}, %[[INSIDE:.*]] = %[[TOTAL]] : {{.*}}) {
  // CHECK: memopt.broadcast %[[INSIDE]]
  %v = memopt.read @v : tensor<8xf32>
  %rows = memopt.broadcast %v {dimensions = array<i64: 1>} : (tensor<8xf32>) -> tensor<4x8xf32>
  %y = arith.mulf %x, %rows : tensor<4x8xf32>
  %losses = memopt.reduce %y {dimensions = array<i64: 1>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<4xf32>
  %sum = memopt.reduce %weight {dimensions = array<i64: 0>, kind = #memopt.reduce<add>} : (tensor<4xf32>) -> tensor<f32>
  %sums = memopt.broadcast %sum {dimensions = array<i64>} : (tensor<f32>) -> tensor<4xf32>
  %share = arith.divf %weight, %sums : tensor<4xf32>
  %shares = arith.mulf %losses, %share : tensor<4xf32>
  %loss = memopt.reduce %shares {dimensions = array<i64: 0>, kind = #memopt.reduce<add>} : (tensor<4xf32>) -> tensor<f32>
  memopt.commit %loss : tensor<f32>
  return %loss : tensor<f32>
}

// -----

// Likewise a sum over activations, if it is not a mean: the model's weights are read in both loops.

memopt.variable @v : tensor<8xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @normalized_activations
func.func @normalized_activations(%x: tensor<4x8xf32>) -> tensor<f32> {
  // CHECK: memopt.repeat
  // CHECK: memopt.read @v
  // CHECK: memopt.write %{{.*}}, @sum
  // CHECK: %[[TOTAL:.*]] = memopt.read @sum {{.*}} : tensor<8xf32>
  // CHECK: memopt.repeat count(2) next_batch ({{.*}}, %[[INSIDE:.*]] = %[[TOTAL]] : {{.*}}) {
  // CHECK: memopt.broadcast %[[INSIDE]]
  %v = memopt.read @v : tensor<8xf32>
  %rows = memopt.broadcast %v {dimensions = array<i64: 1>} : (tensor<8xf32>) -> tensor<4x8xf32>
  %y = arith.mulf %x, %rows : tensor<4x8xf32>
  %sum = memopt.reduce %y {dimensions = array<i64: 0>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<8xf32>
  %sums = memopt.broadcast %sum {dimensions = array<i64: 1>} : (tensor<8xf32>) -> tensor<4x8xf32>
  %share = arith.divf %y, %sums : tensor<4x8xf32>
  %squares = arith.mulf %share, %share : tensor<4x8xf32>
  %loss = memopt.reduce %squares {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<f32>
  memopt.commit %loss : tensor<f32>
  return %loss : tensor<f32>
}
