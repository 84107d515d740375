// RUN: kernel-compile %s --chip=sm_90 | FileCheck %s

// A result that takes its operand's buffer: threads of a row wait for each other between the row's last read and its
// first store where one of them overwrites what another reads.

#m2 = affine_map<(r, d) -> (r, d)>
#row = affine_map<(r, d) -> (r)>

// Each element is read by the thread that stores it: nobody waits.
// CHECK-LABEL: .visible .entry memopt_kernel_0_stage0
// CHECK-NOT: {{bar|barrier}}.
// CHECK: ret
func.func @same_element(%a: tensor<1000x320xf32>) attributes {test.result_buffers = array<i64: 0>} {
  %0 = memopt.kernel (%x = %a : tensor<1000x320xf32>) -> tensor<1000x320xf32> {
    %e = tensor.empty() : tensor<1000x320xf32>
    %r = linalg.generic {indexing_maps = [#m2, #m2], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<1000x320xf32>) outs(%e : tensor<1000x320xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.mulf %p, %p : f32
      linalg.yield %s : f32
    } -> tensor<1000x320xf32>
    memopt.yield %r : tensor<1000x320xf32>
  }
  return
}

// The sum of a row reads what all threads of the warp store.
// CHECK-LABEL: .visible .entry memopt_kernel_1_stage0
// CHECK: ld.global.v4
// CHECK: shfl.sync.bfly
// CHECK: bar.warp.sync
// CHECK: st.global.v4
func.func @row(%a: tensor<1000x320xf32>) attributes {test.result_buffers = array<i64: 0>} {
  %0 = memopt.kernel (%x = %a : tensor<1000x320xf32>) -> tensor<1000x320xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<1000xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<1000xf32>) -> tensor<1000xf32>
    %sum = linalg.generic {indexing_maps = [#m2, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<1000x320xf32>) outs(%z : tensor<1000xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    } -> tensor<1000xf32>
    %f = tensor.empty() : tensor<1000x320xf32>
    %r = linalg.generic {indexing_maps = [#m2, #row, #m2], iterator_types = ["parallel", "parallel"]} ins(%x, %sum : tensor<1000x320xf32>, tensor<1000xf32>) outs(%f : tensor<1000x320xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %s = arith.divf %p, %q : f32
      linalg.yield %s : f32
    } -> tensor<1000x320xf32>
    memopt.yield %r : tensor<1000x320xf32>
  }
  return
}
