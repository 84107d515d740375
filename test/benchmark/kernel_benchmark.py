"""Times generated kernels: gelu, layer norm, batch norm, cross entropy, AdamW, transposes, pooling.

    python kernel_benchmark.py [--threads N] [--only NAME]

prints milliseconds and useful GB/s (each operand read once, each result written once). kernel-compile must be
on PATH; a C compiler with OpenMP builds the parallel loop."""
import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "Conversion", "Inputs"))
from kernel_testing import DTYPES, Kernel, tensor  # noqa: E402

LOOP = r"""
#include <stdint.h>
#include <omp.h>
typedef void (*body_type)(void *, int64_t, int64_t);
static void parallel_for(void *session, int64_t count, int64_t grain, body_type body, void *closure) {
  if (count <= grain || omp_get_max_threads() == 1) { body(closure, 0, count); return; }
#pragma omp parallel
  {
    int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();
    int64_t begin = count * thread / threads, end = count * (thread + 1) / threads;
    if (begin < end) body(closure, begin, end);
  }
}
static void *table[2], *step[4]; /* as in ProgramInterface.h */
void *make_step(int threads) {
  omp_set_num_threads(threads);
  table[1] = (void *)parallel_for;
  step[1] = table;
  return step;
}
"""
ID2, ROW, COLUMN = "(d0, d1) -> (d0, d1)", "(d0, d1) -> (d0)", "(d0, d1) -> (d1)"
ID3, CHUNK = "(d0, d1, d2) -> (d0, d1, d2)", "(d0, d1, d2) -> (d0, d2)"
ADD = "%s = arith.addf %o0, %a0 : f32\nlinalg.yield %s : f32"
kernels = {}

k = Kernel(((4096, 3072), "f32"))
kernels["gelu_forward"] = k.yields(k.pointwise(k.arguments, "f32", """
%c = arith.constant 0.7978845608 : f32
%d = arith.constant 0.044715 : f32
%h = arith.constant 0.5 : f32
%one = arith.constant 1.0 : f32
%x2 = arith.mulf %a0, %a0 : f32
%x3 = arith.mulf %x2, %a0 : f32
%e = arith.mulf %x3, %d : f32
%f = arith.addf %a0, %e : f32
%g = arith.mulf %f, %c : f32
%t = math.tanh %g : f32
%u = arith.addf %t, %one : f32
%v = arith.mulf %a0, %h : f32
%w = arith.mulf %u, %v : f32
linalg.yield %w : f32"""))

k = Kernel(((4096, 3072), "f32"), ((4096, 3072), "f32"))
kernels["gelu_backward"] = k.yields(k.pointwise(k.arguments, "f32", """
%c = arith.constant 0.7978845608 : f32
%d = arith.constant 0.044715 : f32
%d3 = arith.constant 0.134145 : f32
%h = arith.constant 0.5 : f32
%one = arith.constant 1.0 : f32
%x2 = arith.mulf %a0, %a0 : f32
%x3 = arith.mulf %x2, %a0 : f32
%e = arith.mulf %x3, %d : f32
%f = arith.addf %a0, %e : f32
%g = arith.mulf %f, %c : f32
%t = math.tanh %g : f32
%t2 = arith.mulf %t, %t : f32
%q = arith.subf %one, %t2 : f32
%r = arith.mulf %x2, %d3 : f32
%r1 = arith.addf %r, %one : f32
%r2 = arith.mulf %r1, %c : f32
%s = arith.mulf %q, %r2 : f32
%s1 = arith.mulf %s, %a0 : f32
%u = arith.addf %t, %one : f32
%v = arith.addf %u, %s1 : f32
%w = arith.mulf %v, %h : f32
%z = arith.mulf %w, %a1 : f32
linalg.yield %z : f32"""))

k = Kernel(((4096, 768), "f32"), ((768,), "f32"), ((768,), "f32"))
x = k.arguments[0]
total = k.reduce([(x, ID2)], ((4096,), ROW), "pr", "0.0", ADD)
mean = k.pointwise([total], "f32", "%n = arith.constant 768.0 : f32\n%s = arith.divf %a0, %n : f32\nlinalg.yield %s : f32")
square = k.reduce([(x, ID2), (mean, ROW)], ((4096,), ROW), "pr", "0.0",
                  "%d = arith.subf %a0, %a1 : f32\n%q = arith.mulf %d, %d : f32\n%s = arith.addf %o0, %q : f32\nlinalg.yield %s : f32")
