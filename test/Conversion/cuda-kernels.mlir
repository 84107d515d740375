// RUN: kernel-compile %s --chip=sm_90 --print-schedule -o %t.ptx | FileCheck %s
// RUN: FileCheck %s --check-prefix=PTX --input-file=%t.ptx
// RUN: kernel-compile %s --chip=sm_80 --sms=108 -o %t.80.ptx && FileCheck %s --check-prefix=OLD --input-file=%t.80.ptx

// Kernels on threads of a device. "threads=a/b": a threads share an iteration of the parallel loop, a block has b.
// OLD: .target sm_80
// OLD-NOT: .local
// PTX: .target sm_90
// No kernel keeps anything in local memory.
// PTX-NOT: .local

#m2 = affine_map<(r, d) -> (r, d)>
#row = affine_map<(r, d) -> (r)>
#col = affine_map<(r, d) -> (d)>

// Elementwise: a thread has one vector of 16 bytes; as many threads as there are vectors.
// CHECK-LABEL: kernel memopt_kernel_0
// CHECK-NEXT: stage rows=1 distributes-nest threads=1/64
// CHECK-NEXT: nest 32000/4
// CHECK: launch memopt_kernel_0_stage0 for flat: 125 blocks of 64
// PTX-LABEL: .visible .entry memopt_kernel_0_stage0
// PTX: .maxntid 64
// PTX: ld.global.v4.{{[bf]}}32
// PTX: mul.rn.f32
// PTX: st.global.v4.{{[bf]}}32
func.func @flat(%a: tensor<100x320xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<100x320xf32>) -> tensor<100x320xf32> {
    %e = tensor.empty() : tensor<100x320xf32>
    %r = linalg.generic {indexing_maps = [#m2, #m2], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<100x320xf32>) outs(%e : tensor<100x320xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.mulf %p, %p : f32
      linalg.yield %s : f32
    } -> tensor<100x320xf32>
    memopt.yield %r : tensor<100x320xf32>
  }
  return
}

// A row of 320 floats is a warp's: five shuffles sum it up, without shared memory.
// CHECK-LABEL: kernel memopt_kernel_1
// CHECK-NEXT: stage rows=1000 threads=32/256
// CHECK-NEXT: nest 320/4
// PTX-LABEL: .visible .entry memopt_kernel_1_stage0
// PTX-NOT: bar.sync
// PTX-COUNT-5: shfl.sync.bfly.b32
// PTX-NOT: shfl.sync
// PTX: div.rn.f32
// PTX: st.global.v4
func.func @rows(%a: tensor<1000x320xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<1000x320xf32>) -> tensor<1000x320xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<1000xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<1000xf32>) -> tensor<1000xf32>
    %sum = linalg.generic {indexing_maps = [#m2, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<1000x320xf32>) outs(%z : tensor<1000xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    } -> tensor<1000xf32>
    %f = tensor.empty() : tensor<1000x320xf32>
    %r = linalg.generic {indexing_maps = [#m2, #row, #m2], iterator_types = ["parallel", "parallel"]} ins(%x, %sum : tensor<1000x320xf32>, tensor<1000xf32>) outs(%f : tensor<1000x320xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %s = arith.divf %p, %q : f32
      linalg.yield %s : f32
    } -> tensor<1000x320xf32>
    memopt.yield %r : tensor<1000x320xf32>
  }
  return
}

// A long row is a block's: after the shuffles of its warps their sums go through shared memory, between barriers, and
// three more shuffles fold the eight of them in every warp. One thread stores the sum.
// CHECK-LABEL: kernel memopt_kernel_2
// CHECK-NEXT: stage rows=1000 threads=256/256
// CHECK-NEXT: nest
// PTX-LABEL: .visible .entry memopt_kernel_2_stage0
// PTX-COUNT-5: shfl.sync.bfly.b32
// PTX: {{bar.sync|barrier.sync}}
// PTX: st.shared
// PTX: {{bar.sync|barrier.sync}}
// PTX: ld.shared
// PTX-COUNT-3: shfl.sync.bfly.b32
// PTX-NOT: shfl.sync
// PTX: @%p{{[0-9]+}} bra
// PTX: st.global.b32
func.func @long_rows(%a: tensor<1000x8192xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<1000x8192xf32>) -> tensor<1000xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<1000xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<1000xf32>) -> tensor<1000xf32>
    %sum = linalg.generic {indexing_maps = [#m2, #row], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<1000x8192xf32>) outs(%z : tensor<1000xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    } -> tensor<1000xf32>
    memopt.yield %sum : tensor<1000xf32>
  }
  return
}

