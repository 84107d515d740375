// RUN: memopt-opt %s --memopt-form-kernels | FileCheck %s

// Two reads of a variable are one buffer, and one operand of a kernel: what may lie over it is asked once.

memopt.variable @v : tensor<64x64xf32> role <buffer>
// CHECK-LABEL: func.func @step
func.func @step() {
  // CHECK: %[[V:.*]] = memopt.read @v
  // CHECK-NOT: memopt.read
  // CHECK: memopt.kernel (%{{[a-z0-9]+}} = %[[V]] : tensor<64x64xf32>) ->
  %a = memopt.read @v : tensor<64x64xf32>
  %b = memopt.read @v : tensor<64x64xf32>
  %empty = tensor.empty() : tensor<64x64xf32>
  %sum = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>],
                         iterator_types = ["parallel", "parallel"]}
      ins(%a, %b : tensor<64x64xf32>, tensor<64x64xf32>) outs(%empty : tensor<64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %out: f32):
    %s = arith.addf %x, %y : f32
    linalg.yield %s : f32
  } -> tensor<64x64xf32>
  memopt.write %sum, @v : tensor<64x64xf32>
  return
}
