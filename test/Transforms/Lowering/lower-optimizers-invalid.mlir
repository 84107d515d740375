// RUN: memopt-opt %s --split-input-file --verify-diagnostics --memopt-lower-to-linalg

// Steps that come from a file agree with the descriptor of their optimizer.

func.func @unknown(%p: tensor<4xf32>, %lr: tensor<f64>, %step: tensor<i64>) -> tensor<4xf32> {
  // expected-error @below {{'memopt.optimizer_step' op names no optimizer: 'lamb'}}
  %0 = memopt.optimizer_step %p, %p, %lr, %step {optimizer = "lamb", state = [], settings = {}}
    : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<i64>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @settings(%p: tensor<4xf32>, %lr: tensor<f64>, %step: tensor<i64>) -> tensor<4xf32> {
  // expected-error @below {{'memopt.optimizer_step' op needs two numbers for the setting 'betas' of lion}}
  %0:2 = memopt.optimizer_step %p, %p, %lr, %step, %p {optimizer = "lion", state = ["exp_avg"],
      settings = {betas = 0.9 : f64, weight_decay = 0.0 : f64}}
    : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<i64>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  return %0#0 : tensor<4xf32>
}

// -----

func.func @parts(%p: tensor<4xf32>, %lr: tensor<f64>, %step: tensor<i64>) -> tensor<4xf32> {
  // expected-error @below {{'memopt.optimizer_step' op has 0 parts of state, expected 1 for lion}}
  %0 = memopt.optimizer_step %p, %p, %lr, %step {optimizer = "lion", state = [],
      settings = {betas = array<f64: 0.9, 0.99>, weight_decay = 0.0 : f64}}
    : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<i64>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @shape(%p: tensor<4xf32>, %m: tensor<5xf32>, %lr: tensor<f64>, %step: tensor<i64>) -> tensor<4xf32> {
  // expected-error @below {{'memopt.optimizer_step' op has the state 'exp_avg' of type 'tensor<5xf32>', expected 'exp_avg' of type 'tensor<4xf32>'}}
  %0:2 = memopt.optimizer_step %p, %p, %lr, %step, %m {optimizer = "lion", state = ["exp_avg"],
      settings = {betas = array<f64: 0.9, 0.99>, weight_decay = 0.0 : f64}}
    : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<i64>, tensor<5xf32>) -> (tensor<4xf32>, tensor<5xf32>)
  return %0#0 : tensor<4xf32>
}

// -----

func.func @bits(%p: tensor<2x4xf32>, %m: tensor<2x4xi8>, %lr: tensor<f64>, %step: tensor<i64>) -> tensor<2x4xf32> {
  // expected-error @below {{'memopt.optimizer_step' op has state in 8 bits, which sm3 does not keep}}
  %0:2 = memopt.optimizer_step %p, %p, %lr, %step, %m {optimizer = "sm3", state = ["momentum_buffer"],
      settings = {momentum = 0.9 : f64, eps = 1.0e-30 : f64}}
    : (tensor<2x4xf32>, tensor<2x4xf32>, tensor<f64>, tensor<i64>, tensor<2x4xi8>) -> (tensor<2x4xf32>, tensor<2x4xi8>)
  return %0#0 : tensor<2x4xf32>
}

// -----

func.func @rank(%p: tensor<4xf32>, %lr: tensor<f64>, %step: tensor<i64>) -> tensor<4xf32> {
  // expected-error @below {{'memopt.optimizer_step' op updates a tensor of type 'tensor<4xf32>', which muon does not}}
  %0:2 = memopt.optimizer_step %p, %p, %lr, %step, %p {optimizer = "muon", state = ["momentum_buffer"], settings = {}}
    : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<i64>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  return %0#0 : tensor<4xf32>
}
