// RUN: not memopt-opt %s -memopt-plan-memory=budget=2559 2>&1 | FileCheck %s
// RUN: memopt-opt %s -memopt-plan-memory=budget=2560 | FileCheck %s --check-prefix=FITS

// 2560 bytes are needed (operand, result, workspace of the second call), one more than there are. The refusal names
// the smallest budget that this plan needs, and what is alive at the peak with its modules, largest first. One byte
// more is enough.

// CHECK: error: does not fit: the plan needs 2560 bytes of device memory, the budget is 2559; the smallest budget that would do is 2560
// CHECK: note: largest values alive at the peak:
// CHECK-NEXT: 1024 bytes: result of matmul in net.first : tensor<16x16xf32>
// CHECK-NEXT: 1024 bytes: result of matmul in net.second : tensor<16x16xf32>
// CHECK-NEXT: 512 bytes: workspace of matmul in net.second
// FITS: memopt.planned = #memopt.planned<arena_bytes = [2560,
func.func @train_step(%x: tensor<16x16xf32> {memopt.name = "x"}) -> tensor<16x16xf32> {
  %a = test.run(%x) {kind = "matmul"} : (tensor<16x16xf32>) -> tensor<16x16xf32> loc("net.first")
  %b = test.run(%a) {kind = "matmul", scratch = array<i64: 512>} : (tensor<16x16xf32>) -> tensor<16x16xf32> loc("net.second")
  return %b : tensor<16x16xf32>
}
