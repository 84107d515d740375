// RUN: memopt-opt %s --split-input-file --memopt-plan-memory --memopt-verify-planned | FileCheck %s

// Nothing is copied in a loop: an iteration makes its value in the carried value's bytes, and, as a second result
// of the same kernel, in its slice. What the loop begins with is written over, so a constant of the step is copied.

// CHECK-LABEL: func.func @step
// CHECK: %[[START:.*]] = memopt.kernel (%{{.*}} = %arg1
// CHECK-SAME: offsets = array<i64: [[CARRIED:[0-9]+]]>
// CHECK: %[[R:.*]]:2 = memopt.scan count(8) slices(%{{.*}} = %arg0 : tensor<64xf32> of tensor<8x64xf32>) carried(%{{.*}} = %[[START]]
// CHECK:   %[[N:.*]]:2 = memopt.kernel
// CHECK-SAME: offsets = array<i64: [[ALL:[0-9]+]], [[CARRIED]]>
// CHECK:   memopt.yield %[[N]]#1, %[[N]]#0
// CHECK: } -> tensor<64xf32>, tensor<8x64xf32> {offsets = array<i64: [[CARRIED]], [[ALL]]>}
func.func @step(%xs: tensor<8x64xf32>, %h0: tensor<64xf32>) -> (tensor<8x64xf32>, tensor<64xf32>) {
  %last, %all = memopt.scan count(8) slices(%x = %xs : tensor<64xf32> of tensor<8x64xf32>) carried(%h = %h0 : tensor<64xf32>) {
    %0 = memopt.kernel (%a = %h : tensor<64xf32>, %b = %x : tensor<64xf32>) -> tensor<64xf32> {
      %1 = tensor.empty() : tensor<64xf32>
      %2 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%a, %b : tensor<64xf32>, tensor<64xf32>) outs(%1 : tensor<64xf32>) {
      ^bb0(%p: f32, %q: f32, %o: f32):
        %3 = arith.addf %p, %q : f32
        linalg.yield %3 : f32
      } -> tensor<64xf32>
      memopt.yield %2 : tensor<64xf32>
    }
    memopt.yield %0, %0 : tensor<64xf32>, tensor<64xf32>
  } -> tensor<64xf32>, tensor<8x64xf32>
  return %all, %h0 : tensor<8x64xf32>, tensor<64xf32>
}

// -----

// Two carried values change places: one of them waits in bytes of its own.

// CHECK-LABEL: func.func @step
// CHECK: memopt.scan count(4)
// CHECK-COUNT-3: memopt.kernel
// CHECK: memopt.yield
func.func @step(%a0: tensor<64xf32>, %b0: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %a, %b = memopt.scan count(4) carried(%x = %a0 : tensor<64xf32>, %y = %b0 : tensor<64xf32>) {
    memopt.yield %y, %x : tensor<64xf32>, tensor<64xf32>
  } -> tensor<64xf32>, tensor<64xf32>
  return %a, %b : tensor<64xf32>, tensor<64xf32>
}

// -----

// A sum of gradients that a scan alone goes on with is added to in place. State changes behind the commit: what the loop
// begins with is a copy, and what it leaves is copied back.

// CHECK: memopt.variable @sum : tensor<64xf32> role <gradient> {offset = [[$SUM:[0-9]+]]
// CHECK-LABEL: func.func @step
// CHECK: %[[OLD:.*]] = memopt.read @sum
// CHECK: %[[COPY:.*]] = memopt.kernel
// CHECK-NOT: memopt.kernel
// CHECK: memopt.scan count(2) carried({{.*}} = %[[OLD]] : tensor<64xf32>, %{{.*}} = %[[COPY]] : tensor<64xf32>)
// CHECK: } -> tensor<64xf32>, tensor<64xf32> {offsets = array<i64: [[$SUM]], {{[0-9]+}}>}
// CHECK: memopt.commit
// CHECK: memopt.kernel
memopt.variable @sum : tensor<64xf32> role <gradient> {}
memopt.variable @state : tensor<64xf32> role <buffer> {}
func.func @step(%loss: tensor<f32>) -> tensor<f32> {
  %sum = memopt.read @sum : tensor<64xf32>
  %state = memopt.read @state : tensor<64xf32>
  %s, %t = memopt.scan count(2) carried(%x = %sum : tensor<64xf32>, %y = %state : tensor<64xf32>) {
    %0:2 = memopt.kernel (%a = %x : tensor<64xf32>, %b = %y : tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
      %1 = tensor.empty() : tensor<64xf32>
      %2:2 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%a, %b : tensor<64xf32>, tensor<64xf32>) outs(%1, %1 : tensor<64xf32>, tensor<64xf32>) {
      ^bb0(%p: f32, %q: f32, %o: f32, %r: f32):
        %3 = arith.addf %p, %p : f32
        %4 = arith.addf %q, %q : f32
        linalg.yield %3, %4 : f32, f32
      } -> (tensor<64xf32>, tensor<64xf32>)
      memopt.yield %2#0, %2#1 : tensor<64xf32>, tensor<64xf32>
    }
    memopt.yield %0#0, %0#1 : tensor<64xf32>, tensor<64xf32>
  } -> tensor<64xf32>, tensor<64xf32>
  memopt.write %s, @sum : tensor<64xf32>
  memopt.commit %loss : tensor<f32>
  memopt.write %t, @state : tensor<64xf32>
  return %loss : tensor<f32>
}
