// RUN: kernel-compile %s --chip=sm_90 -o %t.ptx && FileCheck %s --input-file=%t.ptx

// A checked index that is the same for all lanes of a thread, while its guard is not: it is repeated for the lanes of the address that
// it is part of. A CTC loss has such, where it adds what its labels, between blanks, have two places before.

// CHECK-LABEL: .visible .entry memopt_kernel_0_stage0
// CHECK: st.global

#whole = affine_map<(s, b, k) -> (s, b, k)>
#rows = affine_map<(s, b, k) -> (b, k)>
#pair = affine_map<(b, k) -> (b, k)>
func.func @shifted(%scores: tensor<8x5xf32>, %labels: tensor<8xi64>) {
  %0 = memopt.kernel (%s = %scores : tensor<8x5xf32>, %l = %labels : tensor<8xi64>) -> tensor<8x3xf32> {
    %low = arith.constant -1.0e30 : f32
    %front = arith.constant dense<-1.0e30> : tensor<8x2xf32>
    %blanks = arith.constant dense<0> : tensor<8x2x1xi64>
    %column = tensor.expand_shape %l [[0, 1]] output_shape [8, 1] : tensor<8xi64> into tensor<8x1xi64>
    %padded = memopt.pad %column {high = array<i64: 0, 1>, low = array<i64: 0, 0>} : (tensor<8x1xi64>) -> tensor<8x2xi64>
    %apart = tensor.expand_shape %padded [[0], [1, 2]] output_shape [8, 2, 1] : tensor<8x2xi64> into tensor<8x2x1xi64>
    %between = tensor.concat dim(2) %blanks, %apart : (tensor<8x2x1xi64>, tensor<8x2x1xi64>) -> tensor<8x2x2xi64>
    %all = tensor.collapse_shape %between [[0], [1, 2]] : tensor<8x2x2xi64> into tensor<8x4xi64>
    %three = tensor.extract_slice %all[0, 0] [8, 3] [1, 1] : tensor<8x4xi64> to tensor<8x3xi64>
    %e = tensor.empty() : tensor<8x3xf32>
    %r = linalg.generic {indexing_maps = [#pair, #pair], iterator_types = ["parallel", "parallel"]} ins(%three : tensor<8x3xi64>) outs(%e : tensor<8x3xf32>) {
    ^bb0(%label: i64, %o: f32):
      %checked = memopt.check %label {max = 4 : i64, min = 0 : i64, otherwise = 0 : i64, site = 0 : i64} : i64
      %sample = linalg.index 0 : index
      %class = arith.index_cast %checked : i64 to index
      %score = tensor.extract %s[%sample, %class] : tensor<8x5xf32>
      linalg.yield %score : f32
    } -> tensor<8x3xf32>
    %most = tensor.extract_slice %r[0, 0] [8, 1] [1, 1] : tensor<8x3xf32> to tensor<8x1xf32>
    %before = tensor.concat dim(1) %front, %most : (tensor<8x2xf32>, tensor<8x1xf32>) -> tensor<8x3xf32>
    %one = tensor.expand_shape %r [[0, 1], [2]] output_shape [1, 8, 3] : tensor<8x3xf32> into tensor<1x8x3xf32>
    %two = tensor.expand_shape %before [[0, 1], [2]] output_shape [1, 8, 3] : tensor<8x3xf32> into tensor<1x8x3xf32>
    %both = tensor.concat dim(0) %one, %two : (tensor<1x8x3xf32>, tensor<1x8x3xf32>) -> tensor<2x8x3xf32>
    %f = linalg.fill ins(%low : f32) outs(%e : tensor<8x3xf32>) -> tensor<8x3xf32>
    %best = linalg.generic {indexing_maps = [#whole, #rows], iterator_types = ["reduction", "parallel", "parallel"]} ins(%both : tensor<2x8x3xf32>) outs(%f : tensor<8x3xf32>) {
    ^bb0(%p: f32, %o: f32):
      %m = arith.maximumf %o, %p : f32
      linalg.yield %m : f32
    } -> tensor<8x3xf32>
    memopt.yield %best : tensor<8x3xf32>
  }
  return
}
