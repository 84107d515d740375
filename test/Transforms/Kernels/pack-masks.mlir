// RUN: memopt-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(memopt-pack-masks))' | FileCheck %s
// RUN: memopt-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(memopt-pack-masks))' --remarks-filter='memopt-pack-masks' --remark-format=emitRemark 2>&1 | FileCheck %s --check-prefix=REMARK

// A mask that a kernel makes in the forward pass and kernels of both passes read is an eighth of its bytes.

#id = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-LABEL: func.func @kept
// REMARK: BytesAfter=1024, BytesBefore=8192, Values=1
func.func @kept(%x: tensor<128x64xf32>, %g: tensor<128x64xf32>) -> (tensor<128x64xf32>, tensor<128x64xf32>) {
  // CHECK: %[[MADE:.*]]:2 = memopt.kernel {{.*}} -> (tensor<128x8xi8>, tensor<128x64xf32>)
  // CHECK: %[[MASK:.*]]:2 = linalg.generic
  // CHECK: %[[BITS:.*]] = memopt.pack_bits %[[MASK]]#0 : (tensor<128x64xi1>) -> tensor<128x8xi8>
  // CHECK: memopt.yield %[[BITS]], %[[MASK]]#1
  %made:2 = memopt.kernel (%a = %x : tensor<128x64xf32>) -> (tensor<128x64xi1>, tensor<128x64xf32>) {
    %e = tensor.empty() : tensor<128x64xi1>
    %f = tensor.empty() : tensor<128x64xf32>
    %m:2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%a : tensor<128x64xf32>) outs(%e, %f : tensor<128x64xi1>, tensor<128x64xf32>) {
    ^bb0(%in: f32, %o: i1, %p: f32):
      %zero = arith.constant 0.0 : f32
      %0 = arith.cmpf ogt, %in, %zero : f32
      linalg.yield %0, %in : i1, f32
    } -> (tensor<128x64xi1>, tensor<128x64xf32>)
    memopt.yield %m#0, %m#1 : tensor<128x64xi1>, tensor<128x64xf32>
  }
  // CHECK: memopt.kernel (%[[B:.*]] = %[[MADE]]#0 : tensor<128x8xi8>, %{{.*}} = %{{.*}} : tensor<128x64xf32>)
  // CHECK-NEXT: %[[M:.*]] = memopt.unpack_bits %[[B]] : (tensor<128x8xi8>) -> tensor<128x64xi1>
  // CHECK: linalg.generic {{.*}} ins(%[[M]],
  %d = memopt.kernel (%m = %made#0 : tensor<128x64xi1>, %y = %g : tensor<128x64xf32>) -> tensor<128x64xf32>
      attributes {phase = #memopt.phase<backward>} {
    %e = tensor.empty() : tensor<128x64xf32>
    %r = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%m, %y : tensor<128x64xi1>, tensor<128x64xf32>) outs(%e : tensor<128x64xf32>) {
    ^bb0(%c: i1, %v: f32, %o: f32):
      %zero = arith.constant 0.0 : f32
      %0 = arith.select %c, %v, %zero : f32
      linalg.yield %0 : f32
    } -> tensor<128x64xf32>
    memopt.yield %r : tensor<128x64xf32>
  }
  return %made#1, %d : tensor<128x64xf32>, tensor<128x64xf32>
}

// -----

// Left as they are: a last dimension of no whole bytes, a mask that is returned, one that forward alone reads, a small one.

// CHECK-LABEL: func.func @left
// CHECK-NOT: pack_bits
func.func @left() -> (tensor<128x64xi1>, tensor<128x64xi1>) {
  %ragged = memopt.kernel () -> tensor<128x60xi1> {
    %c = arith.constant true
    %e = tensor.empty() : tensor<128x60xi1>
    %m = linalg.fill ins(%c : i1) outs(%e : tensor<128x60xi1>) -> tensor<128x60xi1>
    memopt.yield %m : tensor<128x60xi1>
  }
  %returned = memopt.kernel () -> tensor<128x64xi1> {
    %c = arith.constant true
    %e = tensor.empty() : tensor<128x64xi1>
    %m = linalg.fill ins(%c : i1) outs(%e : tensor<128x64xi1>) -> tensor<128x64xi1>
    memopt.yield %m : tensor<128x64xi1>
  }
  %forward = memopt.kernel () -> tensor<128x64xi1> {
    %c = arith.constant true
    %e = tensor.empty() : tensor<128x64xi1>
    %m = linalg.fill ins(%c : i1) outs(%e : tensor<128x64xi1>) -> tensor<128x64xi1>
    memopt.yield %m : tensor<128x64xi1>
  }
  %small = memopt.kernel () -> tensor<8x64xi1> {
    %c = arith.constant true
    %e = tensor.empty() : tensor<8x64xi1>
    %m = linalg.fill ins(%c : i1) outs(%e : tensor<8x64xi1>) -> tensor<8x64xi1>
    memopt.yield %m : tensor<8x64xi1>
  }
  %also = memopt.kernel (%a = %forward : tensor<128x64xi1>) -> tensor<128x64xi1> {
    memopt.yield %a : tensor<128x64xi1>
  }
  %r:3 = memopt.kernel (%a = %ragged : tensor<128x60xi1>, %b = %returned : tensor<128x64xi1>, %c = %small : tensor<8x64xi1>)
      -> (tensor<128x60xi1>, tensor<128x64xi1>, tensor<8x64xi1>) attributes {phase = #memopt.phase<backward>} {
    memopt.yield %a, %b, %c : tensor<128x60xi1>, tensor<128x64xi1>, tensor<8x64xi1>
  }
  return %returned, %also : tensor<128x64xi1>, tensor<128x64xi1>
}