// A sum over rows has an accumulator for each lane: threads exchange nothing.
// CHECK-LABEL: kernel memopt_kernel_3
// CHECK-NEXT: stage rows=1 distributes-nest threads=1/128
// CHECK-NEXT: nest 65536/4
// PTX-LABEL: .visible .entry memopt_kernel_3_stage0
// PTX-NOT: shfl.sync
// PTX-NOT: bar.sync
// PTX: ld.global.v4
// PTX: add.rn.f32
// PTX: st.global.v4
func.func @columns(%a: tensor<128x65536xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<128x65536xf32>) -> tensor<65536xf32> {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<65536xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<65536xf32>) -> tensor<65536xf32>
    %sum = linalg.generic {indexing_maps = [affine_map<(d, r) -> (r, d)>, affine_map<(d, r) -> (d)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<128x65536xf32>) outs(%z : tensor<65536xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    } -> tensor<65536xf32>
    memopt.yield %sum : tensor<65536xf32>
  }
  return
}

// A transpose goes through 32 x 33 elements of shared memory: both sides of the barrier are contiguous in global memory.
// CHECK-LABEL: kernel memopt_kernel_4
// CHECK-NEXT: stage rows=1 distributes-nest threads=256/256
// CHECK-NEXT: nest 320/tile 32 128/1
// CHECK: launch memopt_kernel_4_stage0 for transpose: 40 blocks of 256
// PTX-LABEL: .visible .entry memopt_kernel_4_stage0
// PTX: {{bar.sync|barrier.sync}}
// PTX: ld.global
// PTX: st.shared
// PTX: {{bar.sync|barrier.sync}}
// PTX: ld.shared
// PTX: st.global
func.func @transpose(%a: tensor<128x320xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<128x320xf32>) -> tensor<320x128xf32> {
    %t = memopt.transpose %x {permutation = array<i64: 1, 0>} : (tensor<128x320xf32>) -> tensor<320x128xf32>
    memopt.yield %t : tensor<320x128xf32>
  }
  return
}

// A scatter of rows: zeros first; then a warp a token, which votes whether an earlier one has the row, and goes through
// the later ones that have it by their bits in a ballot. No atomics.
// CHECK-LABEL: kernel memopt_kernel_5
// CHECK-NEXT: stage rows=1 distributes-nest threads=1
// CHECK-NEXT: nest 64000/4
// CHECK: stage scatter tokens 512 columns 64/4 threads=32
// CHECK: launch memopt_kernel_5_stage0
// CHECK: launch memopt_kernel_5_stage1
// PTX-LABEL: .visible .entry memopt_kernel_5_stage1
// PTX-NOT: atom
// PTX: vote.sync.any.pred
// PTX: vote.sync.ballot.b32
// PTX: st.global.v4
func.func @embedding(%g: tensor<512x64xf32>, %i: tensor<512xi64>) {
  %0 = memopt.kernel (%u = %g : tensor<512x64xf32>, %j = %i : tensor<512xi64>) -> tensor<1000x64xf32> {
    %r = memopt.embedding_backward %u, %j : (tensor<512x64xf32>, tensor<512xi64>) -> tensor<1000x64xf32>
    memopt.yield %r : tensor<1000x64xf32>
  }
  return
}

