// RUN: memopt-opt %s --memopt-fuse-conv-bn-eval="modules=backbone" | FileCheck %s --check-prefix=BACKBONE
// RUN: memopt-opt %s --memopt-fuse-conv-bn-eval="modules=n*k.bn,neck" | FileCheck %s --check-prefix=NECK
// RUN: memopt-opt %s --memopt-fuse-conv-bn-eval="modules=*" | FileCheck %s --check-prefix=ALL
// RUN: not memopt-opt %s --memopt-fuse-conv-bn-eval="modules=neck,head" 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not memopt-opt %s --memopt-fuse-conv-bn-eval="modules=neck.conv" 2>&1 | FileCheck %s --check-prefix=CONV
// RUN: not memopt-opt %s --memopt-fuse-conv-bn-eval="modules=[" 2>&1 | FileCheck %s --check-prefix=GLOB

// A pattern names modules with all that lies inside; it is the norm's module that counts. One that names no norm is a
// mistake.

// BACKBONE: fused = ["backbone.0.bn"], refused = {}
// NECK: fused = ["neck.bn"], refused = {}
// ALL: fused = ["backbone.0.bn", "neck.bn"], refused = {}
// NONE: error: no batch norm lies in a module that matches 'head'
// CONV: error: no batch norm lies in a module that matches 'neck.conv'
// GLOB: error: module pattern '[': invalid glob pattern
memopt.variable @conv.weight : tensor<4x3x3xf32> role <parameter> {trainable}
memopt.variable @bn.running_mean : tensor<4xf32> role <buffer>
memopt.variable @bn.running_var : tensor<4xf32> role <buffer>
memopt.variable @last.weight : tensor<4x4x1xf32> role <parameter> {trainable}
func.func @modules(%x: tensor<2x3x8xf32>) -> tensor<2x4x6xf32> {
  %w = memopt.read @conv.weight : tensor<4x3x3xf32>
  %mean = memopt.read @bn.running_mean : tensor<4xf32>
  %var = memopt.read @bn.running_var : tensor<4xf32>
  %w2 = memopt.read @last.weight : tensor<4x4x1xf32>
  %y = memopt.convolution %x, %w {strides = array<i64: 1>, padding_low = array<i64: 0>, padding_high = array<i64: 0>,
    dilations = array<i64: 1>, groups = 1 : i64} : (tensor<2x3x8xf32>, tensor<4x3x3xf32>) -> tensor<2x4x6xf32> loc("conv")
  %eps = arith.constant dense<1.0e-05> : tensor<4xf32>
  %moved = arith.addf %var, %eps : tensor<4xf32>
  %root = math.rsqrt %moved : tensor<4xf32>
  %centre = arith.mulf %mean, %root : tensor<4xf32>
  %shift = arith.negf %centre : tensor<4xf32>
  %wide_factor = memopt.broadcast %root {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4x6xf32>
  %scaled = arith.mulf %y, %wide_factor : tensor<2x4x6xf32>
  %wide_shift = memopt.broadcast %shift {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4x6xf32>
  %z = arith.addf %scaled, %wide_shift : tensor<2x4x6xf32> loc("backbone.0.bn")
  %y2 = memopt.convolution %z, %w2 {strides = array<i64: 1>, padding_low = array<i64: 0>, padding_high = array<i64: 0>,
    dilations = array<i64: 1>, groups = 1 : i64} : (tensor<2x4x6xf32>, tensor<4x4x1xf32>) -> tensor<2x4x6xf32> loc("neck.conv")
  %neps = arith.constant dense<1.0e-05> : tensor<4xf32>
  %nmoved = arith.addf %var, %neps : tensor<4xf32>
  %nroot = math.rsqrt %nmoved : tensor<4xf32>
  %ncentre = arith.mulf %mean, %nroot : tensor<4xf32>
  %nshift = arith.negf %ncentre : tensor<4xf32>
  %nwide_factor = memopt.broadcast %nroot {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4x6xf32>
  %nscaled = arith.mulf %y2, %nwide_factor : tensor<2x4x6xf32>
  %nwide_shift = memopt.broadcast %nshift {dimensions = array<i64: 1>} : (tensor<4xf32>) -> tensor<2x4x6xf32>
  %nz = arith.addf %nscaled, %nwide_shift : tensor<2x4x6xf32> loc("neck.bn")
  return %nz : tensor<2x4x6xf32>
}
