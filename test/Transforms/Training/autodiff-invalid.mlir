// RUN: memopt-opt %s --split-input-file --verify-diagnostics --memopt-autodiff

// expected-error @below {{has no step: expected one public function with a body}}
module {}

// -----

memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
// expected-error @below {{'func.func' op returns no loss: expected a result with memopt.role = "loss", or a floating-point scalar}}
func.func @train_step() -> tensor<4xf32> {
  %0 = memopt.read @w : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
// expected-error @below {{'func.func' op has a loss of type 'tensor<4xf32>', expected one floating-point number}}
func.func @train_step() -> (tensor<4xf32> {memopt.role = "loss"}) {
  %0 = memopt.read @w : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

memopt.variable @w : tensor<f32> role <parameter>
// expected-error @below {{'func.func' op has a loss that depends on no trainable parameter}}
func.func @train_step() -> tensor<f32> {
  %0 = memopt.read @w : tensor<f32>
  return %0 : tensor<f32>
}

// -----

// expected-note @below {{declared here; without 'trainable' it needs no gradient}}
memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
func.func @train_step(%n: tensor<1xindex>) -> tensor<f32> {
  %0 = memopt.read @w : tensor<4xf32>
  // expected-error @below {{'tensor.gather' op has no gradient rule and stands between the trainable parameter 'w' and the loss}}
  %1 = tensor.gather %0[%n] gather_dims([0]) : (tensor<4xf32>, tensor<1xindex>) -> tensor<1xf32>
  %2 = tensor.collapse_shape %1 [] : tensor<1xf32> into tensor<f32>
  return %2 : tensor<f32>
}

// -----

// A rule may have no gradient for one use: here the statistics of attention's rows.

// expected-note @below {{declared here}}
memopt.variable @query : tensor<1x1x4x3xf32> role <parameter> {trainable}
func.func @train_step() -> tensor<f32> {
  %0 = memopt.read @query : tensor<1x1x4x3xf32>
  // expected-error @below {{'memopt.attention' op has no gradient through 'logsumexp'}}
  // expected-error @below {{'memopt.attention' op stands between the trainable parameter 'query' and the loss}}
  %1, %2 = memopt.attention %0, %0, %0 {scale = 1.0 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>}
    : (tensor<1x1x4x3xf32>, tensor<1x1x4x3xf32>, tensor<1x1x4x3xf32>)
    -> (tensor<1x1x4x3xf32>, tensor<1x1x4xf32>)
  %3 = memopt.reduce %2 {kind = #memopt.reduce<add>, dimensions = array<i64: 0, 1, 2>} : (tensor<1x1x4xf32>) -> tensor<f32>
  return %3 : tensor<f32>
}

// -----

// expected-error @below {{has several blocks; a step is one}}
func.func @train_step(%x: tensor<f32>) -> tensor<f32> {
  cf.br ^end
^end:
  return %x : tensor<f32>
}

// -----

memopt.variable @w : tensor<f32> role <parameter> {trainable}
// expected-error @below {{'func.func' op already has gradients}}
func.func @train_step() -> tensor<f32> {
  %0 = memopt.read @w : tensor<f32>
  memopt.gradient %0, @w : tensor<f32>
  return %0 : tensor<f32>
}

// -----

memopt.variable @w : tensor<f32> role <parameter> {trainable}
// expected-error @below {{has two losses, results 0 and 2; expected one result with memopt.role = "loss"}}
func.func @train_step(%x: tensor<f32>) -> (tensor<f32> {memopt.role = "loss"}, tensor<f32>, tensor<f32> {memopt.role = "loss"}) {
  %w = memopt.read @w : tensor<f32>
  %y = arith.mulf %w, %x : tensor<f32>
  return %y, %w, %w : tensor<f32>, tensor<f32>, tensor<f32>
}
