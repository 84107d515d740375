// RUN: memopt-opt %s -split-input-file -verify-diagnostics

func.func @name(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{calls '4th', expected the name of a function of C}}
  %y = memopt.foreign_call "4th"(%x) {source = ""} : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

func.func @shapes(%x: tensor<4xf32>) -> tensor<2xf32> {
  // expected-error @+1 {{goes element by element and has 'tensor<4xf32>', expected the shape of its first result, 'tensor<2xf32>'}}
  %y = memopt.foreign_call "half"(%x) {elementwise, source = ""} : (tensor<4xf32>) -> tensor<2xf32>
  return %y : tensor<2xf32>
}
