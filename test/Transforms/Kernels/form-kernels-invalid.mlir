// RUN: memopt-opt %s --verify-diagnostics --memopt-form-kernels

func.func @element(%x: tensor<4xf32>) -> tensor<f32> {
  %one = arith.constant 1 : index
  // expected-error @+1 {{'tensor.extract' op reads a scalar of type 'index' outside of a kernel, expected tensors}}
  %e = tensor.extract %x[%one] : tensor<4xf32>
  %y = tensor.from_elements %e : tensor<f32>
  return %y : tensor<f32>
}
