// RUN: memopt-opt %s -memopt-plan-memory -split-input-file | FileCheck %s --check-prefix=GIVEN
// RUN: memopt-opt %s -memopt-schedule -split-input-file | FileCheck %s
// RUN: memopt-opt %s -memopt-schedule -memopt-plan-memory -memopt-verify-planned -split-input-file | FileCheck %s --check-prefix=PLANNED

// Two branches make 4096 bytes each of an input of 64, and boil them down to 64. Side by side both large values are
// alive, one after the other only one is: 64 (input) + 64 (first result) + 4096 instead of 64 + 2 * 4096.

// GIVEN: memopt.planned = #memopt.planned<arena_bytes = [8256,
// PLANNED: memopt.planned = #memopt.planned<arena_bytes = [4224,
// CHECK-LABEL: func.func @branches
func.func @branches(%x: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
  // CHECK: %[[FIRST:.*]] = test.run({{.*}} -> tensor<1024xf32>
  // CHECK: test.run(%[[FIRST]])
  // CHECK: %[[SECOND:.*]] = test.run({{.*}} -> tensor<1024xf32>
  // CHECK: test.run(%[[SECOND]])
  %a = test.run(%x) {kind = "a"} : (tensor<16xf32>) -> tensor<1024xf32>
  %b = test.run(%x) {kind = "b"} : (tensor<16xf32>) -> tensor<1024xf32>
  %c = test.run(%a) {kind = "c"} : (tensor<1024xf32>) -> tensor<16xf32>
  %d = test.run(%b) {kind = "d"} : (tensor<1024xf32>) -> tensor<16xf32>
  return %c, %d : tensor<16xf32>, tensor<16xf32>
}

// -----

// Autodiff leaves updates at the end, where all gradients are alive. Each moves to where its gradient is made; but the
// first variable is read once more, to make the gradient of the second, and its update waits for that. The marks of
// gradients go along: each stands behind its maker. Instead of three gradients one is alive at a time, beside three
// variables of 4096 bytes and the input of 64.

// GIVEN: memopt.planned = #memopt.planned<arena_bytes = [24640,
// PLANNED: memopt.planned = #memopt.planned<arena_bytes = [16448,
memopt.variable @v : tensor<1024xf32> role <parameter> {trainable}
memopt.variable @w : tensor<1024xf32> role <parameter> {trainable}
memopt.variable @u : tensor<1024xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @updates
func.func @updates(%x: tensor<16xf32>) {
  %v = memopt.read @v : tensor<1024xf32>
  %w = memopt.read @w : tensor<1024xf32>
  %u = memopt.read @u : tensor<1024xf32>
  // CHECK: %[[GRADIENT:.*]] = test.run({{.*}}kind = "gradient of w"
  // CHECK-NEXT: memopt.gradient %[[GRADIENT]], @w
  // CHECK: test.run({{.*}}kind = "update v"
  %gv = test.run(%x) {kind = "gradient of v"} : (tensor<16xf32>) -> tensor<1024xf32>
  memopt.gradient %gv, @v : tensor<1024xf32>
  %gw = test.run(%x, %v) {kind = "gradient of w"} : (tensor<16xf32>, tensor<1024xf32>) -> tensor<1024xf32>
  memopt.gradient %gw, @w : tensor<1024xf32>
  %gu = test.run(%x) {kind = "gradient of u"} : (tensor<16xf32>) -> tensor<1024xf32>
  memopt.gradient %gu, @u : tensor<1024xf32>
  %nv = test.run(%gv) {kind = "update v"} : (tensor<1024xf32>) -> tensor<1024xf32>
  memopt.write %nv, @v : tensor<1024xf32>
  %nw = test.run(%gw) {kind = "update w"} : (tensor<1024xf32>) -> tensor<1024xf32>
  memopt.write %nw, @w : tensor<1024xf32>
  %nu = test.run(%gu) {kind = "update u"} : (tensor<1024xf32>) -> tensor<1024xf32>
  memopt.write %nu, @u : tensor<1024xf32>
  return
}

// -----

// The peak stands in front of both gradients, so no order lowers it. Updates still run behind their gradients: what is
// recomputed later finds the room.

// GIVEN: memopt.planned = #memopt.planned<arena_bytes = [24640,
// PLANNED: memopt.planned = #memopt.planned<arena_bytes = [24640,
memopt.variable @v : tensor<1024xf32> role <parameter> {trainable}
memopt.variable @w : tensor<1024xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @early
func.func @early(%x: tensor<16xf32>) {
  // CHECK: kind = "gradient of v"
  // CHECK: kind = "update v"
  // CHECK: kind = "gradient of w"
  // CHECK: kind = "update w"
  %big = test.run(%x) {kind = "large"} : (tensor<16xf32>) -> tensor<4096xf32>
  %y = test.run(%big) {kind = "shrink"} : (tensor<4096xf32>) -> tensor<16xf32>
  %gv = test.run(%y) {kind = "gradient of v"} : (tensor<16xf32>) -> tensor<1024xf32>
  %gw = test.run(%y) {kind = "gradient of w"} : (tensor<16xf32>) -> tensor<1024xf32>
  %nv = test.run(%gv) {kind = "update v"} : (tensor<1024xf32>) -> tensor<1024xf32>
  memopt.write %nv, @v : tensor<1024xf32>
  %nw = test.run(%gw) {kind = "update w"} : (tensor<1024xf32>) -> tensor<1024xf32>
  memopt.write %nw, @w : tensor<1024xf32>
  return
}
