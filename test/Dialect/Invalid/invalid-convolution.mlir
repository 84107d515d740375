// RUN: memopt-opt %s -split-input-file -verify-diagnostics

// One block for each message of convolutions and matmuls.

func.func @f(%a: tensor<2x3x8x8xf32>, %b: tensor<4x3x3x3xf64>) {
  // expected-error @+1 {{'memopt.convolution' op expects equal element types, found 'f32' and 'f64'}}
  %0 = memopt.convolution %a, %b {strides = array<i64: 1, 1>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64}
    : (tensor<2x3x8x8xf32>, tensor<4x3x3x3xf64>) -> tensor<2x4x6x6xf32>
  return
}

// -----

func.func @f(%a: tensor<2x3x8x8xf32>, %b: tensor<4x3x3xf32>) {
  // expected-error @+1 {{'memopt.convolution' op expects input, filter and result of one rank, at least 3}}
  %0 = memopt.convolution %a, %b {strides = array<i64: 1, 1>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64}
    : (tensor<2x3x8x8xf32>, tensor<4x3x3xf32>) -> tensor<2x4x6x6xf32>
  return
}

// -----

func.func @f(%a: tensor<1x1x2x2x2x2xf32>, %b: tensor<1x1x1x1x1x1xf32>) {
  // expected-error @+1 {{'memopt.convolution' op expects one to three spatial dimensions, found 4}}
  %0 = memopt.convolution %a, %b {strides = array<i64: 1, 1>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64}
    : (tensor<1x1x2x2x2x2xf32>, tensor<1x1x1x1x1x1xf32>) -> tensor<1x1x2x2x2x2xf32>
  return
}

// -----

