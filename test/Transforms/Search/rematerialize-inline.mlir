// RUN: not memopt-opt %s -split-input-file -memopt-rematerialize=budget=4352 -memopt-plan-memory=budget=4352 -memopt-verify-planned 2> %t.errors | FileCheck %s
// RUN: FileCheck %s --check-prefix=MESSAGES < %t.errors
// RUN: memopt-opt %s -split-input-file -memopt-rematerialize=budget=9000 2>&1 | FileCheck %s --check-prefix=ENOUGH

// The exponentials of "made" are read by the sums and by the last kernel, which reads "made" too. Stored, both are alive
// at once, 2 * 4096 bytes, in whatever order and however often kernels run. The last kernel can compute them itself.

// ENOUGH-NOT: computed where read
// ENOUGH: memopt.kernel ({{.*}}) -> (tensor<16x64xf32>, tensor<16xf32>)

// MESSAGES: remark: rematerialized 0 instructions: arena {{[0-9]+}} -> {{[0-9]+}} bytes within 4352, {{.*}}; 1 values computed where read
// CHECK: %[[MADE:.*]] = test.run
// CHECK: %[[SUMS:.*]] = memopt.kernel (%{{.*}} = %[[MADE]] : tensor<16x64xf32>) -> tensor<16xf32>
// CHECK: memopt.kernel (%[[S:.*]] = %[[SUMS]] : tensor<16xf32>, %[[M:.*]] = %[[MADE]] : tensor<16x64xf32>) -> tensor<16x64xf32>
// CHECK: %[[E:.*]] = linalg.generic {{.*}} ins(%[[M]] :
// CHECK-NEXT: ^bb0
// CHECK-NEXT: math.exp
// CHECK: linalg.generic {{.*}} ins(%[[E]], %[[S]], %[[M]] :
#map = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @train_step(%x: tensor<16xf32>) -> tensor<16xf32> {
  %made = test.run(%x) {kind = "make"} : (tensor<16xf32>) -> tensor<16x64xf32>
  %exp:2 = memopt.kernel (%m = %made : tensor<16x64xf32>) -> (tensor<16x64xf32>, tensor<16xf32>) {
    %empty = tensor.empty() : tensor<16x64xf32>
    %e = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%m : tensor<16x64xf32>) outs(%empty : tensor<16x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      %0 = math.exp %in : f32
      linalg.yield %0 : f32
    } -> tensor<16x64xf32>
    %zero = arith.constant 0.0 : f32
    %row = tensor.empty() : tensor<16xf32>
    %filled = linalg.fill ins(%zero : f32) outs(%row : tensor<16xf32>) -> tensor<16xf32>
    %sum = linalg.generic {indexing_maps = [#map, #row], iterator_types = ["parallel", "reduction"]} ins(%e : tensor<16x64xf32>) outs(%filled : tensor<16xf32>) {
    ^bb0(%in: f32, %out: f32):
      %0 = arith.addf %in, %out : f32
      linalg.yield %0 : f32
    } -> tensor<16xf32>
    memopt.yield %e, %sum : tensor<16x64xf32>, tensor<16xf32>
  }
  %y = memopt.kernel (%e = %exp#0 : tensor<16x64xf32>, %s = %exp#1 : tensor<16xf32>, %m = %made : tensor<16x64xf32>) -> tensor<16x64xf32> {
    %empty = tensor.empty() : tensor<16x64xf32>
    %r = linalg.generic {indexing_maps = [#map, #row, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%e, %s, %m : tensor<16x64xf32>, tensor<16xf32>, tensor<16x64xf32>) outs(%empty : tensor<16x64xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32, %out: f32):
      %0 = arith.divf %a, %b : f32
      %1 = arith.mulf %0, %c : f32
      linalg.yield %1 : f32
    } -> tensor<16x64xf32>
    memopt.yield %r : tensor<16x64xf32>
  }
  %z = test.run(%y) {kind = "shrink"} : (tensor<16x64xf32>) -> tensor<16xf32>
  return %z : tensor<16xf32>
}

// -----

// A kernel that sums what it reads keeps its operand: computed inside, it might be summed in another order.

