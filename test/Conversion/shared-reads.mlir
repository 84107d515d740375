// RUN: kernel-compile %s --print-loops --processor=x86-64-v4 | FileCheck %s

// A sum over rows and columns runs in one loop of 64 lanes. Where these are eight rows, a value of each row is read once for
// its columns, and the values of the columns once for all rows.

#m2 = affine_map<(r, c) -> (r, c)>
#row = affine_map<(r, c) -> (r)>
#column = affine_map<(r, c) -> (c)>
#whole = affine_map<(r, c) -> ()>

// CHECK-LABEL: memopt_kernel_0
// CHECK-NOT: gather
// CHECK-DAG: llvm.shufflevector {{.*}} [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, {{.*}} 7, 7] : vector<8xf32>
// CHECK-DAG: llvm.shufflevector {{.*}} [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, {{.*}} 6, 7] : vector<8xf32>
// CHECK-NOT: gather
func.func @shared(%a: tensor<160x8xf32>, %b: tensor<160xf32>, %c: tensor<8xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<160x8xf32>, %y = %b : tensor<160xf32>, %z = %c : tensor<8xf32>) -> tensor<f32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<f32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<f32>) -> tensor<f32>
    %r = linalg.generic {indexing_maps = [#m2, #row, #column, #whole], iterator_types = ["reduction", "reduction"]} ins(%x, %y, %z : tensor<160x8xf32>, tensor<160xf32>, tensor<8xf32>) outs(%f : tensor<f32>) {
    ^bb0(%p: f32, %q: f32, %s: f32, %o: f32):
      %1 = arith.mulf %p, %q : f32
      %2 = arith.mulf %1, %s : f32
      %3 = arith.addf %o, %2 : f32
      linalg.yield %3 : f32
    } -> tensor<f32>
    memopt.yield %r : tensor<f32>
  }
  return
}

// Blocks of 64 lanes begin anywhere in rows of six: lanes gather.
// CHECK-LABEL: memopt_kernel_1
// CHECK: llvm.intr.masked.gather
func.func @anywhere(%a: tensor<320x6xf32>, %b: tensor<320xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<320x6xf32>, %y = %b : tensor<320xf32>) -> tensor<f32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<f32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<f32>) -> tensor<f32>
    %r = linalg.generic {indexing_maps = [#m2, #row, #whole], iterator_types = ["reduction", "reduction"]} ins(%x, %y : tensor<320x6xf32>, tensor<320xf32>) outs(%f : tensor<f32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %1 = arith.mulf %p, %q : f32
      %2 = arith.addf %o, %1 : f32
      linalg.yield %2 : f32
    } -> tensor<f32>
    memopt.yield %r : tensor<f32>
  }
  return
}
