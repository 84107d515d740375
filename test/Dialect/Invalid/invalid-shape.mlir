// RUN: memopt-opt %s -split-input-file -verify-diagnostics

// One block for each message of ShapeOps.cpp.

func.func @broadcast(%x: tensor<3xf32>) {
  // expected-error @+1 {{'memopt.broadcast' op expects equal element types, found 'f32' and 'f64'}}
  %0 = memopt.broadcast %x {dimensions = array<i64: 1>} : (tensor<3xf32>) -> tensor<2x3xf64>
  return
}

// -----

func.func @broadcast(%x: tensor<3xf32>) {
  // expected-error @+1 {{'memopt.broadcast' op lists 2 dimensions, expected one for each of the 1 of the input}}
  %0 = memopt.broadcast %x {dimensions = array<i64: 0, 1>} : (tensor<3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @broadcast(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'memopt.broadcast' op dimensions must increase and lie below 2, found 0}}
  %0 = memopt.broadcast %x {dimensions = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  return
}

// -----

func.func @broadcast(%x: tensor<2xf32>) {
  // expected-error @+1 {{'memopt.broadcast' op input dimension 0 has size 2, expected 1 or 3}}
  %0 = memopt.broadcast %x {dimensions = array<i64: 1>} : (tensor<2xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @transpose(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'memopt.transpose' op expects equal element types, found 'f32' and 'i64'}}
  %0 = memopt.transpose %x {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xi64>
  return
}

// -----

func.func @transpose(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'memopt.transpose' op is no permutation of 2 dimensions: repeats or exceeds with 1}}
  %0 = memopt.transpose %x {permutation = array<i64: 1, 1>} : (tensor<2x3xf32>) -> tensor<3x3xf32>
  return
}

// -----

func.func @transpose(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'memopt.transpose' op permutes 1 dimensions, expected 2}}
  %0 = memopt.transpose %x {permutation = array<i64: 1>} : (tensor<2x3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @transpose(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'memopt.transpose' op result has shape [2, 3], expected [3, 2]}}
  %0 = memopt.transpose %x {permutation = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}

// -----

func.func @count(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'memopt.count' op counts dimension 0, expected distinct ones below 2}}
  %0 = memopt.count %x {dimensions = array<i64: 0, 0>} : (tensor<2x3xf32>) -> tensor<f32>
  return
}

// -----

func.func @count_shape(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'memopt.count' op result has shape [2], expected []}}
  %0 = memopt.count %x {dimensions = array<i64: 1>} : (tensor<2x3xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @reduce(%x: tensor<2x3xi32>) {
  // expected-error @+1 {{'memopt.reduce' op expects equal element types, found 'i32' and 'i64'}}
  %0 = memopt.reduce %x {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<2x3xi32>) -> tensor<3xi64>
  return
}

// -----

func.func @reduce(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'memopt.reduce' op reduces dimension 2, expected distinct ones below 2}}
  %0 = memopt.reduce %x {kind = #memopt.reduce<add>, dimensions = array<i64: 2>} : (tensor<2x3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @reduce(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'memopt.reduce' op result has shape [2], expected [3]}}
  %0 = memopt.reduce %x {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<2x3xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @pad(%x: tensor<3xf32>) {
  // expected-error @+1 {{'memopt.pad' op expects equal element types, found 'f32' and 'f64'}}
  %0 = memopt.pad %x {low = array<i64: 1>, high = array<i64: 0>} : (tensor<3xf32>) -> tensor<4xf64>
  return
}

// -----

func.func @pad(%x: tensor<3xf32>) {
  // expected-error @+1 {{'memopt.pad' op expects one low and one high padding for each of the 1 dimensions}}
  %0 = memopt.pad %x {low = array<i64: 1>, high = array<i64: 0, 0>} : (tensor<3xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @pad(%x: tensor<3xf32>) {
  // expected-error @+1 {{'memopt.pad' op padding must not be negative, found -1}}
  %0 = memopt.pad %x {low = array<i64: 1>, high = array<i64: -1>} : (tensor<3xf32>) -> tensor<3xf32>
  return
}

// -----

func.func @pad(%x: tensor<3xf32>) {
  // expected-error @+1 {{'memopt.pad' op result has shape [5], expected [4]}}
  %0 = memopt.pad %x {low = array<i64: 1>, high = array<i64: 0>} : (tensor<3xf32>) -> tensor<5xf32>
  return
}

// -----

func.func @iota() {
  // expected-error @+1 {{'memopt.iota' op counts along dimension 1, expected one below 1}}
  %0 = memopt.iota {dimension = 1 : i64} : () -> tensor<4xi64>
  return
}

// -----

func.func @embedding(%table: tensor<8xf32>, %ids: tensor<4xi64>) {
  // expected-error @+1 {{'memopt.embedding' op expects a table of rank 2, found 'tensor<8xf32>'}}
  %0 = memopt.embedding %table, %ids : (tensor<8xf32>, tensor<4xi64>) -> tensor<4x8xf32>
  return
}

// -----

func.func @embedding(%table: tensor<16x8xf32>, %ids: tensor<4xi64>) {
  // expected-error @+1 {{'memopt.embedding' op expects equal element types, found 'f32' and 'f64'}}
  %0 = memopt.embedding %table, %ids : (tensor<16x8xf32>, tensor<4xi64>) -> tensor<4x8xf64>
  return
}

// -----

func.func @embedding(%table: tensor<16x8xf32>, %ids: tensor<4xi64>) {
  // expected-error @+1 {{'memopt.embedding' op result has shape [4, 16], expected [4, 8]}}
  %0 = memopt.embedding %table, %ids : (tensor<16x8xf32>, tensor<4xi64>) -> tensor<4x16xf32>
  return
}

// -----

func.func @embedding_backward(%g: tensor<4x8xf32>, %ids: tensor<4xi64>) {
  // expected-error @+1 {{'memopt.embedding_backward' op expects a table of rank 2, found 'tensor<8xf32>'}}
  %0 = memopt.embedding_backward %g, %ids : (tensor<4x8xf32>, tensor<4xi64>) -> tensor<8xf32>
  return
}

// -----

func.func @embedding_backward(%g: tensor<4x8xf32>, %ids: tensor<4xi64>) {
  // expected-error @+1 {{'memopt.embedding_backward' op expects equal element types, found 'f32' and 'f64'}}
  %0 = memopt.embedding_backward %g, %ids : (tensor<4x8xf32>, tensor<4xi64>) -> tensor<16x8xf64>
  return
}

// -----

func.func @embedding_backward(%g: tensor<4x8xf32>, %ids: tensor<4xi64>) {
  // expected-error @+1 {{'memopt.embedding_backward' op gradient has shape [4, 8], expected [4, 9]}}
  %0 = memopt.embedding_backward %g, %ids : (tensor<4x8xf32>, tensor<4xi64>) -> tensor<16x9xf32>
  return
}

// -----

func.func @reverse(%x: tensor<2x3xf32>) {
  // expected-error @+1 {{'memopt.reverse' op reverses dimension 1, expected distinct ones below 2}}
  %0 = memopt.reverse %x {dimensions = array<i64: 1, 1>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}
