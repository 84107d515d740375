// RUN: memopt-opt %s -memopt-annotate-input-ranges -memopt-check-indices -split-input-file | FileCheck %s

// The runtime holds an input that indexes by itself to its range before the step: nothing is left to check.
// CHECK-NOT: memopt.index_sites
// CHECK-LABEL: func.func @input
// CHECK-NOT: memopt.check
func.func @input(%tokens: tensor<8xi32>, %table: tensor<256x16xf32>) -> tensor<8x16xf32> {
  %wide = arith.extsi %tokens : tensor<8xi32> to tensor<8xi64>
  %0 = memopt.embedding %table, %wide : (tensor<256x16xf32>, tensor<8xi64>) -> tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}

// -----

// A computed index is checked where it is computed. The gradient adds to the rows of good indices alone, and what is
// bad was reported by the forward pass. The table says where, and a variable takes the reports.
// CHECK: module attributes {memopt.index_sites = [{max = 255 : i64, min = 0 : i64, module = "net.token", op = "embedding", what = "rows of an embedding"}]}
// CHECK: memopt.variable @index_fault : tensor<i64> role <index_fault>
// CHECK-LABEL: func.func @computed
// CHECK: %[[SUM:.*]] = arith.addi
// CHECK-NEXT: %[[GOOD:.*]] = memopt.check %[[SUM]] {max = 255 : i64, min = 0 : i64, otherwise = 0 : i64, site = 0 : i64} : tensor<8xi64>
// CHECK: memopt.embedding %{{.*}}, %[[GOOD]]
// CHECK: memopt.embedding_backward %{{.*}}, %[[SUM]]
func.func @computed(%tokens: tensor<8xi64>, %table: tensor<256x16xf32>) -> (tensor<8x16xf32>, tensor<256x16xf32>) {
  %sum = arith.addi %tokens, %tokens : tensor<8xi64>
  %0 = memopt.embedding %table, %sum : (tensor<256x16xf32>, tensor<8xi64>) -> tensor<8x16xf32> loc("net.token")
  %1 = memopt.embedding_backward %0, %sum : (tensor<8x16xf32>, tensor<8xi64>) -> tensor<256x16xf32>
  return %0, %1 : tensor<8x16xf32>, tensor<256x16xf32>
}

// -----

// A scatter without a gather before it reports by itself, and leaves out row -1.
// CHECK-LABEL: func.func @scatter
// CHECK: %[[I:.*]] = memopt.check %{{.*}} {max = 255 : i64, min = 0 : i64, otherwise = -1 : i64, site = 0 : i64}
// CHECK: memopt.embedding_backward %{{.*}}, %[[I]]
func.func @scatter(%tokens: tensor<8xi64>, %g: tensor<8x16xf32>) -> tensor<256x16xf32> {
  %sum = arith.addi %tokens, %tokens : tensor<8xi64>
  %1 = memopt.embedding_backward %g, %sum : (tensor<8x16xf32>, tensor<8xi64>) -> tensor<256x16xf32>
  return %1 : tensor<256x16xf32>
}

// -----

