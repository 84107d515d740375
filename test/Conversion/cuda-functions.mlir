// REQUIRES: libdevice
// RUN: kernel-compile %s --chip=sm_90 | FileCheck %s

// Functions of libm come from libdevice, and are put where they are called: a call would need a stack. A remainder is
// exact, which NVPTX's own is not.

#id = affine_map<(i) -> (i)>

// CHECK-NOT: call
// CHECK-NOT: .func
// CHECK: .visible .entry memopt_kernel_0_stage0
// CHECK-NOT: call
// CHECK: .visible .entry memopt_kernel_1_stage0
// CHECK-NOT: call
func.func @power(%a: tensor<1024xf32>, %b: tensor<1024xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<1024xf32>, %y = %b : tensor<1024xf32>) -> tensor<1024xf32> {
    %e = tensor.empty() : tensor<1024xf32>
    %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %y : tensor<1024xf32>, tensor<1024xf32>) outs(%e : tensor<1024xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %s = math.powf %p, %q : f32
      linalg.yield %s : f32
    } -> tensor<1024xf32>
    memopt.yield %r : tensor<1024xf32>
  }
  return
}
func.func @remainder(%a: tensor<1024xf32>, %b: tensor<1024xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<1024xf32>, %y = %b : tensor<1024xf32>) -> tensor<1024xf32> {
    %e = tensor.empty() : tensor<1024xf32>
    %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %y : tensor<1024xf32>, tensor<1024xf32>) outs(%e : tensor<1024xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %s = arith.remf %p, %q : f32
      linalg.yield %s : f32
    } -> tensor<1024xf32>
    memopt.yield %r : tensor<1024xf32>
  }
  return
}