rstd = k.pointwise([square], "f32", "%n = arith.constant 768.0 : f32\n%v = arith.divf %a0, %n : f32\n%e = arith.constant 1.0e-5 : f32\n"
                   "%w = arith.addf %v, %e : f32\n%s = math.rsqrt %w : f32\nlinalg.yield %s : f32")
y = k.pointwise([x, (mean, ROW), (rstd, ROW), (k.arguments[1], COLUMN), (k.arguments[2], COLUMN)], "f32",
                "%d = arith.subf %a0, %a1 : f32\n%h = arith.mulf %d, %a2 : f32\n%q = arith.mulf %h, %a3 : f32\n%s = arith.addf %q, %a4 : f32\nlinalg.yield %s : f32")
kernels["layer_norm_forward"] = k.yields(y, mean, rstd)

# dx and, per chunk of 64 rows, the column sums for scale and shift.
k = Kernel(((4096, 768), "f32"), ((4096, 768), "f32"), ((4096,), "f32"), ((4096,), "f32"), ((768,), "f32"))
dy, x, mean, rstd, gamma = k.arguments
hat = ("%c = arith.subf %a1, %a2 : f32\n%h = arith.mulf %c, %a3 : f32\n")
sums = k.generic([(dy, ID2), (x, ID2), (mean, ROW), (rstd, ROW), (gamma, COLUMN)],
                 [((4096,), "f32", ROW, "0.0"), ((4096,), "f32", ROW, "0.0")], "pr",
                 hat + "%g = arith.mulf %a0, %a4 : f32\n%p = arith.mulf %g, %h : f32\n%s = arith.addf %o0, %g : f32\n%t = arith.addf %o1, %p : f32\nlinalg.yield %s, %t : f32, f32")
dx = k.pointwise([dy, x, (mean, ROW), (rstd, ROW), (gamma, COLUMN), (sums[0], ROW), (sums[1], ROW)], "f32",
                 hat + "%n = arith.constant 768.0 : f32\n%g = arith.mulf %a0, %a4 : f32\n%p = arith.divf %a5, %n : f32\n%q = arith.divf %a6, %n : f32\n"
                 "%r = arith.mulf %h, %q : f32\n%u = arith.subf %g, %p : f32\n%v = arith.subf %u, %r : f32\n%w = arith.mulf %v, %a3 : f32\nlinalg.yield %w : f32")
big, small = tensor((4096, 768), "f32"), tensor((64, 64, 768), "f32")
dy3, x3 = (k.view(f"tensor.expand_shape {v.name} [[0, 1], [2]] output_shape [64, 64, 768] : {big} into {small}", (64, 64, 768), "f32") for v in (dy, x))
mean2, rstd2 = (k.view(f"tensor.expand_shape {v.name} [[0, 1]] output_shape [64, 64] : tensor<4096xf32> into tensor<64x64xf32>", (64, 64), "f32") for v in (mean, rstd))
partial = k.generic([(dy3, ID3), (x3, ID3), (mean2, "(d0, d1, d2) -> (d0, d1)"), (rstd2, "(d0, d1, d2) -> (d0, d1)")],
                    [((64, 768), "f32", CHUNK, "0.0"), ((64, 768), "f32", CHUNK, "0.0")], "prp",
                    hat + "%p = arith.mulf %a0, %h : f32\n%s = arith.addf %o0, %p : f32\n%t = arith.addf %o1, %a0 : f32\nlinalg.yield %s, %t : f32, f32")
kernels["layer_norm_backward"] = k.yields(dx, *partial)

# Statistics of batch norm per chunk: mean, then squares around it.
k = Kernel(((256, 196, 256), "f32"))
x, = k.arguments
total = k.reduce([(x, ID3)], ((256, 256), CHUNK), "prp", "0.0", ADD)
mean = k.pointwise([total], "f32", "%n = arith.constant 196.0 : f32\n%s = arith.divf %a0, %n : f32\nlinalg.yield %s : f32")
square = k.reduce([(x, ID3), (mean, CHUNK)], ((256, 256), CHUNK), "prp", "0.0",
                  "%d = arith.subf %a0, %a1 : f32\n%q = arith.mulf %d, %d : f32\n%s = arith.addf %o0, %q : f32\nlinalg.yield %s : f32")
