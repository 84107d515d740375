// RUN: memopt-opt %s -memopt-rematerialize="budget=4200000 swaps=true" -memopt-plan-memory -memopt-verify-planned | FileCheck %s
// RUN: memopt-opt %s -memopt-rematerialize="budget=4200000 swaps=true host-budget=1000000" -memopt-plan-memory | FileCheck %s --check-prefix=CLONE
// RUN: memopt-opt %s -memopt-rematerialize="budget=4200000" -memopt-plan-memory | FileCheck %s --check-prefix=CLONE
// RUN: memopt-opt %s -memopt-rematerialize="budget=6000000 swaps=true" -memopt-plan-memory | FileCheck %s --check-prefix=FITS

// The first value, 1 MiB and expensive, is wanted at the end; between lie two of 2 MiB. It goes to the host and comes back,
// beside what computes. Where the host has no room, it is computed again, and where the device has, neither happens.

// CHECK: memopt.planned = #memopt.planned<arena_bytes = [{{[0-9]+}}, 1048576, 0]
// CLONE: memopt.planned = #memopt.planned<arena_bytes = [{{[0-9]+}}, 0, 0]
// FITS: memopt.planned = #memopt.planned<arena_bytes = [{{[0-9]+}}, 0, 0]
// CHECK-LABEL: func.func @swap
// CLONE-LABEL: func.func @swap
// FITS-LABEL: func.func @swap
func.func @swap(%x: tensor<256xf32>) -> tensor<256xf32> {
  // CHECK: %[[A:.*]] = test.run(%arg0)
  // CHECK: %[[OUT:.*]] = memopt.transfer_start %[[A]] to <host>
  // CHECK: %[[FAR:.*]] = memopt.transfer_wait %[[OUT]]
  // CHECK: %[[BACK:.*]] = memopt.transfer_start %[[FAR]] to <device> {{.*}}phase<backward>
  // CHECK: %[[NEAR:.*]] = memopt.transfer_wait %[[BACK]]
  // CHECK: test.run(%{{.*}}, %[[NEAR]])
  // CLONE: test.run(%arg0) {clone = 1
  // FITS-NOT: clone
  // FITS-NOT: memopt.transfer
  %a = test.run(%x) {flops = 10000000000} : (tensor<256xf32>) -> tensor<262144xf32>
  %b = test.run(%a) {flops = 1000000000} : (tensor<262144xf32>) -> tensor<524288xf32>
  %c = test.run(%b) {flops = 1000000000} : (tensor<524288xf32>) -> tensor<524288xf32>
  %d = test.run(%c) {flops = 1000000000} : (tensor<524288xf32>) -> tensor<256xf32>
  %e = test.run(%d, %a) {phase = #memopt.phase<backward>} : (tensor<256xf32>, tensor<262144xf32>) -> tensor<256xf32>
  return %e : tensor<256xf32>
}
