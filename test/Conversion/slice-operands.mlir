// RUN: kernel-compile %s --processor=x86-64-v4 --timing --print-llvm-dialect 2>&1 | FileCheck %s

// Kernels that read slices at different places of an operand are one function: the offset that all slices
// of the operand share belongs to the call.

#m = affine_map<(r, d) -> (r, d)>

// CHECK: 1 different kernels
// CHECK: llvm.func @first(
// CHECK: llvm.getelementptr %{{.*}}[0] : (!llvm.ptr) -> !llvm.ptr, i8
// CHECK: llvm.call @[[SHARED:memopt_kernel_[0-9]+]](
func.func @first(%a: tensor<6x10xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<6x10xf32>) -> tensor<2x10xf32> {
    %s = tensor.extract_slice %x[0, 0] [2, 10] [1, 1] : tensor<6x10xf32> to tensor<2x10xf32>
    %e = tensor.empty() : tensor<2x10xf32>
    %r = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<2x10xf32>) outs(%e : tensor<2x10xf32>) {
    ^bb0(%p: f32, %o: f32):
      %q = arith.mulf %p, %p : f32
      linalg.yield %q : f32
    } -> tensor<2x10xf32>
    memopt.yield %r : tensor<2x10xf32>
  }
  return
}

// Rows 3 and 4: 30 elements of 4 bytes further.
// CHECK: llvm.func @later(
// CHECK: llvm.getelementptr %{{.*}}[120] : (!llvm.ptr) -> !llvm.ptr, i8
// CHECK: llvm.call @[[SHARED]](
func.func @later(%a: tensor<6x10xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<6x10xf32>) -> tensor<2x10xf32> {
    %s = tensor.extract_slice %x[3, 0] [2, 10] [1, 1] : tensor<6x10xf32> to tensor<2x10xf32>
    %e = tensor.empty() : tensor<2x10xf32>
    %r = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<2x10xf32>) outs(%e : tensor<2x10xf32>) {
    ^bb0(%p: f32, %o: f32):
      %q = arith.mulf %p, %p : f32
      linalg.yield %q : f32
    } -> tensor<2x10xf32>
    memopt.yield %r : tensor<2x10xf32>
  }
  return
}
