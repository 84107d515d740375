// RUN: memopt-opt %s -memopt-rematerialize=budget=13312 -memopt-plan-memory=budget=13312 2>&1 | FileCheck %s --check-prefix=ROOMY
// RUN: memopt-opt %s -memopt-rematerialize=budget=13311 -memopt-plan-memory=budget=13311 -memopt-verify-planned 2>&1 | FileCheck %s --check-prefix=ONE
// RUN: memopt-opt %s -memopt-rematerialize=budget=11263 -memopt-plan-memory=budget=11263 -memopt-verify-planned 2>&1 | FileCheck %s --check-prefix=BOTH
// RUN: memopt-opt %s -memopt-rematerialize=budget=7167 -memopt-plan-memory=budget=7167 -memopt-verify-planned 2>&1 | FileCheck %s --check-prefix=BARE
// RUN: not memopt-opt %s -memopt-rematerialize=budget=4096 2>&1 | FileCheck %s --check-prefix=REFUSED

// Two products of matrices of 1024 bytes in a library whose preferred implementation wants 8192 bytes of workspace. The
// first runs beside its two operands, its result and another value of 2048 bytes that waits, 13312 bytes in all; the
// second without that. Each gives up as much of its workspace as the budget wants, and nothing runs again.

// ROOMY-NOT: remark
// ROOMY: arena_bytes = [13312,
// ROOMY-COUNT-2: implementation = "roomy"
// ROOMY-NOT: slowdown

// ONE: remark: rematerialized 0 instructions: arena 13312 -> 11264 bytes within 13311, predicted time +{{.*}}; 1 library calls in less workspace
// ONE: implementation = "tight"{{.*}}slowdown = 1.500000e+00 : f64, workspace = 2048
// ONE: implementation = "roomy"{{.*}}workspace = 8192

// BOTH: remark: rematerialized 0 instructions: arena 13312 -> 7168 bytes within 11263, predicted time +{{.*}}; 2 library calls in less workspace
// BOTH-COUNT-2: implementation = "tight"

// BARE: remark: rematerialized 0 instructions: arena 13312 -> 5120 bytes within 7167, predicted time +{{.*}}; 2 library calls in less workspace
// BARE: implementation = "bare"{{.*}}slowdown = 3.000000e+00 : f64, workspace = 0
// BARE: implementation = "tight"

// REFUSED: the smallest budget that would do is 4160, recomputation included

#product = #memopt.matmul<m = 16, n = 16, k = 16, a_strides = [16, 1], b_strides = [16, 1], c_strides = [16, 1], type = f32, accumulator = f32>
module attributes {memopt.target = #test.machine} {
func.func @train_step(%x: tensor<16xf32>) -> tensor<16xf32> {
  %wait = test.run(%x) {kind = "wait", flops = 1000000 : i64} : (tensor<16xf32>) -> tensor<512xf32>
  %a = test.run(%wait) {kind = "a", flops = 1000000 : i64} : (tensor<512xf32>) -> tensor<256xf32>
  %b = test.run(%wait) {kind = "b", flops = 1000000 : i64} : (tensor<512xf32>) -> tensor<256xf32>
  %c = memopt.library_call #product(%a, %b) {operand_offsets = array<i64: 0, 0>, workspace = 8192 : i64, implementation = "roomy"} : (tensor<256xf32>, tensor<256xf32>) -> tensor<256xf32>
  %d = test.run(%c, %wait) {kind = "d", flops = 1000000 : i64} : (tensor<256xf32>, tensor<512xf32>) -> tensor<256xf32>
  %e = memopt.library_call #product(%c, %d) {operand_offsets = array<i64: 0, 0>, workspace = 8192 : i64, implementation = "roomy"} : (tensor<256xf32>, tensor<256xf32>) -> tensor<256xf32>
  %y = test.run(%e) {kind = "y", flops = 1000000 : i64} : (tensor<256xf32>) -> tensor<16xf32>
  return %y : tensor<16xf32>
}
}
