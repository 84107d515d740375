// RUN: memopt-opt %s -split-input-file -verify-diagnostics

// One block for each message of GradientOps.cpp.

func.func @custom(%x: tensor<4xf32>) {
  %g = memopt.incoming_gradient %x {result_number = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error @+1 {{'memopt.custom_gradient' op expects results of the types of its values}}
  %0 = memopt.custom_gradient %x, %g, %x, %g {operandSegmentSizes = array<i32: 1, 1, 1, 1>}
    : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<5xf32>
  return
}

// -----

func.func @custom(%x: tensor<4xf32>, %w: tensor<2xf32>) {
  %g = memopt.incoming_gradient %x {result_number = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error @+1 {{'memopt.custom_gradient' op expects one gradient of its type for each input}}
  %0 = memopt.custom_gradient %x, %g, %w, %g {operandSegmentSizes = array<i32: 1, 1, 1, 1>}
    : (tensor<4xf32>, tensor<4xf32>, tensor<2xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @custom(%x: tensor<4xf32>) {
  // expected-error @+1 {{'memopt.custom_gradient' op expects one incoming gradient for each floating-point value}}
  %0 = memopt.custom_gradient %x {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @custom(%x: tensor<4xf32>) {
  // expected-error @+1 {{'memopt.custom_gradient' op expects incoming gradients made by memopt.incoming_gradient}}
  %0 = memopt.custom_gradient %x, %x {operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
