//===- GroupConvolution.cpp - convolution of few channels in a group --------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// Depthwise convolutions and others of narrow groups do little with each number that they read, so
// memory should set their pace: a task packs the rows that it meets, widened and with their
// padding, into a ring in the near caches, and sums windows of these rows. A vector holds
// neighbouring channels of a pixel, so that channels are summed side by side and need no sum across
// lanes. Where a row of the result, or of its gradient, already is what kernels read, it is used
// where it lies. GroupPlan.h says how the work is cut.

#include "GroupKernels.h"
#include "GroupPlan.h"
#include "memopt-runtime/kernels/own/BlockedProduct.h"
#include <type_traits>

using namespace memopt;
using namespace memopt::libraries;

namespace {

template <typename S, typename T> class GroupConvolution final : public LibraryCall {
public:
  GroupConvolution(const ConvolutionDescriptor &d, int threads)
      : plan(d, kernels.lanes, static_cast<int64_t>(sizeof(T)), threads) {}

  int64_t workspaceBytes() const override { return plan.workspaceBytes(); }
  std::string implementation() const override { return std::string(kernels.name) + "+groups"; }
  Status run(void *const *buffers, ThreadPool &pool) override;

private:
  /// A task's own memory.
  struct Slot {
    T *ring;
    int64_t *ringRows; ///< the row of far that each place of the ring holds
    const T **values, **weights;
    T **sums;
    T *nearRow; ///< of one vector
  };
  Slot getSlot(char *memory) const;
  void forgetRows(const Slot &slot) const {
    std::fill(slot.ringRows, slot.ringRows + plan.ringRows, -1);
  }

  void packWeights(const S *weights, const Wide<S> *bias, T *workspace, int64_t vector) const;
  void packChannels(const S *source, int64_t columns, int64_t vector, T *packed) const;
  void packRow(const S *data, const Strip &strip, int64_t row, T *packed) const;
  const T *getRow(const Slot &slot, const S *data, const Strip &strip, int64_t row) const;

  /// The packed rows that a near row meets, and the taps that meet them.
  struct RowWindow {
    const T *rows[GroupPlan::maxTaps];
    int64_t taps[GroupPlan::maxTaps], count = 0;
  };
  RowWindow gatherRows(const Slot &slot, const S *data, const Strip &strip, int64_t row) const;

  /// Whether kernels can use a vector of near's channels where it lies.
  bool isInPlace(int64_t vector) const {
    return std::is_same_v<S, T> && plan.near.strides.channel == 1 &&
           plan.laneCount(vector) == plan.lanes;
  }
  int64_t locate(const Strip &strip, int64_t row) const;
  void store(void *result, const Strip &strip, int64_t row, int64_t vector, const T *packed) const;
  const T *packGradient(const Slot &slot, const S *row, const Strip &strip, int64_t vector,
                        int64_t &step) const;

  void convolveStrip(void *const *buffers, int64_t task, char *memory) const;
  void convolveRow(const Slot &slot, const RowWindow &window, const Strip &strip, int64_t vector,
                   const T *workspace, T *result, int64_t step) const;
  void correlateStrip(void *const *buffers, int64_t task, char *memory) const;
  void correlateRow(const Slot &slot, const RowWindow &window, const Strip &strip, int64_t vector,
                    T *sums, const T *gradient, int64_t step) const;
  void addSums(void *const *buffers, const T *sums, int64_t vector) const;

  const GroupKernels<S, T> &kernels = groupKernels<S, T>();
  const BlockKernels<S, T> &blocks = blockKernels<S, T>();
  const GroupPlan plan;
};

template <typename S, typename T>
typename GroupConvolution<S, T>::Slot GroupConvolution<S, T>::getSlot(char *memory) const {
  const SlotLayout &at = plan.slot;
  Slot slot;
  slot.ring = reinterpret_cast<T *>(memory);
  slot.ringRows = reinterpret_cast<int64_t *>(memory + at.ringRows);
  slot.values = reinterpret_cast<const T **>(memory + at.values);
  slot.weights = reinterpret_cast<const T **>(memory + at.weights);
  slot.sums = reinterpret_cast<T **>(memory + at.sums);
  slot.nearRow = reinterpret_cast<T *>(memory + at.nearRow);
  return slot;
}

//===----------------------------------------------------------------------===//
// Packing
//===----------------------------------------------------------------------===//

/// Biases of all vectors, then [vectors][members][taps][lanes].
template <typename S, typename T>
void GroupConvolution<S, T>::packWeights(const S *weights, const Wide<S> *bias, T *workspace,
                                         int64_t vector) const {
  const ConvolutionDescriptor &d = plan.descriptor;
  int64_t lanes = plan.lanes, taps = plan.tapCount(), count = plan.laneCount(vector);
  int64_t first = vector * lanes, members = plan.far.groupChannels;
  for (int64_t i = 0; i < lanes; ++i)
    workspace[first + i] = bias && i < count ? T(bias[first + i]) : T(0);
  T *packed = workspace + (plan.vectors + vector * plan.filterSize()) * lanes;
  for (int64_t member = 0; member < members; ++member) {
    const S *lane[maxVectorLanes];
    for (int64_t i = 0; i < count; ++i) {
      int64_t channel = first + i, output = channel, input = member;
      if (plan.isBackwardData()) {
        output = plan.farChannel(channel, member);
        input = channel % plan.near.groupChannels;
      }
      lane[i] = weights + (output * d.groupInputs() + input) * taps;
    }
    blocks.packLanes({packed, lanes, members * taps}, member * taps, lane, count, taps, 1);
  }
}

/// Columns of far as one vector of near's channels meets them.
template <typename S, typename T>
void GroupConvolution<S, T>::packChannels(const S *source, int64_t columns, int64_t vector,
                                          T *packed) const {
  const ActivationStrides &strides = plan.far.strides;
  int64_t lanes = plan.lanes, count = plan.laneCount(vector);
  for (int64_t member = 0; member < plan.copies; ++member) {
    const S *lane[maxVectorLanes];
    for (int64_t i = 0; i < count; ++i) {
      int64_t channel = vector * lanes + i;
      lane[i] = source +
                (plan.copies == 1 && plan.group > 1 ? channel : plan.farChannel(channel, member)) *
                    strides.channel;
    }
    blocks.packLanes({packed + member * plan.farColumns * lanes, lanes, columns}, 0, lane, count,
                     columns, strides.pixel);
  }
}

/// The part of a row of far that a strip meets, beyond its ends zeros: [vectors][copies][columns].
template <typename S, typename T>
void GroupConvolution<S, T>::packRow(const S *data, const Strip &strip, int64_t row,
                                     T *packed) const {
  const GroupActivation &far = plan.far;
  int64_t lanes = plan.lanes, columns = plan.farColumns, from = plan.firstFarColumn(strip.column);
  int64_t begin = std::clamp<int64_t>(-from, 0, columns);
  int64_t end = std::clamp<int64_t>(far.columns - from, begin, columns);
  for (int64_t i = 0; i < strip.vectors * plan.copies; ++i) {
    T *part = packed + i * columns * lanes;
    std::fill(part, part + begin * lanes, T(0));
    std::fill(part + end * lanes, part + columns * lanes, T(0));
  }
  if (begin == end)
    return;
  const S *source = data + strip.image * far.strides.image +
                    (row * far.columns + from + begin) * far.strides.pixel;
  packed += begin * lanes;
  if (far.strides.channel == 1 && plan.copies == 1 &&
      far.groupChannels == plan.near.groupChannels) {
    int64_t first = strip.vector * lanes;
    kernels.pack(packed, columns * lanes, source + first, end - begin, far.strides.pixel,
                 std::min(strip.vectors * lanes, plan.near.channels - first));
    return;
  }
  for (int64_t vector = 0; vector < strip.vectors; ++vector)
    packChannels(source, end - begin, strip.vector + vector, packed + vector * plan.rowElements());
}

template <typename S, typename T>
const T *GroupConvolution<S, T>::getRow(const Slot &slot, const S *data, const Strip &strip,
                                        int64_t row) const {
  int64_t place = row % plan.ringRows;
  T *packed = slot.ring + place * plan.blockVectors * plan.rowElements();
  if (slot.ringRows[place] != row) {
    packRow(data, strip, row, packed);
    slot.ringRows[place] = row;
  }
  return packed;
}

template <typename S, typename T>
typename GroupConvolution<S, T>::RowWindow
GroupConvolution<S, T>::gatherRows(const Slot &slot, const S *data, const Strip &strip,
                                   int64_t row) const {
  auto phases = static_cast<int64_t>(plan.rowPhases.size());
  const Phase &phase = plan.rowPhases[static_cast<size_t>(row % phases)];
  RowWindow window;
  for (int64_t m = 0; m < phase.taps; ++m) {
    int64_t at = phase.first + row / phases * phase.step + m * phase.tapReach;
    if (at < 0 || at >= plan.far.rows)
      continue;
    window.rows[window.count] = getRow(slot, data, strip, at);
    window.taps[window.count++] = phase.firstTap + m * phase.tapStep;
  }
  return window;
}

//===----------------------------------------------------------------------===//
// Rows of the near activation
//===----------------------------------------------------------------------===//

/// The number of the element that is channel 0 of a strip's first column in a row.
template <typename S, typename T>
int64_t GroupConvolution<S, T>::locate(const Strip &strip, int64_t row) const {
  const ActivationStrides &strides = plan.near.strides;
  return strip.image * strides.image + (row * plan.near.columns + strip.column) * strides.pixel;
}

template <typename S, typename T>
void GroupConvolution<S, T>::store(void *result, const Strip &strip, int64_t row, int64_t vector,
                                   const T *packed) const {
  const ActivationStrides &strides = plan.near.strides;
  int64_t lanes = plan.lanes, count = plan.laneCount(vector);
  int64_t first = locate(strip, row) + vector * lanes * strides.channel;
  bool isWide = plan.descriptor.wideResult && isHalf<S>;
  if (strides.channel == 1 && isWide)
    return kernels.unpackWide(static_cast<Wide<S> *>(result) + first, packed, strip.columns,
                              strides.pixel, count);
  if (strides.channel == 1)
    return kernels.unpack(static_cast<S *>(result) + first, packed, strip.columns, strides.pixel,
                          count);
  ResultElements<S> elements(result, isWide);
  for (int64_t lane = 0; lane < count; ++lane)
    for (int64_t column = 0; column < strip.columns; ++column)
      elements.set(first + lane * strides.channel + column * strides.pixel,
                   packed[column * lanes + lane]);
}

/// A row of near as kernels read it, `step` elements from column to column.
template <typename S, typename T>
const T *GroupConvolution<S, T>::packGradient(const Slot &slot, const S *row, const Strip &strip,
                                              int64_t vector, int64_t &step) const {
  const ActivationStrides &strides = plan.near.strides;
  int64_t first = vector * plan.lanes, count = plan.laneCount(vector);
  if (isInPlace(vector)) {
    step = strides.pixel;
    return reinterpret_cast<const T *>(row + first);
  }
  step = plan.lanes;
  if (strides.channel == 1) {
    kernels.pack(slot.nearRow, 0, row + first, strip.columns, strides.pixel, count);
    return slot.nearRow;
  }
  const S *lane[maxVectorLanes];
  for (int64_t i = 0; i < count; ++i)
    lane[i] = row + (first + i) * strides.channel;
  blocks.packLanes({slot.nearRow, plan.lanes, strip.columns}, 0, lane, count, strip.columns,
                   strides.pixel);
  return slot.nearRow;
}

//===----------------------------------------------------------------------===//
// Forward, and the gradient of the input
//===----------------------------------------------------------------------===//

template <typename S, typename T>
void GroupConvolution<S, T>::convolveRow(const Slot &slot, const RowWindow &rows,
                                         const Strip &strip, int64_t vector, const T *workspace,
                                         T *result, int64_t step) const {
  int64_t lanes = plan.lanes, memberStep = plan.tapCount() * lanes;
  int64_t taps = plan.descriptor.taps[2], width = plan.farColumns * lanes;
  const T *filter =
      workspace + (plan.vectors + (strip.vector + vector) * plan.filterSize()) * lanes;
  auto phases = static_cast<int64_t>(plan.columnPhases.size());
  for (int64_t residue = 0; residue < std::min(phases, strip.columns); ++residue) {
    const Phase &phase = plan.columnPhases[static_cast<size_t>(residue)];
    int64_t count = 0;
    for (int64_t member = 0; member < plan.copies && phase.taps > 0; ++member)
      for (int64_t i = 0; i < rows.count; ++i, ++count) {
        slot.values[count] = rows.rows[i] + vector * plan.rowElements() + member * width +
                             (phase.first - plan.least) * lanes;
        slot.weights[count] =
            filter + member * memberStep + (rows.taps[i] * taps + phase.firstTap) * lanes;
      }
    Window<T> window{slot.values,       count,
                     phase.taps,        ceilDivide(strip.columns - residue, phases),
                     plan.group,        phase.tapReach * lanes,
                     phase.step * lanes};
    kernels.convolve({window, slot.weights, phase.tapStep * lanes, memberStep,
                      workspace + (strip.vector + vector) * lanes, result + residue * step,
                      phases * step});
  }
}

template <typename S, typename T>
void GroupConvolution<S, T>::convolveStrip(void *const *buffers, int64_t task, char *memory) const {
  Slot slot = getSlot(memory);
  Strip strip = plan.getStrip(task);
  forgetRows(slot);
  int resultIndex = plan.descriptor.resultIndex();
  void *result = buffers[resultIndex];
  auto *workspace = static_cast<const T *>(buffers[resultIndex + 1]);
  for (int64_t row = strip.row; row < strip.row + strip.rows; ++row) {
    RowWindow window = gatherRows(slot, static_cast<const S *>(buffers[0]), strip, row);
    for (int64_t vector = 0; vector < strip.vectors; ++vector) {
      int64_t number = strip.vector + vector;
      if (isInPlace(number)) {
        T *place = static_cast<T *>(result) + locate(strip, row) + number * plan.lanes;
        convolveRow(slot, window, strip, vector, workspace, place, plan.near.strides.pixel);
        continue;
      }
      convolveRow(slot, window, strip, vector, workspace, slot.nearRow, plan.lanes);
      store(result, strip, row, number, slot.nearRow);
    }
  }
}

//===----------------------------------------------------------------------===//
// The gradient of the weights
//===----------------------------------------------------------------------===//

template <typename S, typename T>
void GroupConvolution<S, T>::correlateRow(const Slot &slot, const RowWindow &rows,
                                          const Strip &strip, int64_t vector, T *sums,
                                          const T *gradient, int64_t step) const {
  const Phase &phase = plan.columnPhases.front();
  int64_t lanes = plan.lanes, memberStep = plan.tapCount() * lanes, count = 0;
  for (int64_t member = 0; member < plan.copies; ++member)
    for (int64_t i = 0; i < rows.count; ++i, ++count) {
      slot.values[count] =
          rows.rows[i] + vector * plan.rowElements() + member * plan.farColumns * lanes;
      slot.sums[count] = sums + member * memberStep + rows.taps[i] * phase.taps * lanes;
    }
  Window<T> window{slot.values,       count,      phase.taps,
                   strip.columns,     plan.group, phase.tapReach * lanes,
                   phase.step * lanes};
  kernels.correlate({window, slot.sums, memberStep, gradient, step});
}

/// Sums of a chunk: [chunks][vectors][members][taps][lanes].
template <typename S, typename T>
void GroupConvolution<S, T>::correlateStrip(void *const *buffers, int64_t task,
                                            char *memory) const {
  Slot slot = getSlot(memory);
  Strip strip = plan.getStrip(task);
  int64_t chunk = task / plan.blocks, filter = plan.filterSize() * plan.lanes;
  auto *workspace = static_cast<T *>(buffers[plan.descriptor.resultIndex() + 1]);
  T *sums = workspace + (chunk * plan.vectors + strip.vector) * filter;
  std::fill(sums, sums + strip.vectors * filter, T(0));
  int64_t rows = plan.descriptor.images * plan.columnCuts * plan.near.rows;
  int64_t begin = chunk * rows / plan.chunks, end = (chunk + 1) * rows / plan.chunks;
  for (int64_t number = begin; number < end; ++number) {
    if (plan.moveTo(number, strip))
      forgetRows(slot);
    RowWindow window = gatherRows(slot, static_cast<const S *>(buffers[0]), strip, strip.row);
    const S *row = static_cast<const S *>(buffers[1]) + locate(strip, strip.row);
    for (int64_t vector = 0; vector < strip.vectors && window.count > 0; ++vector) {
      int64_t step;
      const T *gradient = packGradient(slot, row, strip, strip.vector + vector, step);
      correlateRow(slot, window, strip, vector, sums + vector * filter, gradient, step);
    }
  }
}

/// The sums of all chunks, in order.
template <typename S, typename T>
void GroupConvolution<S, T>::addSums(void *const *buffers, const T *sums, int64_t vector) const {
  int64_t lanes = plan.lanes, filter = plan.filterSize();
  sums += vector * filter * lanes;
  const ConvolutionDescriptor &d = plan.descriptor;
  AccumulatedElements<S> elements(buffers[d.addendIndex()], buffers[d.resultIndex()], d.wideResult,
                                  d.accumulate);
  for (int64_t lane = 0; lane < plan.laneCount(vector); ++lane)
    for (int64_t i = 0; i < filter; ++i) {
      T sum = 0;
      for (int64_t chunk = 0; chunk < plan.chunks; ++chunk)
        sum += sums[(chunk * plan.vectors * filter + i) * lanes + lane];
      elements.set((vector * lanes + lane) * filter + i, sum);
    }
}

template <typename S, typename T>
Status GroupConvolution<S, T>::run(void *const *buffers, ThreadPool &pool) {
  const ConvolutionDescriptor &d = plan.descriptor;
  auto *workspace = static_cast<T *>(buffers[d.resultIndex() + 1]);
  auto forEachVector = [&](auto &&body) {
    pool.parallelFor(plan.vectors, 1, [&](int64_t begin, int64_t end) {
      for (int64_t vector = begin; vector < end; ++vector)
        body(vector);
    });
  };
  auto forEachTask = [&](auto &&body) {
    runTasks(pool, plan.tasks, plan.slots, plan.slot.bytes,
             reinterpret_cast<char *>(workspace) + plan.tasksAt, body);
  };
  if (plan.isBackwardWeights()) {
    forEachTask([&](int64_t task, char *memory) { correlateStrip(buffers, task, memory); });
    forEachVector([&](int64_t vector) { addSums(buffers, workspace, vector); });
    return Status::ok();
  }
  auto *bias = d.bias ? static_cast<const Wide<S> *>(buffers[2]) : nullptr;
  forEachVector([&](int64_t vector) {
    packWeights(static_cast<const S *>(buffers[1]), bias, workspace, vector);
  });
  forEachTask([&](int64_t task, char *memory) { convolveStrip(buffers, task, memory); });
  return Status::ok();
}

} // namespace

std::unique_ptr<LibraryCall> libraries::createGroupConvolution(const ConvolutionDescriptor &d,
                                                               int64_t groupChannels, int threads) {
  if (!GroupPlan::canPlan(d, groupChannels))
    return nullptr;
  switch (d.type) {
  case ElementType::F64:
    return std::make_unique<GroupConvolution<double, double>>(d, threads);
  case ElementType::BF16:
    return std::make_unique<GroupConvolution<BFloat16, float>>(d, threads);
  case ElementType::F16:
    return std::make_unique<GroupConvolution<Float16, float>>(d, threads);
  case ElementType::F32:
    break;
  }
  return std::make_unique<GroupConvolution<float, float>>(d, threads);
}
