// RUN: memopt-opt %s -split-input-file -memopt-overlap-collectives=budget=131072 -memopt-plan-memory=budget=131072 -memopt-verify-planned | FileCheck %s
// RUN: memopt-opt %s -split-input-file -memopt-overlap-collectives -memopt-plan-memory -memopt-verify-planned | FileCheck %s --check-prefix=TIGHT

// The sum of a gradient is in flight while the next gradient is made, in the bytes of the gradient; its update follows when
// it has landed.

// CHECK-LABEL: func.func @in_flight
// CHECK: %[[T1:.*]] = memopt.collective_start <all_reduce> %{{.*}} over 2 in_place
// CHECK-NEXT: test.run({{.*}}kind = "second"
// CHECK: %[[SUM:.*]] = memopt.collective_wait %[[T1]]
// CHECK: test.run({{.*}}%[[SUM]]{{.*}}kind = "update"
memopt.variable @w : tensor<4096xf32> role <parameter> {}
memopt.variable @v : tensor<4096xf32> role <parameter> {}
func.func @in_flight(%x: tensor<4096xf32>) {
  %w = memopt.read @w : tensor<4096xf32>
  %v = memopt.read @v : tensor<4096xf32>
  %g1 = test.run(%x) {kind = "first"} : (tensor<4096xf32>) -> tensor<4096xf32>
  %s1 = memopt.collective <all_reduce> %g1 over 2 : tensor<4096xf32> -> tensor<4096xf32>
  %w1 = test.run(%w, %s1) {kind = "update"} : (tensor<4096xf32>, tensor<4096xf32>) -> tensor<4096xf32>
  %g2 = test.run(%x) {kind = "second"} : (tensor<4096xf32>) -> tensor<4096xf32>
  %s2 = memopt.collective <all_reduce> %g2 over 2 : tensor<4096xf32> -> tensor<4096xf32>
  %v1 = test.run(%v, %s2) {kind = "update"} : (tensor<4096xf32>, tensor<4096xf32>) -> tensor<4096xf32>
  memopt.write %w1, @w : tensor<4096xf32>
  memopt.write %v1, @v : tensor<4096xf32>
  return
}

// -----

// A parameter is gathered while the layer before computes, where there is room for it. Without a budget there is none: the
// arena is that of the step without overlap.

// CHECK-LABEL: func.func @ahead
// CHECK: memopt.collective_start <all_gather>
// CHECK: test.run({{.*}}kind = "before"
// CHECK: %[[W:.*]] = memopt.collective_wait
// CHECK: test.run(%[[W]], {{.*}}kind = "use"
// TIGHT: arena_bytes = [6272, 0, 0]
// TIGHT-LABEL: func.func @ahead
// TIGHT-NOT: collective_start
// TIGHT: return
memopt.variable @w : tensor<512xf32> role <parameter> {shard = #memopt.shard<ranks = 2, shape = [1024]>}
func.func @ahead(%x: tensor<1024xf32>) -> tensor<16xf32> {
  %own = memopt.read @w : tensor<512xf32>
  %y = test.run(%x) {kind = "before"} : (tensor<1024xf32>) -> tensor<16xf32>
  %w = memopt.collective <all_gather> %own over 2 : tensor<512xf32> -> tensor<1024xf32>
  %z = test.run(%w, %y) {kind = "use"} : (tensor<1024xf32>, tensor<16xf32>) -> tensor<16xf32>
  return %z : tensor<16xf32>
}

// -----

// The terms of a sum that a kernel adds are on their way while the next gradient is made.

// CHECK-LABEL: func.func @terms
// CHECK: %[[T:.*]] = memopt.collective_start <all_to_all> %{{.*}} over 2
// CHECK-NEXT: test.run({{.*}}kind = "second"
// CHECK: %[[TERMS:.*]] = memopt.collective_wait %[[T]]
// CHECK: test.run({{.*}}%[[TERMS]]{{.*}}kind = "update"
memopt.variable @w : tensor<4096xf32> role <parameter> {}
memopt.variable @v : tensor<4096xf32> role <parameter> {}
func.func @terms(%x: tensor<4096xf32>) {
  %w = memopt.read @w : tensor<4096xf32>
  %v = memopt.read @v : tensor<4096xf32>
  %g1 = test.run(%x) {kind = "first"} : (tensor<4096xf32>) -> tensor<4096xf32>
  %t1 = memopt.collective <all_to_all> %g1 over 2 : tensor<4096xf32> -> tensor<4096xf32>
  %w1 = test.run(%w, %t1) {kind = "update"} : (tensor<4096xf32>, tensor<4096xf32>) -> tensor<4096xf32>
  %v1 = test.run(%v, %x) {kind = "second"} : (tensor<4096xf32>, tensor<4096xf32>) -> tensor<4096xf32>
  memopt.write %w1, @w : tensor<4096xf32>
  memopt.write %v1, @v : tensor<4096xf32>
  return
}

// -----

// Whose operand something else reads later, and what nothing runs beside, stays one instruction.

// CHECK-LABEL: func.func @in_turn
// CHECK-NOT: collective_start
// CHECK: memopt.collective <all_reduce>
func.func @in_turn(%x: tensor<1024xf32>) -> tensor<1024xf32> {
  %g = test.run(%x) {kind = "first"} : (tensor<1024xf32>) -> tensor<1024xf32>
  %s = memopt.collective <all_reduce> %g over 2 : tensor<1024xf32> -> tensor<1024xf32>
  %y = test.run(%s, %g) {kind = "both"} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
  return %y : tensor<1024xf32>
}
