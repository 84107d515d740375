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

func.func @random(%seed: tensor<i64>, %step: tensor<2xi64>) {
  // expected-error @+1 {{'memopt.random' op expects a scalar tensor, found 'tensor<2xi64>'}}
  %0 = memopt.random %seed, %step {distribution = #memopt.distribution<uniform>, id = 0 : i64} : (tensor<i64>, tensor<2xi64>) -> tensor<4xf32>
  return
}

// -----

func.func @random(%seed: tensor<i64>, %step: tensor<i64>) {
  // expected-error @+1 {{result #0 must be statically shaped tensor of 32-bit float or 64-bit float values and at most 2^48 elements, but got 'tensor<4xbf16>'}}
  %0 = memopt.random %seed, %step {distribution = #memopt.distribution<uniform>, id = 0 : i64} : (tensor<i64>, tensor<i64>) -> tensor<4xbf16>
  return
}

// -----

func.func @missing(%p: tensor<4xf32>, %m: tensor<4xf32>, %lr: tensor<f64>, %step: tensor<i64>) {
  // expected-error @+1 {{'memopt.optimizer_step' op names 1 parts of state, takes 1 and gives 0, which must agree in number and types}}
  %0 = memopt.optimizer_step %p, %p, %lr, %step, %m {optimizer = "sgd", state = ["momentum"], settings = {}}
    : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<i64>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @unnamed(%p: tensor<4xf32>, %m: tensor<4xf32>, %lr: tensor<f64>, %step: tensor<i64>) {
  // expected-error @+1 {{'memopt.optimizer_step' op names 0 parts of state, takes 1 and gives 1}}
  %0:2 = memopt.optimizer_step %p, %p, %lr, %step, %m {optimizer = "sgd", state = [], settings = {}}
    : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<i64>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @retyped(%p: tensor<4xf32>, %m: tensor<4xf32>, %lr: tensor<f64>, %step: tensor<i64>) {
  // expected-error @+1 {{'memopt.optimizer_step' op names 1 parts of state, takes 1 and gives 1}}
  %0:2 = memopt.optimizer_step %p, %p, %lr, %step, %m {optimizer = "sgd", state = ["momentum"], settings = {}}
    : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<i64>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xbf16>)
  return
}

// -----

func.func @gradient(%p: tensor<4xf32>, %g: tensor<5xf32>, %lr: tensor<f64>, %step: tensor<i64>) {
  // expected-error @+1 {{'memopt.optimizer_step' op parameter and gradient must have one type, found 'tensor<4xf32>' and 'tensor<5xf32>'}}
  %0 = memopt.optimizer_step %p, %g, %lr, %step {optimizer = "sgd", state = [], settings = {}}
    : (tensor<4xf32>, tensor<5xf32>, tensor<f64>, tensor<i64>) -> tensor<4xf32>
  return
}

// -----

func.func @rate(%p: tensor<4xf32>, %lr: tensor<2xf64>, %step: tensor<i64>) {
  // expected-error @+1 {{'memopt.optimizer_step' op expects a scalar tensor, found 'tensor<2xf64>'}}
  %0 = memopt.optimizer_step %p, %p, %lr, %step {optimizer = "sgd", state = [], settings = {}}
    : (tensor<4xf32>, tensor<4xf32>, tensor<2xf64>, tensor<i64>) -> tensor<4xf32>
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

// -----

func.func @round(%x: tensor<4xf32>, %seed: tensor<i64>) {
  // expected-error @+1 {{'memopt.stochastic_round' op result has shape [5], expected [4]}}
  %0 = memopt.stochastic_round %x, %seed, %seed {id = 1 : i64} : (tensor<4xf32>, tensor<i64>, tensor<i64>) -> tensor<5xbf16>
  return
}

// -----

func.func @round(%x: tensor<4xf32>, %seed: tensor<1xi64>) {
  // expected-error @+1 {{'memopt.stochastic_round' op expects a scalar tensor, found 'tensor<1xi64>'}}
  %0 = memopt.stochastic_round %x, %seed, %seed {id = 1 : i64} : (tensor<4xf32>, tensor<1xi64>, tensor<1xi64>) -> tensor<4xbf16>
  return
}

// -----

func.func @narrow(%p: tensor<4xf32>, %lr: tensor<f64>, %step: tensor<i64>) {
  // expected-error @+1 {{'memopt.optimizer_step' op gives 'bf16', expected 'f32'}}
  %0 = memopt.optimizer_step %p, %p, %lr, %step {optimizer = "sgd", state = [], settings = {}}
    : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<i64>) -> tensor<4xbf16>
  return
}
