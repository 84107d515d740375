// RUN: memopt-opt %s -memopt-shard-parameters=ranks=3 -split-input-file | FileCheck %s
// RUN: memopt-opt %s -memopt-shard-parameters="ranks=3 gather-again=true" -cse -split-input-file | FileCheck %s --check-prefix=AGAIN
// RUN: memopt-opt %s -memopt-shard-parameters=ranks=3 -split-input-file | FileCheck %s --check-prefix=CODES
// RUN: memopt-opt %s -memopt-shard-parameters=ranks=1 -split-input-file | FileCheck %s --check-prefix=ALONE

// A rank keeps its shard; what reads the tensor has it gathered, and an update stays where it is.

// ALONE: memopt.variable @w : tensor<7x10xf32>
// ALONE-NOT: shard =
// CHECK: memopt.variable @w : tensor<32xf32> role <parameter> {initial = dense<2.000000e+00> : tensor<7x10xf32>, shard = #memopt.shard<ranks = 3, shape = [7, 10]>, trainable}
memopt.variable @w : tensor<7x10xf32> role <parameter> {initial = dense<2.0> : tensor<7x10xf32>, trainable}
// CHECK-LABEL: func.func @train_step
func.func @train_step(%g: tensor<32xf32>) -> tensor<7x10xf32> {
  // CHECK: %[[OWN:.*]] = memopt.read @w : tensor<32xf32>
  // CHECK: %[[ALL:.*]] = memopt.collective <all_gather> %[[OWN]] over 3 : tensor<32xf32> -> tensor<7x10xf32>
  // CHECK: %[[OUT:.*]] = arith.addf %[[ALL]], %[[ALL]]
  %w = memopt.read @w : tensor<7x10xf32>
  %out = arith.addf %w, %w : tensor<7x10xf32>
  // CHECK-NOT: memopt.collective
  // CHECK: %[[NEW:.*]] = arith.subf %[[OWN]], %arg0
  // CHECK: memopt.write %[[NEW]], @w {{.*}} : tensor<32xf32>
  // CHECK: return %[[OUT]]
  %old = memopt.collective <own_shard> %w over 3 {phase = #memopt.phase<optimizer>} : tensor<7x10xf32> -> tensor<32xf32>
  %new = arith.subf %old, %g {memopt.phase = #memopt.phase<optimizer>} : tensor<32xf32>
  %all = memopt.collective <all_gather> %new over 3 {phase = #memopt.phase<optimizer>} : tensor<32xf32> -> tensor<7x10xf32>
  memopt.write %all, @w {memopt.phase = #memopt.phase<optimizer>} : tensor<7x10xf32>
  return %out : tensor<7x10xf32>
}

// -----

// The cut is that of the update: of state in 8 bits, blocks. A frozen parameter has the smallest.

// CHECK: memopt.variable @blocks : tensor<256xf32> {{.*}}shape = [20, 30]
memopt.variable @blocks : tensor<20x30xf32> role <parameter> {trainable}
// CHECK: memopt.variable @frozen : tensor<208xf32> {{.*}}shape = [20, 30]
memopt.variable @frozen : tensor<20x30xf32> role <parameter>
// CHECK-LABEL: func.func @cuts
func.func @cuts() -> (tensor<20x30xf32>, tensor<256xf32>) {
  // CHECK: %[[BLOCKS:.*]] = memopt.read @blocks : tensor<256xf32>
  // CHECK: memopt.read @frozen : tensor<208xf32>
  // CHECK: %[[FROZEN:.*]] = memopt.collective <all_gather> %{{.*}} : tensor<208xf32> -> tensor<20x30xf32>
  // CHECK: return %[[FROZEN]], %[[BLOCKS]]
  %0 = memopt.read @blocks : tensor<20x30xf32>
  %1 = memopt.collective <own_shard> %0 over 3 : tensor<20x30xf32> -> tensor<256xf32>
  %2 = memopt.read @frozen : tensor<20x30xf32>
  return %2, %1 : tensor<20x30xf32>, tensor<256xf32>
}

// -----

// What is read narrower is sent narrower.

memopt.variable @w : tensor<7x10xf32> role <parameter>
// CHECK-LABEL: func.func @narrow
func.func @narrow() -> tensor<7x10xbf16> {
  // CHECK: %[[OWN:.*]] = memopt.read @w : tensor<32xf32>
  // CHECK: %[[NARROW:.*]] = arith.truncf %[[OWN]] {{.*}}: tensor<32xf32> to tensor<32xbf16>
  // CHECK: %[[ALL:.*]] = memopt.collective <all_gather> %[[NARROW]] over 3 : tensor<32xbf16> -> tensor<7x10xbf16>
  // CHECK: return %[[ALL]]
  %0 = memopt.read @w : tensor<7x10xf32>
  %1 = arith.truncf %0 {memopt.phase = #memopt.phase<forward>} : tensor<7x10xf32> to tensor<7x10xbf16>
  return %1 : tensor<7x10xbf16>
}

// -----

// A shard of this one has no fewer bytes than the whole, and a buffer is none.

// CHECK: memopt.variable @small : tensor<4x4xf32> role <parameter>
memopt.variable @small : tensor<4x4xf32> role <parameter>
// CHECK: memopt.variable @mean : tensor<64xf32> role <buffer>
memopt.variable @mean : tensor<64xf32> role <buffer>
// CHECK-LABEL: func.func @left
func.func @left() -> (tensor<4x4xf32>, tensor<64xf32>) {
  // CHECK-NOT: memopt.collective
  %0 = memopt.read @small : tensor<4x4xf32>
  %1 = memopt.read @mean : tensor<64xf32>
  return %0, %1 : tensor<4x4xf32>, tensor<64xf32>
}

// -----

// What is written without having been gathered is cut. A loop's body gathers what it reads.

memopt.variable @w : tensor<64xf32> role <parameter>
memopt.variable @kept : tensor<64xf32> role <gradient>
// CHECK-LABEL: func.func @loop
func.func @loop(%x: tensor<64xf32>) {
  // CHECK: memopt.repeat
  // CHECK: memopt.read @w : tensor<32xf32>
  // CHECK: memopt.collective <all_gather>
  memopt.repeat count(2) {
    %0 = memopt.read @w : tensor<64xf32>
    %1 = arith.negf %0 : tensor<64xf32>
    memopt.write %1, @kept : tensor<64xf32>
  }
  // CHECK: %[[OWN:.*]] = memopt.collective <own_shard> %arg0 over 3 : tensor<64xf32> -> tensor<32xf32>
  // CHECK: memopt.write %[[OWN]], @w
  memopt.write %x, @w : tensor<64xf32>
  return
}

// -----

// The backward pass reads what was gathered for the forward pass, or gathers again where it begins to.

memopt.variable @w : tensor<64xf32> role <parameter>
// CHECK-LABEL: func.func @passes
// AGAIN-LABEL: func.func @passes
func.func @passes(%x: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  // CHECK: %[[ONCE:.*]] = memopt.collective <all_gather>
  // CHECK: arith.mulf %arg0, %[[ONCE]]
  // CHECK-NEXT: arith.mulf {{.*}}, %[[ONCE]]
  // CHECK-NEXT: arith.mulf {{.*}}, %[[ONCE]]
  // AGAIN: %[[OWN:.*]] = memopt.read @w
  // AGAIN: %[[FIRST:.*]] = memopt.collective <all_gather> %[[OWN]] over 3 : tensor<32xf32> -> tensor<64xf32>
  // AGAIN: %[[Y:.*]] = arith.mulf %arg0, %[[FIRST]]
  // AGAIN: %[[SECOND:.*]] = memopt.collective <all_gather> %[[OWN]] over 3 {clone = 1 : i64, phase = #memopt.phase<backward>}
  // AGAIN: arith.mulf %[[Y]], %[[SECOND]]
  // AGAIN-NEXT: arith.mulf {{.*}}, %[[SECOND]]
  %w = memopt.read @w : tensor<64xf32>
  %y = arith.mulf %x, %w : tensor<64xf32>
  %dx = arith.mulf %y, %w {memopt.phase = #memopt.phase<backward>} : tensor<64xf32>
  %dy = arith.mulf %dx, %w {memopt.phase = #memopt.phase<backward>} : tensor<64xf32>
  return %y, %dy : tensor<64xf32>, tensor<64xf32>
}

// -----

// What will be kept in codes stays whole: their blocks are not cut. What is trained, or small, is shared out as ever.

// CODES: memopt.variable @frozen : tensor<64x64xf32> role <parameter>
// CODES: memopt.variable @trained : tensor<1376xf32>{{.*}}shard = #memopt.shard<ranks = 3, shape = [64, 64]>
// CODES: memopt.variable @small : tensor<{{[0-9]+}}xf32>{{.*}}shard =
// CODES: memopt.read @frozen : tensor<64x64xf32>
memopt.variable @frozen : tensor<64x64xf32> role <parameter> {memopt.state_code = {code = "int8"}}
memopt.variable @trained : tensor<64x64xf32> role <parameter> {trainable}
memopt.variable @small : tensor<64xf32> role <parameter>
func.func @train_step() -> (tensor<64x64xf32>, tensor<64xf32>) {
  %frozen = memopt.read @frozen : tensor<64x64xf32>
  %trained = memopt.read @trained : tensor<64x64xf32>
  %small = memopt.read @small : tensor<64xf32>
  %sum = arith.addf %frozen, %trained : tensor<64x64xf32>
  return %sum, %small : tensor<64x64xf32>, tensor<64xf32>
}

// -----

// What is updated as one vector is one variable, which is gathered for all of its tensors; a pass may gather for itself.

// CHECK: memopt.variable @"a@unit" : tensor<32xf32> role <parameter> {joined, names = [], trainable}
// CHECK: memopt.variable @a : tensor<32xf32> {{.*}}shard = #memopt.shard<ranks = 3, shape = [7, 10]>, trainable, unit = @"a@unit"
// CHECK: memopt.variable @b : tensor<32xf32> {{.*}}shard = #memopt.shard<ranks = 3, shape = [3], first = 80>, trainable, unit = @"a@unit"
memopt.variable @a : tensor<7x10xf32> role <parameter> {trainable}
memopt.variable @b : tensor<3xf32> role <parameter> {trainable}
// CHECK-LABEL: func.func @together
// AGAIN-LABEL: func.func @together
func.func @together(%g: tensor<32xf32>) -> (tensor<7x10xf32>, tensor<3xf32>) {
  // CHECK: %[[OWN:.*]] = memopt.read @"a@unit"
  // CHECK: %[[ALL:.*]] = memopt.collective <all_gather> %[[OWN]] over 3 : tensor<32xf32> -> tensor<83xf32>
  // CHECK: %[[A:.*]] = memopt.unpack %[[ALL]] from 0
  // CHECK: arith.addf %[[A]], %[[A]]
  // CHECK: %[[B:.*]] = memopt.unpack %[[ALL]] from 80
  // CHECK: arith.addf %[[B]], %[[B]]
  // CHECK-NOT: memopt.collective
  // CHECK: %[[NEW:.*]] = arith.subf %[[OWN]], %arg0
  // CHECK: memopt.write %[[NEW]], @"a@unit"
  // CHECK-NOT: memopt.write
  // AGAIN: memopt.collective <all_gather>
  // AGAIN: memopt.collective <all_gather> {{.*}}phase = #memopt.phase<backward>
  %a = memopt.read @a : tensor<7x10xf32>
  %0 = arith.addf %a, %a : tensor<7x10xf32>
  %b = memopt.read @b : tensor<3xf32>
  %1 = arith.addf %b, %b {memopt.phase = #memopt.phase<backward>} : tensor<3xf32>
  %both = memopt.pack %a, %b at [0, 80] {memopt.phase = #memopt.phase<optimizer>} : (tensor<7x10xf32>, tensor<3xf32>) -> tensor<83xf32>
  %old = memopt.collective <own_shard> %both over 3 {phase = #memopt.phase<optimizer>} : tensor<83xf32> -> tensor<32xf32>
  %new = arith.subf %old, %g {memopt.phase = #memopt.phase<optimizer>} : tensor<32xf32>
  %all = memopt.collective <all_gather> %new over 3 {phase = #memopt.phase<optimizer>} : tensor<32xf32> -> tensor<83xf32>
  %2 = memopt.unpack %all from 0 {memopt.phase = #memopt.phase<optimizer>} : tensor<83xf32> -> tensor<7x10xf32>
  memopt.write %2, @a {memopt.phase = #memopt.phase<optimizer>} : tensor<7x10xf32>
  %3 = memopt.unpack %all from 80 {memopt.phase = #memopt.phase<optimizer>} : tensor<83xf32> -> tensor<3xf32>
  memopt.write %3, @b {memopt.phase = #memopt.phase<optimizer>} : tensor<3xf32>
  return %0, %1 : tensor<7x10xf32>, tensor<3xf32>
}

// -----

// Small frozen parameters are cut together, those that are read narrow apart from the others.

// CHECK: memopt.variable @p : tensor<12xf32> {{.*}}unit = @"p@unit"
// CHECK: memopt.variable @q : tensor<16xf32> role <parameter>{{$}}
// CHECK: memopt.variable @r : tensor<12xf32> {{.*}}first = 16>{{.*}}unit = @"p@unit"
memopt.variable @p : tensor<10xf32> role <parameter>
memopt.variable @q : tensor<16xf32> role <parameter>
memopt.variable @r : tensor<20xf32> role <parameter>
// CHECK-LABEL: func.func @frozen
func.func @frozen() -> (tensor<10xf32>, tensor<16xbf16>, tensor<20xf32>) {
  // CHECK: memopt.collective <all_gather> %{{.*}} : tensor<12xf32> -> tensor<36xf32>
  %p = memopt.read @p : tensor<10xf32>
  %q = memopt.read @q : tensor<16xf32>
  %narrow = arith.truncf %q : tensor<16xf32> to tensor<16xbf16>
  %r = memopt.read @r : tensor<20xf32>
  return %p, %narrow, %r : tensor<10xf32>, tensor<16xbf16>, tensor<20xf32>
}
