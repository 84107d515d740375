// RUN: memopt-opt %s -memopt-rematerialize=budget=10304 -memopt-plan-memory=budget=10304 -memopt-verify-planned 2>&1 | FileCheck %s
// RUN: memopt-opt %s -memopt-rematerialize=budget=14400 -memopt-plan-memory -memopt-verify-planned | FileCheck %s --check-prefix=ENOUGH

// A parameter of 4096 bytes, of which this rank keeps 2048, is used at the begin and at the end; in between 8192 bytes
// come and go. Gathered once, that is 2048 + 4096 + 64 + 8192 = 14400 bytes. Gathered again, which needs nothing but the
// shard, 2048 + 64 + 8192 = 10304. The update, which destroys the old shard, comes behind both.

// ENOUGH: memopt.planned = #memopt.planned<arena_bytes = [14400,
// ENOUGH-NOT: clone =

// CHECK: remark: rematerialized 1 instructions: arena 14400 -> 10304 bytes within 10304
// CHECK: module attributes {memopt.planned = #memopt.planned<arena_bytes = [10304, 0, 0]
memopt.variable @w : tensor<512xf32> role <parameter> {shard = #memopt.shard<ranks = 2, shape = [1024]>}
// CHECK-LABEL: func.func @train_step
func.func @train_step(%x: tensor<16xf32>) -> tensor<16xf32> {
  // CHECK: %[[OWN:.*]] = memopt.read @w
  // CHECK: %[[ONCE:.*]] = memopt.collective <all_gather> %[[OWN]] over 2
  // CHECK: test.run(%[[ONCE]], %{{.*}}) {{.*}}kind = "use"
  // CHECK: %[[SMALL:.*]] = test.run({{.*}}kind = "shrink"
  // CHECK: %[[AGAIN:.*]] = memopt.collective <all_gather> %[[OWN]] over 2 {clone = 1 : i64
  // CHECK: test.run(%[[AGAIN]], %[[SMALL]]) {{.*}}kind = "late"
  // CHECK: test.run(%[[OWN]], %{{.*}}) {{.*}}kind = "update"
  // CHECK: memopt.write %{{.*}}, @w
  %own = memopt.read @w : tensor<512xf32>
  %w = memopt.collective <all_gather> %own over 2 : tensor<512xf32> -> tensor<1024xf32>
  %summary = test.run(%w, %x) {kind = "use"} : (tensor<1024xf32>, tensor<16xf32>) -> tensor<16xf32>
  %large = test.run(%summary) {kind = "grow"} : (tensor<16xf32>) -> tensor<2048xf32>
  %small = test.run(%large) {kind = "shrink"} : (tensor<2048xf32>) -> tensor<16xf32>
  %late = test.run(%w, %small) {kind = "late"} : (tensor<1024xf32>, tensor<16xf32>) -> tensor<16xf32>
  %new = test.run(%own, %late) {kind = "update"} : (tensor<512xf32>, tensor<16xf32>) -> tensor<512xf32>
  memopt.write %new, @w : tensor<512xf32>
  return %late : tensor<16xf32>
}
