// RUN: memopt-opt %s --memopt-autodiff="loss-scale=8" --memopt-insert-optimizer="settings='momentum=0.9'" --memopt-guard-state --memopt-skip-overflow="growth-interval=3" | FileCheck %s --check-prefixes=CHECK,DYNAMIC
// RUN: memopt-opt %s --memopt-autodiff="loss-scale=8" --memopt-insert-optimizer="settings='momentum=0.9'" --memopt-guard-state --memopt-skip-overflow="dynamic=false" | FileCheck %s --check-prefixes=CHECK,STATIC
// RUN: memopt-opt %s --memopt-autodiff --memopt-insert-optimizer --memopt-guard-state --memopt-skip-overflow | FileCheck %s --check-prefix=UNSCALED
// RUN: not memopt-opt %s --memopt-autodiff="loss-scale=8" --memopt-skip-overflow 2>&1 | FileCheck %s --check-prefix=NO-COMMIT
// RUN: not memopt-opt %s --memopt-autodiff="loss-scale=8" --memopt-insert-optimizer --memopt-guard-state --memopt-skip-overflow="growth-factor=1" 2>&1 | FileCheck %s --check-prefix=GROWTH
// RUN: not memopt-opt %s --memopt-autodiff="loss-scale=8" --memopt-insert-optimizer --memopt-guard-state --memopt-skip-overflow="backoff-factor=1" 2>&1 | FileCheck %s --check-prefix=BACKOFF
// RUN: not memopt-opt %s --memopt-autodiff="loss-scale=8" --memopt-insert-optimizer --memopt-guard-state --memopt-skip-overflow="growth-interval=0" 2>&1 | FileCheck %s --check-prefix=INTERVAL
// RUN: not memopt-opt %s --memopt-autodiff="loss-scale=8" --memopt-insert-optimizer="ranks=2 zero-stage=1" --memopt-guard-state --memopt-skip-overflow 2>&1 | FileCheck %s --check-prefix=SHARD

// NO-COMMIT: has no memopt.commit; expected the output of memopt-guard-state
// GROWTH: the growth factor must be above 1, found 1
// BACKOFF: the backoff factor must lie between 0 and 1, found 1
// INTERVAL: the growth interval must be at least 1, found 0
// SHARD: 'memopt.gradient' op is one rank's shard: ranks would not agree on whether gradients are finite; expected whole gradients, without a ZeRO stage

// UNSCALED-NOT: skipped_steps
// UNSCALED-NOT: arith.select

memopt.variable @w : tensor<4xf32> role <parameter> {trainable}
memopt.variable @seen : tensor<i64> role <buffer>

// CHECK: memopt.variable @loss_scale.skipped_steps : tensor<i64> role <loss_scale> {init_value = 0.000000e+00 : f64
// DYNAMIC: memopt.variable @loss_scale.good_steps : tensor<i64> role <loss_scale>
// STATIC-NOT: good_steps

// CHECK-LABEL: func.func @train_step(
func.func @train_step(%x: tensor<4xf32>) -> tensor<f32> {
  %seen = memopt.read @seen : tensor<i64>
  %one = arith.constant dense<1> : tensor<i64>
  %more = arith.addi %seen, %one : tensor<i64>
  memopt.write %more, @seen : tensor<i64>
  %0 = memopt.read @w : tensor<4xf32>
  %1 = arith.mulf %0, %x : tensor<4xf32>
  %2 = memopt.reduce %1 {kind = #memopt.reduce<add>, dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  return %2 : tensor<f32>
}

// All state stays as it was where the largest magnitude of a gradient is not below infinity, which NaN is not either.
// CHECK: memopt.commit
// CHECK: %[[SIZES:.*]] = math.absf %[[GRADIENT:.*]] {
// CHECK: %[[LARGEST:.*]] = memopt.reduce %[[SIZES]] {{.*}}kind = #memopt.reduce<max>
// CHECK: %[[OK:.*]] = arith.cmpf olt, %[[LARGEST]], %{{.*}} : tensor<f32>
// CHECK: %[[SEEN:.*]] = memopt.read @seen
// CHECK: %[[NEXT:.*]] = arith.select %[[OK]], %{{.*}}, %[[SEEN]]
// CHECK: memopt.write %[[NEXT]], @seen

// Updates are numbered without skipped steps.
// CHECK: %[[STEP:.*]] = memopt.read @step
// CHECK: %[[SKIPPED:.*]] = memopt.read @loss_scale.skipped_steps
// CHECK: %[[UPDATES:.*]] = arith.subi %[[STEP]], %[[SKIPPED]]
// CHECK: %[[NEW:.*]], %[[STATE:.*]] = memopt.optimizer_step %{{.*}}, %[[GRADIENT]], %{{.*}}, %[[UPDATES]], %{{.*}}
// CHECK: %[[OLD:.*]] = memopt.read @w
// CHECK: %[[OKS:.*]] = memopt.broadcast %[[OK]]
// CHECK: %[[CHOSEN:.*]] = arith.select %[[OKS]], %[[NEW]], %[[OLD]] {{.*}} : tensor<4xi1>, tensor<4xf32>
// CHECK: memopt.write %[[CHOSEN]], @w
// CHECK: memopt.write %{{.*}}, @optimizer.momentum.w
// CHECK: %[[COUNT:.*]] = arith.select %[[OK]], %{{.*}}, %{{.*}} : tensor<i1>, tensor<i64>
// CHECK: memopt.write %[[COUNT]], @loss_scale.skipped_steps

// DYNAMIC: %[[SCALE:.*]] = memopt.read @loss_scale
// DYNAMIC: %[[DUE:.*]] = arith.cmpi sge
// DYNAMIC: %[[GROWN:.*]] = arith.mulf %[[SCALE]]
// DYNAMIC: %[[SHRUNK:.*]] = arith.mulf %[[SCALE]]
// DYNAMIC: memopt.write %{{.*}}, @loss_scale
// DYNAMIC: memopt.write %{{.*}}, @loss_scale.good_steps
// STATIC-NOT: memopt.write %{{.*}}, @loss_scale {{.*}} : tensor<f32>
