// REQUIRES: ptxas
// RUN: kernel-compile %s --chip=sm_80 --sms=108 --cubin -o %t.80.cubin | FileCheck %s
// RUN: kernel-compile %s --chip=sm_90 --cubin -o %t.90.cubin | FileCheck %s

// Sines and cosines of doubles are arithmetic: libdevice's reduce large arguments by way of a stack.

#id = affine_map<(i) -> (i)>

// CHECK-COUNT-2: memopt_kernel_{{[01]}}_stage0: {{[0-9]+}} registers, 0 bytes of stack, 0 bytes spilled
func.func @sine(%a: tensor<1024xf64>) {
  %0 = memopt.kernel (%x = %a : tensor<1024xf64>) -> tensor<1024xf64> {
    %e = tensor.empty() : tensor<1024xf64>
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<1024xf64>) outs(%e : tensor<1024xf64>) {
    ^bb0(%p: f64, %o: f64):
      %s = math.sin %p : f64
      linalg.yield %s : f64
    } -> tensor<1024xf64>
    memopt.yield %r : tensor<1024xf64>
  }
  return
}
func.func @cosine(%a: tensor<1024xf64>) {
  %0 = memopt.kernel (%x = %a : tensor<1024xf64>) -> tensor<1024xf64> {
    %e = tensor.empty() : tensor<1024xf64>
    %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<1024xf64>) outs(%e : tensor<1024xf64>) {
    ^bb0(%p: f64, %o: f64):
      %s = math.cos %p : f64
      linalg.yield %s : f64
    } -> tensor<1024xf64>
    memopt.yield %r : tensor<1024xf64>
  }
  return
}