// MESSAGES: error: does not fit: the budget is 4352 bytes
#map = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @train_step(%x: tensor<16xf32>) -> tensor<16xf32> {
  %made = test.run(%x) {kind = "make"} : (tensor<16xf32>) -> tensor<16x64xf32>
  %y = memopt.kernel (%m = %made : tensor<16x64xf32>) -> tensor<16x64xf32> {
    %empty = tensor.empty() : tensor<16x64xf32>
    %e = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%m : tensor<16x64xf32>) outs(%empty : tensor<16x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      %0 = math.exp %in : f32
      linalg.yield %0 : f32
    } -> tensor<16x64xf32>
    memopt.yield %e : tensor<16x64xf32>
  }
  %z = memopt.kernel (%e = %y : tensor<16x64xf32>, %m = %made : tensor<16x64xf32>) -> tensor<16xf32> {
    %zero = arith.constant 0.0 : f32
    %row = tensor.empty() : tensor<16xf32>
    %filled = linalg.fill ins(%zero : f32) outs(%row : tensor<16xf32>) -> tensor<16xf32>
    %sum = linalg.generic {indexing_maps = [#map, #map, #row], iterator_types = ["parallel", "reduction"]} ins(%e, %m : tensor<16x64xf32>, tensor<16x64xf32>) outs(%filled : tensor<16xf32>) {
    ^bb0(%in: f32, %other: f32, %out: f32):
      %0 = arith.mulf %in, %other : f32
      %1 = arith.addf %0, %out : f32
      linalg.yield %1 : f32
    } -> tensor<16xf32>
    memopt.yield %sum : tensor<16xf32>
  }
  return %z : tensor<16xf32>
}

// -----

// What only the dropped result needed goes with it, one op after the other.

// MESSAGES: remark: {{.*}} within 4352, {{.*}}; 1 values computed where read
#map = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
// CHECK-LABEL: @two_ops
// CHECK: %[[MADE:.*]] = test.run
// CHECK: memopt.kernel (%{{.*}} = %[[MADE]] : tensor<16x64xf32>) -> tensor<16xf32>
// CHECK-NOT: math.exp
// CHECK: memopt.yield
// CHECK: memopt.kernel
// CHECK: math.exp
// CHECK: math.tanh
func.func @two_ops(%x: tensor<16xf32>) -> tensor<16xf32> {
  %made = test.run(%x) {kind = "make"} : (tensor<16xf32>) -> tensor<16x64xf32>
  %exp:2 = memopt.kernel (%m = %made : tensor<16x64xf32>) -> (tensor<16xf32>, tensor<16x64xf32>) {
    %zero = arith.constant 0.0 : f32
    %row = tensor.empty() : tensor<16xf32>
    %filled = linalg.fill ins(%zero : f32) outs(%row : tensor<16xf32>) -> tensor<16xf32>
    %sum = linalg.generic {indexing_maps = [#map, #row], iterator_types = ["parallel", "reduction"]} ins(%m : tensor<16x64xf32>) outs(%filled : tensor<16xf32>) {
    ^bb0(%in: f32, %out: f32):
      %0 = arith.addf %in, %out : f32
      linalg.yield %0 : f32
    } -> tensor<16xf32>
    %empty = tensor.empty() : tensor<16x64xf32>
    %e = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%m : tensor<16x64xf32>) outs(%empty : tensor<16x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      %0 = math.exp %in : f32
      linalg.yield %0 : f32
    } -> tensor<16x64xf32>
    %t = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel"]} ins(%e : tensor<16x64xf32>) outs(%empty : tensor<16x64xf32>) {
    ^bb0(%in: f32, %out: f32):
      %0 = math.tanh %in : f32
      linalg.yield %0 : f32
    } -> tensor<16x64xf32>
    memopt.yield %sum, %t : tensor<16xf32>, tensor<16x64xf32>
  }
  %y = memopt.kernel (%e = %exp#1 : tensor<16x64xf32>, %s = %exp#0 : tensor<16xf32>, %m = %made : tensor<16x64xf32>) -> tensor<16x64xf32> {
    %empty = tensor.empty() : tensor<16x64xf32>
    %r = linalg.generic {indexing_maps = [#map, #row, #map, #map], iterator_types = ["parallel", "parallel"]} ins(%e, %s, %m : tensor<16x64xf32>, tensor<16xf32>, tensor<16x64xf32>) outs(%empty : tensor<16x64xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32, %out: f32):
      %0 = arith.divf %a, %b : f32
      %1 = arith.mulf %0, %c : f32
      linalg.yield %1 : f32
    } -> tensor<16x64xf32>
    memopt.yield %r : tensor<16x64xf32>
  }
  %z = test.run(%y) {kind = "shrink"} : (tensor<16x64xf32>) -> tensor<16xf32>
  return %z : tensor<16xf32>
}
