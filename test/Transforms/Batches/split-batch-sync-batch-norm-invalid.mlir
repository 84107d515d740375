// RUN: memopt-opt %s -memopt-split-batch="ranks=2 sync-batch-norm=true" -split-input-file -verify-diagnostics

// expected-error @+1 {{--sync-batch-norm, but no module normalizes by the statistics of a batch: leave the option out}}
func.func @none(%x: tensor<4x8xf32>) -> tensor<f32> {
  %loss = memopt.reduce %x {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<f32>
  memopt.commit %loss : tensor<f32>
  return %loss : tensor<f32>
}

// -----

// A mean that is written out is no batch norm, and stays that of a rank.

memopt.variable @w : tensor<8xf32> role <parameter>
memopt.variable @mean : tensor<8xf32> role <buffer>
func.func @moves(%x: tensor<4x8xf32>) -> tensor<f32> {
  %w = memopt.read @w : tensor<8xf32>
  %y, %m, %v = "memopt.batch_norm"(%x, %w) <{eps = 1.0e-05 : f64, axis = 1 : i64, operandSegmentSizes = array<i32: 1, 1, 0>}> : (tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>, tensor<8xf32>)
  %loss = memopt.reduce %y {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<f32>
  %sums = memopt.reduce %x {dimensions = array<i64: 0>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<8xf32>
  memopt.commit %loss : tensor<f32>
  // expected-error @+1 {{moves a buffer by a statistic of one rank's samples, which --sync-batch-norm does not take over all ranks}}
  memopt.write %sums, @mean : tensor<8xf32>
  return %loss : tensor<f32>
}

// -----

memopt.variable @w : tensor<8xf32> role <parameter>
func.func @uses(%x: tensor<4x8xf32>) -> tensor<f32> {
  %w = memopt.read @w : tensor<8xf32>
  %y, %m, %v = "memopt.batch_norm"(%x, %w) <{eps = 1.0e-05 : f64, axis = 1 : i64, operandSegmentSizes = array<i32: 1, 1, 0>}> : (tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>, tensor<8xf32>)
  %rows = memopt.broadcast %m {dimensions = array<i64: 1>} : (tensor<8xf32>) -> tensor<4x8xf32>
  // expected-error @-1 {{uses statistics of a batch norm for more than gradients and running statistics, which --sync-batch-norm does not follow}}
  %z = arith.addf %y, %rows : tensor<4x8xf32>
  %loss = memopt.reduce %z {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<f32>
  memopt.commit %loss : tensor<f32>
  return %loss : tensor<f32>
}
