// RUN: memopt-opt %s -split-input-file -verify-diagnostics

// One block for each message of softmax and cross entropy.

func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'memopt.softmax' op axis must lie below rank 2, found 2}}
  %0 = memopt.softmax %x {axis = 2 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'memopt.log_softmax' op axis must lie below rank 2, found 2}}
  %0 = memopt.log_softmax %x {axis = 2 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

func.func @f(%x: tensor<4x8xf32>) {
  // expected-error @+1 {{'memopt.softmax' op requires the same type for all operands and results}}
  %0 = memopt.softmax %x {axis = 1 : i64} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func @f(%x: tensor<4x10x2xf32>, %t: tensor<4xi64>, %w: tensor<10xf32>) {
  // expected-error @+1 {{'memopt.cross_entropy' op expects logits of rank 2, found 'tensor<4x10x2xf32>'}}
  %0:4 = memopt.cross_entropy %x, %t, %w : (tensor<4x10x2xf32>, tensor<4xi64>, tensor<10xf32>)
    -> (tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @f(%x: tensor<4x10xf32>, %t: tensor<10xi64>, %w: tensor<10xf32>) {
  // expected-error @+1 {{'memopt.cross_entropy' op targets has shape [10], expected [4]}}
  %0:4 = memopt.cross_entropy %x, %t, %w : (tensor<4x10xf32>, tensor<10xi64>, tensor<10xf32>)
    -> (tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @f(%x: tensor<4x10xf32>, %t: tensor<4xi64>, %w: tensor<4xf32>) {
  // expected-error @+1 {{'memopt.cross_entropy' op class weights has shape [4], expected [10]}}
  %0:4 = memopt.cross_entropy %x, %t, %w : (tensor<4x10xf32>, tensor<4xi64>, tensor<4xf32>)
    -> (tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @f(%x: tensor<4x10xf32>, %t: tensor<4xi64>, %w: tensor<10xf32>) {
  // expected-error @+1 {{'memopt.cross_entropy' op row value has shape [10], expected [4]}}
  %0:4 = memopt.cross_entropy %x, %t, %w : (tensor<4x10xf32>, tensor<4xi64>, tensor<10xf32>)
    -> (tensor<f32>, tensor<f32>, tensor<10xf32>, tensor<10xf32>)
  return
}

// -----

func.func @f(%x: tensor<4x10xf32>, %t: tensor<4xi64>, %w: tensor<10xf32>) {
  // expected-error @+1 {{'memopt.cross_entropy' op scalar has shape [4], expected []}}
  %0:4 = memopt.cross_entropy %x, %t, %w : (tensor<4x10xf32>, tensor<4xi64>, tensor<10xf32>)
    -> (tensor<4xf32>, tensor<f32>, tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @f(%x: tensor<4x10xf32>, %t: tensor<4xi64>, %w: tensor<10xf32>) {
  // expected-error @+1 {{'memopt.cross_entropy' op label smoothing must lie in [0, 1], found 1.5}}
  %0:4 = memopt.cross_entropy %x, %t, %w {label_smoothing = 1.5 : f64} : (tensor<4x10xf32>, tensor<4xi64>, tensor<10xf32>)
    -> (tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

func.func @f(%x: tensor<4x10xf32>, %t: tensor<4xi64>, %l: tensor<4xf32>, %g: tensor<f32>) {
  // expected-error @+1 {{'memopt.cross_entropy_backward' op result has type 'tensor<4xf32>', expected 'tensor<4x10xf32>'}}
  %0 = memopt.cross_entropy_backward %x, %t, %l, %l, %g
    : (tensor<4x10xf32>, tensor<4xi64>, tensor<4xf32>, tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4x10xf32>, %t: tensor<4xi64>, %l: tensor<4xf32>, %g: tensor<4xf32>) {
  // expected-error @+1 {{'memopt.cross_entropy_backward' op scalar has shape [4], expected []}}
  %0 = memopt.cross_entropy_backward %x, %t, %l, %l, %g
    : (tensor<4x10xf32>, tensor<4xi64>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4x10xf32>
  return
}
