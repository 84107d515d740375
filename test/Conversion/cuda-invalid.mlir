// RUN: not kernel-compile %s --chip=sm_90 2>&1 | FileCheck %s

// What no device code computes is refused by kernel and op.

#id = affine_map<(i) -> (i)>

// CHECK: error: memopt_kernel_0_stage0 raises floats to integers (math.fpowi), which no device code computes; use math.powf
func.func @power(%a: tensor<1024xf32>, %b: tensor<1024xi32>) {
  %0 = memopt.kernel (%x = %a : tensor<1024xf32>, %y = %b : tensor<1024xi32>) -> tensor<1024xf32> {
    %e = tensor.empty() : tensor<1024xf32>
    %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %y : tensor<1024xf32>, tensor<1024xi32>) outs(%e : tensor<1024xf32>) {
    ^bb0(%p: f32, %q: i32, %o: f32):
      %s = math.fpowi %p, %q : f32, i32
      linalg.yield %s : f32
    } -> tensor<1024xf32>
    memopt.yield %r : tensor<1024xf32>
  }
  return
}
