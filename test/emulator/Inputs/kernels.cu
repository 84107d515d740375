// Kernels of the emulator's tests: plain CUDA C on builtins, no header of a toolkit is needed. kernels.ll is made from it.
#define kernel extern "C" __attribute__((global)) void
#define device static inline __attribute__((device, always_inline))
#define shared __attribute__((shared))
typedef float float4 __attribute__((vector_size(16)));

device int thread() { return __nvvm_read_ptx_sreg_tid_x(); }
device int block() { return __nvvm_read_ptx_sreg_ctaid_x(); }
device int threads() { return __nvvm_read_ptx_sreg_ntid_x(); }

// The sum of all 32 lanes of a warp, in each of them.
device float sumWarp(float sum) {
  for (int distance = 16; distance; distance /= 2)
    sum += __nvvm_shfl_sync_bfly_f32(-1, sum, distance, 31);
  return sum;
}

// y[row] = the sum of a row of x; one block a row, a fixed tree: lanes, then warps.
template <bool HasBarrier>
device void sumRow(const float *x, float *y, int columns, float *part) {
  float sum = 0;
  for (int column = thread() * 4; column < columns; column += threads() * 4) {
    float4 v = *(const float4 *)(x + (long)block() * columns + column);
    sum += (v[0] + v[1]) + (v[2] + v[3]);
  }
  sum = sumWarp(sum);
  if (thread() % 32 == 0)
    part[thread() / 32] = sum;
  if (HasBarrier)
    __syncthreads();
  if (thread() < 32) {
    sum = sumWarp(thread() < threads() / 32 ? part[thread()] : 0);
    if (thread() == 0)
      y[block()] = sum;
  }
}

kernel sum_rows(const float *x, float *y, int columns) {
  shared static float part[32];
  sumRow<true>(x, y, columns, part);
}

// What reads the partial sums may be faster than what writes them.
kernel sum_rows_without_barrier(const float *x, float *y, int columns) {
  shared static float part[32];
  sumRow<false>(x, y, columns, part);
}

kernel scale(const float *x, float *y, float factor, int count) {
  int i = block() * threads() + thread();
  if (i < count)
    y[i] = factor * x[i];
}

kernel write_at(float *x, long element) {
  if (thread() == 0 && block() == 0)
    x[element] = 1;
}

// Every block writes the same elements.
kernel all_write(float *x) { x[thread()] = block(); }

// What lanes of a warp get from each other, nine numbers a lane.
kernel meet(int *out) {
  int lane = thread(), *o = out + lane * 9;
  o[0] = __nvvm_shfl_sync_idx_i32(-1, lane * 10, (lane + 5) % 32, 31);
  o[1] = __nvvm_shfl_sync_up_i32(-1, lane * 10, 3, 0);
  o[2] = __nvvm_shfl_sync_down_i32(-1, lane * 10, 4, 31);
  o[3] = __nvvm_shfl_sync_bfly_i32(-1, lane * 10, 6, 31);
  o[4] = __nvvm_shfl_sync_down_i32(-1, lane * 10, 1, 0x1807); // in segments of eight
  o[5] = __nvvm_vote_ballot_sync(-1, lane % 3 == 0);
  o[6] = __nvvm_vote_any_sync(-1, lane == 7) + 2 * __nvvm_vote_any_sync(-1, lane == 99);
  o[7] = __nvvm_vote_all_sync(-1, lane < 32) + 2 * __nvvm_vote_all_sync(-1, lane < 31);
  o[8] = __nvvm_vote_uni_sync(-1, lane < 0) + 2 * __nvvm_vote_uni_sync(-1, lane < 9);
}

// Half of the warp waits at a barrier, the other half for the first.
kernel part_ways(float *x) {
  if (thread() < 16)
    __syncthreads();
  else
    x[thread()] = __nvvm_shfl_sync_idx_f32(-1, 1.0f, 0, 31);
}

// Turns x around by way of shared memory that the launch asks for.
kernel turn_around(float *x) {
  extern shared float all[];
  all[thread()] = x[thread()];
  __syncthreads();
  x[thread()] = all[threads() - 1 - thread()];
}

kernel count_all(int *x) { __atomic_fetch_add(x, 1, __ATOMIC_RELAXED); }
