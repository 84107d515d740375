// What belongs to a row alone is computed once for it, and not by each thread of a distributed loop; zeros behind a row
// cost the loads in front of them no guard, so that lines of 1001 numbers, stored with 1008, are loaded eight at a time.
// Where a loop has few lanes a row has as many threads as have a part of it.

// RUN: kernel-compile %s --chip=sm_90 --print-schedule -o %t.ptx | FileCheck %s
// RUN: FileCheck %s --check-prefix=PTX --input-file=%t.ptx

#m = affine_map<(r, d) -> (r, d)>
#r = affine_map<(r, d) -> (r)>

// CHECK-LABEL: kernel memopt_kernel_0
// CHECK-NEXT: stage rows=4000 threads=32/256
// CHECK-NEXT: nest 1008/8
// PTX-LABEL: .visible .entry memopt_kernel_0_stage0
// PTX: ld.global.v4.b32
// PTX-NOT: ld.global.b16
// PTX: st.global.v4.b32
func.func @padded_softmax(%a: tensor<4000x1008xbf16>, %b: tensor<4000xf32>, %c: tensor<4000xi64>) {
  %0 = memopt.kernel (%x = %a : tensor<4000x1008xbf16>, %y = %b : tensor<4000xf32>, %z = %c : tensor<4000xi64>) -> tensor<4000x1008xbf16> {
    %s = tensor.extract_slice %x[0, 0] [4000, 1001] [1, 1] : tensor<4000x1008xbf16> to tensor<4000x1001xbf16>
    %e = tensor.empty() : tensor<4000x1001xbf16>
    %r = linalg.generic {indexing_maps = [#m, #r, #r, #m], iterator_types = ["parallel", "parallel"]} ins(%s, %y, %z : tensor<4000x1001xbf16>, tensor<4000xf32>, tensor<4000xi64>) outs(%e : tensor<4000x1001xbf16>) {
    ^bb0(%p: bf16, %q: f32, %l: i64, %o: bf16):
      %w = arith.extf %p : bf16 to f32
      %g = math.log %q : f32
      %d = arith.subf %w, %g : f32
      %i = linalg.index 1 : index
      %j = arith.index_cast %i : index to i64
      %h = arith.cmpi eq, %j, %l : i64
      %k = arith.select %h, %d, %w : f32
      %n = arith.truncf %k : f32 to bf16
      linalg.yield %n : bf16
    } -> tensor<4000x1001xbf16>
    %t = memopt.pad %r {high = array<i64: 0, 7>, low = array<i64: 0, 0>} : (tensor<4000x1001xbf16>) -> tensor<4000x1008xbf16>
    memopt.yield %t : tensor<4000x1008xbf16>
  }
  return
}

// A relu behind a norm and sums for its gradient, of 256 images with 56 lines of 56 pixels and 64 channels: a row is a line,
// whose 16 vectors of channels belong to 16 threads. With a row for each image 240 of 256 threads would wait for the sums.
// CHECK-LABEL: kernel memopt_kernel_1
// CHECK-NEXT: stage rows=14336 threads=16/256
// CHECK-NEXT: nest 64/4 56
// CHECK: nest 64/4
#k0 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#k1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#k2 = affine_map<(d0, d1, d2, d3) -> (d3)>
func.func @norm_and_sums(%v0: tensor<256x56x56x64xbf16>, %v1: tensor<64xf32>, %v2: tensor<64xf32>, %v3: tensor<64xf32>, %v4: tensor<256x56x56x64xbf16>, %v5: tensor<64xf32>) {
  %1044:3 = memopt.kernel (%arg2 = %v0 : tensor<256x56x56x64xbf16>, %arg3 = %v1 : tensor<64xf32>, %arg4 = %v2 : tensor<64xf32>, %arg5 = %v3 : tensor<64xf32>, %arg6 = %v4 : tensor<256x56x56x64xbf16>, %arg7 = %v5 : tensor<64xf32>) -> (tensor<256x56x56x64xbf16>, tensor<256x56x64xf32>, tensor<256x56x64xf32>) {
    %cst = arith.constant 0.000000e+00 : f32
    %1503 = tensor.empty() : tensor<256x56x56x64xbf16>
    %cst_1 = arith.constant 0.000000e+00 : f32
    %1504 = tensor.empty() : tensor<256x56x56x64xbf16>
    %1505 = tensor.empty() : tensor<256x56x56x64xi1>
    %1506 = tensor.empty() : tensor<256x56x64xf32>
    %1507 = linalg.fill ins(%cst_1 : f32) outs(%1506 : tensor<256x56x64xf32>) -> tensor<256x56x64xf32>
    %1508 = linalg.generic {indexing_maps = [#k0, #k2, #k2, #k2, #k0], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%arg2, %arg3, %arg4, %arg5 : tensor<256x56x56x64xbf16>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) outs(%1503 : tensor<256x56x56x64xbf16>) {
    ^bb0(%in: bf16, %in_2: f32, %in_3: f32, %in_4: f32, %out: bf16):
      %1513 = arith.extf %in : bf16 to f32
      %1514 = arith.subf %1513, %in_2 : f32
      %1515 = arith.mulf %1514, %in_3 : f32
      %1516 = arith.addf %1515, %in_4 : f32
      %1517 = arith.truncf %1516 : f32 to bf16
      linalg.yield %1517 : bf16
    } -> tensor<256x56x56x64xbf16>
    %1509 = linalg.generic {indexing_maps = [#k0, #k0], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%1508 : tensor<256x56x56x64xbf16>) outs(%1503 : tensor<256x56x56x64xbf16>) {
    ^bb0(%in: bf16, %out: bf16):
      %1513 = arith.extf %in : bf16 to f32
      %1514 = arith.cmpf ole, %1513, %cst : f32
      %1515 = arith.select %1514, %cst, %1513 : f32
      %1516 = arith.truncf %1515 : f32 to bf16
      linalg.yield %1516 : bf16
    } -> tensor<256x56x56x64xbf16>
    %1510 = linalg.generic {indexing_maps = [#k0, #k0], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%1509 : tensor<256x56x56x64xbf16>) outs(%1505 : tensor<256x56x56x64xi1>) {
    ^bb0(%in: bf16, %out: i1):
      %cst_2 = arith.constant 0.000000e+00 : bf16
      %1513 = arith.cmpf ole, %in, %cst_2 : bf16
      linalg.yield %1513 : i1
    } -> tensor<256x56x56x64xi1>
    %1511 = linalg.generic {indexing_maps = [#k0, #k0, #k0], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%1510, %arg6 : tensor<256x56x56x64xi1>, tensor<256x56x56x64xbf16>) outs(%1504 : tensor<256x56x56x64xbf16>) {
    ^bb0(%in: i1, %in_2: bf16, %out: bf16):
      %cst_3 = arith.constant 0.000000e+00 : bf16
      %1513 = arith.select %in, %cst_3, %in_2 : bf16
      linalg.yield %1513 : bf16
    } -> tensor<256x56x56x64xbf16>
    %1512:2 = linalg.generic {indexing_maps = [#k0, #k0, #k2, #k1, #k1], iterator_types = ["parallel", "parallel", "reduction", "parallel"]} ins(%1511, %arg2, %arg7 : tensor<256x56x56x64xbf16>, tensor<256x56x56x64xbf16>, tensor<64xf32>) outs(%1507, %1507 : tensor<256x56x64xf32>, tensor<256x56x64xf32>) {
    ^bb0(%in: bf16, %in_2: bf16, %in_3: f32, %out: f32, %out_4: f32):
      %1513 = arith.extf %in : bf16 to f32
      %1514 = arith.extf %in_2 : bf16 to f32
      %1515 = arith.subf %1514, %in_3 : f32
      %1516 = arith.mulf %1513, %1515 : f32
      %1517 = arith.addf %out, %1513 : f32
      %1518 = arith.addf %out_4, %1516 : f32
      linalg.yield %1517, %1518 : f32, f32
    } -> (tensor<256x56x64xf32>, tensor<256x56x64xf32>)
    memopt.yield %1509, %1512#0, %1512#1 : tensor<256x56x56x64xbf16>, tensor<256x56x64xf32>, tensor<256x56x64xf32>
  }
  return
}

// Images become 16-bit with channels last, and five channels of zeros: a thread has the pixel's eight channels, which it
// stores in one access, and threads run along pixels, where loads are contiguous.
// CHECK-LABEL: kernel memopt_kernel_2
// CHECK-NEXT: stage rows=64 distributes-nest threads=1/256
// CHECK-NEXT: nest 50176 8/8
// PTX-LABEL: .visible .entry memopt_kernel_2_stage0
// PTX-COUNT-3: ld.global.b32
// PTX-NOT: ld.global
// PTX: st.global.v4.b32 [%{{.*}}], {%{{.*}}, %{{.*}}, 0, 0}
func.func @images(%a: tensor<64x3x224x224xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<64x3x224x224xf32>) -> tensor<64x224x224x8xbf16> {
    %e = tensor.empty() : tensor<64x224x224x3xbf16>
    %r = linalg.generic {indexing_maps = [affine_map<(i, h, w, c) -> (i, c, h, w)>, affine_map<(i, h, w, c) -> (i, h, w, c)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%x : tensor<64x3x224x224xf32>) outs(%e : tensor<64x224x224x3xbf16>) {
    ^bb0(%p: f32, %o: bf16):
      %t = arith.truncf %p : f32 to bf16
      linalg.yield %t : bf16
    } -> tensor<64x224x224x3xbf16>
    %s = memopt.pad %r {high = array<i64: 0, 0, 0, 5>, low = array<i64: 0, 0, 0, 0>} : (tensor<64x224x224x3xbf16>) -> tensor<64x224x224x8xbf16>
    memopt.yield %s : tensor<64x224x224x8xbf16>
  }
  return
}
