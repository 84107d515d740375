// RUN: split-file %s %t
// RUN: not kernel-compile %t/overwrite.mlir 2>&1 | FileCheck %s --check-prefix=OVERWRITE
// RUN: not kernel-compile %t/region.mlir 2>&1 | FileCheck %s --check-prefix=REGION
// RUN: not kernel-compile %t/parallel.mlir 2>&1 | FileCheck %s --check-prefix=PARALLEL
// RUN: not kernel-compile %t/region.mlir --processor=abacus 2>&1 | FileCheck %s --check-prefix=PROCESSOR

// PROCESSOR: unknown processor 'abacus'

//--- overwrite.mlir
// Row i of the result is column i of the operand, which later rows still read.
// OVERWRITE: error: result 0 would overwrite operand 0 while it is still read
func.func @f(%a: tensor<64x64xf32>) attributes {test.result_buffers = array<i64: 0>} {
  %0 = memopt.kernel (%x = %a : tensor<64x64xf32>) -> tensor<64x64xf32> {
    %t = memopt.transpose %x {permutation = array<i64: 1, 0>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
    memopt.yield %t : tensor<64x64xf32>
  }
  return
}

//--- region.mlir
// REGION: error: 'scf.if' is not computed by any kernel
func.func @f(%a: tensor<8xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<8xf32>) -> tensor<8xf32> {
    %e = tensor.empty() : tensor<8xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d) -> (d)>, affine_map<(d) -> (d)>], iterator_types = ["parallel"]} ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%p: f32, %o: f32):
      %c = arith.cmpf olt, %p, %o : f32
      %s = scf.if %c -> f32 {
        scf.yield %p : f32
      } else {
        scf.yield %o : f32
      }
      linalg.yield %s : f32
    } -> tensor<8xf32>
    memopt.yield %r : tensor<8xf32>
  }
  return
}

//--- parallel.mlir
// PARALLEL: error: loop 1 is parallel and not an index of result 0
func.func @f(%a: tensor<8x4xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<8x4xf32>) -> tensor<8xf32> {
    %e = tensor.empty() : tensor<8xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d, k) -> (d, k)>, affine_map<(d, k) -> (d)>], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x4xf32>) outs(%e : tensor<8xf32>) {
    ^bb0(%p: f32, %o: f32):
      linalg.yield %p : f32
    } -> tensor<8xf32>
    memopt.yield %r : tensor<8xf32>
  }
  return
}
