// RUN: memopt-opt %s -memopt-activation-checkpointing="modules=net.blocks.*" -mlir-print-debuginfo | FileCheck %s
// RUN: not memopt-opt %s -memopt-activation-checkpointing="modules=net.layers.*" 2>&1 | FileCheck %s --check-prefix=NONE

// Two blocks of two calls each; backward wants what lies inside of both. Block 1 is made again from its input, which is
// kept: that block 0 is in a block too does not make it run again before its own backward pass begins.

// NONE: no module matches 'net.layers.*'

// CHECK-LABEL: func.func @train_step
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<16xf32>
func.func @train_step(%x: tensor<16xf32>) -> tensor<16xf32> {
  // CHECK: %[[INNER0:.*]] = memopt.library_call %[[X]] {descriptor = {kind = "inner0"}
  // CHECK: %[[OUT0:.*]] = memopt.library_call %[[INNER0]] {descriptor = {kind = "out0"}
  // CHECK: memopt.library_call %[[OUT0]] {descriptor = {kind = "inner1"}
  // CHECK: %[[OUT1:.*]] = memopt.library_call {{.*}}kind = "out1"
  // CHECK-NOT: memopt.clone
  // CHECK: %[[AGAIN1:.*]] = memopt.library_call %[[OUT0]] {descriptor = {kind = "inner1"}, {{.*}}memopt.clone = 1
  // CHECK-NOT: memopt.clone
  // CHECK: %[[G1:.*]] = memopt.library_call %{{.*}}, %[[OUT1]], %[[AGAIN1]] {descriptor = {kind = "back1"}
  // CHECK: %[[AGAIN0:.*]] = memopt.library_call %[[X]] {descriptor = {kind = "inner0"}, {{.*}}memopt.clone = 1
  // CHECK-NOT: memopt.clone
  // CHECK: memopt.library_call %[[G1]], %[[AGAIN0]], %[[OUT0]] {descriptor = {kind = "back0"}
  %0 = memopt.library_call %x {descriptor = {kind = "inner0"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<16xf32>) -> tensor<16xf32> loc("net.blocks.0.fc")
  %1 = memopt.library_call %0 {descriptor = {kind = "out0"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<16xf32>) -> tensor<16xf32> loc("net.blocks.0")
  %2 = memopt.library_call %1 {descriptor = {kind = "inner1"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<16xf32>) -> tensor<16xf32> loc("net.blocks.1.fc")
  %3 = memopt.library_call %2 {descriptor = {kind = "out1"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<16xf32>) -> tensor<16xf32> loc("net.blocks.1")
  %head = memopt.library_call %3 {descriptor = {kind = "head"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<16xf32>) -> tensor<16xf32> loc("net.head")
  %4 = memopt.library_call %head, %3, %2 {descriptor = {kind = "back1"}, operand_offsets = array<i64: 0, 0, 0>,
    workspace = 0 : i64, flop_count = 0 : i64, memopt.phase = "backward"}
    : (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  %5 = memopt.library_call %4, %0, %1 {descriptor = {kind = "back0"}, operand_offsets = array<i64: 0, 0, 0>,
    workspace = 0 : i64, flop_count = 0 : i64, memopt.phase = "backward"}
    : (tensor<16xf32>, tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
  return %5 : tensor<16xf32>
}
