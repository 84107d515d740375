// RUN: memopt-opt %s -memopt-offload="optimizer=cpu least-elements=1" -split-input-file | FileCheck %s
// RUN: memopt-opt %s -memopt-offload="optimizer=cpu parameters=cpu fetch-again=true least-elements=1" -split-input-file | FileCheck %s --check-prefix=AGAIN
// RUN: memopt-opt %s -memopt-offload="parameters=cpu least-elements=1" -split-input-file | FileCheck %s --check-prefix=PARAM
// RUN: memopt-opt %s -memopt-offload=activations=cpu -split-input-file | FileCheck %s --check-prefix=SWAP
// RUN: memopt-opt %s -memopt-offload="optimizer=cpu parameters=cpu" -split-input-file | FileCheck %s --check-prefix=SMALL
// RUN: memopt-opt %s -memopt-offload -split-input-file | FileCheck %s --check-prefix=NONE
// RUN: memopt-opt %s -memopt-offload="optimizer=cpu least-elements=1" -memopt-schedule -memopt-plan-memory -memopt-verify-planned -split-input-file -o /dev/null
// RUN: memopt-opt %s -memopt-offload="optimizer=cpu parameters=cpu fetch-again=true least-elements=1" -memopt-schedule -memopt-plan-memory -memopt-verify-planned -split-input-file -o /dev/null

// The parameter and its momentum lie on the host, where the update runs; the gradient is sent there, and the parameter
// once to the device, or once for each pass. The rate is a value of the device that the host reads, too.

