// RUN: memopt-opt %s -memopt-plan-memory -split-input-file | FileCheck %s --check-prefix=GIVEN
// RUN: memopt-opt %s -memopt-schedule -split-input-file | FileCheck %s
// RUN: memopt-opt %s -memopt-schedule -memopt-plan-memory -memopt-verify-planned -split-input-file | FileCheck %s --check-prefix=PLANNED

// An iteration makes two values of 4096 bytes of its slice and boils each down to a slice of a result. Side by side both
// are alive, one after the other only one is: 4096 instead of 8192, beside an input and two results of 512 each.

// GIVEN: memopt.planned = #memopt.planned<arena_bytes = [9728,
// PLANNED: memopt.planned = #memopt.planned<arena_bytes = [5632,
// CHECK-LABEL: func.func @scan
func.func @scan(%xs: tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>) {
  // CHECK: memopt.scan
  // CHECK: %[[FIRST:.*]] = test.run({{.*}} -> tensor<1024xf32>
  // CHECK: test.run(%[[FIRST]])
  // CHECK: %[[SECOND:.*]] = test.run({{.*}} -> tensor<1024xf32>
  // CHECK: test.run(%[[SECOND]])
  %all:2 = memopt.scan count(8) slices(%x = %xs : tensor<16xf32> of tensor<8x16xf32>) {
    %a = test.run(%x) {kind = "a"} : (tensor<16xf32>) -> tensor<1024xf32>
    %b = test.run(%x) {kind = "b"} : (tensor<16xf32>) -> tensor<1024xf32>
    %c = test.run(%a) {kind = "c"} : (tensor<1024xf32>) -> tensor<16xf32>
    %d = test.run(%b) {kind = "d"} : (tensor<1024xf32>) -> tensor<16xf32>
    memopt.yield %c, %d : tensor<16xf32>, tensor<16xf32>
  } -> tensor<8x16xf32>, tensor<8x16xf32>
  return %all#0, %all#1 : tensor<8x16xf32>, tensor<8x16xf32>
}

// -----

// What the next iteration begins with is made in the bytes of what this one began with, so its maker comes after every
// reader of that, though it frees a large value: no copy is needed.

// PLANNED-LABEL: func.func @carried
// PLANNED: memopt.scan
// PLANNED-NOT: memopt.kernel
// PLANNED: memopt.yield
// CHECK-LABEL: func.func @carried
func.func @carried(%x: tensor<16xf32>) -> (tensor<16xf32>, tensor<4x16xf32>) {
  // CHECK: memopt.scan
  // CHECK: kind = "c"
  // CHECK: kind = "d"
  // CHECK: kind = "next"
  %h0 = test.run(%x) {kind = "begin"} : (tensor<16xf32>) -> tensor<16xf32>
  %last, %all = memopt.scan count(4) carried(%h = %h0 : tensor<16xf32>) {
    %a = test.run(%h) {kind = "a"} : (tensor<16xf32>) -> tensor<1024xf32>
    %b = test.run(%h) {kind = "b"} : (tensor<16xf32>) -> tensor<1024xf32>
    %c = test.run(%a) {kind = "c"} : (tensor<1024xf32>) -> tensor<16xf32>
    %flat = tensor.expand_shape %h [[0, 1]] output_shape [4, 4] : tensor<16xf32> into tensor<4x4xf32>
    %d = test.run(%c, %flat) {kind = "d"} : (tensor<16xf32>, tensor<4x4xf32>) -> tensor<16xf32>
    %next = test.run(%b) {kind = "next"} : (tensor<1024xf32>) -> tensor<16xf32>
    memopt.yield %next, %d : tensor<16xf32>, tensor<16xf32>
  } -> tensor<16xf32>, tensor<4x16xf32>
  return %last, %all : tensor<16xf32>, tensor<4x16xf32>
}

// -----

// Of two loops over micro-batches the first has the large values: 4096 + 64 (the first small one) + 64 (the result), beside
// two variables and the input of 64 each.

