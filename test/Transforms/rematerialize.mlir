// RUN: memopt-opt %s -memopt-rematerialize=budget=8320 -memopt-plan-memory=budget=8320 -memopt-verify-planned 2>&1 | FileCheck %s
// RUN: memopt-opt %s -memopt-rematerialize=budget=12352 -memopt-plan-memory | FileCheck %s --check-prefix=ENOUGH
// RUN: memopt-opt %s -memopt-rematerialize -memopt-plan-memory | FileCheck %s --check-prefix=ENOUGH

// "early" makes 4096 bytes of an input of 64 that are wanted again at the very end; in between 8192 bytes come and go.
// Kept, that is 4096 + 64 (its summary) + 8192 = 12352 bytes. Made again at the end, the most that is alive at once is
// 64 (the input, which the recomputation reads) + 64 + 8192 = 8320.

// ENOUGH: memopt.arena_bytes = 12352
// ENOUGH-NOT: memopt.clone

// CHECK: remark: rematerialized 1 instructions: arena {{.*}}8320 bytes within 8320, predicted time +
// CHECK: module attributes {memopt.arena_bytes = 8320 : i64
// CHECK-LABEL: func.func @train_step
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<16xf32>
func.func @train_step(%x: tensor<16xf32>) -> tensor<16xf32> {
  // CHECK: %[[EARLY:.*]] = memopt.library_call %[[X]] {descriptor = {kind = "early"}
  // CHECK-NOT: memopt.clone
  // CHECK: %[[SMALL:.*]] = memopt.library_call {{.*}}kind = "shrink"
  // CHECK: %[[AGAIN:.*]] = memopt.library_call %[[X]] {descriptor = {kind = "early"}, flop_count = 0 : i64, memopt.clone = 1 : i64
  // CHECK-NEXT: memopt.library_call %[[AGAIN]], %[[SMALL]] {{.*}}kind = "late"
  %early = memopt.library_call %x {descriptor = {kind = "early"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<16xf32>) -> tensor<1024xf32>
  %summary = memopt.library_call %early {descriptor = {kind = "summary"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<1024xf32>) -> tensor<16xf32>
  %large = memopt.library_call %summary {descriptor = {kind = "grow"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<16xf32>) -> tensor<2048xf32>
  %small = memopt.library_call %large {descriptor = {kind = "shrink"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<2048xf32>) -> tensor<16xf32>
  %late = memopt.library_call %early, %small {descriptor = {kind = "late"}, operand_offsets = array<i64: 0, 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<1024xf32>, tensor<16xf32>) -> tensor<16xf32>
  return %late : tensor<16xf32>
}
