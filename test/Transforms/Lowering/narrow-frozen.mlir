// RUN: memopt-opt %s --split-input-file --memopt-narrow-frozen=code=nf4 --verify-diagnostics | FileCheck %s
// RUN: memopt-opt %s --split-input-file --memopt-narrow-frozen='code=nf4 scales=int8' 2> /dev/null | FileCheck %s --check-prefix=NARROW
// RUN: memopt-opt %s --split-input-file --memopt-narrow-frozen=code=int8 2> /dev/null | FileCheck %s --check-prefix=INT8
// RUN: memopt-opt %s --split-input-file --memopt-narrow-frozen=code=bf16 2> /dev/null | FileCheck %s --check-prefix=BF16
// RUN: memopt-opt %s --split-input-file --memopt-narrow-frozen 2> /dev/null | FileCheck %s --check-prefix=OFF
// RUN: not memopt-opt %s --split-input-file --memopt-narrow-frozen=code=int4 2>&1 | FileCheck %s --check-prefix=CODE
// RUN: not memopt-opt %s --split-input-file --memopt-narrow-frozen='code=int8 scales=int8' 2>&1 | FileCheck %s --check-prefix=BYTES

// CODE: expected f32, bf16, int8 or nf4 as the form of frozen weights, found 'int4'
// BYTES: scales in int8 are those of nf4, found 'int8'

// A frozen matrix of 70 x 60 elements is kept in 66 blocks of 64 elements, 24 of the last of which fill it up: 32 bytes
// of codes and a scale for each. What reads it reads what is widened. What is trained, small, or a vector, stays.

// CHECK: memopt.variable @w : tensor<2112xi8> role <parameter> {memopt.frozen = {code = "nf4", scales = "frozen.scale.w", shape = array<i64: 70, 60>}}
// CHECK-NEXT: memopt.variable @frozen.scale.w : tensor<66xf32> role <buffer> {memopt.frozen_scale, names = [], transient}
// CHECK-NEXT: memopt.variable @trained : tensor<70x60xf32>
// CHECK-NEXT: memopt.variable @small : tensor<60x8xf32>
// NARROW: memopt.variable @w : tensor<2112xi8>
// NARROW-SAME: scale_scales = "frozen.scale_scale.w", scales = "frozen.scale.w"
// NARROW: memopt.variable @frozen.scale.w : tensor<66xi8> role <buffer>
// NARROW: memopt.variable @frozen.scale_scale.w : tensor<1xf32> role <buffer>
// INT8: memopt.variable @w : tensor<4224xi8>
// BF16: memopt.variable @w : tensor<70x60xbf16> role <parameter> {memopt.frozen = {code = "bf16", shape = array<i64: 70, 60>}}
// BF16: memopt.variable @small : tensor<60x8xbf16>
// OFF-NOT: memopt.frozen
memopt.variable @w : tensor<70x60xf32> role <parameter>
memopt.variable @trained : tensor<70x60xf32> role <parameter> {trainable}
memopt.variable @small : tensor<60x8xf32> role <parameter>
// CHECK-LABEL: func.func @step
// BF16-LABEL: func.func @step
// INT8-LABEL: func.func @step
// expected-remark @below {{keeps 1 frozen parameters in nf4: 2376 bytes instead of 16800}}
func.func @step(%x: tensor<4x70xf32>) -> tensor<4x8xf32> {
  // CHECK: %[[CODES:.*]] = memopt.read @w : tensor<2112xi8>
  // CHECK: %[[SCALES:.*]] = memopt.read @frozen.scale.w : tensor<66xf32>
  // CHECK: %[[ROWS:.*]] = tensor.expand_shape %[[CODES]] {{.*}} into tensor<66x32xi8>
  // CHECK: %[[TABLE:.*]] = arith.constant dense<{{.*}}> : tensor<16xf32>
  // CHECK: %[[BLOCKS:.*]] = linalg.generic {{.*}} ins(%[[ROWS]], %[[SCALES]] : tensor<66x32xi8>, tensor<66xf32>) outs({{.*}} : tensor<66x2x32xf32>)
  // CHECK: linalg.index 1
  // CHECK: tensor.extract %[[TABLE]]
  // CHECK: tensor.extract_slice {{.*}}[0] [4200] [1] : tensor<4224xf32> to tensor<4200xf32>
  // CHECK: %[[W:.*]] = tensor.expand_shape {{.*}} into tensor<70x60xf32>
  // CHECK: memopt.matmul %{{.*}}, %[[W]]
  // INT8: linalg.generic {{.*}} outs({{.*}} : tensor<66x64xf32>)
  // INT8: arith.sitofp %{{.*}} : i8 to f32
  // BF16: arith.extf
  %w = memopt.read @w : tensor<70x60xf32>
  %trained = memopt.read @trained : tensor<70x60xf32>
  %small = memopt.read @small : tensor<60x8xf32>
  %y = memopt.matmul %x, %w : (tensor<4x70xf32>, tensor<70x60xf32>) -> tensor<4x60xf32>
  %z = memopt.matmul %x, %trained : (tensor<4x70xf32>, tensor<70x60xf32>) -> tensor<4x60xf32>
  %sum = arith.addf %y, %z : tensor<4x60xf32>
  %r = memopt.matmul %sum, %small : (tensor<4x60xf32>, tensor<60x8xf32>) -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

// -----

// Of a table that indices look up the elements are widened, one by one.

memopt.variable @table : tensor<64x64xf32> role <parameter>
// CHECK-LABEL: func.func @looked_up
// expected-remark @below {{keeps 1 frozen parameters in nf4: 2304 bytes instead of 16384}}
func.func @looked_up(%ids: tensor<5xi64>) -> tensor<5x64xf32> {
  // CHECK: %[[CODES:.*]] = memopt.read @table : tensor<2048xi8>
  // CHECK: %[[SCALES:.*]] = memopt.read @frozen.scale.table : tensor<64xf32>
  // CHECK: linalg.generic {{.*}} outs({{.*}} : tensor<5x64xf32>)
  // CHECK: tensor.extract %[[CODES]]
  // CHECK: tensor.extract %[[SCALES]]
  // CHECK-NOT: linalg.generic
  %table = memopt.read @table : tensor<64x64xf32>
  %empty = tensor.empty() : tensor<5x64xf32>
  %rows = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<5xi64>) outs(%empty : tensor<5x64xf32>) {
  ^bb0(%id: i64, %out: f32):
    %row = arith.index_cast %id : i64 to index
    %column = linalg.index 1 : index
    %value = tensor.extract %table[%row, %column] : tensor<64x64xf32>
    linalg.yield %value : f32
  } -> tensor<5x64xf32>
  return %rows : tensor<5x64xf32>
}

