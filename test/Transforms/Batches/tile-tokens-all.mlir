// RUN: memopt-opt %s -memopt-tile-tokens="modules=all module-parts=4" -split-input-file | FileCheck %s
// RUN: memopt-opt %s -memopt-tile-tokens -split-input-file | FileCheck %s --check-prefix=WHOLE

// A wide layer whose gradient waits for others runs in a loop forwards, and in one backwards that makes its inner values
// again. Nobody names its module.

// CHECK-LABEL: func.func @inner
// CHECK: memopt.scan count(4) {{.*}} slices({{.*}}tensor<256x256xf32> of tensor<4x256x256xf32>)
// CHECK: math.tanh
// CHECK: -> tensor<4x256x256xf32>
// CHECK: memopt.reduce
// CHECK: memopt.scan count(4) {{.*}} carried({{.*}} : tensor<256x1024xf32>, {{.*}} : tensor<1024x256xf32>)
// CHECK: math.tanh
// CHECK-NOT: tensor<1024x1024xf32>
// CHECK: return
// WHOLE-LABEL: func.func @inner
// WHOLE-NOT: memopt.scan
func.func @inner(%x: tensor<1024x256xf32>, %w: tensor<1024x256xf32>, %v: tensor<256x1024xf32>) -> (tensor<f32>, tensor<256x1024xf32>, tensor<1024x256xf32>) {
  %a = memopt.matmul %x, %w {transpose_b} : (tensor<1024x256xf32>, tensor<1024x256xf32>) -> tensor<1024x1024xf32>
  %h = math.tanh %a : tensor<1024x1024xf32>
  %y = memopt.matmul %h, %v {transpose_b} : (tensor<1024x1024xf32>, tensor<256x1024xf32>) -> tensor<1024x256xf32>
  %s = memopt.reduce %y {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<1024x256xf32>) -> tensor<f32>
  %g = memopt.broadcast %s {dimensions = array<i64>, memopt.phase = #memopt.phase<backward>} : (tensor<f32>) -> tensor<1024x256xf32>
  %dv = memopt.matmul %g, %h {memopt.phase = #memopt.phase<backward>, transpose_a} : (tensor<1024x256xf32>, tensor<1024x1024xf32>) -> tensor<256x1024xf32>
  %dh = memopt.matmul %g, %v {memopt.phase = #memopt.phase<backward>} : (tensor<1024x256xf32>, tensor<256x1024xf32>) -> tensor<1024x1024xf32>
  %da = arith.mulf %dh, %h {memopt.phase = #memopt.phase<backward>} : tensor<1024x1024xf32>
  %dw = memopt.matmul %da, %x {memopt.phase = #memopt.phase<backward>, transpose_a} : (tensor<1024x1024xf32>, tensor<1024x256xf32>) -> tensor<1024x256xf32>
  %dx = memopt.matmul %da, %w {memopt.phase = #memopt.phase<backward>} : (tensor<1024x1024xf32>, tensor<1024x256xf32>) -> tensor<1024x256xf32>
  %norm = memopt.reduce %dx {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>, memopt.phase = #memopt.phase<backward>} : (tensor<1024x256xf32>) -> tensor<f32>
  return %norm, %dv, %dw : tensor<f32>, tensor<256x1024xf32>, tensor<1024x256xf32>
}

// -----

// Queries, keys and values go to what mixes tokens, and stay whole.

// CHECK-LABEL: func.func @mixed
// CHECK-NOT: memopt.scan
// CHECK: return
func.func @mixed(%x: tensor<1024x256xf32>, %w: tensor<1024x256xf32>) -> tensor<1024x1024xf32> {
  %a = memopt.matmul %x, %w {transpose_b} : (tensor<1024x256xf32>, tensor<1024x256xf32>) -> tensor<1024x1024xf32>
  %p = memopt.softmax %a {axis = 0 : i64} : (tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  %d = arith.mulf %p, %a {memopt.phase = #memopt.phase<backward>} : tensor<1024x1024xf32>
  return %d : tensor<1024x1024xf32>
}

// -----

// In 16 bits the product that makes a wide value has wider numbers than the one that reads its gradient.

// CHECK-LABEL: func.func @narrow
// CHECK-COUNT-2: memopt.scan count(4)
// CHECK: return
func.func @narrow(%x: tensor<1024x256xbf16>, %w: tensor<1024x256xbf16>, %v: tensor<256x1024xbf16>) -> (tensor<f32>, tensor<f32>) {
  %a = memopt.matmul %x, %w {transpose_b} : (tensor<1024x256xbf16>, tensor<1024x256xbf16>) -> tensor<1024x1024xf32>
  %h = math.tanh %a : tensor<1024x1024xf32>
  %hn = arith.truncf %h : tensor<1024x1024xf32> to tensor<1024x1024xbf16>
  %y = memopt.matmul %hn, %v {transpose_b} : (tensor<1024x1024xbf16>, tensor<256x1024xbf16>) -> tensor<1024x256xf32>
  %s = memopt.reduce %y {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>} : (tensor<1024x256xf32>) -> tensor<f32>
  %g = memopt.broadcast %s {dimensions = array<i64>, memopt.phase = #memopt.phase<backward>} : (tensor<f32>) -> tensor<1024x256xf32>
  %gn = arith.truncf %g {memopt.phase = #memopt.phase<backward>} : tensor<1024x256xf32> to tensor<1024x256xbf16>
  %dh = memopt.matmul %gn, %v {memopt.phase = #memopt.phase<backward>} : (tensor<1024x256xbf16>, tensor<256x1024xbf16>) -> tensor<1024x1024xf32>
  %da = arith.mulf %dh, %h {memopt.phase = #memopt.phase<backward>} : tensor<1024x1024xf32>
  %dn = arith.truncf %da {memopt.phase = #memopt.phase<backward>} : tensor<1024x1024xf32> to tensor<1024x1024xbf16>
  %dx = memopt.matmul %dn, %w {memopt.phase = #memopt.phase<backward>} : (tensor<1024x1024xbf16>, tensor<1024x256xbf16>) -> tensor<1024x256xf32>
  %norm = memopt.reduce %dx {dimensions = array<i64: 0, 1>, kind = #memopt.reduce<add>, memopt.phase = #memopt.phase<backward>} : (tensor<1024x256xf32>) -> tensor<f32>
  return %s, %norm : tensor<f32>, tensor<f32>
}
