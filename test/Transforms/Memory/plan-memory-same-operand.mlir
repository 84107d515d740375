// RUN: memopt-opt %s -memopt-plan-memory -memopt-verify-planned | FileCheck %s

// The kernel adds a matrix to its own transpose, and both come in as operands of their own. Operand 0 alone could be
// written over, but operand 1 is the same buffer and is read elsewhere: the result gets 1024 bytes of its own.

#id = affine_map<(d0, d1) -> (d0, d1)>
#t = affine_map<(d0, d1) -> (d1, d0)>
// CHECK: module attributes {memopt.planned = #memopt.planned<arena_bytes = [2048, 0, 0]
func.func @same_operand(%x: tensor<16x16xf32>) -> tensor<16x16xf32> {
  %a = memopt.kernel (%in = %x : tensor<16x16xf32>, %other = %x : tensor<16x16xf32>) -> tensor<16x16xf32> {
    %e = tensor.empty() : tensor<16x16xf32>
    %0 = linalg.generic {indexing_maps = [#id, #t, #id], iterator_types = ["parallel", "parallel"]}
        ins(%in, %other : tensor<16x16xf32>, tensor<16x16xf32>) outs(%e : tensor<16x16xf32>) {
    ^bb0(%p: f32, %q: f32, %out: f32):
      %1 = arith.addf %p, %q : f32
      linalg.yield %1 : f32
    } -> tensor<16x16xf32>
    memopt.yield %0 : tensor<16x16xf32>
  }
  return %a : tensor<16x16xf32>
}
