// RUN: memopt-opt %s -split-input-file -verify-diagnostics

// One block for each message about matrices that are taken apart.

func.func @operands(%a: tensor<2x4x4xf64>) {
  // expected-error @+1 {{has 1 operands, expected 2}}
  %x = memopt.linear_algebra %a {kind = #memopt.algebra<triangular_solve>} : (tensor<2x4x4xf64>) -> tensor<2x4x4xf64>
  return
}

// -----

func.func @rank(%a: tensor<4x4xf64>) {
  // expected-error @+1 {{expects matrices [batch, rows, columns], found 'tensor<4x4xf64>'}}
  %x = memopt.linear_algebra %a {kind = #memopt.algebra<cholesky>} : (tensor<4x4xf64>) -> tensor<4x4xf64>
  return
}

// -----

func.func @last_operand(%a: tensor<2x4x4xf64>, %b: tensor<f64>) {
  // expected-error @+1 {{expects a last operand with dimensions}}
  %x = memopt.linear_algebra %a, %b {kind = #memopt.algebra<triangular_solve>} : (tensor<2x4x4xf64>, tensor<f64>) -> tensor<2x4x4xf64>
  return
}

// -----

func.func @results(%a: tensor<2x4x4xf64>) {
  // expected-error @+1 {{has 1 results, expected 2}}
  %x = memopt.linear_algebra %a {kind = #memopt.algebra<eigenvectors>} : (tensor<2x4x4xf64>) -> tensor<2x4xf64>
  return
}

// -----

func.func @result_type(%a: tensor<2x4x4xf64>) {
  // expected-error @+1 {{result 0 has type 'tensor<2x5xf64>', expected 'tensor<2x4xf64>'}}
  %x, %y = memopt.linear_algebra %a {kind = #memopt.algebra<eigenvectors>} : (tensor<2x4x4xf64>) -> (tensor<2x5xf64>, tensor<2x4x4xf64>)
  return
}

// -----

func.func @operand_type(%a: tensor<2x4x4xf64>, %b: tensor<3x4x2xf64>) {
  // expected-error @+1 {{operand 1 has type 'tensor<3x4x2xf64>', expected 'tensor<2x4x2xf64>'}}
  %x = memopt.linear_algebra %a, %b {kind = #memopt.algebra<triangular_solve>} : (tensor<2x4x4xf64>, tensor<3x4x2xf64>) -> tensor<2x4x2xf64>
  return
}

// -----

func.func @exchanges(%a: tensor<2x4x4xf64>, %e: tensor<2x4xi32>, %b: tensor<2x4x2xf64>) {
  // expected-error @+1 {{operand 1 has type 'tensor<2x4xi32>', expected 'tensor<2x4xi64>'}}
  %x = memopt.linear_algebra %a, %e, %b {kind = #memopt.algebra<lu_solve>} : (tensor<2x4x4xf64>, tensor<2x4xi32>, tensor<2x4x2xf64>) -> tensor<2x4x2xf64>
  return
}

// -----

func.func @square(%a: tensor<2x4x5xf64>) {
  // expected-error @+1 {{expects square matrices, found 4 x 5}}
  %x = memopt.linear_algebra %a {kind = #memopt.algebra<cholesky>} : (tensor<2x4x5xf64>) -> tensor<2x4x5xf64>
  return
}

// -----

func.func @narrow(%a: tensor<2x4x4xbf16>) {
  // expected-error @+1 {{expects f32 or f64, found bf16}}
  %x = memopt.linear_algebra %a {kind = #memopt.algebra<cholesky>} : (tensor<2x4x4xbf16>) -> tensor<2x4x4xbf16>
  return
}

// -----

func.func @more_factors(%a: tensor<2x4x3xf64>, %t: tensor<2x4xf64>) {
  // expected-error @+1 {{expects no more columns than rows and no more factors than columns, found 4 factors of 4 x 3}}
  %x = memopt.linear_algebra %a, %t {kind = #memopt.algebra<reflection_product>} : (tensor<2x4x3xf64>, tensor<2x4xf64>) -> tensor<2x4x3xf64>
  return
}

// -----

func.func @flags(%a: tensor<2x4x4xf64>) {
  // expected-error @+1 {{upper, unit and right are of triangles}}
  %x = memopt.linear_algebra %a {kind = #memopt.algebra<cholesky>, upper} : (tensor<2x4x4xf64>) -> tensor<2x4x4xf64>
  return
}

// -----

func.func @transposed(%a: tensor<2x4x4xf64>) {
  // expected-error @+1 {{transposed is of solves and triangles}}
  %x = memopt.linear_algebra %a {kind = #memopt.algebra<cholesky>, transposed} : (tensor<2x4x4xf64>) -> tensor<2x4x4xf64>
  return
}

// -----

func.func @pairs(%a: tensor<2x4x4xf64>) {
  // expected-error @+1 {{expects matrices [batch, rows, columns, 2], found 'tensor<2x4x4xf64>'}}
  %x = memopt.linear_algebra %a {kind = #memopt.algebra<cholesky>, pairs} : (tensor<2x4x4xf64>) -> tensor<2x4x4xf64>
  return
}

// -----

func.func @right(%a: tensor<2x4x4xf64>, %b: tensor<2x4x3xf64>) {
  // expected-error @+1 {{operand 1 has type 'tensor<2x4x3xf64>', expected 'tensor<2x4x4xf64>'}}
  %x = memopt.linear_algebra %a, %b {kind = #memopt.algebra<triangular_solve>, right} : (tensor<2x4x4xf64>, tensor<2x4x3xf64>) -> tensor<2x4x3xf64>
  return
}

// -----

func.func @large(%a: tensor<1x20000x20000xf32>) {
  // expected-error @+1 {{matrices have at most 16384 rows and 16777216 columns, or the other way, found 20000 x 20000 and width 0}}
  %x = memopt.linear_algebra %a {kind = #memopt.algebra<cholesky>} : (tensor<1x20000x20000xf32>) -> tensor<1x20000x20000xf32>
  return
}

// -----

// expected-error @+1 {{batch, rows and columns must lie in [1, 2^48], found 0}}
module attributes {test.call = #memopt.linear_algebra<kind = cholesky, batch = 0, rows = 4, columns = 4, type = f32>} {}

// -----

// expected-error @+1 {{batch, rows and width must lie in [1, 2^48], found 0}}
module attributes {test.call = #memopt.linear_algebra<kind = triangular_solve, batch = 1, rows = 4, columns = 4, type = f32>} {}

// -----

// expected-error @+1 {{width is of solves and products of triangles and reflections, found 2}}
module attributes {test.call = #memopt.linear_algebra<kind = cholesky, batch = 1, rows = 4, columns = 4, width = 2, type = f32>} {}
