// RUN: memopt-opt %s -memopt-schedule="problem=%t.json" -memopt-rematerialize="budget=3072" -memopt-plan-memory -memopt-verify-planned -split-input-file -verify-diagnostics | FileCheck %s
// RUN: FileCheck %s --input-file=%t.json --check-prefix=PROBLEM
// RUN: memopt-plan remat %t.json --budget=100%% | FileCheck %s --check-prefix=PLAN

// A variable lies on the host; it is copied to the device, changed, and copied back into its own bytes. Both spaces and
// the resources of the copies are part of the problem. What a wait gives belongs to its start, and the way back comes
// after the way out, which reads the bytes that it writes. 1024 bytes for each of three values on the device.

// CHECK: module attributes {memopt.planned = #memopt.planned<arena_bytes = [3072, 1024, 0], lower_bound_bytes = [3072, 1024, 0]>}
// PROBLEM: "spaces":
// PROBLEM: "host"
// PROBLEM: "waits_for":
// PLAN: peak 3072 bytes
memopt.variable @moment : tensor<256xf32> role <buffer> {placement = #memopt.space<host>}
// CHECK-LABEL: func.func @spaces
func.func @spaces() {
  %far = memopt.read @moment : tensor<256xf32, #memopt.space<host>>
  %t = memopt.transfer_start %far to <device> : tensor<256xf32, #memopt.space<host>>
  %other = test.run() : () -> tensor<256xf32>
  %near = memopt.transfer_wait %t : tensor<256xf32>
  %sum = test.run(%near, %other) : (tensor<256xf32>, tensor<256xf32>) -> tensor<256xf32>
  %back = memopt.transfer_start %sum to <host> : tensor<256xf32>
  // CHECK: memopt.transfer_wait %{{.*}} {offsets = array<i64: 0>} : tensor<256xf32, #memopt.space<host>>
  %new = memopt.transfer_wait %back : tensor<256xf32, #memopt.space<host>>
  memopt.write %new, @moment : tensor<256xf32, #memopt.space<host>>
  return
}
