// RUN: memopt-opt %s --split-input-file --verify-diagnostics --memopt-lower-to-linalg

func.func @huge_window(%x: tensor<1x1x40x40xf32>) -> tensor<1x1x1x1xf32> {
  // expected-error @+1 {{has windows of 1600 elements; at most 1024 are supported}}
  %0 = memopt.avg_pool %x {kernel = array<i64: 40, 40>, strides = array<i64: 1, 1>, padding_low = array<i64: 0, 0>,
    padding_high = array<i64: 0, 0>} : (tensor<1x1x40x40xf32>) -> tensor<1x1x1x1xf32>
  return %0 : tensor<1x1x1x1xf32>
}

// -----

func.func @scalar_condition(%c: i1, %x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{expects operands of the result's shape 'tensor<4xf32>', found 'i1'}}
  %0 = arith.select %c, %x, %y : tensor<4xf32>
  return %0 : tensor<4xf32>
}
