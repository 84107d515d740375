// RUN: memopt-opt %s -memopt-schedule -memopt-plan-memory -memopt-verify-planned | FileCheck %s

// Around the loop over micro-batches the instructions have an order, too, in which transfers hide behind it. What the
// loop adds to is zero in front of it and read behind it. The state comes from the disk to the host while the loop
// runs, for it is there before; but the value that goes on to the device starts behind the loop, for what is searched in
// the loop takes the device's bytes for given. The state is overwritten behind the commit.

memopt.variable @sum : tensor<1024xf32> role <gradient>
memopt.variable @state : tensor<1024xf32> role <buffer> {placement = #memopt.space<disk>}
memopt.variable @near : tensor<1024xf32> role <buffer> {placement = #memopt.space<host>}
// CHECK-LABEL: func.func @step
func.func @step(%x: tensor<16xf32>) -> tensor<16xf32> {
  // CHECK-DAG: memopt.write %{{.*}}, @sum
  // CHECK-DAG: %[[STATE:.*]] = memopt.transfer_start %{{.*}} to <host> {{.*}}<disk>
  // CHECK: memopt.repeat count(64) next_batch
  // CHECK: memopt.write %{{.*}}, @sum
  // CHECK: }
  // CHECK: memopt.read @sum
  // CHECK: memopt.commit
  // CHECK-DAG: memopt.transfer_wait %[[STATE]]
  // CHECK-DAG: memopt.transfer_start %{{.*}} to <device>
  // CHECK: to <disk>
  %zero = test.run() {kind = "zero"} : () -> tensor<1024xf32>
  memopt.write %zero, @sum : tensor<1024xf32>
  memopt.repeat count(64) next_batch (%batch = %x : tensor<16xf32>) {
    %old = memopt.read @sum : tensor<1024xf32>
    %a = test.run(%batch) {kind = "a"} : (tensor<16xf32>) -> tensor<1024xf32>
    %new = test.run(%a, %old) {kind = "new"} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    memopt.write %new, @sum : tensor<1024xf32>
  }
  %total = memopt.read @sum : tensor<1024xf32>
  %loss = test.run(%total) {kind = "loss"} : (tensor<1024xf32>) -> tensor<f32>
  memopt.commit %loss : tensor<f32>
  %far = memopt.read @state : tensor<1024xf32, #memopt.space<disk>>
  %t0 = memopt.transfer_start %far to <host> : tensor<1024xf32, #memopt.space<disk>>
  %window = memopt.transfer_wait %t0 : tensor<1024xf32, #memopt.space<host>>
  %t1 = memopt.transfer_start %total to <host> : tensor<1024xf32>
  %sent = memopt.transfer_wait %t1 : tensor<1024xf32, #memopt.space<host>>
  %changed = test.run(%window, %sent) {kind = "update"} : (tensor<1024xf32, #memopt.space<host>>, tensor<1024xf32, #memopt.space<host>>) -> tensor<1024xf32, #memopt.space<host>>
  %t2 = memopt.transfer_start %changed to <disk> : tensor<1024xf32, #memopt.space<host>>
  %kept = memopt.transfer_wait %t2 : tensor<1024xf32, #memopt.space<disk>>
  memopt.write %kept, @state : tensor<1024xf32, #memopt.space<disk>>
  %read = memopt.read @near : tensor<1024xf32, #memopt.space<host>>
  %t3 = memopt.transfer_start %read to <device> : tensor<1024xf32, #memopt.space<host>>
  %momentum = memopt.transfer_wait %t3 : tensor<1024xf32>
  %out = test.run(%momentum, %total) {kind = "out"} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<16xf32>
  return %out : tensor<16xf32>
}
