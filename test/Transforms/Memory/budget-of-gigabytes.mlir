// RUN: memopt-opt %s -memopt-plan=budget=8589934720 2>&1 | FileCheck %s

// Bytes are counted in 64 bits from the option to the plan. "early" makes 4 GiB of an input of 64 bytes that are wanted
// again at the very end; in between 8 GiB come and go. Made again, 8 GiB and two times 64 bytes are alive.

// CHECK: remark: rematerialized 1 instructions: arena 12884901952 -> 8589934720 bytes within 8589934720, predicted time +
// CHECK: module attributes {memopt.planned = #memopt.planned<arena_bytes = [8589934720, 0, 0]
func.func @train_step(%x: tensor<16xf32>) -> tensor<16xf32> {
  %early = test.run(%x) {kind = "early"} : (tensor<16xf32>) -> tensor<1073741824xf32>
  %summary = test.run(%early) {kind = "summary"} : (tensor<1073741824xf32>) -> tensor<16xf32>
  %large = test.run(%summary) {kind = "grow"} : (tensor<16xf32>) -> tensor<2147483648xf32>
  %small = test.run(%large) {kind = "shrink"} : (tensor<2147483648xf32>) -> tensor<16xf32>
  %late = test.run(%early, %small) {kind = "late"} : (tensor<1073741824xf32>, tensor<16xf32>) -> tensor<16xf32>
  return %late : tensor<16xf32>
}
