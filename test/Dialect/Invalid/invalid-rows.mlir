// RUN: memopt-opt %s -split-input-file -verify-diagnostics

func.func @dim(%x: tensor<8x3xf32>, %m: tensor<8xi1>) -> tensor<8x3xf32> {
  // expected-error @+1 {{has the dim 2, expected one of 0 to 1}}
  %y = memopt.fill_rows %x, %m {dim = 2 : i64} : (tensor<8x3xf32>, tensor<8xi1>) -> tensor<8x3xf32>
  return %y : tensor<8x3xf32>
}

// -----

func.func @counts(%x: tensor<8x3xf32>, %m: tensor<8xi1>) -> tensor<8x3xf32> {
  // expected-error @+1 {{has counts of 'tensor<8xi1>', expected one for each of 3 rows}}
  %y = memopt.fill_rows %x, %m {dim = 1 : i64} : (tensor<8x3xf32>, tensor<8xi1>) -> tensor<8x3xf32>
  return %y : tensor<8x3xf32>
}

// -----

func.func @result(%x: tensor<8x3xf32>, %m: tensor<8xi1>) -> tensor<8x4xf32> {
  // expected-error @+1 {{gives 'tensor<8x4xf32>', expected the type of its input, 'tensor<8x3xf32>'}}
  %y = memopt.fill_rows %x, %m {dim = 0 : i64} : (tensor<8x3xf32>, tensor<8xi1>) -> tensor<8x4xf32>
  return %y : tensor<8x4xf32>
}
