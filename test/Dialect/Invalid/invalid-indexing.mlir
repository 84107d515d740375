// RUN: memopt-opt %s -split-input-file -verify-diagnostics

// One block for each message of IndexingOps.cpp.

func.func @gather(%t: tensor<5x3xf32>, %i: tensor<2x1xi64>) {
  // expected-error @+1 {{'memopt.gather' op expects equal element types, found 'f32' and 'f64'}}
  %0 = memopt.gather %t, %i {indexed = array<i64: 0>, positions = array<i64: 1>} : (tensor<5x3xf32>, tensor<2x1xi64>) -> tensor<2x3xf64>
  return
}

// -----

func.func @gather(%t: tensor<5x3xf32>, %i: tensor<2x1xi64>) {
  // expected-error @+1 {{'memopt.gather' op indexes 2 dimensions, expected one for each of 1 index tensors}}
  %0 = memopt.gather %t, %i {indexed = array<i64: 0, 1>, positions = array<i64>} : (tensor<5x3xf32>, tensor<2x1xi64>) -> tensor<2x3xf32>
  return
}

// -----

func.func @gather(%t: tensor<5x3xf32>, %i: tensor<2x1xi64>) {
  // expected-error @+1 {{'memopt.gather' op places 1 dimensions, expected all 2 of 'tensor<5x3xf32>'}}
  %0 = memopt.gather %t, %i {indexed = array<i64: 0>, positions = array<i64>} : (tensor<5x3xf32>, tensor<2x1xi64>) -> tensor<2x3xf32>
  return
}

// -----

func.func @gather(%t: tensor<5x3xf32>, %i: tensor<2x1xi64>) {
  // expected-error @+1 {{'memopt.gather' op indexed dimensions must increase and lie below 2, found 0}}
  %0 = memopt.gather %t, %i, %i {indexed = array<i64: 1, 0>, positions = array<i64>}
    : (tensor<5x3xf32>, tensor<2x1xi64>, tensor<2x1xi64>) -> tensor<2x1xf32>
  return
}

// -----

func.func @gather(%t: tensor<5x3x3xf32>, %i: tensor<2x1xi64>) {
  // expected-error @+1 {{'memopt.gather' op places dimension 2 at 1, expected distinct places below 2}}
  %0 = memopt.gather %t, %i {indexed = array<i64: 0>, positions = array<i64: 1, 1>} : (tensor<5x3x3xf32>, tensor<2x1xi64>) -> tensor<2x3xf32>
  return
}

// -----

func.func @gather(%t: tensor<5x3xf32>, %i: tensor<2x1xi64>) {
  // expected-error @+1 {{'memopt.gather' op reaches 4 elements of dimension 1, which has 3}}
  %0 = memopt.gather %t, %i {indexed = array<i64: 0>, positions = array<i64: 1>} : (tensor<5x3xf32>, tensor<2x1xi64>) -> tensor<2x4xf32>
  return
}

// -----

func.func @gather(%t: tensor<5x3xf32>, %i: tensor<2xi64>) {
  // expected-error @+1 {{'memopt.gather' op index tensor has shape [2], expected sizes of 1 or those of [2, 3]}}
  %0 = memopt.gather %t, %i {indexed = array<i64: 0>, positions = array<i64: 1>} : (tensor<5x3xf32>, tensor<2xi64>) -> tensor<2x3xf32>
  return
}

// -----

func.func @scatter(%t: tensor<5x3xf32>, %u: tensor<2x3xf32>, %i: tensor<2x1xi64>) {
  // expected-error @+1 {{'memopt.scatter' op result has shape [4, 3], expected [5, 3]}}
  %0 = memopt.scatter %t, %u, %i {kind = #memopt.scatter<set>, indexed = array<i64: 0>, positions = array<i64: 1>}
    : (tensor<5x3xf32>, tensor<2x3xf32>, tensor<2x1xi64>) -> tensor<4x3xf32>
  return
}

// -----

func.func @scatter(%t: tensor<5x3xi1>, %u: tensor<2x3xi1>, %i: tensor<2x1xi64>) {
  // expected-error @+1 {{'memopt.scatter' op combines booleans, expected kind 'set'}}
  %0 = memopt.scatter %t, %u, %i {kind = #memopt.scatter<add>, indexed = array<i64: 0>, positions = array<i64: 1>}
    : (tensor<5x3xi1>, tensor<2x3xi1>, tensor<2x1xi64>) -> tensor<5x3xi1>
  return
}

// -----

func.func @argsort(%t: tensor<5x3xf32>) {
  // expected-error @+1 {{'memopt.argsort' op goes along axis 2, expected one below 2}}
  %0 = memopt.argsort %t {axis = 2 : i64} : (tensor<5x3xf32>) -> tensor<5x3xi64>
  return
}

// -----

func.func @argsort(%t: tensor<5x3xf32>) {
  // expected-error @+1 {{'memopt.argsort' op result has shape [5, 4], expected [5, 3]}}
  %0 = memopt.argsort %t {axis = 1 : i64} : (tensor<5x3xf32>) -> tensor<5x4xi64>
  return
}

// -----

func.func @linear_scan(%t: tensor<5x3xf32>) {
  // expected-error @+1 {{'memopt.linear_scan' op goes along axis 2, expected one below 2}}
  %0 = memopt.linear_scan %t, %t {axis = 2 : i64} : (tensor<5x3xf32>, tensor<5x3xf32>) -> tensor<5x3xf32>
  return
}

// -----

func.func @logsumexp_scan(%t: tensor<f32>) {
  // expected-error @+1 {{'memopt.logsumexp_scan' op goes along axis 0, expected one below 0}}
  %0 = memopt.logsumexp_scan %t {axis = 0 : i64} : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @argextreme_scan(%t: tensor<5x3xf32>) {
  // expected-error @+1 {{'memopt.argextreme_scan' op goes along axis 3, expected one below 2}}
  %0 = memopt.argextreme_scan %t {kind = #memopt.reduce<max>, axis = 3 : i64} : (tensor<5x3xf32>) -> tensor<5x3xi64>
  return
}

// -----

func.func @argextreme_scan(%t: tensor<5x3xf32>) {
  // expected-error @+1 {{'memopt.argextreme_scan' op expects kind 'max' or 'min'}}
  %0 = memopt.argextreme_scan %t {kind = #memopt.reduce<add>, axis = 1 : i64} : (tensor<5x3xf32>) -> tensor<5x3xi64>
  return
}

// -----

func.func @argextreme_scan(%t: tensor<5x3xf32>) {
  // expected-error @+1 {{'memopt.argextreme_scan' op result has shape [5, 2], expected [5, 3]}}
  %0 = memopt.argextreme_scan %t {kind = #memopt.reduce<max>, axis = 1 : i64} : (tensor<5x3xf32>) -> tensor<5x2xi64>
  return
}
