// RUN: kernel-compile %s --print-loops --processor=x86-64-v4 | FileCheck %s

// Rows that a scatter leaves alone are those of its input: they are copied, but not where the result lies in the input's bytes.

#each = affine_map<(r, c) -> (r, c)>

// CHECK-LABEL: memopt_kernel_0
// CHECK: %[[IS_THERE:.*]] = llvm.icmp "eq" %{{.*}}, %{{.*}} : !llvm.ptr
// CHECK: %[[END:.*]] = arith.select %[[IS_THERE]], %[[BEGIN:.*]], %{{.*}}
// CHECK: scf.for %{{.*}} = %[[BEGIN]] to %[[END]]
func.func @rows(%a: tensor<64x32xf32>, %u: tensor<8x32xf32>, %i: tensor<8x1xi64>) {
  %0 = memopt.kernel (%x = %a : tensor<64x32xf32>, %y = %u : tensor<8x32xf32>, %j = %i : tensor<8x1xi64>) -> tensor<64x32xf32> {
    %r = memopt.scatter %x, %y, %j {kind = #memopt.scatter<set>, indexed = array<i64: 0>, positions = array<i64: 1>}
      : (tensor<64x32xf32>, tensor<8x32xf32>, tensor<8x1xi64>) -> tensor<64x32xf32>
    memopt.yield %r : tensor<64x32xf32>
  }
  return
}

// What computes anything, or reads other elements than it writes, always runs.
// CHECK-LABEL: memopt_kernel_1
// CHECK-NOT: llvm.icmp "eq" %{{.*}} : !llvm.ptr
// CHECK-LABEL: memopt_kernel_2
// CHECK-NOT: llvm.icmp "eq" %{{.*}} : !llvm.ptr
func.func @others(%a: tensor<64x32xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<64x32xf32>) -> tensor<64x32xf32> {
    %e = tensor.empty() : tensor<64x32xf32>
    %n = linalg.generic {indexing_maps = [#each, #each], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<64x32xf32>)
        outs(%e : tensor<64x32xf32>) {
    ^bb0(%p: f32, %o: f32):
      %m = arith.negf %p : f32
      linalg.yield %m : f32
    } -> tensor<64x32xf32>
    memopt.yield %n : tensor<64x32xf32>
  }
  %1 = memopt.kernel (%x = %a : tensor<64x32xf32>) -> tensor<32x64xf32> {
    %t = memopt.transpose %x {permutation = array<i64: 1, 0>} : (tensor<64x32xf32>) -> tensor<32x64xf32>
    memopt.yield %t : tensor<32x64xf32>
  }
  return
}
