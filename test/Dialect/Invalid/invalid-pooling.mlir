// RUN: memopt-opt %s -split-input-file -verify-diagnostics

// One block for each message of pooling and interpolation.

func.func @f(%x: tensor<2x3x8x8xf32>) {
  // expected-error @+1 {{'memopt.max_pool' op expects taps of the result's shape}}
  %0:2 = memopt.max_pool %x {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>}
    : (tensor<2x3x8x8xf32>) -> (tensor<2x3x4x4xf32>, tensor<2x3x8x8xi8>)
  return
}

// -----

func.func @f(%g: tensor<2x3x4x4xf32>, %t: tensor<2x3x8x8xi8>) {
  // expected-error @+1 {{'memopt.max_pool_backward' op expects taps of the gradient's shape}}
  %0 = memopt.max_pool_backward %g, %t {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>}
    : (tensor<2x3x4x4xf32>, tensor<2x3x8x8xi8>) -> tensor<2x3x8x8xf32>
  return
}

// -----

func.func @f(%x: tensor<8x8xf32>) {
  // expected-error @+1 {{'memopt.avg_pool' op expects batch, channel and spatial dimensions, found rank 2}}
  %0 = memopt.avg_pool %x {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>}
    : (tensor<8x8xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3x8x8xf32>) {
  // expected-error @+1 {{'memopt.avg_pool' op expects equal element types, found 'f32' and 'f64'}}
  %0 = memopt.avg_pool %x {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>}
    : (tensor<2x3x8x8xf32>) -> tensor<2x3x4x4xf64>
  return
}

// -----

func.func @f(%x: tensor<2x3x8xf32>) {
  // expected-error @+1 {{'memopt.avg_pool' op window attributes need one entry for each of the 1 spatial dimensions}}
  %0 = memopt.avg_pool %x {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>}
    : (tensor<2x3x8xf32>) -> tensor<2x3x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3x8x8xf32>) {
  // expected-error @+1 {{'memopt.avg_pool' op window sizes, strides and dilations must be positive and padding not negative in spatial dimension 0}}
  %0 = memopt.avg_pool %x {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, padding_low = array<i64: -1, 0>,
    padding_high = array<i64: 0, 0>}
    : (tensor<2x3x8x8xf32>) -> tensor<2x3x4x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3x8x8xf32>) {
  // expected-error @+1 {{'memopt.avg_pool' op output has shape [2, 3, 5, 5], expected [2, 3, 4, 4]}}
  %0 = memopt.avg_pool %x {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>}
    : (tensor<2x3x8x8xf32>) -> tensor<2x3x5x5xf32>
  return
}

// -----

// A result of another rank is an error too, and no crash.
func.func @f(%x: tensor<2x3x8x8xf32>) {
  // expected-error @+1 {{'memopt.avg_pool' op output has shape [], expected [2, 3, 4, 4]}}
  %0 = memopt.avg_pool %x {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>}
    : (tensor<2x3x8x8xf32>) -> tensor<f32>
  return
}

// -----

// The output's gradient has the output's shape.
func.func @f(%x: tensor<2x3x8x8xf32>) {
  // expected-error @+1 {{'memopt.avg_pool_backward' op output has shape [2, 3, 8, 8], expected [2, 3, 4, 4]}}
  %0 = memopt.avg_pool_backward %x {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>}
    : (tensor<2x3x8x8xf32>) -> tensor<2x3x8x8xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3x8x8xf32>) {
  // expected-error @+1 {{'memopt.interpolate' op expects equal batch and channel dimensions, found 'tensor<2x3x8x8xf32>' and 'tensor<2x4x16x16xf32>'}}
  %0 = memopt.interpolate %x {scales = array<f64: 0.5, 0.5>, mode = #memopt.resampling<nearest>} : (tensor<2x3x8x8xf32>) -> tensor<2x4x16x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3x8x8xf32>) {
  // expected-error @+1 {{'memopt.interpolate' op expects one scale for each of the 2 spatial dimensions, found 1}}
  %0 = memopt.interpolate %x {scales = array<f64: 0.5>, mode = #memopt.resampling<nearest>} : (tensor<2x3x8x8xf32>) -> tensor<2x3x16x16xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3x8x8xf32>) {
  // expected-error @+1 {{'memopt.interpolate' op expects equal element types, found 'f32' and 'f64'}}
  %0 = memopt.interpolate %x {scales = array<f64: 0.5, 0.5>, mode = #memopt.resampling<nearest>} : (tensor<2x3x8x8xf32>) -> tensor<2x3x16x16xf64>
  return
}

// -----

func.func @f(%x: tensor<2x3x16x16xf32>) {
  // expected-error @+1 {{'memopt.interpolate_backward' op expects equal batch and channel dimensions, found 'tensor<1x3x8x8xf32>' and 'tensor<2x3x16x16xf32>'}}
  %0 = memopt.interpolate_backward %x {scales = array<f64: 0.5, 0.5>, mode = #memopt.resampling<nearest>} : (tensor<2x3x16x16xf32>) -> tensor<1x3x8x8xf32>
  return
}

// -----

func.func @interpolate(%x: tensor<2x3x8x8xf32>) {
  // expected-error @+1 {{'memopt.interpolate' op expects scales of at least 0, found -1}}
  %0 = memopt.interpolate %x {scales = array<f64: 0.5, -1.0>, mode = #memopt.resampling<area>} : (tensor<2x3x8x8xf32>) -> tensor<2x3x16x16xf32>
  return
}
