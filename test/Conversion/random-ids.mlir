// RUN: kernel-compile %s --processor=x86-64-v4 --timing --print-llvm-dialect 2>&1 | FileCheck %s
// RUN: kernel-compile %s --chip=sm_90 --print-schedule -o %t.ptx | FileCheck %s --check-prefix=DEVICE

// Kernels that draw the same way from other random numbers are one function: ids belong to the call. Which of a
// kernel's words have one id in common belongs to the function.

#scalar = affine_map<(i) -> ()>
#m = affine_map<(i) -> (i)>

// CHECK: 2 different kernels
// CHECK: llvm.func @layer(
// CHECK-DAG: %[[THREE:.*]] = llvm.mlir.constant(3 : i64)
// CHECK-DAG: %[[SEVEN:.*]] = llvm.mlir.constant(7 : i64)
// CHECK: llvm.call @[[SHARED:memopt_kernel_[0-9]+]](%{{.*}}, %[[THREE]], %[[SEVEN]])
// DEVICE: launch [[SHARED:.*]] for layer: {{.*}} id 3 id 7
func.func @layer(%a: tensor<i64>, %b: tensor<i64>) {
  %0 = memopt.kernel (%x = %a : tensor<i64>, %y = %b : tensor<i64>) -> tensor<320xi32> {
    %e = tensor.empty() : tensor<320xi32>
    %zero = arith.constant 0 : i64
    %r = linalg.generic {indexing_maps = [#scalar, #scalar, #m], iterator_types = ["parallel"]} ins(%x, %y : tensor<i64>, tensor<i64>) outs(%e : tensor<320xi32>) {
    ^bb0(%seed: i64, %step: i64, %o: i32):
      %i = linalg.index 0 : index
      %number = arith.index_cast %i : index to i64
      %v = memopt.random_word %zero, %number, %seed, %step {id = 3 : i64}
      %w = memopt.random_word %zero, %number, %seed, %step {id = 7 : i64}
      %s = arith.addi %v, %w : i32
      linalg.yield %s : i32
    } -> tensor<320xi32>
    memopt.yield %r : tensor<320xi32>
  }
  return
}

// CHECK: llvm.func @next(
// CHECK-DAG: %[[EIGHT:.*]] = llvm.mlir.constant(8 : i64)
// CHECK-DAG: %[[TWO:.*]] = llvm.mlir.constant(2 : i64)
// CHECK: llvm.call @[[SHARED]](%{{.*}}, %[[EIGHT]], %[[TWO]])
// DEVICE: launch [[SHARED]] for next: {{.*}} id 8 id 2
func.func @next(%a: tensor<i64>, %b: tensor<i64>) {
  %0 = memopt.kernel (%x = %a : tensor<i64>, %y = %b : tensor<i64>) -> tensor<320xi32> {
    %e = tensor.empty() : tensor<320xi32>
    %zero = arith.constant 0 : i64
    %r = linalg.generic {indexing_maps = [#scalar, #scalar, #m], iterator_types = ["parallel"]} ins(%x, %y : tensor<i64>, tensor<i64>) outs(%e : tensor<320xi32>) {
    ^bb0(%seed: i64, %step: i64, %o: i32):
      %i = linalg.index 0 : index
      %number = arith.index_cast %i : index to i64
      %v = memopt.random_word %zero, %number, %seed, %step {id = 8 : i64}
      %w = memopt.random_word %zero, %number, %seed, %step {id = 2 : i64}
      %s = arith.addi %v, %w : i32
      linalg.yield %s : i32
    } -> tensor<320xi32>
    memopt.yield %r : tensor<320xi32>
  }
  return
}

// CHECK: llvm.func @twice(
// CHECK: %[[FOUR:.*]] = llvm.mlir.constant(4 : i64)
// CHECK-NOT: @[[SHARED]](
// CHECK: llvm.call @memopt_kernel_{{[0-9]+}}(%{{.*}}, %[[FOUR]])
// DEVICE: launch {{.*}} for twice: {{[^i]*}} id 4{{$}}
func.func @twice(%a: tensor<i64>, %b: tensor<i64>) {
  %0 = memopt.kernel (%x = %a : tensor<i64>, %y = %b : tensor<i64>) -> tensor<320xi32> {
    %e = tensor.empty() : tensor<320xi32>
    %zero = arith.constant 0 : i64
    %r = linalg.generic {indexing_maps = [#scalar, #scalar, #m], iterator_types = ["parallel"]} ins(%x, %y : tensor<i64>, tensor<i64>) outs(%e : tensor<320xi32>) {
    ^bb0(%seed: i64, %step: i64, %o: i32):
      %i = linalg.index 0 : index
      %number = arith.index_cast %i : index to i64
      %v = memopt.random_word %zero, %number, %seed, %step {id = 4 : i64}
      %w = memopt.random_word %zero, %number, %seed, %step {id = 4 : i64}
      %s = arith.addi %v, %w : i32
      linalg.yield %s : i32
    } -> tensor<320xi32>
    memopt.yield %r : tensor<320xi32>
  }
  return
}
