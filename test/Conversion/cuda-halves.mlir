// Numbers of 16 bits on devices: eight in a load, rounded by the device's instructions, two at a time. sm_75 rounds f16
// one by one. An emulated device has a processor's integer arithmetic (cuda-numbers.test).

// RUN: kernel-compile %s --chip=sm_90 --print-schedule -o %t.ptx | FileCheck %s
// RUN: FileCheck %s --check-prefix=PTX --input-file=%t.ptx
// RUN: kernel-compile %s --chip=sm_75 --sms=40 -o %t.75.ptx && FileCheck %s --check-prefix=TURING --input-file=%t.75.ptx

#m = affine_map<(r, d) -> (r, d)>

// CHECK-LABEL: kernel memopt_kernel_0
// CHECK: nest 32000/8
// PTX-LABEL: .visible .entry memopt_kernel_0_stage0
// PTX-COUNT-1: ld.global.v4.b32
// PTX-COUNT-4: cvt.rn.bf16x2.f32
// PTX: st.global.v4.b32
func.func @brain(%a: tensor<100x320xbf16>) {
  %0 = memopt.kernel (%x = %a : tensor<100x320xbf16>) -> tensor<100x320xbf16> {
    %e = tensor.empty() : tensor<100x320xbf16>
    %r = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<100x320xbf16>) outs(%e : tensor<100x320xbf16>) {
    ^bb0(%p: bf16, %o: bf16):
      %w = arith.extf %p : bf16 to f32
      %q = arith.mulf %w, %w : f32
      %s = arith.addf %q, %w : f32
      %n = arith.truncf %s : f32 to bf16
      linalg.yield %n : bf16
    } -> tensor<100x320xbf16>
    memopt.yield %r : tensor<100x320xbf16>
  }
  return
}

// CHECK-LABEL: kernel memopt_kernel_1
// CHECK: nest 32000/8
// PTX-LABEL: .visible .entry memopt_kernel_1_stage0
// PTX-COUNT-1: ld.global.v4.b32
// PTX-COUNT-8: cvt.f32.f16
// PTX-COUNT-4: cvt.rn.f16x2.f32
// TURING-LABEL: .visible .entry memopt_kernel_1_stage0
// TURING-COUNT-8: cvt.rn.f16.f32
func.func @half(%a: tensor<100x320xf16>) {
  %0 = memopt.kernel (%x = %a : tensor<100x320xf16>) -> tensor<100x320xf16> {
    %e = tensor.empty() : tensor<100x320xf16>
    %r = linalg.generic {indexing_maps = [#m, #m], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<100x320xf16>) outs(%e : tensor<100x320xf16>) {
    ^bb0(%p: f16, %o: f16):
      %w = arith.extf %p : f16 to f32
      %q = arith.mulf %w, %w : f32
      %s = arith.addf %q, %w : f32
      %n = arith.truncf %s : f32 to f16
      linalg.yield %n : f16
    } -> tensor<100x320xf16>
    memopt.yield %r : tensor<100x320xf16>
  }
  return
}

// A sum over rows of any length: turns under way at once are LLVM's, and ptxas adds none of its own.
// CHECK-LABEL: kernel memopt_kernel_2
// PTX-LABEL: .visible .entry memopt_kernel_2_stage0
// PTX: .pragma "nounroll"
// PTX: .pragma "nounroll"
// PTX-COUNT-4: ld.global
// PTX: bra
func.func @columns(%a: tensor<4096x512xf32>) {
  %0 = memopt.kernel (%x = %a : tensor<4096x512xf32>) -> tensor<512xf32> {
    %z = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<512xf32>
    %f = linalg.fill ins(%z : f32) outs(%e : tensor<512xf32>) -> tensor<512xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(d, r) -> (r, d)>, affine_map<(d, r) -> (d)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4096x512xf32>) outs(%f : tensor<512xf32>) {
    ^bb0(%p: f32, %o: f32):
      %s = arith.addf %o, %p : f32
      linalg.yield %s : f32
    } -> tensor<512xf32>
    memopt.yield %r : tensor<512xf32>
  }
  return
}
