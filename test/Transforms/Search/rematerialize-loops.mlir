// RUN: not memopt-opt %s -split-input-file -memopt-rematerialize=budget=1 2>&1 | FileCheck %s
// RUN: not memopt-opt %s -split-input-file -memopt-plan-memory=budget=1 2>&1 | FileCheck %s

// The budget that a refusal names is the one that the plan then needs. In the body of a loop, too, results take over
// bytes: the input's 2048, one slice of 256 bytes, the sums' 32.

// CHECK: the smallest budget that would do is 2336
#id = affine_map<(d0) -> (d0)>
#none = affine_map<(d0) -> ()>
func.func @body(%xs: tensor<8x64xf32>) -> tensor<8xf32> {
  %all = memopt.scan count(8) slices(%x = %xs : tensor<64xf32> of tensor<8x64xf32>) {
    %grown = memopt.kernel (%a = %x : tensor<64xf32>) -> tensor<64xf32> {
      %empty = tensor.empty() : tensor<64xf32>
      %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%a : tensor<64xf32>) outs(%empty : tensor<64xf32>) {
      ^bb0(%p: f32, %o: f32):
        %1 = math.exp %p : f32
        linalg.yield %1 : f32
      } -> tensor<64xf32>
      memopt.yield %0 : tensor<64xf32>
    }
    %turned = memopt.kernel (%a = %grown : tensor<64xf32>) -> tensor<64xf32> {
      %empty = tensor.empty() : tensor<64xf32>
      %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%a : tensor<64xf32>) outs(%empty : tensor<64xf32>) {
      ^bb0(%p: f32, %o: f32):
        %1 = arith.negf %p : f32
        linalg.yield %1 : f32
      } -> tensor<64xf32>
      memopt.yield %0 : tensor<64xf32>
    }
    %sum = memopt.kernel (%a = %turned : tensor<64xf32>) -> tensor<f32> {
      %zero = arith.constant dense<0.0> : tensor<f32>
      %0 = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction"]} ins(%a : tensor<64xf32>) outs(%zero : tensor<f32>) {
      ^bb0(%p: f32, %o: f32):
        %1 = arith.addf %p, %o : f32
        linalg.yield %1 : f32
      } -> tensor<f32>
      memopt.yield %0 : tensor<f32>
    }
    memopt.yield %sum : tensor<f32>
  } -> tensor<8xf32>
  return %all : tensor<8xf32>
}

// -----

// What stands outside of a loop over micro-batches counts, here the 4096 bytes behind it beside the variable and the
// batch; in the loop no more than 1152 are alive.

// CHECK: the smallest budget that would do is 4224
memopt.variable @sum : tensor<16xf32> role <gradient>
func.func @train_step(%x: tensor<16xf32>) -> tensor<16xf32> {
  memopt.repeat count(4) next_batch (%batch = %x : tensor<16xf32>) {
    %a = test.run(%batch) {kind = "a"} : (tensor<16xf32>) -> tensor<256xf32>
    %b = test.run(%a) {kind = "b"} : (tensor<256xf32>) -> tensor<16xf32>
    memopt.write %b, @sum : tensor<16xf32>
    memopt.yield
  }
  %late = memopt.read @sum : tensor<16xf32>
  %c = test.run(%late) {kind = "c"} : (tensor<16xf32>) -> tensor<1024xf32>
  %d = test.run(%c) {kind = "d"} : (tensor<1024xf32>) -> tensor<16xf32>
  return %d : tensor<16xf32>
}
