// RUN: memopt-opt %s -split-input-file -verify-diagnostics

// One block for each message of TrainingOps.cpp.

func.func @mask(%seed: tensor<i64>, %step: tensor<i64>) {
  // expected-error @+1 {{'memopt.dropout_mask' op probability must lie in [0, 1), found 1}}
  %0 = memopt.dropout_mask %seed, %step {probability = 1.0 : f64, id = 0 : i64} : (tensor<i64>, tensor<i64>) -> tensor<4xi1>
  return
}

// -----

func.func @mask(%seed: tensor<1xi64>, %step: tensor<i64>) {
  // expected-error @+1 {{'memopt.dropout_mask' op expects a scalar tensor, found 'tensor<1xi64>'}}
  %0 = memopt.dropout_mask %seed, %step {probability = 0.5 : f64, id = 0 : i64} : (tensor<1xi64>, tensor<i64>) -> tensor<4xi1>
  return
}

// -----

func.func @sgd(%p: tensor<4xf32>, %lr: tensor<f64>, %step: tensor<i64>) {
  // expected-error @+1 {{'memopt.sgd_step' op expects a new buffer exactly when there is a buffer}}
  %0 = memopt.sgd_step %p, %p, %p, %lr, %step {momentum = 0.9 : f64, dampening = 0.0 : f64, weight_decay = 0.0 : f64}
    : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<i64>) -> tensor<4xf32>
  return
}

// -----

func.func @sgd(%p: tensor<4xf32>, %lr: tensor<f64>, %step: tensor<i64>) {
  // expected-error @+1 {{'memopt.sgd_step' op momentum needs a buffer}}
  %0 = memopt.sgd_step %p, %p, %lr, %step {momentum = 0.9 : f64, dampening = 0.0 : f64, weight_decay = 0.0 : f64}
    : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<i64>) -> tensor<4xf32>
  return
}

// -----

func.func @sgd(%p: tensor<4xf32>, %g: tensor<5xf32>, %lr: tensor<f64>, %step: tensor<i64>) {
  // expected-error @+1 {{'memopt.sgd_step' op parameter, gradient and state must have one type, found 'tensor<4xf32>' and 'tensor<5xf32>'}}
  %0 = memopt.sgd_step %p, %g, %lr, %step {momentum = 0.0 : f64, dampening = 0.0 : f64, weight_decay = 0.0 : f64}
    : (tensor<4xf32>, tensor<5xf32>, tensor<f64>, tensor<i64>) -> tensor<4xf32>
  return
}

// -----

func.func @sgd(%p: tensor<4xf32>, %lr: tensor<2xf64>, %step: tensor<i64>) {
  // expected-error @+1 {{'memopt.sgd_step' op expects a scalar tensor, found 'tensor<2xf64>'}}
  %0 = memopt.sgd_step %p, %p, %lr, %step {momentum = 0.0 : f64, dampening = 0.0 : f64, weight_decay = 0.0 : f64}
    : (tensor<4xf32>, tensor<4xf32>, tensor<2xf64>, tensor<i64>) -> tensor<4xf32>
  return
}

// -----

func.func @adam(%p: tensor<4xf32>, %v: tensor<4xf64>, %lr: tensor<f64>, %step: tensor<i64>) {
  // expected-error @+1 {{'memopt.adam_step' op parameter, gradient and state must have one type, found 'tensor<4xf32>' and 'tensor<4xf64>'}}
  %0:3 = memopt.adam_step %p, %p, %p, %v, %lr, %step
    {beta1 = 0.9 : f64, beta2 = 0.999 : f64, eps = 1.0e-8 : f64, weight_decay = 0.0 : f64}
    : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf64>, tensor<f64>, tensor<i64>)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf64>)
  return
}

// -----

func.func @adam(%p: tensor<4xf32>, %lr: tensor<f64>, %step: tensor<i64>) {
  // expected-error @+1 {{'memopt.adam_step' op betas must lie in [0, 1), found 1}}
  %0:3 = memopt.adam_step %p, %p, %p, %p, %lr, %step
    {beta1 = 0.9 : f64, beta2 = 1.0 : f64, eps = 1.0e-8 : f64, weight_decay = 0.0 : f64}
    : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<i64>)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @adam(%p: tensor<4xf32>, %lr: tensor<f64>, %step: tensor<3xi64>) {
  // expected-error @+1 {{'memopt.adam_step' op expects a scalar tensor, found 'tensor<3xi64>'}}
  %0:3 = memopt.adam_step %p, %p, %p, %p, %lr, %step
    {beta1 = 0.9 : f64, beta2 = 0.999 : f64, eps = 1.0e-8 : f64, weight_decay = 0.0 : f64}
    : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<3xi64>)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @norm(%g: tensor<4xf32>) {
  // expected-error @+1 {{'memopt.global_norm' op expects a scalar tensor, found 'tensor<1xf32>'}}
  %0 = memopt.global_norm %g : (tensor<4xf32>) -> tensor<1xf32>
  return
}

// -----

func.func @accumulate(%sum: tensor<4xf32>, %value: tensor<5xf32>) {
  // expected-error @+1 {{'memopt.accumulate' op requires the same type for all operands and results}}
  %0 = memopt.accumulate %sum, %value : (tensor<4xf32>, tensor<5xf32>) -> tensor<4xf32>
  return
}
