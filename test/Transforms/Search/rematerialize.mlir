// RUN: memopt-opt %s -memopt-rematerialize=budget=8320 -memopt-plan-memory=budget=8320 -memopt-verify-planned 2>&1 | FileCheck %s
// RUN: memopt-opt %s -memopt-rematerialize=budget=12352 -memopt-plan-memory | FileCheck %s --check-prefix=ENOUGH
// RUN: memopt-opt %s -memopt-rematerialize -memopt-plan-memory | FileCheck %s --check-prefix=ENOUGH

// "early" makes 4096 bytes of an input of 64 that are wanted again at the very end; in between 8192 bytes come and go.
// Kept, that is 4096 + 64 (its summary) + 8192 = 12352 bytes. Made again at the end, the most that is alive at once is
// 64 (the input, which the recomputation reads) + 64 + 8192 = 8320.

// ENOUGH: memopt.planned = #memopt.planned<arena_bytes = [12352,
// ENOUGH-NOT: clone =

// CHECK: remark: rematerialized 1 instructions: arena {{.*}}8320 bytes within 8320, predicted time +
// CHECK: module attributes {memopt.planned = #memopt.planned<arena_bytes = [8320, 0, 0]
// CHECK-LABEL: func.func @train_step
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<16xf32>
func.func @train_step(%x: tensor<16xf32>) -> tensor<16xf32> {
  // CHECK: %[[EARLY:.*]] = test.run(%[[X]]) {{{.*}}kind = "early"
  // CHECK-NOT: clone =
  // CHECK: %[[SMALL:.*]] = test.run({{.*}}kind = "shrink"
  // CHECK: %[[AGAIN:.*]] = test.run(%[[X]]) {{{.*}}clone = 1 : i64, kind = "early"
  // CHECK-NEXT: test.run(%[[AGAIN]], %[[SMALL]]) {{.*}}kind = "late"
  %early = test.run(%x) {kind = "early"} : (tensor<16xf32>) -> tensor<1024xf32>
  %summary = test.run(%early) {kind = "summary"} : (tensor<1024xf32>) -> tensor<16xf32>
  %large = test.run(%summary) {kind = "grow"} : (tensor<16xf32>) -> tensor<2048xf32>
  %small = test.run(%large) {kind = "shrink"} : (tensor<2048xf32>) -> tensor<16xf32>
  %late = test.run(%early, %small) {kind = "late"} : (tensor<1024xf32>, tensor<16xf32>) -> tensor<16xf32>
  return %late : tensor<16xf32>
}
