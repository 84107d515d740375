// Kernels of TinyCuda.c: plain CUDA C on builtins, no header of a toolkit is needed. TinyKernels.ll is made from it by
//   clang++-22 -x cuda --cuda-device-only --cuda-gpu-arch=sm_90 -nocudainc -nocudalib -Wno-unknown-cuda-version
//     -Xclang -target-feature -Xclang +ptx80 -ffp-contract=off -O1 -fno-unroll-loops -S -emit-llvm
// without metadata and attributes. Sums have the order of TinyModel.c and TinyLoop.c, so the bits are theirs.
#include "TinyLoop.h"
#include "TinyModel.h"
#define kernel extern "C" __attribute__((global)) void
static inline __attribute__((device)) int thread() { return __nvvm_read_ptx_sreg_tid_x(); }
static inline __attribute__((device)) int block() { return __nvvm_read_ptx_sreg_ctaid_x(); }

// A block for each sample, a thread for each class.
kernel compute_logits(const float *x, const float *weight, const float *bias, float *logits) {
  int i = block(), c = thread();
  float sum = bias[c];
  for (int f = 0; f < TINY_FEATURES; ++f)
    sum += x[i * TINY_FEATURES + f] * weight[c * TINY_FEATURES + f];
  logits[i * TINY_CLASSES + c] = sum;
}

kernel compute_loss(const float *logits, const long *labels, float *out) {
  float loss = 0;
  for (int i = 0; i < TINY_BATCH; ++i) {
    float error = logits[i * TINY_CLASSES + labels[i]] - 1;
    loss += error * error / 2;
  }
  out[0] = loss / TINY_BATCH;
}

kernel count_step(long *counter) { counter[0] += 1; }

// A thread for each class.
kernel compute_gradients(const float *x, const float *logits, const long *labels, float *weight, float *bias) {
  int c = thread();
  for (int f = 0; f < TINY_FEATURES; ++f)
    weight[c * TINY_FEATURES + f] = 0;
  bias[c] = 0;
  for (int i = 0; i < TINY_BATCH; ++i) {
    if (labels[i] != c)
      continue;
    float error = (logits[i * TINY_CLASSES + c] - 1) / TINY_BATCH;
    for (int f = 0; f < TINY_FEATURES; ++f)
      weight[c * TINY_FEATURES + f] += error * x[i * TINY_FEATURES + f];
    bias[c] += error;
  }
}

kernel update(float *value, float *momentum, const float *gradient, const float *rate, const long *step, const long *seed) {
  int i = thread();
  long noise = (seed[0] * 31 + step[0]) % 7;
  momentum[i] = 0.9f * momentum[i] + gradient[i] * (1 + 0.001f * (float)noise);
  value[i] -= rate[0] * momentum[i];
}

kernel clear_number(float *number) { number[0] = 0; }

kernel add_samples(const float *x, const long *first, float *loss, unsigned long *fault) {
  for (int row = 0; row < LOOP_ROWS; ++row) {
    if (x[row] > LOOP_LARGEST || x[row] < -LOOP_LARGEST)
      __atomic_fetch_min(fault, (unsigned long)LOOP_SITE << 48 | ((unsigned long)(long)x[row] & ((1ul << 48) - 1)),
                         __ATOMIC_RELAXED);
    loss[0] += x[row] * (float)(1 + first[0] + row);
  }
}

kernel add_number(float *sum, const float *term) { sum[0] += term[0]; }