// Arithmetic is followed: 7 at most, times 36 and 3 is 255 at most; constants and counters are known; a maximum of
// numbers that fit fits.
// CHECK-LABEL: func.func @proven
// CHECK-NOT: memopt.check
func.func @proven(%x: tensor<8xi64>, %table: tensor<256x16xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>, tensor<1x16xf32>) {
  %seven = arith.constant dense<7> : tensor<8xi64>
  %factor = arith.constant dense<36> : tensor<8xi64>
  %three = arith.constant dense<3> : tensor<8xi64>
  %low = arith.andi %x, %seven : tensor<8xi64>
  %scaled = arith.muli %low, %factor : tensor<8xi64>
  %index = arith.addi %scaled, %three : tensor<8xi64>
  %0 = memopt.embedding %table, %index : (tensor<256x16xf32>, tensor<8xi64>) -> tensor<8x16xf32>
  %count = memopt.iota {dimension = 0 : i64} : () -> tensor<8xi64>
  %1 = memopt.embedding %table, %count : (tensor<256x16xf32>, tensor<8xi64>) -> tensor<8x16xf32>
  %most = memopt.reduce %index {kind = #memopt.reduce<max>, dimensions = array<i64: 0>} : (tensor<8xi64>) -> tensor<i64>
  %row = tensor.expand_shape %most [] output_shape [1] : tensor<i64> into tensor<1xi64>
  %2 = memopt.embedding %table, %row : (tensor<256x16xf32>, tensor<1xi64>) -> tensor<1x16xf32>
  return %0, %1, %2 : tensor<8x16xf32>, tensor<8x16xf32>, tensor<1x16xf32>
}

// -----

// One column of an input indexes: the others may hold anything, so the input as a whole has no range.
// CHECK-LABEL: func.func @column
// CHECK-NOT: memopt.valid_range
// CHECK: %[[COLUMN:.*]] = tensor.extract_slice
// CHECK: memopt.check %[[COLUMN]] {max = 9
func.func @column(%x: tensor<8x2xi64>, %table: tensor<10x4xf32>) -> tensor<8x1x4xf32> {
  %column = tensor.extract_slice %x[0, 1] [8, 1] [1, 1] : tensor<8x2xi64> to tensor<8x1xi64>
  %0 = memopt.embedding %table, %column : (tensor<10x4xf32>, tensor<8x1xi64>) -> tensor<8x1x4xf32>
  return %0 : tensor<8x1x4xf32>
}

// -----

// A checkpoint may bring any integers: what is read from a variable is checked.
memopt.variable @positions : tensor<8xi64> role <buffer>
// CHECK-LABEL: func.func @state
// CHECK: %[[READ:.*]] = memopt.read @positions
// CHECK: memopt.check %[[READ]]
func.func @state(%table: tensor<10x4xf32>) -> tensor<8x4xf32> {
  %p = memopt.read @positions : tensor<8xi64>
  %0 = memopt.embedding %table, %p : (tensor<10x4xf32>, tensor<8xi64>) -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

// -----

// A class that does not count is allowed beside the others. Loss and gradient share the check.
// CHECK-LABEL: func.func @classes
// CHECK: %[[T:.*]] = memopt.check %{{.*}} {ignore = -100 : i64, max = 9 : i64, min = 0 : i64
// CHECK-NOT: memopt.check
// CHECK: memopt.cross_entropy %{{.*}}, %[[T]]
// CHECK: memopt.cross_entropy_backward %{{.*}}, %[[T]]
func.func @classes(%logits: tensor<8x10xf32>, %labels: tensor<8xi64>, %g: tensor<f32>) -> (tensor<f32>, tensor<8x10xf32>) {
  %one = arith.constant dense<1> : tensor<8xi64>
  %less = arith.subi %labels, %one : tensor<8xi64>
  %0:4 = memopt.cross_entropy %logits, %less : (tensor<8x10xf32>, tensor<8xi64>) -> (tensor<f32>, tensor<f32>, tensor<8xf32>, tensor<8xf32>)
  %1 = memopt.cross_entropy_backward %logits, %less, %0#2, %0#3, %g
    : (tensor<8x10xf32>, tensor<8xi64>, tensor<8xf32>, tensor<8xf32>, tensor<f32>) -> tensor<8x10xf32>
  return %0#0, %1 : tensor<f32>, tensor<8x10xf32>
}

// -----

// Integers are not divided by zero; a constant, or a byte plus one, is none.
// CHECK: memopt.index_sites = [{max = -1 : i64, min = 1 : i64, module = "net", op = "integer division", what = "divisors"}]
// CHECK-LABEL: func.func @divide
// CHECK-SAME: %[[X:.*]]: tensor<8xi64>, %[[Y:.*]]: tensor<8xi64>
// CHECK: %[[SAFE:.*]] = memopt.check %[[Y]] {max = -1 : i64, min = 1 : i64, otherwise = 1 : i64, site = 0 : i64}
// CHECK: arith.floordivsi %[[X]], %[[SAFE]]
// CHECK-NOT: memopt.check
func.func @divide(%x: tensor<8xi64>, %y: tensor<8xi64>, %byte: tensor<8xi8>) -> (tensor<8xi64>, tensor<8xi64>, tensor<8xi64>) {
  %seven = arith.constant dense<7> : tensor<8xi64>
  %one = arith.constant dense<1> : tensor<8xi64>
  %0 = arith.floordivsi %x, %y : tensor<8xi64> loc("net")
  %1 = arith.remsi %x, %seven : tensor<8xi64>
  %wide = arith.extui %byte : tensor<8xi8> to tensor<8xi64>
  %above = arith.addi %wide, %one : tensor<8xi64>
  %2 = arith.divsi %x, %above : tensor<8xi64>
  return %0, %1, %2 : tensor<8xi64>, tensor<8xi64>, tensor<8xi64>
}

// -----

// Places among sorted elements are places of the tensor that was sorted; what is gathered by them has the range of its
// source.
// CHECK-LABEL: func.func @sorted
// CHECK-NOT: memopt.check
func.func @sorted(%x: tensor<4x9xf32>) -> (tensor<4x2xf32>, tensor<4x2xf32>) {
  %places = memopt.argsort %x {axis = 1 : i64} : (tensor<4x9xf32>) -> tensor<4x2xi64>
  %0 = memopt.gather %x, %places {indexed = array<i64: 1>, positions = array<i64: 0>} : (tensor<4x9xf32>, tensor<4x2xi64>) -> tensor<4x2xf32>
  %all = memopt.argsort %x {axis = 1 : i64} : (tensor<4x9xf32>) -> tensor<4x9xi64>
  %again = memopt.gather %all, %places {indexed = array<i64: 1>, positions = array<i64: 0>} : (tensor<4x9xi64>, tensor<4x2xi64>) -> tensor<4x2xi64>
  %1 = memopt.gather %x, %again {indexed = array<i64: 1>, positions = array<i64: 0>} : (tensor<4x9xf32>, tensor<4x2xi64>) -> tensor<4x2xf32>
  return %0, %1 : tensor<4x2xf32>, tensor<4x2xf32>
}

// -----

// What gathers and scatters index by is checked as rows of an embedding are.
// CHECK: module attributes {memopt.index_sites = [{max = 8 : i64, min = 0 : i64, module = "", op = "gather", what = "elements of a gather"}, {max = 8 : i64, min = 0 : i64, module = "", op = "scatter", what = "elements of a scatter"}]}
// CHECK-LABEL: func.func @gathered
// CHECK-DAG: memopt.check %{{.*}} {max = 8 : i64, min = 0 : i64, otherwise = 0 : i64, site = 0 : i64}
// CHECK-DAG: memopt.check %{{.*}} {max = 8 : i64, min = 0 : i64, otherwise = -1 : i64, site = 1 : i64}
func.func @gathered(%x: tensor<9x3xf32>, %i: tensor<4x1xi64>) -> tensor<9x3xf32> {
  %j = arith.addi %i, %i : tensor<4x1xi64>
  %k = arith.muli %i, %i : tensor<4x1xi64>
  %0 = memopt.gather %x, %j {indexed = array<i64: 0>, positions = array<i64: 1>} : (tensor<9x3xf32>, tensor<4x1xi64>) -> tensor<4x3xf32>
  %1 = memopt.scatter %x, %0, %k {kind = #memopt.scatter<add>, indexed = array<i64: 0>, positions = array<i64: 1>}
    : (tensor<9x3xf32>, tensor<4x3xf32>, tensor<4x1xi64>) -> tensor<9x3xf32>
  return %1 : tensor<9x3xf32>
}
