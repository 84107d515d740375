// RUN: memopt-opt %s -memopt-rematerialize=budget=9000 -memopt-plan-memory=budget=9000 -memopt-verify-planned 2>&1 | FileCheck %s
// RUN: not memopt-opt %s -memopt-rematerialize=budget=100 2>&1 | FileCheck %s --check-prefix=SMALLEST

// A loop in front of the last has its budget, too: its value of 4096 bytes is there at the beginning and at the end of an
// iteration, and made again instead of kept beside the 8192 in between. The second loop fits as it is.

// CHECK: remark: rematerialized 1 instructions: arena 12544 -> 8448 bytes within 9000
// CHECK-LABEL: func.func @step
// CHECK: memopt.repeat
// CHECK: kind = "early"
// CHECK: kind = "shrink"
// CHECK: clone = 1{{.*}}kind = "early"
// CHECK: kind = "late"
// CHECK: memopt.repeat
// CHECK-NOT: clone
// SMALLEST: the smallest budget that would do is 8448, recomputation included; no order of these instructions needs less than 8448
memopt.variable @sum : tensor<16xf32> role <gradient>
memopt.variable @other : tensor<16xf32> role <gradient>
func.func @step(%x: tensor<16xf32>) -> tensor<16xf32> {
  memopt.repeat count(4) next_batch (%batch = %x : tensor<16xf32>) {
    %early = test.run(%batch) {kind = "early"} : (tensor<16xf32>) -> tensor<1024xf32>
    %small = test.run(%early) {kind = "small"} : (tensor<1024xf32>) -> tensor<16xf32>
    %large = test.run(%small) {kind = "large"} : (tensor<16xf32>) -> tensor<2048xf32>
    %shrunk = test.run(%large) {kind = "shrink"} : (tensor<2048xf32>) -> tensor<16xf32>
    %late = test.run(%shrunk, %early) {kind = "late"} : (tensor<16xf32>, tensor<1024xf32>) -> tensor<16xf32>
    memopt.write %late, @sum : tensor<16xf32>
  }
  memopt.repeat count(4) next_batch (%batch = %x : tensor<16xf32>) {
    %total = memopt.read @sum : tensor<16xf32>
    %e = test.run(%batch, %total) {kind = "e"} : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
    memopt.write %e, @other : tensor<16xf32>
  }
  %result = memopt.read @other : tensor<16xf32>
  return %result : tensor<16xf32>
}
