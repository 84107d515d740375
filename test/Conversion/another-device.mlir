// RUN: kernel-compile %s --of-target --print-schedule | FileCheck %s
// RUN: rm -rf %t && mkdir %t && kernel-compile %s --of-target -o %t && FileCheck %s --check-prefix=FILE --input-file=%t/kernels.s
// RUN: sed 's/#test.device<units = 40>/#test.machine/' %s | not kernel-compile --of-target 2>&1 | FileCheck %s --check-prefix=NONE

// A family of GPUs that the tree knows nothing of (test/lib/TestDevice.cpp) gives its operations and its numbers, and gets
// kernels, launches and text: here assembly of AMD's gfx1030.

// NONE: is compiled for no machine that code is generated for

// FILE: .amdgcn_target "amdgcn-amd-amdhsa--gfx1030"

#m2 = affine_map<(r, d) -> (r, d)>
#row = affine_map<(r, d) -> (r)>
module attributes {memopt.target = #test.device<units = 40>} {

// A thread has one vector of 16 bytes.
// CHECK: launch memopt_kernel_0_stage0 for flat: 32 blocks of 256
func.func @flat(%a: tensor<100x320xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<100x320xf32>) -> tensor<100x320xf32> {
    %e = tensor.empty() : tensor<100x320xf32>
    %r = linalg.generic {indexing_maps = [#m2, #m2], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<100x320xf32>) outs(%e : tensor<100x320xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.mulf %p, %p : f32
      linalg.yield %s : f32
    } -> tensor<100x320xf32>
    memopt.yield %r : tensor<100x320xf32>
  }
  return
}

// A row is a warp's, which sums it up by permutations of its own.
// CHECK: launch memopt_kernel_1_stage0 for rows: 125 blocks of 256
func.func @rows(%a: tensor<1000x320xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<1000x320xf32>) -> tensor<1000xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<1000xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<1000xf32>) -> tensor<1000xf32>
    %sum = linalg.generic {indexing_maps = [#m2, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<1000x320xf32>) outs(%z : tensor<1000xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    } -> tensor<1000xf32>
    memopt.yield %sum : tensor<1000xf32>
  }
  return
}

// Few long rows: a block has one, and exchanges sums in its shared memory.
// CHECK: launch memopt_kernel_2_stage0 for long_rows: 4 blocks of 256
func.func @long_rows(%a: tensor<4x100000xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<4x100000xf32>) -> tensor<4xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<4xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %sum = linalg.generic {indexing_maps = [#m2, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x100000xf32>) outs(%z : tensor<4xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    } -> tensor<4xf32>
    memopt.yield %sum : tensor<4xf32>
  }
  return
}
}

// CHECK: memopt_kernel_0_stage0:
// CHECK: flat_load_dwordx4
// CHECK: v_mul_f32
// CHECK: flat_store_dwordx4
// CHECK: memopt_kernel_1_stage0:
// CHECK-COUNT-5: ds_bpermute_b32
// CHECK-NOT: s_barrier
// CHECK: s_endpgm
// CHECK: memopt_kernel_2_stage0:
// CHECK: ds_write
// CHECK: s_barrier
// CHECK: ds_read
// CHECK: s_endpgm
