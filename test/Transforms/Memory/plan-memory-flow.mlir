// RUN: memopt-opt %s -memopt-plan-memory -memopt-verify-planned -split-input-file | FileCheck %s

// A loop's body uses 1024 bytes from outside in its first instruction. They live to the end of the loop, for the next
// iteration reads them again; the two values inside, 1024 bytes each and not alive together with a third, share no byte
// with them: 3072 in all. Without the loop the input would die at once: 2048.

// CHECK: module attributes {memopt.planned = #memopt.planned<arena_bytes = [3072, 0, 0]
// CHECK-LABEL: func.func @loop
func.func @loop(%x: tensor<256xf32>) {
  memopt.repeat count(4) (%in = %x : tensor<256xf32>) {
    %a = test.run(%in) : (tensor<256xf32>) -> tensor<256xf32>
    %b = test.run(%a) : (tensor<256xf32>) -> tensor<256xf32>
    %c = test.run(%b) : (tensor<256xf32>) -> tensor<256xf32>
  }
  return
}

// -----

// An accumulator is a variable. The body's sum is written into its bytes, and so are the zeros before the loop: what is
// read behind the loop is what the loop wrote. The input of 1024 bytes stays for all iterations and makes room for the
// result then: 2048 with the variable.

// CHECK: module attributes {memopt.planned = #memopt.planned<arena_bytes = [2048, 0, 0]
memopt.variable @sum : tensor<256xf32> role <gradient>
// CHECK: memopt.variable @sum {{.*}}offset = 0 : i64
// CHECK-LABEL: func.func @accumulate
func.func @accumulate(%x: tensor<256xf32>) -> tensor<256xf32> {
  // CHECK: test.run() {offsets = array<i64: 0>}
  %zero = test.run() : () -> tensor<256xf32>
  memopt.write %zero, @sum : tensor<256xf32>
  // CHECK: memopt.repeat
  memopt.repeat count(4) (%in = %x : tensor<256xf32>) {
    %old = memopt.read @sum : tensor<256xf32>
    // CHECK: test.run(%{{.*}}, %{{.*}}) {in_place = array<i64: 0>, offsets = array<i64: 0>}
    %new = test.run(%old, %in) {in_place = array<i64: 0>} : (tensor<256xf32>, tensor<256xf32>) -> tensor<256xf32>
    memopt.write %new, @sum : tensor<256xf32>
  }
  %all = memopt.read @sum : tensor<256xf32>
  %result = test.run(%all) : (tensor<256xf32>) -> tensor<256xf32>
  return %result : tensor<256xf32>
}

// -----

// An accumulation that cannot be made in place gets a copy at the end of the body, in every iteration.

memopt.variable @sum : tensor<256xf32> role <gradient>
// CHECK-LABEL: func.func @copy
func.func @copy(%x: tensor<256xf32>) {
  // CHECK: memopt.repeat
  // CHECK: %[[NEW:.*]] = test.run
  // CHECK: %[[COPY:.*]] = memopt.kernel (%{{.*}} = %[[NEW]] : tensor<256xf32>)
  // CHECK: memopt.write %[[COPY]], @sum
  memopt.repeat count(4) (%in = %x : tensor<256xf32>) {
    %old = memopt.read @sum : tensor<256xf32>
    %new = test.run(%old, %in) : (tensor<256xf32>, tensor<256xf32>) -> tensor<256xf32>
    memopt.write %new, @sum : tensor<256xf32>
  }
  return
}

// -----

// Each space has an arena of its own. A variable that is placed on the host lies there; what it is copied to on the
// device is taken from the start of the copy on, so the value made meanwhile lies beside it: 1024 + 1024 + 1024 for the
// result. The sum goes back into the variable's bytes.

// CHECK: module attributes {memopt.planned = #memopt.planned<arena_bytes = [3072, 1024, 0], lower_bound_bytes = [3072, 1024, 0]>}
memopt.variable @moment : tensor<256xf32> role <buffer> {placement = #memopt.space<host>}
// CHECK-LABEL: func.func @spaces
func.func @spaces() {
  %far = memopt.read @moment : tensor<256xf32, #memopt.space<host>>
  // CHECK: memopt.transfer_start %{{.*}} to <device> {number = 0 : i64, offsets = array<i64>}
  %t = memopt.transfer_start %far to <device> : tensor<256xf32, #memopt.space<host>>
  %other = test.run() : () -> tensor<256xf32>
  %near = memopt.transfer_wait %t : tensor<256xf32>
  %sum = test.run(%near, %other) : (tensor<256xf32>, tensor<256xf32>) -> tensor<256xf32>
  // CHECK: memopt.transfer_start %{{.*}} to <host> {number = 1 : i64, offsets = array<i64>}
  %back = memopt.transfer_start %sum to <host> : tensor<256xf32>
  // CHECK: memopt.transfer_wait %{{.*}} {offsets = array<i64: 0>} : tensor<256xf32, #memopt.space<host>>
  %new = memopt.transfer_wait %back : tensor<256xf32, #memopt.space<host>>
  memopt.write %new, @moment : tensor<256xf32, #memopt.space<host>>
  return
}

// -----

// What is sent into a variable's bytes takes them from its start on. Here something reads the old value between start and
// wait, so it goes beside them and is copied.

memopt.variable @moment : tensor<256xf32> role <buffer>
// CHECK-LABEL: func.func @late_reader
func.func @late_reader(%x: tensor<256xf32>) -> tensor<256xf32> {
  %out = memopt.transfer_start %x to <host> : tensor<256xf32>
  %far = memopt.transfer_wait %out : tensor<256xf32, #memopt.space<host>>
  %old = memopt.read @moment : tensor<256xf32>
  %back = memopt.transfer_start %far to <device> : tensor<256xf32, #memopt.space<host>>
  // CHECK: test.run
  %sum = test.run(%old) : (tensor<256xf32>) -> tensor<256xf32>
  // CHECK-NEXT: %[[NEW:.*]] = memopt.transfer_wait
  %new = memopt.transfer_wait %back : tensor<256xf32>
  // CHECK: %[[COPY:.*]] = memopt.kernel (%{{.*}} = %[[NEW]] : tensor<256xf32>)
  // CHECK: memopt.write %[[COPY]], @moment
  memopt.write %new, @moment : tensor<256xf32>
  return %sum : tensor<256xf32>
}

// -----

// A value of the host that is written to two variables is copied there, by a kernel of the host.

// CHECK: module attributes {memopt.planned = #memopt.planned<arena_bytes = [1024, 2048, 0]
memopt.variable @one : tensor<256xf32> role <buffer> {placement = #memopt.space<host>}
memopt.variable @other : tensor<256xf32> role <buffer> {placement = #memopt.space<host>}
// CHECK-LABEL: func.func @copy_on_the_host
func.func @copy_on_the_host(%x: tensor<256xf32>) {
  %out = memopt.transfer_start %x to <host> : tensor<256xf32>
  %far = memopt.transfer_wait %out : tensor<256xf32, #memopt.space<host>>
  memopt.write %far, @one : tensor<256xf32, #memopt.space<host>>
  // CHECK: %[[COPY:.*]] = memopt.kernel ({{.*}}) -> tensor<256xf32, #memopt.space<host>>
  // CHECK: memopt.write %[[COPY]], @other
  memopt.write %far, @other : tensor<256xf32, #memopt.space<host>>
  return
}
