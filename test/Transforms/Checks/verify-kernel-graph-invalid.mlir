// RUN: memopt-opt %s --split-input-file --verify-diagnostics --memopt-verify-kernel-graph

func.func @named_op(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{'memopt.relu' op does not belong in a kernel graph: expected an instruction, a read, a write or a reshape of a buffer}}
  %0 = memopt.relu %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @view(%x: tensor<4x2xf32>) -> tensor<2x4xf32> {
  // expected-error @+1 {{'memopt.transpose' op does not belong in a kernel graph}}
  %0 = memopt.transpose %x {permutation = array<i64: 1, 0>} : (tensor<4x2xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// -----

// expected-error @+1 {{the step's tensors and workspaces have 2^56 bytes or more in all}}
func.func @more_than_a_sum_holds(%x: tensor<281474976710656xf64>) -> tensor<1x281474976710656xf64> {
  %0 = tensor.expand_shape %x [[0, 1]] output_shape [1, 281474976710656] : tensor<281474976710656xf64> into tensor<1x281474976710656xf64>
  %1 = tensor.collapse_shape %0 [[0, 1]] : tensor<1x281474976710656xf64> into tensor<281474976710656xf64>
  %2 = tensor.expand_shape %1 [[0, 1]] output_shape [1, 281474976710656] : tensor<281474976710656xf64> into tensor<1x281474976710656xf64>
  %3 = tensor.collapse_shape %2 [[0, 1]] : tensor<1x281474976710656xf64> into tensor<281474976710656xf64>
  %4 = tensor.expand_shape %3 [[0, 1]] output_shape [1, 281474976710656] : tensor<281474976710656xf64> into tensor<1x281474976710656xf64>
  %5 = tensor.collapse_shape %4 [[0, 1]] : tensor<1x281474976710656xf64> into tensor<281474976710656xf64>
  %6 = tensor.expand_shape %5 [[0, 1]] output_shape [1, 281474976710656] : tensor<281474976710656xf64> into tensor<1x281474976710656xf64>
  %7 = tensor.collapse_shape %6 [[0, 1]] : tensor<1x281474976710656xf64> into tensor<281474976710656xf64>
  %8 = tensor.expand_shape %7 [[0, 1]] output_shape [1, 281474976710656] : tensor<281474976710656xf64> into tensor<1x281474976710656xf64>
  %9 = tensor.collapse_shape %8 [[0, 1]] : tensor<1x281474976710656xf64> into tensor<281474976710656xf64>
  %10 = tensor.expand_shape %9 [[0, 1]] output_shape [1, 281474976710656] : tensor<281474976710656xf64> into tensor<1x281474976710656xf64>
  %11 = tensor.collapse_shape %10 [[0, 1]] : tensor<1x281474976710656xf64> into tensor<281474976710656xf64>
  %12 = tensor.expand_shape %11 [[0, 1]] output_shape [1, 281474976710656] : tensor<281474976710656xf64> into tensor<1x281474976710656xf64>
  %13 = tensor.collapse_shape %12 [[0, 1]] : tensor<1x281474976710656xf64> into tensor<281474976710656xf64>
  %14 = tensor.expand_shape %13 [[0, 1]] output_shape [1, 281474976710656] : tensor<281474976710656xf64> into tensor<1x281474976710656xf64>
  %15 = tensor.collapse_shape %14 [[0, 1]] : tensor<1x281474976710656xf64> into tensor<281474976710656xf64>
  %16 = tensor.expand_shape %15 [[0, 1]] output_shape [1, 281474976710656] : tensor<281474976710656xf64> into tensor<1x281474976710656xf64>
  %17 = tensor.collapse_shape %16 [[0, 1]] : tensor<1x281474976710656xf64> into tensor<281474976710656xf64>
  %18 = tensor.expand_shape %17 [[0, 1]] output_shape [1, 281474976710656] : tensor<281474976710656xf64> into tensor<1x281474976710656xf64>
  %19 = tensor.collapse_shape %18 [[0, 1]] : tensor<1x281474976710656xf64> into tensor<281474976710656xf64>
  %20 = tensor.expand_shape %19 [[0, 1]] output_shape [1, 281474976710656] : tensor<281474976710656xf64> into tensor<1x281474976710656xf64>
  return %20 : tensor<1x281474976710656xf64>
}

// -----

// What a kernel checks is reported for a site of the table ...
#id = affine_map<(d0) -> (d0)>
func.func @site(%x: tensor<4xi64>) -> tensor<4xi64> {
  %0 = memopt.kernel (%a = %x : tensor<4xi64>) -> (tensor<4xi64>) {
    %empty = tensor.empty() : tensor<4xi64>
    %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%a : tensor<4xi64>) outs(%empty : tensor<4xi64>) {
    ^bb0(%in: i64, %out: i64):
      // expected-error @+1 {{'memopt.check' op reports for site 0, expected one of the 0 in 'memopt.index_sites'}}
      %2 = memopt.check %in {min = 0 : i64, max = 9 : i64, otherwise = 0 : i64, site = 0 : i64} : i64
      linalg.yield %2 : i64
    } -> tensor<4xi64>
    memopt.yield %1 : tensor<4xi64>
  }
  return %0 : tensor<4xi64>
}

// -----

// ... in a variable.
#id = affine_map<(d0) -> (d0)>
module attributes {memopt.index_sites = [{module = "", op = "embedding", min = 0 : i64, max = 9 : i64, what = ""}]} {
  func.func @variable(%x: tensor<4xi64>) -> tensor<4xi64> {
    %0 = memopt.kernel (%a = %x : tensor<4xi64>) -> (tensor<4xi64>) {
      %empty = tensor.empty() : tensor<4xi64>
      %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%a : tensor<4xi64>) outs(%empty : tensor<4xi64>) {
      ^bb0(%in: i64, %out: i64):
        // expected-error @+1 {{'memopt.check' op has no variable of role index_fault to report in}}
        %2 = memopt.check %in {min = 0 : i64, max = 9 : i64, otherwise = 0 : i64, site = 0 : i64} : i64
        linalg.yield %2 : i64
      } -> tensor<4xi64>
      memopt.yield %1 : tensor<4xi64>
    }
    return %0 : tensor<4xi64>
  }
}
