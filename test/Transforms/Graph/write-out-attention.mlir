// RUN: memopt-opt %s --split-input-file --memopt-write-out-attention | FileCheck %s

// Scores are a product, keys behind the query count nothing, and no score is looked at twice: the first key is seen.

module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132>} {
// CHECK-LABEL: @causal
// CHECK-SAME: %[[Q:.*]]: tensor<2x3x5x1024xf32>, %[[K:.*]]: tensor<2x3x7x1024xf32>, %[[V:.*]]: tensor<2x3x7x4xf32>
// CHECK: %[[S:.*]] = memopt.matmul %[[Q]], %[[K]] {transpose_b} : {{.*}} -> tensor<2x3x5x7xf32>
// CHECK: %[[SCALE:.*]] = arith.constant dense<5.000000e-01>
// CHECK: %[[SCALED:.*]] = arith.mulf %[[S]], %[[SCALE]]
// CHECK: %[[ROW:.*]] = memopt.iota {dimension = 2 : i64}
// CHECK: %[[COLUMN:.*]] = memopt.iota {dimension = 3 : i64}
// CHECK: %[[SEEN:.*]] = arith.cmpi sle, %[[COLUMN]], %[[ROW]]
// CHECK: %[[LOWEST:.*]] = arith.constant dense<-3.40282347E+38>
// CHECK: %[[VISIBLE:.*]] = arith.select %[[SEEN]], %[[SCALED]], %[[LOWEST]]
// CHECK: %[[P:.*]] = memopt.softmax %[[VISIBLE]] {axis = 3 : i64}
// CHECK-NEXT: %[[R:.*]] = memopt.matmul %[[P]], %[[V]]
// CHECK-NEXT: return %[[R]]
func.func @causal(%q: tensor<2x3x5x1024xf32>, %k: tensor<2x3x7x1024xf32>, %v: tensor<2x3x7x4xf32>) -> tensor<2x3x5x4xf32> {
  %0, %1 = memopt.attention %q, %k, %v {scale = 0.5 : f64, causal, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>}
      : (tensor<2x3x5x1024xf32>, tensor<2x3x7x1024xf32>, tensor<2x3x7x4xf32>) -> (tensor<2x3x5x4xf32>, tensor<2x3x5xf32>)
  return %0 : tensor<2x3x5x4xf32>
}
}

// -----

// Queries that share a head of keys are rows of one product. A row of which the mask leaves nothing gives zeros.

module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132>} {
// CHECK-LABEL: @grouped
// CHECK-SAME: %[[M:[^:]*]]: tensor<1x1x5x7xi1>
// CHECK: memopt.matmul {{.*}} : (tensor<2x2x15x1024xf32>, tensor<2x2x7x1024xf32>) -> tensor<2x2x15x7xf32>
// CHECK: %[[SEEN:.*]] = memopt.broadcast %[[M]] {{.*}} -> tensor<2x6x5x7xi1>
// CHECK: arith.select %[[SEEN]]
// CHECK: %[[P:.*]] = memopt.softmax
// CHECK: arith.select %[[SEEN]], %[[P]], %{{.*}} : tensor<2x6x5x7xi1>, tensor<2x6x5x7xf32>
// CHECK: memopt.matmul {{.*}} : (tensor<2x2x15x7xf32>, tensor<2x2x7x1024xf32>) -> tensor<2x2x15x1024xf32>
func.func @grouped(%q: tensor<2x6x5x1024xf32>, %k: tensor<2x2x7x1024xf32>, %m: tensor<1x1x5x7xi1>) -> tensor<2x6x5x1024xf32> {
  %0, %1 = memopt.attention %q, %k, %k, %m {scale = 0.5 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0>}
      : (tensor<2x6x5x1024xf32>, tensor<2x2x7x1024xf32>, tensor<2x2x7x1024xf32>, tensor<1x1x5x7xi1>)
      -> (tensor<2x6x5x1024xf32>, tensor<2x6x5xf32>)
  return %0 : tensor<2x6x5x1024xf32>
}
}

// -----

// 16-bit numbers are widened, the mask's too; dropout takes the bits that the call would.

module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132>} {
// CHECK-LABEL: @narrow
// CHECK: memopt.matmul {{.*}} -> tensor<2x3x5x5xf32>
// CHECK: %[[SUM:.*]] = arith.addf
// CHECK: %[[SEEN:.*]] = arith.cmpf ugt, %[[SUM]]
// CHECK: memopt.softmax {{.*}} tensor<2x3x5x5xf32>
// CHECK: memopt.dropout_mask {{.*}}id = 3 : i64, {{.*}}probability = 2.500000e-01 : f64
// CHECK-SAME: -> tensor<2x3x5x5xi1>
// CHECK: arith.mulf {{.*}} : tensor<2x3x5x5xf32>
// CHECK: %[[R:.*]] = memopt.matmul {{.*}} -> tensor<2x3x5x1024xf32>
// CHECK: arith.truncf %[[R]] : tensor<2x3x5x1024xf32> to tensor<2x3x5x1024xbf16>
func.func @narrow(%q: tensor<2x3x5x1024xbf16>, %m: tensor<1x3x1x5xf32>, %seed: tensor<i64>, %step: tensor<i64>) -> tensor<2x3x5x1024xbf16> {
  %0, %1 = memopt.attention %q, %q, %q, %m, %seed, %step
      {scale = 0.5 : f64, dropout = 0.25 : f64, id = 3 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 0>}
      : (tensor<2x3x5x1024xbf16>, tensor<2x3x5x1024xbf16>, tensor<2x3x5x1024xbf16>, tensor<1x3x1x5xf32>, tensor<i64>, tensor<i64>)
      -> (tensor<2x3x5x1024xbf16>, tensor<2x3x5xf32>)
  return %0 : tensor<2x3x5x1024xbf16>
}
}

// -----

// Heads whose vectors fit into shared memory are left to kernels of the device.

module attributes {memopt.target = #memopt.cuda<"sm_90", sms = 132>} {
// CHECK-LABEL: @narrow_heads
// CHECK: memopt.attention
func.func @narrow_heads(%q: tensor<2x3x5x128xf32>) -> tensor<2x3x5x128xf32> {
  %0, %1 = memopt.attention %q, %q, %q {scale = 0.5 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>}
      : (tensor<2x3x5x128xf32>, tensor<2x3x5x128xf32>, tensor<2x3x5x128xf32>)
      -> (tensor<2x3x5x128xf32>, tensor<2x3x5xf32>)
  return %0 : tensor<2x3x5x128xf32>
}
}
