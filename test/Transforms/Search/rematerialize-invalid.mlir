// RUN: not memopt-opt %s -memopt-rematerialize=budget=12351 -split-input-file 2>&1 | FileCheck %s

// What a variable's update makes is made once: running the update twice would update twice. So nothing can be saved in
// the example of rematerialize.mlir when "early" is the new value of a variable: 4096 (the variable) + 64 + 8192.
// The error names what no plan can go below and what is alive there.

// CHECK: error: does not fit: the budget is 12351 bytes of device memory; the smallest budget that would do is 12352, recomputation included; no order of these instructions needs less than 12352
// CHECK: note: largest values alive at the peak of the smallest plan:
// CHECK-NEXT: 8192 bytes: result of grow : tensor<2048xf32>
// CHECK-NEXT: 4096 bytes: buffer state
// CHECK-NEXT: 64 bytes: result of summary : tensor<16xf32>
memopt.variable @state : tensor<1024xf32> role <buffer>
func.func @train_step(%x: tensor<16xf32>) -> tensor<16xf32> {
  %early = test.run(%x) {kind = "early"} : (tensor<16xf32>) -> tensor<1024xf32>
  memopt.write %early, @state : tensor<1024xf32>
  %summary = test.run(%early) {kind = "summary"} : (tensor<1024xf32>) -> tensor<16xf32>
  %large = test.run(%summary) {kind = "grow"} : (tensor<16xf32>) -> tensor<2048xf32>
  %small = test.run(%large) {kind = "shrink"} : (tensor<2048xf32>) -> tensor<16xf32>
  %late = test.run(%early, %small) {kind = "late"} : (tensor<1024xf32>, tensor<16xf32>) -> tensor<16xf32>
  return %late : tensor<16xf32>
}
