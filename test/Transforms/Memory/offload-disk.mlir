// RUN: memopt-opt %s -memopt-offload="optimizer=nvme least-elements=1" -split-input-file | FileCheck %s
// RUN: memopt-opt %s -memopt-offload="optimizer=nvme parameters=cpu least-elements=1" -split-input-file | FileCheck %s --check-prefix=BOTH
// RUN: memopt-opt %s -memopt-offload="parameters=nvme least-elements=1" -split-input-file | FileCheck %s --check-prefix=PARAM
// RUN: memopt-opt %s -memopt-offload=activations=nvme -split-input-file | FileCheck %s --check-prefix=SWAP
// RUN: memopt-opt %s -memopt-offload="optimizer=nvme least-elements=1" -memopt-schedule -memopt-plan-memory -memopt-verify-planned -split-input-file | FileCheck %s --check-prefix=PLAN
// RUN: memopt-opt %s -memopt-offload="optimizer=nvme parameters=nvme activations=nvme fetch-again=true least-elements=1" -memopt-schedule -memopt-plan-memory -memopt-verify-planned -split-input-file -o /dev/null
// RUN: not memopt-opt %s -memopt-offload="optimizer=nvme least-elements=1" -memopt-schedule -memopt-plan-memory=disk-budget=5000 -split-input-file 2>&1 | FileCheck %s --check-prefix=FULL

// The parameter and its momentum lie on disk. Both come to the host for the update, which runs there, and what it makes
// goes back from there; the parameter goes on to the device for the forward pass. A parameter that is to lie on the host
// does, with its state on disk.

#id = affine_map<(d0) -> (d0)>
// CHECK: memopt.variable @w {{.*}}placement = #memopt.space<disk>
// BOTH: memopt.variable @w {{.*}}placement = #memopt.space<host>
// PARAM: memopt.variable @w {{.*}}placement = #memopt.space<disk>
memopt.variable @w : tensor<1500xf32> role <parameter> {trainable}
// CHECK: memopt.variable @m {{.*}}placement = #memopt.space<disk>
// BOTH: memopt.variable @m {{.*}}placement = #memopt.space<disk>
// PARAM-NOT: @m{{.*}}#memopt.space<disk>
memopt.variable @m : tensor<1500xf32> role <optimizer_state> {of = @w, slot = "momentum"}

// Of 6000 bytes two blocks of the disk are taken, and as many of the host's windows; windows begin at a block, too.
// PLAN: memopt.planned = #memopt.planned<arena_bytes = [{{[0-9]+}}, {{[0-9]+}}, 16384]
// PLAN-DAG: @w {{.*}}offset = 0
// PLAN-DAG: @m {{.*}}offset = 8192
// FULL: does not fit: the plan needs 16384 bytes of disk memory, the budget is 5000