#id = affine_map<(d0) -> (d0)>
#one = affine_map<(d0) -> ()>
// NONE-NOT: space<host>
// NONE-NOT: transfer
// CHECK: memopt.variable @w : tensor<256xf32> role <parameter> {placement = #memopt.space<host>, trainable}
// PARAM: memopt.variable @w {{.*}}#memopt.space<host>
memopt.variable @w : tensor<256xf32> role <parameter> {trainable}
// CHECK: memopt.variable @m {{.*}}placement = #memopt.space<host>
// PARAM-NOT: @m{{.*}}#memopt.space<host>
memopt.variable @m : tensor<256xf32> role <optimizer_state> {of = @w, slot = "momentum"}
// CHECK-NOT: @lr{{.*}}#memopt.space<host>
memopt.variable @lr : tensor<f32> role <hyperparameter>
// CHECK-LABEL: func.func @update
// AGAIN-LABEL: func.func @update
// PARAM-LABEL: func.func @update
func.func @update(%x: tensor<256xf32>) -> tensor<f32> {
  // CHECK: %[[W:.*]] = memopt.read @w : tensor<256xf32, #memopt.space<host>>
  // CHECK: %[[T:.*]] = memopt.transfer_start %[[W]] to <device>
  // CHECK: %[[NEAR:.*]] = memopt.transfer_wait %[[T]] : tensor<256xf32>
  // CHECK: test.run(%arg0, %[[NEAR]])
  // CHECK: test.run(%{{.*}}, %[[NEAR]])
  // CHECK: memopt.gradient
  // CHECK: %[[S:.*]] = memopt.transfer_start %{{.*}} to <host> {{.*}}phase<optimizer>
  // CHECK: %[[SENT:.*]] = memopt.transfer_wait %[[S]]
  // CHECK: %[[RATE:.*]] = memopt.transfer_wait %{{.*}} : tensor<f32, #memopt.space<host>>
  // CHECK: memopt.kernel ({{.*}} = %[[W]] : {{.*}} = %[[SENT]] : {{.*}} = %[[RATE]] : tensor<f32, #memopt.space<host>>)
  // CHECK: memopt.write %{{.*}}, @w {{.*}}space<host>

  // AGAIN: %[[W:.*]] = memopt.read @w
  // AGAIN: memopt.transfer_start %[[W]] to <device> :
  // AGAIN: memopt.transfer_start %[[W]] to <device> {clone = 1 : i64, phase = #memopt.phase<backward>}

  // With the update on the device the old parameter stays for it, and the new one is sent to where it lies.
  // PARAM: %[[W:.*]] = memopt.read @w
  // PARAM: memopt.transfer_start %[[W]] to <device>
  // PARAM: %[[N:.*]]:2 = memopt.kernel
  // PARAM: memopt.transfer_start %[[N]]#0 to <host>
  // PARAM: memopt.write %{{.*}}, @w {{.*}}space<host>
  // PARAM: memopt.write %[[N]]#1, @m
  %w = memopt.read @w : tensor<256xf32>
  %y = test.run(%x, %w) : (tensor<256xf32>, tensor<256xf32>) -> tensor<256xf32>
  %loss = test.run(%y) : (tensor<256xf32>) -> tensor<f32>
  memopt.commit %loss : tensor<f32>
  %g = test.run(%y, %w) {phase = #memopt.phase<backward>} : (tensor<256xf32>, tensor<256xf32>) -> tensor<256xf32>
  memopt.gradient %g, @w : tensor<256xf32>
  %lr = memopt.read @lr : tensor<f32>
  %m = memopt.read @m : tensor<256xf32>
  %new:2 = memopt.kernel (%a = %w : tensor<256xf32>, %b = %g : tensor<256xf32>, %c = %m : tensor<256xf32>, %r = %lr : tensor<f32>) -> (tensor<256xf32>, tensor<256xf32>) attributes {phase = #memopt.phase<optimizer>} {
    %e = tensor.empty() : tensor<256xf32>
    %0:2 = linalg.generic {indexing_maps = [#id, #id, #id, #one, #id, #id], iterator_types = ["parallel"]}
        ins(%a, %b, %c, %r : tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<f32>) outs(%e, %e : tensor<256xf32>, tensor<256xf32>) {
    ^bb0(%p: f32, %q: f32, %s: f32, %t: f32, %o0: f32, %o1: f32):
      %1 = arith.addf %s, %q : f32
      %2 = arith.mulf %1, %t : f32
      %3 = arith.subf %p, %2 : f32
      linalg.yield %3, %1 : f32, f32
    } -> (tensor<256xf32>, tensor<256xf32>)
    memopt.yield %0#0, %0#1 : tensor<256xf32>, tensor<256xf32>
  }
  memopt.write %new#0, @w {memopt.phase = #memopt.phase<optimizer>} : tensor<256xf32>
  memopt.write %new#1, @m {memopt.phase = #memopt.phase<optimizer>} : tensor<256xf32>
  return %loss : tensor<f32>
}

// -----

// In a step with loops the parameter is sent once, in front of them, and comes in as one more operand; where it does
// not stay on the device each iteration sends it. What the loops have added up is sent behind them.

#id = affine_map<(d0) -> (d0)>
memopt.variable @w : tensor<256xf32> role <parameter> {trainable}
memopt.variable @m : tensor<256xf32> role <optimizer_state> {of = @w, slot = "momentum"}
memopt.variable @sum : tensor<256xf32> role <gradient>
// CHECK-LABEL: func.func @loops
// AGAIN-LABEL: func.func @loops
func.func @loops(%x: tensor<256xf32>) {
  // CHECK: %[[W:.*]] = memopt.read @w
  // CHECK: %[[T:.*]] = memopt.transfer_start %[[W]] to <device>
  // CHECK: %[[NEAR:.*]] = memopt.transfer_wait %[[T]]
  // CHECK: memopt.repeat count(4) (%{{.*}} = %arg0 : tensor<256xf32>, %[[IN:.*]] = %[[NEAR]] : tensor<256xf32>)
  // CHECK: test.run(%{{.*}}, %[[IN]])
  // CHECK: %[[SUM:.*]] = memopt.read @sum
  // CHECK: memopt.transfer_start %[[SUM]] to <host>
  // AGAIN: memopt.repeat count(4) (%{{.*}} = %arg0 : tensor<256xf32>) {
  // AGAIN: memopt.transfer_wait %{{.*}} : tensor<256xf32>
  // AGAIN: memopt.write
  memopt.repeat count(4) (%in = %x : tensor<256xf32>) {
    %w = memopt.read @w : tensor<256xf32>
    %old = memopt.read @sum : tensor<256xf32>
    %g = test.run(%in, %w) : (tensor<256xf32>, tensor<256xf32>) -> tensor<256xf32>
    %more = test.run(%g, %old) : (tensor<256xf32>, tensor<256xf32>) -> tensor<256xf32>
    memopt.write %more, @sum : tensor<256xf32>
  }
  %w = memopt.read @w : tensor<256xf32>
  %g = memopt.read @sum : tensor<256xf32>
  %m = memopt.read @m : tensor<256xf32>
  %new:2 = memopt.kernel (%a = %w : tensor<256xf32>, %b = %g : tensor<256xf32>, %c = %m : tensor<256xf32>) -> (tensor<256xf32>, tensor<256xf32>) attributes {phase = #memopt.phase<optimizer>} {
    %e = tensor.empty() : tensor<256xf32>
    %0:2 = linalg.generic {indexing_maps = [#id, #id, #id, #id, #id], iterator_types = ["parallel"]}
        ins(%a, %b, %c : tensor<256xf32>, tensor<256xf32>, tensor<256xf32>) outs(%e, %e : tensor<256xf32>, tensor<256xf32>) {
    ^bb0(%p: f32, %q: f32, %s: f32, %o0: f32, %o1: f32):
      %1 = arith.addf %s, %q : f32
      %2 = arith.subf %p, %1 : f32
      linalg.yield %2, %1 : f32, f32
    } -> (tensor<256xf32>, tensor<256xf32>)
    memopt.yield %0#0, %0#1 : tensor<256xf32>, tensor<256xf32>
  }
  memopt.write %new#0, @w : tensor<256xf32>
  memopt.write %new#1, @m : tensor<256xf32>
  return
}

// -----

// A parameter that is written by what is no kernel stays on the device, here one that is gathered from ranks; its state
// does not. A cast runs on the host, and what it makes is sent.

#id = affine_map<(d0) -> (d0)>
// CHECK: memopt.variable @gathered : tensor<256xf32> role <parameter> {trainable}
memopt.variable @gathered : tensor<256xf32> role <parameter> {trainable}
memopt.variable @m : tensor<128xf32> role <optimizer_state> {of = @gathered, slot = "momentum"}
memopt.variable @narrow : tensor<256xf32> role <parameter>
// CHECK-LABEL: func.func @kinds
// PARAM-LABEL: func.func @kinds
func.func @kinds(%g: tensor<128xf32>) -> tensor<256xbf16> {
  // CHECK: %[[M:.*]] = memopt.read @m : tensor<128xf32, #memopt.space<host>>
  // CHECK: %[[NEW:.*]] = memopt.kernel ({{.*}}) -> tensor<128xf32, #memopt.space<host>>
  // CHECK: memopt.transfer_start %[[NEW]] to <device>
  // CHECK: memopt.collective <all_gather>
  // PARAM: %[[FAR:.*]] = memopt.kernel ({{.*}}) -> tensor<256xbf16, #memopt.space<host>>
  // PARAM: memopt.transfer_start %[[FAR]] to <device>
  %m = memopt.read @m : tensor<128xf32>
  %w = memopt.read @narrow : tensor<256xf32>
  %cast = memopt.kernel (%a = %w : tensor<256xf32>) -> tensor<256xbf16> {
    %e = tensor.empty() : tensor<256xbf16>
    %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%a : tensor<256xf32>) outs(%e : tensor<256xbf16>) {
    ^bb0(%p: f32, %o: bf16):
      %1 = arith.truncf %p : f32 to bf16
      linalg.yield %1 : bf16
    } -> tensor<256xbf16>
    memopt.yield %0 : tensor<256xbf16>
  }
  %new = memopt.kernel (%b = %g : tensor<128xf32>, %c = %m : tensor<128xf32>) -> tensor<128xf32> attributes {phase = #memopt.phase<optimizer>} {
    %e = tensor.empty() : tensor<128xf32>
    %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%b, %c : tensor<128xf32>, tensor<128xf32>) outs(%e : tensor<128xf32>) {
    ^bb0(%q: f32, %s: f32, %o: f32):
      %1 = arith.addf %s, %q : f32
      linalg.yield %1 : f32
    } -> tensor<128xf32>
    memopt.yield %0 : tensor<128xf32>
  }
  memopt.write %new, @m : tensor<128xf32>
  %all = memopt.collective <all_gather> %new over 2 : tensor<128xf32> -> tensor<256xf32>
  memopt.write %all, @gathered : tensor<256xf32>
  return %cast : tensor<256xbf16>
}

// -----

// What the forward pass makes and the backward pass reads goes to the host and comes back; not what has less than 4 KiB,
// and not for readers of the same pass.

// SWAP-LABEL: func.func @activations
func.func @activations(%x: tensor<4096xf32>) -> tensor<4096xf32> {
  // SWAP: %[[A:.*]] = test.run(%arg0)
  // SWAP: %[[OUT:.*]] = memopt.transfer_start %[[A]] to <host>
  // SWAP-NEXT: %[[FAR:.*]] = memopt.transfer_wait %[[OUT]]
  // SWAP-NEXT: %[[B:.*]]:2 = test.run(%[[A]])
  // SWAP-NEXT: %[[BACK:.*]] = memopt.transfer_start %[[FAR]] to <device>
  // SWAP-NEXT: %[[NEAR:.*]] = memopt.transfer_wait %[[BACK]]
  // SWAP-NEXT: %[[SHAPE:.*]] = tensor.expand_shape %[[NEAR]]
  // SWAP-NEXT: test.run(%[[SHAPE]], %[[B]]#0)
  // SWAP-NEXT: return
  %a = test.run(%x) : (tensor<4096xf32>) -> tensor<4096xf32>
  %shape = tensor.expand_shape %a [[0, 1]] output_shape [64, 64] : tensor<4096xf32> into tensor<64x64xf32>
  %b:2 = test.run(%a) : (tensor<4096xf32>) -> (tensor<8xf32>, tensor<8xf32>)
  %c = test.run(%shape, %b#0) {phase = #memopt.phase<backward>} : (tensor<64x64xf32>, tensor<8xf32>) -> tensor<4096xf32>
  return %c : tensor<4096xf32>
}

// -----

// A parameter of no more than 4096 elements stays with its state.

// SMALL: memopt.variable @large {{.*}}#memopt.space<host>
memopt.variable @large : tensor<4097xf32> role <parameter>
// SMALL: memopt.variable @large_state {{.*}}#memopt.space<host>
memopt.variable @large_state : tensor<17xf32> role <optimizer_state> {of = @large, slot = "scale"}
// SMALL: memopt.variable @small : tensor<4096xf32> role <parameter>
// SMALL-NOT: space
memopt.variable @small : tensor<4096xf32> role <parameter>
memopt.variable @small_state : tensor<4096xf32> role <optimizer_state> {of = @small, slot = "momentum"}
// SMALL-LABEL: func.func @sizes
func.func @sizes() {
  return
}

// -----

// What updates read beside gradients, and follows from hyperparameters alone, comes first: no update waits for the end of
// the backward pass. What follows from anything else stays.

#scalar = affine_map<() -> ()>
memopt.variable @lr : tensor<f32> role <hyperparameter>
memopt.variable @count : tensor<f32> role <gradient>
// CHECK-LABEL: func.func @numbers
func.func @numbers(%x: tensor<256xf32>) -> (tensor<256xf32>, tensor<f32>, tensor<f32>) {
  // CHECK-NEXT: memopt.read @lr
  // CHECK-NEXT: memopt.kernel
  // CHECK: test.run
  // CHECK-NEXT: memopt.read @count
  // CHECK-NEXT: memopt.kernel
  %y = test.run(%x) : (tensor<256xf32>) -> tensor<256xf32>
  %count = memopt.read @count : tensor<f32>
  %mean = memopt.kernel (%a = %count : tensor<f32>) -> tensor<f32> attributes {phase = #memopt.phase<optimizer>} {
    %e = tensor.empty() : tensor<f32>
    %0 = linalg.generic {indexing_maps = [#scalar, #scalar], iterator_types = []} ins(%a : tensor<f32>) outs(%e : tensor<f32>) {
    ^bb0(%p: f32, %o: f32):
      %1 = math.sqrt %p : f32
      linalg.yield %1 : f32
    } -> tensor<f32>
    memopt.yield %0 : tensor<f32>
  }
  %lr = memopt.read @lr : tensor<f32>
  %rate = memopt.kernel (%a = %lr : tensor<f32>) -> tensor<f32> attributes {phase = #memopt.phase<optimizer>} {
    %e = tensor.empty() : tensor<f32>
    %0 = linalg.generic {indexing_maps = [#scalar, #scalar], iterator_types = []} ins(%a : tensor<f32>) outs(%e : tensor<f32>) {
    ^bb0(%p: f32, %o: f32):
      %1 = arith.addf %p, %p : f32
      linalg.yield %1 : f32
    } -> tensor<f32>
    memopt.yield %0 : tensor<f32>
  }
  return %y, %mean, %rate : tensor<256xf32>, tensor<f32>, tensor<f32>
}
