// RUN: memopt-opt %s -memopt-split-batch=parts=2 -split-input-file -verify-diagnostics

// expected-error @+1 {{--micro-batches=2 does not divide the batch of 3 samples}}
func.func @odd(%x: tensor<3x8xf32>) -> tensor<f32> {
  %loss = memopt.reduce %x {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<3x8xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

func.func @names_the_node(%x: tensor<4x8xf32> {memopt.batch_dim = 0 : i64}) -> tensor<f32> {
  // expected-error @unknown {{'memopt.softmax' (node 'softmax_1' at model.py:12) in module 'net.contrast' mixes samples: the samples of a batch cannot be told apart}}
  %y = memopt.softmax %x {axis = 0 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("net.contrast"("softmax_1"("model.py:12")))
  %loss = memopt.reduce %y {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

func.func @mixes(%x: tensor<4x8xf32> {memopt.batch_dim = 0 : i64}) -> tensor<f32> {
  // expected-error @unknown {{'memopt.softmax' in module 'net.contrast' mixes samples: the samples of a batch cannot be told apart}}
  %y = memopt.softmax %x {axis = 0 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("net.contrast")
  %loss = memopt.reduce %y {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

func.func @kept(%x: tensor<4x8xf32>) -> (tensor<f32>, tensor<4x8xf32>) {
  // expected-error @unknown {{a value for each sample in module 'net.head' leaves the step, which is cut into micro-batches: return sums}}
  %y = arith.addf %x, %x : tensor<4x8xf32> loc("net.head")
  %loss = memopt.reduce %y {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<4x8xf32>) -> tensor<f32>
  return %loss, %y : tensor<f32>, tensor<4x8xf32>
}

// -----

func.func @statistic(%x: tensor<4x8xf32>) -> tensor<f32> {
  %y, %mean, %variance = memopt.batch_norm %x {axis = 1 : i64, eps = 1.0e-5 : f64, operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>, tensor<8xf32>)
  // expected-error @+1 {{the loss depends on statistics of a whole batch, which has no equal in micro-batches}}
  %loss = memopt.reduce %variance {dimensions = array<i64: 0>, kind = #memopt.reduce<add>} : (tensor<8xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

memopt.variable @seed : tensor<i64> role <hyperparameter>
memopt.variable @step : tensor<i64> role <hyperparameter>
func.func @heads(%q: tensor<2x4x3x8xf32> {memopt.batch_dim = 1 : i64}) -> tensor<f32> {
  %seed = memopt.read @seed : tensor<i64>
  %step = memopt.read @step : tensor<i64>
  // expected-error @unknown {{draws in module 'net.block' for samples that lie along dimension 1, which micro-batches could not number: compile with --dropout=off, or without micro-batches}}
  %a, %lse = memopt.attention %q, %q, %q, %seed, %step {scale = 0.5 : f64, dropout = 0.4 : f64,
    operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 0>}
    : (tensor<2x4x3x8xf32>, tensor<2x4x3x8xf32>, tensor<2x4x3x8xf32>, tensor<i64>, tensor<i64>) -> (tensor<2x4x3x8xf32>, tensor<2x4x3xf32>) loc("net.block")
  %loss = memopt.reduce %a {dimensions = array<i64: 0, 1, 2, 3>, kind = #memopt.reduce<add>} : (tensor<2x4x3x8xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

memopt.variable @seed : tensor<i64> role <hyperparameter>
memopt.variable @step : tensor<i64> role <hyperparameter>
func.func @rows_of_time(%x: tensor<3x4x8xf32> {memopt.batch_dim = 1 : i64}) -> tensor<f32> {
  %seed = memopt.read @seed : tensor<i64>
  %step = memopt.read @step : tensor<i64>
  %rows = tensor.collapse_shape %x [[0, 1], [2]] : tensor<3x4x8xf32> into tensor<12x8xf32>
  // expected-error @unknown {{draws in module 'net.drop' for samples that were merged with a dimension in front of them, which micro-batches could not number: draw in front of the reshape, compile with --dropout=off, or without micro-batches}}
  %mask = memopt.dropout_mask %seed, %step {probability = 0.5 : f64, id = 0 : i64} : (tensor<i64>, tensor<i64>) -> tensor<12x8xi1> loc("net.drop")
  %zero = arith.constant dense<0.0> : tensor<12x8xf32>
  %kept = arith.select %mask, %rows, %zero : tensor<12x8xi1>, tensor<12x8xf32>
  %loss = memopt.reduce %kept {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<12x8xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}

// -----

// expected-error @+1 {{has an input without samples: the samples of a batch cannot be told apart}}
func.func @train_step(%x: tensor<0x4xf32>) -> tensor<f32> {
  %loss = memopt.reduce %x {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<0x4xf32>) -> tensor<f32>
  return %loss : tensor<f32>
}