kernels["batch_norm_statistics"] = k.yields(mean, square)
k = Kernel(((50176, 256), "f32"), ((256,), "f32"), ((256,), "f32"))
kernels["batch_norm_relu_apply"] = k.yields(k.pointwise(
    [k.arguments[0], (k.arguments[1], COLUMN), (k.arguments[2], COLUMN)], "f32",
    "%z = arith.constant 0.0 : f32\n%s = arith.mulf %a0, %a1 : f32\n%t = arith.addf %s, %a2 : f32\n%u = arith.maximumf %t, %z : f32\nlinalg.yield %u : f32"))

k = Kernel(((1024, 50257), "f32"), ((1024,), "i64"), ((), "f32"))
x, labels, scale = k.arguments
largest = k.reduce([(x, ID2)], ((1024,), ROW), "pr", "0xFF800000", "%s = arith.maximumf %o0, %a0 : f32\nlinalg.yield %s : f32")
total = k.reduce([(x, ID2), (largest, ROW)], ((1024,), ROW), "pr", "0.0",
                 "%d = arith.subf %a0, %a1 : f32\n%e = math.exp %d : f32\n%s = arith.addf %o0, %e : f32\nlinalg.yield %s : f32")
lse = k.pointwise([largest, total], "f32", "%e = math.log %a1 : f32\n%s = arith.addf %e, %a0 : f32\nlinalg.yield %s : f32")
loss = k.pointwise([lse, labels], "f32", f"%i = arith.index_cast %a1 : i64 to index\n%r = linalg.index 0 : index\n"
                   f"%e = tensor.extract %arg0[%r, %i] : {x.type}\n%s = arith.subf %a0, %e : f32\nlinalg.yield %s : f32")
dx = k.pointwise([x, (lse, ROW), (labels, ROW), (scale, "(d0, d1) -> ()")], "f32",
                 "%d = arith.subf %a0, %a1 : f32\n%e = math.exp %d : f32\n%i = linalg.index 1 : index\n%j = arith.index_cast %i : index to i64\n"
                 "%c = arith.cmpi eq, %j, %a2 : i64\n%one = arith.constant 1.0 : f32\n%zero = arith.constant 0.0 : f32\n"
                 "%w = arith.select %c, %one, %zero : f32\n%u = arith.subf %e, %w : f32\n%v = arith.mulf %u, %a3 : f32\nlinalg.yield %v : f32")
kernels["cross_entropy"] = k.yields(dx, loss)

n = 10_000_000
k = Kernel(*[((n,), "f32")] * 4, ((), "f32"), ((), "i64"))
scalar = "(d0) -> ()"
outs = [((n,), "f32", "(d0) -> (d0)", None)] * 3
r = k.generic([(v, "(d0) -> (d0)") for v in k.arguments[:4]] + [(k.arguments[4], scalar), (k.arguments[5], scalar)], outs, "p", """
%b1 = arith.constant 0.9 : f32
%c1 = arith.constant 0.1 : f32
%b2 = arith.constant 0.999 : f32
%c2 = arith.constant 0.001 : f32
%eps = arith.constant 1.0e-8 : f32
%decay = arith.constant 0.01 : f32
%db1 = arith.constant 0.9 : f64
%db2 = arith.constant 0.999 : f64
%done = arith.constant 1.0 : f64
%t = arith.sitofp %a5 : i64 to f64
%p1 = math.powf %db1, %t : f64
%p2 = math.powf %db2, %t : f64
%q1 = arith.subf %done, %p1 : f64
%q2 = arith.subf %done, %p2 : f64
%r2 = math.sqrt %q2 : f64
%f1 = arith.truncf %q1 : f64 to f32
%f2 = arith.truncf %r2 : f64 to f32
%step = arith.divf %a4, %f1 : f32
%ld = arith.mulf %a4, %decay : f32
%one = arith.constant 1.0 : f32
%keep = arith.subf %one, %ld : f32
%m1 = arith.mulf %a2, %b1 : f32
%m2 = arith.mulf %a1, %c1 : f32
%m = arith.addf %m1, %m2 : f32
%g2 = arith.mulf %a1, %a1 : f32
%v1 = arith.mulf %a3, %b2 : f32
%v2 = arith.mulf %g2, %c2 : f32
%v = arith.addf %v1, %v2 : f32
%s = math.sqrt %v : f32
%d = arith.divf %s, %f2 : f32
%e = arith.addf %d, %eps : f32
%u = arith.divf %m, %e : f32
%w = arith.mulf %u, %step : f32
%x = arith.mulf %a0, %keep : f32
%y = arith.subf %x, %w : f32
linalg.yield %y, %m, %v : f32, f32, f32""")
kernels["adamw"] = k.yields(*r)