// Booleans in bits: a thread has those of a byte, which it stores and loads alone.
// CHECK-LABEL: kernel memopt_kernel_6
// CHECK-NEXT: stage rows=1 distributes-nest
// CHECK-NEXT: nest 32000/8
// PTX-LABEL: .visible .entry memopt_kernel_6_stage0
// PTX-COUNT-4: ld.global.v4.{{[bf]}}32
// PTX-NOT: atom
// PTX: st.global.b8
func.func @store_bits(%a: tensor<100x320xf32>, %b: tensor<100x320xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<100x320xf32>, %y = %b : tensor<100x320xf32>) -> tensor<100x40xi8> {
    %e = tensor.empty() : tensor<100x320xi1>
    %r = linalg.generic {indexing_maps = [#m2, #m2, #m2], iterator_types = ["parallel", "parallel"]} ins(%x, %y : tensor<100x320xf32>, tensor<100x320xf32>) outs(%e : tensor<100x320xi1>) {
    ^bb0(%p: f32, %q: f32, %o: i1):
      %s = arith.cmpf olt, %p, %q : f32
      linalg.yield %s : i1
    } -> tensor<100x320xi1>
    %bits = memopt.pack_bits %r : (tensor<100x320xi1>) -> tensor<100x40xi8>
    memopt.yield %bits : tensor<100x40xi8>
  }
  return
}

// CHECK-LABEL: kernel memopt_kernel_7
// CHECK-NEXT: stage rows=1 distributes-nest
// CHECK-NEXT: nest 32000/8
// PTX-LABEL: .visible .entry memopt_kernel_7_stage0
// PTX: ld.global.b8
// PTX-NOT: ld.global.b8
// PTX: st.global.v4
func.func @load_bits(%a: tensor<100x40xi8>, %b: tensor<100x320xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<100x40xi8>, %y = %b : tensor<100x320xf32>) -> tensor<100x320xf32> {
    %mask = memopt.unpack_bits %x : (tensor<100x40xi8>) -> tensor<100x320xi1>
    %e = tensor.empty() : tensor<100x320xf32>
    %zero = arith.constant 0.0 : f32
    %r = linalg.generic {indexing_maps = [#m2, #m2, #m2], iterator_types = ["parallel", "parallel"]} ins(%mask, %y : tensor<100x320xi1>, tensor<100x320xf32>) outs(%e : tensor<100x320xf32>) {
    ^bb0(%p: i1, %q: f32, %o: f32):
      %s = arith.select %p, %q, %zero : f32
      linalg.yield %s : f32
    } -> tensor<100x320xf32>
    memopt.yield %r : tensor<100x320xf32>
  }
  return
}

// Random words: one counter for the four lanes of a thread, ten rounds of two products; the high halves of the first
// round's depend on less.
// CHECK-LABEL: kernel memopt_kernel_8
// CHECK-NEXT: stage rows=1 distributes-nest
// CHECK-NEXT: nest 32000/4
// PTX-LABEL: .visible .entry memopt_kernel_8_stage0
// PTX-COUNT-18: mul.hi.u32
// PTX-NOT: mul.hi.u32
// PTX: st.global.v4
func.func @random_words(%a: tensor<i64>, %b: tensor<i64>) {
  %0 = memopt.kernel (%x = %a : tensor<i64>, %y = %b : tensor<i64>) -> tensor<100x320xi32> {
    %e = tensor.empty() : tensor<100x320xi32>
    %zero = arith.constant 0 : i64
    %r = linalg.generic {indexing_maps = [affine_map<(r, d) -> ()>, affine_map<(r, d) -> ()>, #m2], iterator_types = ["parallel", "parallel"]} ins(%x, %y : tensor<i64>, tensor<i64>) outs(%e : tensor<100x320xi32>) {
    ^bb0(%seed: i64, %step: i64, %o: i32):
      %i = linalg.index 0 : index
      %j = linalg.index 1 : index
      %c = arith.constant 320 : index
      %row = arith.muli %i, %c : index
      %at = arith.addi %row, %j : index
      %number = arith.index_cast %at : index to i64
      %word = memopt.random_word %zero, %number, %seed, %step {id = 3 : i64}
      linalg.yield %word : i32
    } -> tensor<100x320xi32>
    memopt.yield %r : tensor<100x320xi32>
  }
  return
}
