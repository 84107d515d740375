// A function of the user's in C: whole tensors, or element by element.
//
// RUN: memopt-opt %s | memopt-opt | FileCheck %s

// CHECK-LABEL: func @calls
func.func @calls(%x: tensor<4x8xf32>) -> (tensor<4xf32>, tensor<4x8xf32>) {
  // CHECK: memopt.foreign_call "rows" (%{{.*}}) {source = "void rows();"} : (tensor<4x8xf32>) -> tensor<4xf32>
  %rows = memopt.foreign_call "rows"(%x) {source = "void rows();"} : (tensor<4x8xf32>) -> tensor<4xf32>
  // CHECK: memopt.foreign_call "half" (%{{.*}}) {elementwise, source = "void half();"}
  %half = memopt.foreign_call "half"(%x) {elementwise, source = "void half();"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %rows, %half : tensor<4xf32>, tensor<4x8xf32>
}