func.func @f(%a: tensor<2x3x8x8xf32>, %b: tensor<4x3x3x3xf32>) {
  // expected-error @+1 {{'memopt.convolution' op window attributes need one entry for each of the 2 spatial dimensions}}
  %0 = memopt.convolution %a, %b {strides = array<i64: 1>, padding_low = array<i64: 0>, padding_high = array<i64: 0>, dilations = array<i64: 1>, groups = 1 : i64}
    : (tensor<2x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<2x4x6x6xf32>
  return
}

// -----

func.func @f(%a: tensor<2x3x8x8xf32>, %b: tensor<4x3x3x3xf32>) {
  // expected-error @+1 {{'memopt.convolution' op window sizes, strides and dilations must be positive and padding not negative in spatial dimension 1}}
  %0 = memopt.convolution %a, %b {strides = array<i64: 1, 0>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64}
    : (tensor<2x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<2x4x6x6xf32>
  return
}

// -----

func.func @f(%a: tensor<2x3x8x8xf32>, %b: tensor<4x3x3x3xf32>) {
  // expected-error @+1 {{'memopt.convolution' op groups must divide input channels 3 and output channels 4, found 2}}
  %0 = memopt.convolution %a, %b {strides = array<i64: 1, 1>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 2 : i64}
    : (tensor<2x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<2x4x6x6xf32>
  return
}

// -----

func.func @f(%a: tensor<2x4x8x8xf32>, %b: tensor<4x3x3x3xf32>) {
  // expected-error @+1 {{'memopt.convolution' op filter has 3 input channels, expected 2}}
  %0 = memopt.convolution %a, %b {strides = array<i64: 1, 1>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 2 : i64}
    : (tensor<2x4x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<2x4x6x6xf32>
  return
}

// -----

// 8 pixels hold 8 - 2 = 6 windows of 3.
func.func @f(%a: tensor<2x3x8x8xf32>, %b: tensor<4x3x3x3xf32>) {
  // expected-error @+1 {{'memopt.convolution' op output has shape [2, 4, 8, 8], expected [2, 4, 6, 6]}}
  %0 = memopt.convolution %a, %b {strides = array<i64: 1, 1>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64}
    : (tensor<2x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<2x4x8x8xf32>
  return
}

// -----

// A window that does not fit is not there.
func.func @f(%a: tensor<2x3x2x2xf32>, %b: tensor<4x3x3x3xf32>) {
  // expected-error @+1 {{'memopt.convolution' op output has shape [2, 4, 1, 1], expected [2, 4, 0, 0]}}
  %0 = memopt.convolution %a, %b {strides = array<i64: 1, 1>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64}
    : (tensor<2x3x2x2xf32>, tensor<4x3x3x3xf32>) -> tensor<2x4x1x1xf32>
  return
}

// -----

// The output's gradient has the output's shape.
func.func @f(%a: tensor<2x4x8x8xf32>, %b: tensor<4x3x3x3xf32>) {
  // expected-error @+1 {{'memopt.convolution_backward_data' op output has shape [2, 4, 8, 8], expected [2, 4, 6, 6]}}
  %0 = memopt.convolution_backward_data %a, %b {strides = array<i64: 1, 1>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64}
    : (tensor<2x4x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<2x3x8x8xf32>
  return
}

// -----

func.func @f(%a: tensor<2x6x8x8xf32>, %b: tensor<2x4x6x6xf32>) {
  // expected-error @+1 {{'memopt.convolution_backward_weights' op filter has 3 input channels, expected 6}}
  %0 = memopt.convolution_backward_weights %a, %b {strides = array<i64: 1, 1>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64}
    : (tensor<2x6x8x8xf32>, tensor<2x4x6x6xf32>) -> tensor<4x3x3x3xf32>
  return
}

// -----

func.func @f(%a: tensor<4x8xf32>, %b: tensor<8x16xf32>) {
  // expected-error @+1 {{'memopt.matmul' op gives 'f64', expected 'f32'}}
  %0 = memopt.matmul %a, %b : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf64>
  return
}

// -----

func.func @f(%a: tensor<4x8xbf16>, %b: tensor<8x16xf16>) {
  // expected-error @+1 {{'memopt.matmul' op expects equal element types, found 'bf16' and 'f16'}}
  %0 = memopt.matmul %a, %b : (tensor<4x8xbf16>, tensor<8x16xf16>) -> tensor<4x16xf32>
  return
}

// -----

// Sums of narrow numbers are f32, or rounded.
func.func @f(%a: tensor<4x8xbf16>, %b: tensor<8x16xbf16>) {
  // expected-error @+1 {{'memopt.matmul' op gives 'f64', expected 'bf16' or 'f32'}}
  %0 = memopt.matmul %a, %b : (tensor<4x8xbf16>, tensor<8x16xbf16>) -> tensor<4x16xf64>
  return
}

// -----

func.func @f(%a: tensor<4x8xf32>, %b: tensor<1x8x16xf32>) {
  // expected-error @+1 {{'memopt.matmul' op expects operands of one rank, at least 2, found 'tensor<4x8xf32>' and 'tensor<1x8x16xf32>'}}
  %0 = memopt.matmul %a, %b : (tensor<4x8xf32>, tensor<1x8x16xf32>) -> tensor<4x16xf32>
  return
}

// -----

func.func @f(%a: tensor<4x8xf32>, %b: tensor<8x16xf32>) {
  // expected-error @+1 {{'memopt.matmul' op contracts 8 elements of a with 16 of b}}
  %0 = memopt.matmul %a, %b {transpose_b} : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  return
}

// -----

func.func @f(%a: tensor<2x4x8xf32>, %b: tensor<3x8x16xf32>) {
  // expected-error @+1 {{'memopt.matmul' op expects equal batch dimensions, found 'tensor<2x4x8xf32>' and 'tensor<3x8x16xf32>'}}
  %0 = memopt.matmul %a, %b : (tensor<2x4x8xf32>, tensor<3x8x16xf32>) -> tensor<2x4x16xf32>
  return
}

// -----

func.func @f(%a: tensor<4x8xf32>, %b: tensor<8x16xf32>) {
  // expected-error @+1 {{'memopt.matmul' op result has shape [16, 4], expected [4, 16]}}
  %0 = memopt.matmul %a, %b : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<16x4xf32>
  return
}
