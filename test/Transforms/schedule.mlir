// RUN: memopt-opt %s -memopt-plan-memory -split-input-file | FileCheck %s --check-prefix=GIVEN
// RUN: memopt-opt %s -memopt-schedule -split-input-file | FileCheck %s
// RUN: memopt-opt %s -memopt-schedule -memopt-plan-memory -memopt-verify-planned -split-input-file | FileCheck %s --check-prefix=PLANNED

// Two branches make 4096 bytes each of an input of 64, and boil them down to 64. Side by side both large values are
// alive, one after the other only one is: 64 (input) + 64 (first result) + 4096 instead of 64 + 2 * 4096.

// GIVEN: memopt.arena_bytes = 8256
// PLANNED: memopt.arena_bytes = 4224
// CHECK-LABEL: func.func @branches
func.func @branches(%x: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
  // CHECK: %[[FIRST:.*]] = memopt.library_call {{.*}} -> tensor<1024xf32>
  // CHECK: memopt.library_call %[[FIRST]]
  // CHECK: %[[SECOND:.*]] = memopt.library_call {{.*}} -> tensor<1024xf32>
  // CHECK: memopt.library_call %[[SECOND]]
  %a = memopt.library_call %x {descriptor = {kind = "a"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<16xf32>) -> tensor<1024xf32>
  %b = memopt.library_call %x {descriptor = {kind = "b"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<16xf32>) -> tensor<1024xf32>
  %c = memopt.library_call %a {descriptor = {kind = "c"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<1024xf32>) -> tensor<16xf32>
  %d = memopt.library_call %b {descriptor = {kind = "d"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<1024xf32>) -> tensor<16xf32>
  return %c, %d : tensor<16xf32>, tensor<16xf32>
}

// -----

// Autodiff leaves updates at the end, where all gradients are alive. Each moves to where its gradient is made; but the
// first variable is read once more, to make the gradient of the second, and its update waits for that. The marks of
// gradients go along: each stands behind its maker. Instead of three gradients one is alive at a time, beside three
// variables of 4096 bytes and the input of 64.

// GIVEN: memopt.arena_bytes = 24640
// PLANNED: memopt.arena_bytes = 16448
memopt.variable @v : tensor<1024xf32> role <parameter> {trainable}
memopt.variable @w : tensor<1024xf32> role <parameter> {trainable}
memopt.variable @u : tensor<1024xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @updates
func.func @updates(%x: tensor<16xf32>) {
  %v = memopt.read @v : tensor<1024xf32>
  %w = memopt.read @w : tensor<1024xf32>
  %u = memopt.read @u : tensor<1024xf32>
  // CHECK: %[[GRADIENT:.*]] = memopt.library_call {{.*}}kind = "gradient of w"
  // CHECK-NEXT: memopt.gradient %[[GRADIENT]], @w
  // CHECK: memopt.library_call {{.*}}kind = "update v"
  %gv = memopt.library_call %x {descriptor = {kind = "gradient of v"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<16xf32>) -> tensor<1024xf32>
  memopt.gradient %gv, @v : tensor<1024xf32>
  %gw = memopt.library_call %x, %v {descriptor = {kind = "gradient of w"}, operand_offsets = array<i64: 0, 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<16xf32>, tensor<1024xf32>) -> tensor<1024xf32>
  memopt.gradient %gw, @w : tensor<1024xf32>
  %gu = memopt.library_call %x {descriptor = {kind = "gradient of u"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<16xf32>) -> tensor<1024xf32>
  memopt.gradient %gu, @u : tensor<1024xf32>
  %nv = memopt.library_call %gv {descriptor = {kind = "update v"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<1024xf32>) -> tensor<1024xf32>
  memopt.write %nv, @v : tensor<1024xf32>
  %nw = memopt.library_call %gw {descriptor = {kind = "update w"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<1024xf32>) -> tensor<1024xf32>
  memopt.write %nw, @w : tensor<1024xf32>
  %nu = memopt.library_call %gu {descriptor = {kind = "update u"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<1024xf32>) -> tensor<1024xf32>
  memopt.write %nu, @u : tensor<1024xf32>
  return
}

// -----

// The peak stands in front of both gradients, so no order lowers it. Updates still run behind their gradients: what is
// recomputed later finds the room.

// GIVEN: memopt.arena_bytes = 24640
// PLANNED: memopt.arena_bytes = 24640
memopt.variable @v : tensor<1024xf32> role <parameter> {trainable}
memopt.variable @w : tensor<1024xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @early
func.func @early(%x: tensor<16xf32>) {
  // CHECK: kind = "gradient of v"
  // CHECK: kind = "update v"
  // CHECK: kind = "gradient of w"
  // CHECK: kind = "update w"
  %big = memopt.library_call %x {descriptor = {kind = "large"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<16xf32>) -> tensor<4096xf32>
  %y = memopt.library_call %big {descriptor = {kind = "shrink"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<4096xf32>) -> tensor<16xf32>
  %gv = memopt.library_call %y {descriptor = {kind = "gradient of v"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<16xf32>) -> tensor<1024xf32>
  %gw = memopt.library_call %y {descriptor = {kind = "gradient of w"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<16xf32>) -> tensor<1024xf32>
  %nv = memopt.library_call %gv {descriptor = {kind = "update v"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<1024xf32>) -> tensor<1024xf32>
  memopt.write %nv, @v : tensor<1024xf32>
  %nw = memopt.library_call %gw {descriptor = {kind = "update w"}, operand_offsets = array<i64: 0>, workspace = 0 : i64,
    flop_count = 0 : i64} : (tensor<1024xf32>) -> tensor<1024xf32>
  memopt.write %nw, @w : tensor<1024xf32>
  return
}