// -----

// A product takes a large weight in parts along what it sums over, and adds up.

memopt.variable @large : tensor<128x128xf32> role <parameter>
// CHECK-LABEL: func.func @parts
// expected-remark @below {{keeps 1 frozen parameters in nf4: 9216 bytes instead of 65536}}
func.func @parts(%x: tensor<4x128xf32>) -> tensor<4x128xf32> {
  // CHECK: tensor.extract_slice {{.*}}[0, 0] [64, 32] [1, 1] : tensor<256x32xi8> to tensor<64x32xi8>
  // CHECK: linalg.generic {{.*}} outs({{.*}} : tensor<64x2x32xf32>)
  // CHECK: %[[X0:.*]] = tensor.extract_slice %{{.*}}[0, 0] [4, 32] [1, 1] : tensor<4x128xf32> to tensor<4x32xf32>
  // CHECK: %[[Y0:.*]] = memopt.matmul %[[X0]], %{{.*}} : (tensor<4x32xf32>, tensor<32x128xf32>) -> tensor<4x128xf32>
  // CHECK: %[[Y1:.*]] = memopt.matmul
  // CHECK: linalg.generic {{.*}} ins(%[[Y0]], %[[Y1]] : {{.*}} attrs = {memopt.sum_of_parts}
  // CHECK-COUNT-2: memopt.matmul
  // CHECK-NOT: memopt.matmul
  %w = memopt.read @large : tensor<128x128xf32>
  %y = memopt.matmul %x, %w : (tensor<4x128xf32>, tensor<128x128xf32>) -> tensor<4x128xf32>
  return %y : tensor<4x128xf32>
}

// -----

// Along columns these are parts of each row.

memopt.variable @rows : tensor<128x128xf32> role <parameter>
// CHECK-LABEL: func.func @parts_of_rows
// expected-remark @below {{keeps 1 frozen parameters in nf4: 9216 bytes instead of 65536}}
func.func @parts_of_rows(%x: tensor<4x128xf32>) -> tensor<4x128xf32> {
  // CHECK: tensor.extract_slice {{.*}}[0, 0, 0] [128, 1, 32] [1, 1, 1] : tensor<128x2x32xi8> to tensor<128x1x32xi8>
  // CHECK-COUNT-2: memopt.matmul %{{.*}}, %{{.*}} {transpose_b} : (tensor<4x64xf32>, tensor<128x64xf32>) -> tensor<4x128xf32>
  // CHECK-NOT: memopt.matmul
  %w = memopt.read @rows : tensor<128x128xf32>
  %y = memopt.matmul %x, %w {transpose_b} : (tensor<4x128xf32>, tensor<128x128xf32>) -> tensor<4x128xf32>
  return %y : tensor<4x128xf32>
}