// CHECK-LABEL: func.func @update
// BOTH-LABEL: func.func @update
// PARAM-LABEL: func.func @update
func.func @update(%x: tensor<1500xf32>) -> tensor<f32> {
  // CHECK: %[[W:.*]] = memopt.read @w : tensor<1500xf32, #memopt.space<disk>>
  // CHECK: %[[T:.*]] = memopt.transfer_start %[[W]] to <host>
  // CHECK: %[[WINDOW:.*]] = memopt.transfer_wait %[[T]] : tensor<1500xf32, #memopt.space<host>>
  // CHECK: %[[U:.*]] = memopt.transfer_start %[[WINDOW]] to <device>
  // CHECK: %[[NEAR:.*]] = memopt.transfer_wait %[[U]] : tensor<1500xf32>
  // CHECK: test.run(%arg0, %[[NEAR]])
  // CHECK: %[[S:.*]] = memopt.transfer_start %{{.*}} to <host> {phase = #memopt.phase<optimizer>} : tensor<1500xf32>{{$}}
  // CHECK: memopt.transfer_start %[[W]] to <host> {phase = #memopt.phase<optimizer>}
  // CHECK: %[[NEW:.*]]:2 = memopt.kernel
  // CHECK-DAG: %[[P:.*]] = memopt.transfer_start %[[NEW]]#0 to <disk>
  // CHECK-DAG: %[[STORED:.*]] = memopt.transfer_wait %[[P]] {{.*}}: tensor<1500xf32, #memopt.space<disk>>
  // CHECK-DAG: memopt.transfer_start %[[NEW]]#1 to <disk> {phase = #memopt.phase<optimizer>}
  // CHECK: memopt.write %[[STORED]], @w

  // BOTH: %[[W:.*]] = memopt.read @w : tensor<1500xf32, #memopt.space<host>>
  // BOTH: memopt.transfer_start %[[W]] to <device>
  // BOTH-NOT: memopt.transfer_start %[[W]]
  // BOTH: %[[NEW:.*]]:2 = memopt.kernel
  // BOTH: memopt.transfer_start %[[NEW]]#1 to <disk>
  // BOTH: memopt.write %[[NEW]]#0, @w

  // With the update on the device what it makes goes the whole way to the disk.
  // PARAM: %[[NEW:.*]]:2 = memopt.kernel
  // PARAM: memopt.transfer_start %[[NEW]]#0 to <host>
  // PARAM: memopt.transfer_start %{{.*}} to <disk>
  // PARAM: memopt.write %{{.*}}, @w : tensor<1500xf32, #memopt.space<disk>>
  %w = memopt.read @w : tensor<1500xf32>
  %y = test.run(%x, %w) : (tensor<1500xf32>, tensor<1500xf32>) -> tensor<1500xf32>
  %loss = test.run(%y) : (tensor<1500xf32>) -> tensor<f32>
  memopt.commit %loss : tensor<f32>
  %g = test.run(%y, %w) {phase = #memopt.phase<backward>} : (tensor<1500xf32>, tensor<1500xf32>) -> tensor<1500xf32>
  memopt.gradient %g, @w : tensor<1500xf32>
  %m = memopt.read @m : tensor<1500xf32>
  %new:2 = memopt.kernel (%a = %w : tensor<1500xf32>, %b = %g : tensor<1500xf32>, %c = %m : tensor<1500xf32>) -> (tensor<1500xf32>, tensor<1500xf32>) attributes {phase = #memopt.phase<optimizer>} {
    %empty = tensor.empty() : tensor<1500xf32>
    %out:2 = linalg.generic {indexing_maps = [#id, #id, #id, #id, #id], iterator_types = ["parallel"]} ins(%a, %b, %c : tensor<1500xf32>, tensor<1500xf32>, tensor<1500xf32>) outs(%empty, %empty : tensor<1500xf32>, tensor<1500xf32>) {
    ^bb0(%p: f32, %d: f32, %q: f32, %o1: f32, %o2: f32):
      %v = arith.addf %q, %d : f32
      %n = arith.subf %p, %v : f32
      linalg.yield %n, %v : f32, f32
    } -> (tensor<1500xf32>, tensor<1500xf32>)
    memopt.yield %out#0, %out#1 : tensor<1500xf32>, tensor<1500xf32>
  }
  memopt.write %new#0, @w : tensor<1500xf32>
  memopt.write %new#1, @m : tensor<1500xf32>
  return %loss : tensor<f32>
}

// -----

// What the backward pass reads goes to the disk and comes back, each way through a window of the host.

// SWAP-LABEL: func.func @activation
func.func @activation(%x: tensor<2048xf32>) -> tensor<f32> {
  // SWAP: %[[Y:.*]] = test.run(%arg0)
  // SWAP: memopt.transfer_start %[[Y]] to <host>
  // SWAP: memopt.transfer_start %{{.*}} to <disk>
  // SWAP: test.run(%[[Y]])
  // SWAP: memopt.transfer_start %{{.*}} to <host> {phase = #memopt.phase<backward>} : tensor<2048xf32, #memopt.space<disk>>
  // SWAP: memopt.transfer_start %{{.*}} to <device> {phase = #memopt.phase<backward>}
  // SWAP: %[[BACK:.*]] = memopt.transfer_wait
  // SWAP: test.run(%[[BACK]])
  %y = test.run(%x) : (tensor<2048xf32>) -> tensor<2048xf32>
  %loss = test.run(%y) : (tensor<2048xf32>) -> tensor<f32>
  memopt.commit %loss : tensor<f32>
  %g = test.run(%y) {phase = #memopt.phase<backward>} : (tensor<2048xf32>) -> tensor<2048xf32>
  return %loss : tensor<f32>
}

// -----

// A cast stands where its result is sent, not where the step begins. What all updates read, a rate, is sent first: an update
// stands where its gradient goes to the host, and not behind the last gradient.

#id = affine_map<(d0) -> (d0)>
#scalar = affine_map<(d0) -> ()>
memopt.variable @a : tensor<1500xf32> role <parameter> {trainable}
memopt.variable @b : tensor<1500xf32> role <parameter> {trainable}
memopt.variable @rate : tensor<f32> role <hyperparameter>

// CHECK-LABEL: func.func @order
func.func @order(%x: tensor<1500xbf16>) -> tensor<f32> {
  // CHECK: memopt.read @rate
  // CHECK-NEXT: memopt.transfer_start %{{.*}} to <host> {{.*}}: tensor<f32>
  // CHECK-NEXT: memopt.transfer_wait
  // CHECK: memopt.kernel {{.*}} -> tensor<1500xbf16, #memopt.space<host>>
  // CHECK: test.run(%arg0
  // CHECK: memopt.kernel {{.*}} -> tensor<1500xbf16, #memopt.space<host>>
  // CHECK: test.run
  // CHECK: memopt.commit
  // CHECK: memopt.gradient %{{.*}}, @b
  // CHECK: memopt.kernel {{.*}} -> tensor<1500xf32, #memopt.space<host>>
  // CHECK: memopt.gradient %{{.*}}, @a
  // CHECK: memopt.kernel {{.*}} -> tensor<1500xf32, #memopt.space<host>>
  %rate = memopt.read @rate : tensor<f32>
  %a = memopt.read @a : tensor<1500xf32>
  %b = memopt.read @b : tensor<1500xf32>
  %narrow_a = memopt.kernel (%in = %a : tensor<1500xf32>) -> tensor<1500xbf16> {
    %e = tensor.empty() : tensor<1500xbf16>
    %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%in : tensor<1500xf32>) outs(%e : tensor<1500xbf16>) {
    ^bb0(%p: f32, %o: bf16):
      %1 = arith.truncf %p : f32 to bf16
      linalg.yield %1 : bf16
    } -> tensor<1500xbf16>
    memopt.yield %0 : tensor<1500xbf16>
  }
  %narrow_b = memopt.kernel (%in = %b : tensor<1500xf32>) -> tensor<1500xbf16> {
    %e = tensor.empty() : tensor<1500xbf16>
    %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%in : tensor<1500xf32>) outs(%e : tensor<1500xbf16>) {
    ^bb0(%p: f32, %o: bf16):
      %1 = arith.truncf %p : f32 to bf16
      linalg.yield %1 : bf16
    } -> tensor<1500xbf16>
    memopt.yield %0 : tensor<1500xbf16>
  }
  %y = test.run(%x, %narrow_a) : (tensor<1500xbf16>, tensor<1500xbf16>) -> tensor<1500xbf16>
  %shape_b = tensor.expand_shape %narrow_b [[0, 1]] output_shape [30, 50] : tensor<1500xbf16> into tensor<30x50xbf16>
  %z = test.run(%y, %shape_b) : (tensor<1500xbf16>, tensor<30x50xbf16>) -> tensor<1500xbf16>
  %loss = test.run(%z) : (tensor<1500xbf16>) -> tensor<f32>
  memopt.commit %loss : tensor<f32>
  %gb = test.run(%z, %y) {phase = #memopt.phase<backward>} : (tensor<1500xbf16>, tensor<1500xbf16>) -> tensor<1500xf32>
  memopt.gradient %gb, @b : tensor<1500xf32>
  %ga = test.run(%z, %x) {phase = #memopt.phase<backward>} : (tensor<1500xbf16>, tensor<1500xbf16>) -> tensor<1500xf32>
  memopt.gradient %ga, @a : tensor<1500xf32>
  %new_b = memopt.kernel (%w = %b : tensor<1500xf32>, %g = %gb : tensor<1500xf32>, %r = %rate : tensor<f32>) -> tensor<1500xf32> attributes {phase = #memopt.phase<optimizer>} {
    %e = tensor.empty() : tensor<1500xf32>
    %0 = linalg.generic {indexing_maps = [#id, #id, #scalar, #id], iterator_types = ["parallel"]} ins(%w, %g, %r : tensor<1500xf32>, tensor<1500xf32>, tensor<f32>) outs(%e : tensor<1500xf32>) {
    ^bb0(%p: f32, %d: f32, %l: f32, %o: f32):
      %1 = arith.mulf %d, %l : f32
      %2 = arith.subf %p, %1 : f32
      linalg.yield %2 : f32
    } -> tensor<1500xf32>
    memopt.yield %0 : tensor<1500xf32>
  }
  memopt.write %new_b, @b : tensor<1500xf32>
  %new_a = memopt.kernel (%w = %a : tensor<1500xf32>, %g = %ga : tensor<1500xf32>, %r = %rate : tensor<f32>) -> tensor<1500xf32> attributes {phase = #memopt.phase<optimizer>} {
    %e = tensor.empty() : tensor<1500xf32>
    %0 = linalg.generic {indexing_maps = [#id, #id, #scalar, #id], iterator_types = ["parallel"]} ins(%w, %g, %r : tensor<1500xf32>, tensor<1500xf32>, tensor<f32>) outs(%e : tensor<1500xf32>) {
    ^bb0(%p: f32, %d: f32, %l: f32, %o: f32):
      %1 = arith.mulf %d, %l : f32
      %2 = arith.subf %p, %1 : f32
      linalg.yield %2 : f32
    } -> tensor<1500xf32>
    memopt.yield %0 : tensor<1500xf32>
  }
  memopt.write %new_a, @a : tensor<1500xf32>
  return %loss : tensor<f32>
}