// GIVEN: memopt.planned = #memopt.planned<arena_bytes = [8448,
// PLANNED: memopt.planned = #memopt.planned<arena_bytes = [4416,
memopt.variable @sum : tensor<16xf32> role <gradient>
memopt.variable @other : tensor<16xf32> role <gradient>
// CHECK-LABEL: func.func @repeats
func.func @repeats(%x: tensor<16xf32>) -> tensor<16xf32> {
  // CHECK: memopt.repeat
  // CHECK: %[[FIRST:.*]] = test.run({{.*}} -> tensor<1024xf32>
  // CHECK: test.run(%[[FIRST]]
  // CHECK: %[[SECOND:.*]] = test.run({{.*}} -> tensor<1024xf32>
  // CHECK: test.run({{.*}}%[[SECOND]]
  // CHECK: memopt.repeat
  memopt.repeat count(4) next_batch (%batch = %x : tensor<16xf32>) {
    %old = memopt.read @sum : tensor<16xf32>
    %a = test.run(%batch) {kind = "a"} : (tensor<16xf32>) -> tensor<1024xf32>
    %b = test.run(%batch) {kind = "b"} : (tensor<16xf32>) -> tensor<1024xf32>
    %c = test.run(%a) {kind = "c"} : (tensor<1024xf32>) -> tensor<16xf32>
    %d = test.run(%b, %c, %old) {kind = "d"} : (tensor<1024xf32>, tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
    memopt.write %d, @sum : tensor<16xf32>
    memopt.yield
  }
  memopt.repeat count(4) next_batch (%batch = %x : tensor<16xf32>) {
    %total = memopt.read @sum : tensor<16xf32>
    %e = test.run(%batch, %total) {kind = "e"} : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
    memopt.write %e, @other : tensor<16xf32>
    memopt.yield
  }
  %late = memopt.read @other : tensor<16xf32>
  return %late : tensor<16xf32>
}

// -----

// A scan in a scan. With its own order the inner body needs 4160 bytes, and beside what is alive around it these are no
// longer the peak: that is 8192 + 128, where the large value becomes a small one before the inner scan begins.

// GIVEN: memopt.planned = #memopt.planned<arena_bytes = [17600,
// PLANNED: memopt.planned = #memopt.planned<arena_bytes = [9344,
// CHECK-LABEL: func.func @nested
func.func @nested(%xs: tensor<4x2x16xf32>) -> tensor<4x2x16xf32> {
  // CHECK: kind = "big"
  // CHECK: kind = "small"
  // CHECK: memopt.scan count(2)
  // CHECK: kind = "a"
  // CHECK: kind = "c"
  // CHECK: kind = "b"
  %all = memopt.scan count(4) slices(%x = %xs : tensor<2x16xf32> of tensor<4x2x16xf32>) {
    %big = test.run(%x) {kind = "big"} : (tensor<2x16xf32>) -> tensor<2048xf32>
    %inner = memopt.scan count(2) slices(%y = %x : tensor<16xf32> of tensor<2x16xf32>) {
      %a = test.run(%y) {kind = "a"} : (tensor<16xf32>) -> tensor<1024xf32>
      %b = test.run(%y) {kind = "b"} : (tensor<16xf32>) -> tensor<1024xf32>
      %c = test.run(%a) {kind = "c"} : (tensor<1024xf32>) -> tensor<16xf32>
      %d = test.run(%b, %c) {kind = "d"} : (tensor<1024xf32>, tensor<16xf32>) -> tensor<16xf32>
      memopt.yield %d : tensor<16xf32>
    } -> tensor<2x16xf32>
    %small = test.run(%big) {kind = "small"} : (tensor<2048xf32>) -> tensor<2x16xf32>
    %sum = test.run(%inner, %small) {kind = "sum"} : (tensor<2x16xf32>, tensor<2x16xf32>) -> tensor<2x16xf32>
    memopt.yield %sum : tensor<2x16xf32>
  } -> tensor<4x2x16xf32>
  return %all : tensor<4x2x16xf32>
}
