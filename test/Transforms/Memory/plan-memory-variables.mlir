// RUN: memopt-opt %s -memopt-plan-memory -split-input-file | FileCheck %s
// RUN: memopt-opt %s -memopt-plan-memory -memopt-verify-planned -split-input-file > /dev/null

// An update that reads the old value element by element is made in the variable's own bytes: 1024 of the variable,
// 1024 of the gradient that comes in, and no third buffer.

#map = affine_map<(d0) -> (d0)>
// CHECK: module attributes {memopt.planned = #memopt.planned<arena_bytes = [2048, 0, 0], lower_bound_bytes = [2048, 0, 0]>}
// CHECK: memopt.variable @w {{.*}}offset = [[HOME:[0-9]+]] : i64
memopt.variable @w : tensor<256xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @update_in_place
func.func @update_in_place(%g: tensor<256xf32>) {
  %w = memopt.read @w : tensor<256xf32>
  // The parameter lies at the bottom of the arena, and so does its new value.
  // CHECK: memopt.kernel {{.*}} attributes {offsets = array<i64: 0>}
  // CHECK-NOT: memopt.kernel
  %new = memopt.kernel (%old = %w : tensor<256xf32>, %d = %g : tensor<256xf32>) -> tensor<256xf32> {
    %e = tensor.empty() : tensor<256xf32>
    %0 = linalg.generic {indexing_maps = [#map, #map, #map], iterator_types = ["parallel"]}
        ins(%old, %d : tensor<256xf32>, tensor<256xf32>) outs(%e : tensor<256xf32>) {
    ^bb0(%p: f32, %q: f32, %out: f32):
      %1 = arith.subf %p, %q : f32
      linalg.yield %1 : f32
    } -> tensor<256xf32>
    memopt.yield %0 : tensor<256xf32>
  }
  memopt.write %new, @w : tensor<256xf32>
  return
}

// -----

// The old value is read after the new one is made: the new value gets its own bytes, and a kernel copies it home
// when everybody is done.

#map = affine_map<(d0) -> (d0)>
memopt.variable @w : tensor<256xf32> role <buffer>
// CHECK-LABEL: func.func @late_reader
func.func @late_reader(%x: tensor<256xf32>) -> tensor<256xf32> {
  %w = memopt.read @w : tensor<256xf32>
  // CHECK: %[[NEW:.*]] = test.run(%{{.*}}) {{.*}}offsets = array<i64: [[AT:[1-9][0-9]*]]>
  %new = test.run(%x) : (tensor<256xf32>) -> tensor<256xf32>
  // CHECK: test.run
  %late = test.run(%w) : (tensor<256xf32>) -> tensor<256xf32>
  // CHECK: %[[COPY:.*]] = memopt.kernel (%{{.*}} = %[[NEW]] : tensor<256xf32>) -> tensor<256xf32> attributes {offsets = array<i64: 0>}
  // CHECK: memopt.write %[[COPY]], @w
  memopt.write %new, @w : tensor<256xf32>
  return %late : tensor<256xf32>
}

// -----

// A library reads its operands in any order, so an update by it goes through a copy even when nobody reads later.

memopt.variable @w : tensor<16x16xf32> role <buffer>
// CHECK-LABEL: func.func @library_update
// CHECK: test.run
// CHECK: %[[COPY:.*]] = memopt.kernel
// CHECK: memopt.write %[[COPY]], @w
func.func @library_update() {
  %w = memopt.read @w : tensor<16x16xf32>
  %new = test.run(%w, %w) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  memopt.write %new, @w : tensor<16x16xf32>
  return
}

// -----

// One value written to two variables is in one of them, and copied to the other.

memopt.variable @a : tensor<256xf32> role <buffer>
memopt.variable @b : tensor<256xf32> role <buffer>
// CHECK-LABEL: func.func @two_homes
// CHECK: %[[NEW:.*]] = test.run
// CHECK: memopt.write %[[NEW]], @a
// CHECK: %[[COPY:.*]] = memopt.kernel (%{{.*}} = %[[NEW]]
// CHECK: memopt.write %[[COPY]], @b
func.func @two_homes(%x: tensor<256xf32>) {
  %new = test.run(%x) : (tensor<256xf32>) -> tensor<256xf32>
  memopt.write %new, @a : tensor<256xf32>
  memopt.write %new, @b : tensor<256xf32>
  return
}

// -----

// An input that becomes state is copied, for nothing produces it.

memopt.variable @last : tensor<256xf32> role <buffer>
// CHECK-LABEL: func.func @keep_input
// CHECK: %[[COPY:.*]] = memopt.kernel
// CHECK: memopt.write %[[COPY]], @last
func.func @keep_input(%x: tensor<256xf32>) {
  memopt.write %x, @last : tensor<256xf32>
  return
}

// -----

// The mark of a gradient is a place where somebody may look: what it names has bytes of its own once it has run, and
// may be overwritten by later instructions, but not by an instruction before it is complete.

memopt.variable @w : tensor<256xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @gradient
// CHECK: memopt.gradient
func.func @gradient(%x: tensor<256xf32>) {
  %g = test.run(%x) : (tensor<256xf32>) -> tensor<256xf32>
  memopt.gradient %g, @w : tensor<256xf32>
  return
}
