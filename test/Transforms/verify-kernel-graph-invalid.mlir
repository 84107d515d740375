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
