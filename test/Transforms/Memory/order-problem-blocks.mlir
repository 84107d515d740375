// RUN: memopt-opt %s -memopt-rematerialize=problem=%t.json -o /dev/null && FileCheck %s < %t.json

// Parts of the model that stand beside others like them are what people would recompute as wholes. The problem says
// which ops of the forward pass are in which: of net.layers.0 and .1, not of net.head, nor of net.blocks.0, which is
// the only one of its kind, and the backward pass is in none.

// CHECK: "ops":[{"bytes":
// CHECK-SAME: "after":[0],"block":0}
// CHECK-SAME: "after":[0],"block":0}
// CHECK-SAME: "after":[0],"block":1}
// CHECK-NOT: "block"
func.func @train_step(%x: tensor<16xf32>) -> tensor<16xf32> {
  %0 = test.run(%x) {kind = "up"} : (tensor<16xf32>) -> tensor<64xf32> loc("net.layers.0.up")
  %1 = test.run(%0) {kind = "down"} : (tensor<64xf32>) -> tensor<16xf32> loc("net.layers.0.down")
  %2 = test.run(%1) {kind = "up"} : (tensor<16xf32>) -> tensor<64xf32> loc("net.layers.1.up")
  %3 = test.run(%2) {kind = "only"} : (tensor<64xf32>) -> tensor<16xf32> loc("net.blocks.0.only")
  %4 = test.run(%3) {kind = "head"} : (tensor<16xf32>) -> tensor<16xf32> loc("net.head")
  %5 = test.run(%4, %2) {kind = "back", phase = #memopt.phase<backward>} : (tensor<16xf32>, tensor<64xf32>) -> tensor<16xf32> loc("net.layers.1.up")
  return %5 : tensor<16xf32>
}
