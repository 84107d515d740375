// RUN: memopt-opt %s --memopt-narrow-frozen --verify-diagnostics | FileCheck %s
// RUN: memopt-opt %s --memopt-shard-parameters='ranks=2' --memopt-narrow-frozen | FileCheck %s

// An evaluation reads the codes that a training keeps, each variable in its form, trained or not.

// Ranks keep such variables whole.

// CHECK: memopt.variable @w : tensor<2112xi8> role <parameter> {memopt.frozen = {code = "nf4", scale_scales = "frozen.scale_scale.w", scales = "frozen.scale.w", shape = array<i64: 70, 60>}}
// CHECK: memopt.variable @small : tensor<60x8xbf16> role <parameter> {memopt.frozen = {code = "bf16", shape = array<i64: 60, 8>}, trainable}
memopt.variable @w : tensor<70x60xf32> role <parameter> {memopt.state_code = {code = "nf4", narrow_scales}}
memopt.variable @small : tensor<60x8xf32> role <parameter> {trainable, memopt.state_code = {code = "bf16"}}
// CHECK-LABEL: func.func @step
func.func @step(%x: tensor<4x70xf32>) -> tensor<4x8xf32> {
  // CHECK: memopt.read @w : tensor<2112xi8>
  // CHECK: memopt.read @frozen.scale_scale.w
  // CHECK: memopt.read @small : tensor<60x8xbf16>
  // CHECK: arith.extf
  %w = memopt.read @w : tensor<70x60xf32>
  %small = memopt.read @small : tensor<60x8xf32>
  %y = memopt.matmul %x, %w : (tensor<4x70xf32>, tensor<70x60xf32>) -> tensor<4x60xf32>
  %r = memopt.matmul %y, %small : (tensor<4x60xf32>, tensor<60x8xf32>) -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}