k = Kernel(((12_800_000,), "f32"), ((12_800_000,), "f32"))
kernels["add_relu"] = k.yields(k.pointwise(k.arguments, "f32", "%z = arith.constant 0.0 : f32\n%s = arith.addf %a0, %a1 : f32\n%t = arith.maximumf %s, %z : f32\nlinalg.yield %t : f32"))
k = Kernel(((4096, 768), "f32"))
kernels["transpose"] = k.yields(k.view("memopt.transpose %arg0 {permutation = array<i64: 1, 0>} : (tensor<4096x768xf32>) -> tensor<768x4096xf32>", (768, 4096), "f32"))
k = Kernel(((4, 1024, 3, 12, 64), "f32"))
kernels["split_heads"] = k.yields(k.view("memopt.transpose %arg0 {permutation = array<i64: 2, 0, 3, 1, 4>} : (tensor<4x1024x3x12x64xf32>) -> tensor<3x4x12x1024x64xf32>",
                                         (3, 4, 12, 1024, 64), "f32"))
k = Kernel(((16, 64, 112, 112), "f32"))
kernels["to_channels_last"] = k.yields(k.view("memopt.transpose %arg0 {permutation = array<i64: 0, 2, 3, 1>} : (tensor<16x64x112x112xf32>) -> tensor<16x112x112x64xf32>", (16, 112, 112, 64), "f32"))
k = Kernel(((50257, 768), "f32"), ((4096,), "i64"))
kernels["embedding"] = k.yields(k.generic([(k.arguments[1], "(d0, d1) -> (d0)")], [((4096, 768), "f32", ID2, None)], "pp",
    "%i = arith.index_cast %a0 : i64 to index\n%d = linalg.index 1 : index\n%e = tensor.extract %arg0[%i, %d] : tensor<50257x768xf32>\nlinalg.yield %e : f32"))
k = Kernel(((4096, 768), "f32"), ((4096,), "i64"))
kernels["embedding_backward"] = k.yields(k.view("memopt.embedding_backward %arg0, %arg1 : (tensor<4096x768xf32>, tensor<4096xi64>) -> tensor<50257x768xf32>", (50257, 768), "f32"))


def make(value):
    if value.dtype == "i64":
        return np.array(np.random.default_rng(0).integers(1, 1024, value.shape))
    return np.array(np.random.default_rng(0).random(value.shape, np.float32), dtype=DTYPES[value.dtype])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--repeat", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source, loop = os.path.join(folder, "k.mlir"), os.path.join(folder, "loop.c")
        chosen = {name: k for name, k in kernels.items() if arguments.only in name}
        open(source, "w").write("".join(k.text(name, None) for name, k in chosen.items()))
        open(loop, "w").write(LOOP)
        subprocess.run(["gcc", "-O2", "-fopenmp", "-shared", "-fPIC", loop, "-o", loop + ".so"], check=True)
        subprocess.run(["kernel-compile", source, "-o", source + ".so"], check=True)
        helper, library = ctypes.CDLL(loop + ".so"), ctypes.CDLL(source + ".so")
        helper.make_step.restype = ctypes.c_void_p
        step = ctypes.c_void_p(helper.make_step(arguments.threads))
        for name, kernel in chosen.items():
            buffers = [make(value) for value in kernel.arguments] + [np.zeros(v.shape, DTYPES[v.dtype]) for v in kernel.results]
            pointers = [ctypes.c_void_p(buffer.ctypes.data) for buffer in buffers]
            function = getattr(library, name)
            best = float("inf")
            for _ in range(arguments.repeat):
                start = time.perf_counter()
                function(step, *pointers)
                best = min(best, time.perf_counter() - start)
            size = sum(buffer.nbytes for buffer in buffers)
            if name == "embedding":
                size = 2 * buffers[-1].nbytes
            print(f"{name:24} {best * 1e3:8.2f} ms {size / best / 1e9:7.1f} GB/s", flush=True)


if __name__ == "__main__":
    main()
