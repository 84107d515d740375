// RUN: kernel-compile %s --print-schedule -o %t.o | FileCheck %s

// A chain of sums, each made of the one before for all turns of its own loop. Sums that share loops are made of one another in no
// turn: the fourth, in the loops of the second, would ask for the second again.

// CHECK-LABEL: kernel memopt_kernel_0
// CHECK: result 0
// CHECK: result 1
#row = affine_map<(b, i, j) -> (b, i)>
#column = affine_map<(b, i, j) -> (b, j)>
#table = affine_map<(b, i, j) -> (i, j)>
func.func @chain(%x: tensor<3x5xf32>, %t: tensor<5x5xf32>) {
  %0:2 = memopt.kernel (%a = %x : tensor<3x5xf32>, %w = %t : tensor<5x5xf32>) -> (tensor<3x5xf32>, tensor<3x5xf32>) {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<3x5xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<3x5xf32>) -> tensor<3x5xf32>
    %first = linalg.generic {indexing_maps = [#row, #table, #column], iterator_types = ["parallel", "reduction", "parallel"]} ins(%a, %w : tensor<3x5xf32>, tensor<5x5xf32>) outs(%f : tensor<3x5xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %m = arith.mulf %p, %q : f32
      %s = arith.addf %o, %m : f32
      linalg.yield %s : f32
    } -> tensor<3x5xf32>
    %second = linalg.generic {indexing_maps = [#row, #table, #column], iterator_types = ["parallel", "reduction", "parallel"]} ins(%first, %w : tensor<3x5xf32>, tensor<5x5xf32>) outs(%f : tensor<3x5xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %m = arith.mulf %p, %q : f32
      %s = arith.addf %o, %m : f32
      linalg.yield %s : f32
    } -> tensor<3x5xf32>
    %third = linalg.generic {indexing_maps = [#row, #table, #column], iterator_types = ["parallel", "reduction", "parallel"]} ins(%second, %w : tensor<3x5xf32>, tensor<5x5xf32>) outs(%f : tensor<3x5xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %m = arith.mulf %p, %q : f32
      %s = arith.addf %o, %m : f32
      linalg.yield %s : f32
    } -> tensor<3x5xf32>
    %fourth = linalg.generic {indexing_maps = [#row, #table, #column], iterator_types = ["parallel", "reduction", "parallel"]} ins(%third, %w : tensor<3x5xf32>, tensor<5x5xf32>) outs(%f : tensor<3x5xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %m = arith.mulf %p, %q : f32
      %s = arith.addf %o, %m : f32
      linalg.yield %s : f32
    } -> tensor<3x5xf32>
    memopt.yield %second, %fourth : tensor<3x5xf32>, tensor<3x5xf32>
  }
  return
}
