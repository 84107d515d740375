// RUN: memopt-opt %s -split-input-file -verify-diagnostics

// One block for each message of the normalizations.

func.func @f(%x: tensor<2x6x4xf32>, %s: tensor<6xf32>) {
  // expected-error @+1 {{'memopt.batch_norm' op result has type 'tensor<2x6x5xf32>', expected 'tensor<2x6x4xf32>'}}
  %0:3 = memopt.batch_norm %x, %s {operandSegmentSizes = array<i32: 1, 1, 0>, eps = 1.0e-5 : f64}
    : (tensor<2x6x4xf32>, tensor<6xf32>) -> (tensor<2x6x5xf32>, tensor<6xf32>, tensor<6xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4xf32>, %s: tensor<6xf32>) {
  // expected-error @+1 {{'memopt.batch_norm' op axis must lie below rank 3, found 3}}
  %0:3 = memopt.batch_norm %x, %s {operandSegmentSizes = array<i32: 1, 1, 0>, eps = 1.0e-5 : f64, axis = 3 : i64}
    : (tensor<2x6x4xf32>, tensor<6xf32>) -> (tensor<2x6x4xf32>, tensor<6xf32>, tensor<6xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4xf32>, %s: tensor<4xf32>) {
  // expected-error @+1 {{'memopt.batch_norm' op per-channel value has shape [4], expected [6]}}
  %0:3 = memopt.batch_norm %x, %s {operandSegmentSizes = array<i32: 1, 1, 0>, eps = 1.0e-5 : f64}
    : (tensor<2x6x4xf32>, tensor<4xf32>) -> (tensor<2x6x4xf32>, tensor<6xf32>, tensor<6xf32>)
  return
}

// -----

func.func @f(%g: tensor<2x6x4xf64>, %x: tensor<2x6x4xf32>, %s: tensor<6xf32>) {
  // expected-error @+1 {{'memopt.batch_norm_backward' op gradient has type 'tensor<2x6x4xf64>', expected 'tensor<2x6x4xf32>'}}
  %0:3 = memopt.batch_norm_backward %g, %x, %s, %s, %s {eps = 1.0e-5 : f64}
    : (tensor<2x6x4xf64>, tensor<2x6x4xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>)
    -> (tensor<2x6x4xf32>, tensor<6xf32>, tensor<6xf32>)
  return
}

// -----

func.func @f(%g: tensor<2x6x4xf32>, %x: tensor<2x6x4xf32>, %s: tensor<6xf32>) {
  // expected-error @+1 {{'memopt.batch_norm_backward' op input gradient has type 'tensor<2x6xf32>', expected 'tensor<2x6x4xf32>'}}
  %0:3 = memopt.batch_norm_backward %g, %x, %s, %s, %s {eps = 1.0e-5 : f64}
    : (tensor<2x6x4xf32>, tensor<2x6x4xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>)
    -> (tensor<2x6xf32>, tensor<6xf32>, tensor<6xf32>)
  return
}

// -----

func.func @f(%g: tensor<2x6x4xf32>, %x: tensor<2x6x4xf32>, %s: tensor<6xf32>) {
  // expected-error @+1 {{'memopt.batch_norm_backward' op per-channel value has shape [4], expected [6]}}
  %0:3 = memopt.batch_norm_backward %g, %x, %s, %s, %s {eps = 1.0e-5 : f64}
    : (tensor<2x6x4xf32>, tensor<2x6x4xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>)
    -> (tensor<2x6x4xf32>, tensor<4xf32>, tensor<6xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4xf32>, %s: tensor<6x4xf32>) {
  // expected-error @+1 {{'memopt.layer_norm' op result has type 'tensor<2x24xf32>', expected 'tensor<2x6x4xf32>'}}
  %0:3 = memopt.layer_norm %x, %s {operandSegmentSizes = array<i32: 1, 1, 0>, begin = 1 : i64, eps = 1.0e-5 : f64}
    : (tensor<2x6x4xf32>, tensor<6x4xf32>) -> (tensor<2x24xf32>, tensor<2xf32>, tensor<2xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4xf32>, %s: tensor<6x4xf32>) {
  // expected-error @+1 {{'memopt.layer_norm' op begin must lie below rank 3, found 3}}
  %0:3 = memopt.layer_norm %x, %s {operandSegmentSizes = array<i32: 1, 1, 0>, begin = 3 : i64, eps = 1.0e-5 : f64}
    : (tensor<2x6x4xf32>, tensor<6x4xf32>) -> (tensor<2x6x4xf32>, tensor<2xf32>, tensor<2xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4xf32>, %s: tensor<4xf32>) {
  // expected-error @+1 {{'memopt.layer_norm' op affine value has shape [4], expected [6, 4]}}
  %0:3 = memopt.layer_norm %x, %s {operandSegmentSizes = array<i32: 1, 1, 0>, begin = 1 : i64, eps = 1.0e-5 : f64}
    : (tensor<2x6x4xf32>, tensor<4xf32>) -> (tensor<2x6x4xf32>, tensor<2xf32>, tensor<2xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4xf32>, %s: tensor<6x4xf32>) {
  // expected-error @+1 {{'memopt.layer_norm' op statistic has shape [2, 6], expected [2]}}
  %0:3 = memopt.layer_norm %x, %s {operandSegmentSizes = array<i32: 1, 1, 0>, begin = 1 : i64, eps = 1.0e-5 : f64}
    : (tensor<2x6x4xf32>, tensor<6x4xf32>) -> (tensor<2x6x4xf32>, tensor<2x6xf32>, tensor<2xf32>)
  return
}

// -----

func.func @f(%g: tensor<2x4x6xf32>, %x: tensor<2x6x4xf32>, %s: tensor<6x4xf32>, %m: tensor<2xf32>) {
  // expected-error @+1 {{'memopt.layer_norm_backward' op gradient has type 'tensor<2x4x6xf32>', expected 'tensor<2x6x4xf32>'}}
  %0:3 = memopt.layer_norm_backward %g, %x, %s, %m, %m {begin = 1 : i64}
    : (tensor<2x4x6xf32>, tensor<2x6x4xf32>, tensor<6x4xf32>, tensor<2xf32>, tensor<2xf32>)
    -> (tensor<2x6x4xf32>, tensor<6x4xf32>, tensor<6x4xf32>)
  return
}

// -----

func.func @f(%g: tensor<2x6x4xf32>, %x: tensor<2x6x4xf32>, %s: tensor<6x4xf32>, %m: tensor<2xf32>) {
  // expected-error @+1 {{'memopt.layer_norm_backward' op input gradient has type 'tensor<2x4x6xf32>', expected 'tensor<2x6x4xf32>'}}
  %0:3 = memopt.layer_norm_backward %g, %x, %s, %m, %m {begin = 1 : i64}
    : (tensor<2x6x4xf32>, tensor<2x6x4xf32>, tensor<6x4xf32>, tensor<2xf32>, tensor<2xf32>)
    -> (tensor<2x4x6xf32>, tensor<6x4xf32>, tensor<6x4xf32>)
  return
}

// -----

func.func @f(%g: tensor<2x6x4xf32>, %x: tensor<2x6x4xf32>, %s: tensor<6x4xf32>, %m: tensor<2xf32>) {
  // expected-error @+1 {{'memopt.layer_norm_backward' op affine value has shape [4, 6], expected [6, 4]}}
  %0:3 = memopt.layer_norm_backward %g, %x, %s, %m, %m {begin = 1 : i64}
    : (tensor<2x6x4xf32>, tensor<2x6x4xf32>, tensor<6x4xf32>, tensor<2xf32>, tensor<2xf32>)
    -> (tensor<2x6x4xf32>, tensor<4x6xf32>, tensor<6x4xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4xf32>, %s: tensor<6xf32>) {
  // expected-error @+1 {{'memopt.group_norm' op result has type 'tensor<2x6xf32>', expected 'tensor<2x6x4xf32>'}}
  %0:3 = memopt.group_norm %x, %s {operandSegmentSizes = array<i32: 1, 1, 0>, groups = 3 : i64, eps = 1.0e-5 : f64}
    : (tensor<2x6x4xf32>, tensor<6xf32>) -> (tensor<2x6xf32>, tensor<2x3xf32>, tensor<2x3xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4xf32>, %s: tensor<6xf32>) {
  // expected-error @+1 {{'memopt.group_norm' op groups must divide the channels of 'tensor<2x6x4xf32>', found 4}}
  %0:3 = memopt.group_norm %x, %s {operandSegmentSizes = array<i32: 1, 1, 0>, groups = 4 : i64, eps = 1.0e-5 : f64}
    : (tensor<2x6x4xf32>, tensor<6xf32>) -> (tensor<2x6x4xf32>, tensor<2x3xf32>, tensor<2x3xf32>)
  return
}

// -----

// Six has a remainder of zero by minus three, too.
func.func @f(%x: tensor<2x6x4xf32>, %s: tensor<6xf32>) {
  // expected-error @+1 {{'memopt.group_norm' op groups must divide the channels of 'tensor<2x6x4xf32>', found -3}}
  %0:3 = memopt.group_norm %x, %s {operandSegmentSizes = array<i32: 1, 1, 0>, groups = -3 : i64, eps = 1.0e-5 : f64}
    : (tensor<2x6x4xf32>, tensor<6xf32>) -> (tensor<2x6x4xf32>, tensor<2x3xf32>, tensor<2x3xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4xf32>, %s: tensor<3xf32>) {
  // expected-error @+1 {{'memopt.group_norm' op per-channel value has shape [3], expected [6]}}
  %0:3 = memopt.group_norm %x, %s {operandSegmentSizes = array<i32: 1, 1, 0>, groups = 3 : i64, eps = 1.0e-5 : f64}
    : (tensor<2x6x4xf32>, tensor<3xf32>) -> (tensor<2x6x4xf32>, tensor<2x3xf32>, tensor<2x3xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4xf32>, %s: tensor<6xf32>) {
  // expected-error @+1 {{'memopt.group_norm' op statistic has shape [2, 6], expected [2, 3]}}
  %0:3 = memopt.group_norm %x, %s {operandSegmentSizes = array<i32: 1, 1, 0>, groups = 3 : i64, eps = 1.0e-5 : f64}
    : (tensor<2x6x4xf32>, tensor<6xf32>) -> (tensor<2x6x4xf32>, tensor<2x6xf32>, tensor<2x3xf32>)
  return
}

// -----

func.func @f(%x: tensor<2x6x4xf32>, %s: tensor<4xf32>) {
  // expected-error @+1 {{'memopt.rms_norm' op result has type 'tensor<2x6x5xf32>', expected 'tensor<2x6x4xf32>'}}
  %0 = memopt.rms_norm %x, %s {begin = 2 : i64, eps = 1.0e-5 : f64}
    : (tensor<2x6x4xf32>, tensor<4xf32>) -> tensor<2x6x5xf32>
  return
}

// -----

func.func @f(%x: tensor<2x6x4xf32>, %s: tensor<4xf32>) {
  // expected-error @+1 {{'memopt.rms_norm' op begin must lie below rank 3, found -1}}
  %0 = memopt.rms_norm %x, %s {begin = -1 : i64, eps = 1.0e-5 : f64}
    : (tensor<2x6x4xf32>, tensor<4xf32>) -> tensor<2x6x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x6x4xf32>, %s: tensor<6xf32>) {
  // expected-error @+1 {{'memopt.rms_norm' op affine value has shape [6], expected [4]}}
  %0 = memopt.rms_norm %x, %s {begin = 2 : i64, eps = 1.0e-5 : f64}
    : (tensor<2x6x4xf32>, tensor<6xf32>) -> tensor<2x6x4xf32>
  return
}
