// RUN: kernel-compile %s --print-schedule -o %t.o | FileCheck %s

// A result over its operand that is joined of two pieces side by side: the last column, which another operand makes, is stored before
// the columns in front of it are read. No element is in both.

// CHECK-LABEL: kernel memopt_kernel_0
// CHECK: result 0 at 4*[[ROW:i[0-9]+]] + 3
// CHECK: stage
// CHECK: result 0 at

#each = affine_map<(r, s, c) -> (r, s, c)>

func.func @joined(%a: tensor<80x4xf32>, %b: tensor<10x8xf32>, %c: tensor<10x8x3xf32>) attributes {test.result_buffers = array<i64: 0>} {
  %0 = memopt.kernel (%x = %a : tensor<80x4xf32>, %y = %b : tensor<10x8xf32>, %z = %c : tensor<10x8x3xf32>) -> tensor<10x8x4xf32> {
    %e = tensor.empty() : tensor<10x8x3xf32>
    %lines = tensor.expand_shape %x [[0, 1], [2]] output_shape [10, 8, 4] : tensor<80x4xf32> into tensor<10x8x4xf32>
    %three = tensor.extract_slice %lines[0, 0, 0] [10, 8, 3] [1, 1, 1] : tensor<10x8x4xf32> to tensor<10x8x3xf32>
    %r = linalg.generic {indexing_maps = [#each, #each, #each], iterator_types = ["parallel", "parallel", "parallel"]} ins(%three, %z : tensor<10x8x3xf32>, tensor<10x8x3xf32>) outs(%e : tensor<10x8x3xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %s = arith.mulf %p, %q : f32
      linalg.yield %s : f32
    } -> tensor<10x8x3xf32>
    %last = tensor.expand_shape %y [[0], [1, 2]] output_shape [10, 8, 1] : tensor<10x8xf32> into tensor<10x8x1xf32>
    %joined = tensor.concat dim(2) %r, %last : (tensor<10x8x3xf32>, tensor<10x8x1xf32>) -> tensor<10x8x4xf32>
    memopt.yield %joined : tensor<10x8x4xf32>
  }
  return
}
