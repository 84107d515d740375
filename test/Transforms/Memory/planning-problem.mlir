// RUN: memopt-opt %s -memopt-schedule="problem=%t.order.json" -memopt-rematerialize="problem=%t.plan.json" -o /dev/null
// RUN: FileCheck %s --input-file=%t.order.json
// RUN: not memopt-plan remat %t.order.json --budget=1 --no-recompute 2>&1 | FileCheck %s --check-prefix=ORDER
// RUN: memopt-plan remat %t.plan.json --budget=100%% | FileCheck %s --check-prefix=PLAN
// RUN: not memopt-opt %s -memopt-schedule="problem=%t.absent/order.json" 2>&1 | FileCheck %s --check-prefix=ABSENT

// The problem that a pass solves can be written to a file, and memopt-plan solves it alone: two branches with 4096
// bytes each, of which the order keeps both alive or only one. Op 0 makes the input, the last one takes both results.

// CHECK: "ops":[{"bytes":{"bytes":64,"alignment":64},"cost":0,"inputs":[],"pinned":true},
// CHECK-SAME: {"bytes":{"bytes":4096,"alignment":64},"cost":{{[0-9]+}},"inputs":[0],"after":[0]},
// ORDER: peak 4224 bytes
// PLAN: peak 4224 bytes (100.00% of the given order's)
// ABSENT: error: cannot write the planning problem: {{.*}}order.json: No such file or directory
func.func @branches(%x: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
  %a = test.run(%x) {kind = "a"} : (tensor<16xf32>) -> tensor<1024xf32>
  %b = test.run(%x) {kind = "b"} : (tensor<16xf32>) -> tensor<1024xf32>
  %c = test.run(%a) {kind = "c"} : (tensor<1024xf32>) -> tensor<16xf32>
  %d = test.run(%b) {kind = "d"} : (tensor<1024xf32>) -> tensor<16xf32>
  return %c, %d : tensor<16xf32>, tensor<16xf32>
}
