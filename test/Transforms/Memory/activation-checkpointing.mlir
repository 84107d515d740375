// RUN: memopt-opt %s -split-input-file -memopt-activation-checkpointing="modules=net.blocks.*" -mlir-print-debuginfo | FileCheck %s
// RUN: not memopt-opt %s -split-input-file -memopt-activation-checkpointing="modules=net.layers.*" 2>&1 | FileCheck %s --check-prefix=NONE

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

// -----

// What updates state reads a value from inside of a block before the backward pass begins: that one is kept, and the
// rest of the block is made again where its backward pass begins, not in front of the update.

// CHECK-LABEL: func.func @with_statistics
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<16xf32>
memopt.variable @mean : tensor<16xf32> role <buffer>
func.func @with_statistics(%x: tensor<16xf32>) -> tensor<16xf32> {
  // CHECK: %[[STATISTICS:.*]] = test.run({{.*}}kind = "statistics"
  // CHECK: %[[NEW:.*]] = test.run(%[[STATISTICS]]) {{{.*}}kind = "update"
  // CHECK-NOT: clone =
  // CHECK: test.run(%{{.*}}) {{{.*}}kind = "back1"
  // CHECK-NEXT: %[[AGAIN:.*]] = test.run(%[[X]]) {{{.*}}clone = 1 : i64, kind = "inner"
  // CHECK-NOT: clone =
  // CHECK: test.run(%{{.*}}, %[[AGAIN]], %[[STATISTICS]]) {{{.*}}kind = "back0"
  %0 = test.run(%x) {kind = "inner"} : (tensor<16xf32>) -> tensor<16xf32> loc("net.blocks.0.fc")
  %1 = test.run(%0) {kind = "statistics"} : (tensor<16xf32>) -> tensor<16xf32> loc("net.blocks.0.bn")
  %2 = test.run(%0, %1) {kind = "out"} : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32> loc("net.blocks.0")
  %head = test.run(%2) {kind = "head"} : (tensor<16xf32>) -> tensor<16xf32> loc("net.head")
  %new = test.run(%1) {kind = "update", phase = #memopt.phase<optimizer>} : (tensor<16xf32>) -> tensor<16xf32>
  memopt.write %new, @mean : tensor<16xf32>
  %3 = test.run(%head) {kind = "back1", phase = #memopt.phase<backward>} : (tensor<16xf32>) -> tensor<16xf32>
  %4 = test.run(%3, %0, %1) {kind = "back0", phase = #memopt.phase<backward>}
    : (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  return %4 : tensor<16xf32>
}
