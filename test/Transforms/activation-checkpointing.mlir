// RUN: memopt-opt %s -memopt-activation-checkpointing="modules=net.blocks.*" -mlir-print-debuginfo | FileCheck %s
// RUN: not memopt-opt %s -memopt-activation-checkpointing="modules=net.layers.*" 2>&1 | FileCheck %s --check-prefix=NONE

// Two blocks of two calls each; backward wants what lies inside of both. Block 1 is made again from its input, which is
// kept: that block 0 is in a block too does not make it run again before its own backward pass begins.

// NONE: no module matches 'net.layers.*'

// CHECK-LABEL: func.func @train_step
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<16xf32>
func.func @train_step(%x: tensor<16xf32>) -> tensor<16xf32> {
  // CHECK: %[[INNER0:.*]] = test.run(%[[X]]) {{{.*}}kind = "inner0"
  // CHECK: %[[OUT0:.*]] = test.run(%[[INNER0]]) {{{.*}}kind = "out0"
  // CHECK: test.run(%[[OUT0]]) {{{.*}}kind = "inner1"
  // CHECK: %[[OUT1:.*]] = test.run({{.*}}kind = "out1"
  // CHECK-NOT: clone =
  // CHECK: %[[AGAIN1:.*]] = test.run(%[[OUT0]]) {{{.*}}clone = 1 : i64, kind = "inner1"
  // CHECK-NOT: clone =
  // CHECK: %[[G1:.*]] = test.run(%{{.*}}, %[[OUT1]], %[[AGAIN1]]) {{{.*}}kind = "back1"
  // CHECK: %[[AGAIN0:.*]] = test.run(%[[X]]) {{{.*}}clone = 1 : i64, kind = "inner0"
  // CHECK-NOT: clone =
  // CHECK: test.run(%[[G1]], %[[AGAIN0]], %[[OUT0]]) {{{.*}}kind = "back0"
  %0 = test.run(%x) {kind = "inner0"} : (tensor<16xf32>) -> tensor<16xf32> loc("net.blocks.0.fc")
  %1 = test.run(%0) {kind = "out0"} : (tensor<16xf32>) -> tensor<16xf32> loc("net.blocks.0")
  %2 = test.run(%1) {kind = "inner1"} : (tensor<16xf32>) -> tensor<16xf32> loc("net.blocks.1.fc")
  %3 = test.run(%2) {kind = "out1"} : (tensor<16xf32>) -> tensor<16xf32> loc("net.blocks.1")
  %head = test.run(%3) {kind = "head"} : (tensor<16xf32>) -> tensor<16xf32> loc("net.head")
  %4 = test.run(%head, %3, %2) {kind = "back1", phase = #memopt.phase<backward>}
    : (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  %5 = test.run(%4, %0, %1) {kind = "back0", phase = #memopt.phase<backward>}
    : (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  return %5 : tensor<16xf32>
}
