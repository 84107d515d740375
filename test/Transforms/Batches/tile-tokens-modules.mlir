// RUN: memopt-opt %s -memopt-tile-tokens="modules=net.mlp module-parts=2" -split-input-file -verify-diagnostics | FileCheck %s

// The gradient waits for a sum over all tokens: the module runs again in the turns of its backward pass. Of its forward
// pass nothing but the result is kept. What all turns share, a bias over all tokens among it, each turn makes for itself.

// CHECK-LABEL: func.func @waits
// CHECK: %[[XS:.*]] = tensor.expand_shape %{{.*}} {{\[\[}}0, 1], [2]] output_shape [2, 32, 8]
// CHECK: %[[YS:.*]] = memopt.scan count(2) fixed({{.*}} : tensor<16x8xf32>, {{.*}} : tensor<16xf32>) slices({{.*}} = %[[XS]] : tensor<32x8xf32> of tensor<2x32x8xf32>)
// CHECK: memopt.matmul {{.*}} : (tensor<32x8xf32>, tensor<16x8xf32>) -> tensor<32x16xf32>
// CHECK: memopt.broadcast {{.*}} : (tensor<16xf32>) -> tensor<32x16xf32>
// CHECK: math.tanh
// CHECK: memopt.yield
// CHECK: %[[Y:.*]] = tensor.collapse_shape %[[YS]] {{.*}} into tensor<64x16xf32>
// CHECK: memopt.reduce %[[Y]]
// CHECK: %[[NONE:.*]] = arith.constant dense<-0.000000e+00> : tensor<16x8xf32>
// CHECK: memopt.scan count(2) {{.*}} carried(%[[SUM:.*]] = %[[NONE]] : tensor<16x8xf32>)
// CHECK: memopt.matmul
// CHECK: math.tanh {{.*}}memopt.phase<backward>
// CHECK: %[[TERM:.*]] = memopt.matmul {{.*}}transpose_a} : (tensor<32x16xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
// CHECK: %[[NEXT:.*]] = memopt.accumulate %[[SUM]], %[[TERM]]
// CHECK: memopt.yield %[[NEXT]] : tensor<16x8xf32>
func.func @waits(%x: tensor<64x8xf32>, %w: tensor<16x8xf32>, %bias: tensor<16xf32>) -> (tensor<f32>, tensor<16x8xf32>) {
  %product = memopt.matmul %x, %w {transpose_b} : (tensor<64x8xf32>, tensor<16x8xf32>) -> tensor<64x16xf32> loc(#mlp)
  %biases = memopt.broadcast %bias {dimensions = array<i64: 1>} : (tensor<16xf32>) -> tensor<64x16xf32> loc(#mlp)
  %a = arith.addf %product, %biases : tensor<64x16xf32> loc(#mlp)
  %y = math.tanh %a : tensor<64x16xf32> loc(#mlp)
  %s = memopt.reduce %y {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<64x16xf32>) -> tensor<f32>
  %g = memopt.broadcast %s {dimensions = array<i64>, memopt.phase = #memopt.phase<backward>} : (tensor<f32>) -> tensor<64x16xf32>
  %yy = arith.mulf %y, %y {memopt.phase = #memopt.phase<backward>} : tensor<64x16xf32> loc(#mlp)
  %d = arith.mulf %g, %yy {memopt.phase = #memopt.phase<backward>} : tensor<64x16xf32> loc(#mlp)
  %dw = memopt.matmul %d, %x {memopt.phase = #memopt.phase<backward>, transpose_a} : (tensor<64x16xf32>, tensor<64x8xf32>) -> tensor<16x8xf32> loc(#mlp)
  return %s, %dw : tensor<f32>, tensor<16x8xf32>
}
#mlp = loc("net.mlp")

// -----

func.func @mixes(%x: tensor<64x8xf32>, %w: tensor<16x8xf32>) -> tensor<64x16xf32> {
  %a = memopt.matmul %x, %w {transpose_b} : (tensor<64x8xf32>, tensor<16x8xf32>) -> tensor<64x16xf32> loc(#mlp1)
  // expected-error@unknown {{'memopt.softmax' of module 'net.mlp' mixes tokens: it cannot run in parts of them}}
  %p = memopt.softmax %a {axis = 0 : i64} : (tensor<64x16xf32>) -> tensor<64x16xf32> loc(#mlp1)
  return %p : tensor<64x16xf32>
}
#mlp1 = loc("net.mlp")

// -----

// expected-error @below {{no module matches 'net.mlp'}}
module {
  func.func @none(%x: tensor<64x8xf32>) -> tensor<64x8xf32> {
    %a = math.tanh %x : tensor<64x8xf32>
    return %a : tensor<64x8xf32>
  }
}
