//===- GroupPlan.cpp - how a grouped convolution is cut ---------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GroupPlan.h"
#include "GroupKernels.h"
#include "memopt-runtime/kernels/own/BlockedProduct.h"
#include <numeric>
#include <utility>

using namespace memopt;
using namespace memopt::libraries;

/// Channels that are read together: shorter runs would waste what memory can do.
static constexpr int64_t blockChannels = 64;
/// A ring that stays in the second cache.
static constexpr int64_t maxRingBytes = int64_t(128) << 10;
/// Enough for a few dozen threads; sums of weights' gradients take a workspace for each.
static constexpr int64_t wantedTasks = 32, wantedSums = 16;
/// The widest kernels' group (GroupKernels.h).
static constexpr int64_t maxRegisterGroup = 8;

/// A convolution has one phase; its transpose one for each residue of the position modulo the
/// stride, for positions of one residue meet the same taps.
static std::vector<Phase> makePhases(const ConvolutionDescriptor &d, int axis) {
  int64_t taps = d.taps[axis], stride = d.strides[axis], dilation = d.dilations[axis];
  int64_t padding = d.paddingLower[axis];
  if (d.direction != ConvolutionDirection::BackwardData)
    return {{-padding, stride, 0, 1, dilation, taps}};
  std::vector<Phase> phases;
  int64_t tapStep = stride / std::gcd(stride, dilation);
  for (int64_t residue = 0; residue < stride; ++residue) {
    int64_t tap = 0;
    while (tap < std::min(tapStep, taps) && (residue + padding - tap * dilation) % stride != 0)
      ++tap;
    int64_t count = tap < std::min(tapStep, taps) ? ceilDivide(taps - tap, tapStep) : 0;
    phases.push_back({(residue + padding - tap * dilation) / stride, 1, tap, tapStep,
                      -tapStep * dilation / stride, count});
  }
  return phases;
}

bool GroupPlan::canPlan(const ConvolutionDescriptor &d, int64_t groupChannels) {
  constexpr int64_t maxReach = 256, maxStride = 64;
  if (d.groups == 1 || d.input[0] != 1 || d.output[0] != 1 || d.taps[0] != 1 ||
      std::max(d.groupInputs(), d.groupOutputs()) > groupChannels)
    return false;
  for (int axis : {1, 2})
    if (d.taps[axis] > maxTaps || (d.taps[axis] - 1) * d.dilations[axis] > maxReach ||
        d.strides[axis] > maxStride)
      return false;
  return true;
}

GroupPlan::GroupPlan(const ConvolutionDescriptor &d, int64_t lanes, int64_t elementBytes,
                     int threads)
    : descriptor(d), lanes(lanes), elementBytes(elementBytes), rowPhases(makePhases(d, 1)),
      columnPhases(makePhases(d, 2)) {
  GroupActivation input{d.inputStrides(), d.inputChannels, d.groupInputs(), d.input[1], d.input[2]};
  GroupActivation output{d.outputStrides(), d.outputChannels, d.groupOutputs(), d.output[1],
                         d.output[2]};
  near = isBackwardData() ? input : output;
  far = isBackwardData() ? output : input;
  int64_t channels = far.groupChannels;
  bool isRegisterGroup =
      channels == near.groupChannels && channels <= maxRegisterGroup && lanes % channels == 0;
  group = isRegisterGroup ? channels : 1;
  copies = channels / group;
  vectors = ceilDivide(near.channels, lanes);
  chooseStrips();
  chooseTasks(threads);
  layOutSlot();
}

void GroupPlan::setColumns(int64_t columns) {
  int64_t perPhase = ceilDivide(columns, static_cast<int64_t>(columnPhases.size()));
  stripColumns = columns;
  farColumns = (perPhase - 1) * columnPhases.front().step + reach + 1;
}

void GroupPlan::chooseStrips() {
  for (const Phase &phase : rowPhases)
    if (phase.taps > 0)
      ringRows = std::max(ringRows, (phase.taps - 1) * std::abs(phase.tapReach) + 1);
  bool isFirst = true;
  int64_t most = 0;
  for (const Phase &phase : columnPhases) {
    if (phase.taps == 0)
      continue;
    auto [low, high] = std::minmax({phase.first, phase.first + (phase.taps - 1) * phase.tapReach});
    least = isFirst ? low : std::min(least, low);
    most = isFirst ? high : std::max(most, high);
    isFirst = false;
  }
  reach = most - least;

  auto ringBytes = [&] { return ringElements() * elementBytes; };
  blockVectors = std::min(vectors, ceilDivide(blockChannels, lanes));
  setColumns(near.columns);
  while (blockVectors > 1 && ringBytes() > maxRingBytes)
    blockVectors = ceilDivide(blockVectors, 2);
  // Strips begin where phases do, and are wide beside what they read twice.
  int64_t unit = 16 * static_cast<int64_t>(columnPhases.size());
  while (stripColumns > unit && ringBytes() > maxRingBytes)
    setColumns(roundUp(ceilDivide(stripColumns, 2), unit));
}

void GroupPlan::chooseTasks(int threads) {
  blocks = ceilDivide(vectors, blockVectors);
  columnCuts = ceilDivide(near.columns, stripColumns);
  int64_t weightBytes = vectors * filterSize() * lanes * elementBytes;
  if (isBackwardWeights()) {
    chunks = std::min(descriptor.images * columnCuts * near.rows, ceilDivide(wantedSums, blocks));
    tasks = blocks * chunks;
    tasksAt = alignBytes(chunks * weightBytes);
  } else {
    int64_t strips = descriptor.images * blocks * columnCuts;
    stripRows = ceilDivide(near.rows, std::min(near.rows, ceilDivide(wantedTasks, strips)));
    rowCuts = ceilDivide(near.rows, stripRows);
    tasks = strips * rowCuts;
    tasksAt = alignBytes(weightBytes + vectors * lanes * elementBytes);
  }
  slots = static_cast<int>(std::min<int64_t>(threads, tasks));
}

void GroupPlan::layOutSlot() {
  auto place = [&](int64_t bytes) {
    return std::exchange(slot.bytes, slot.bytes + alignBytes(bytes));
  };
  int64_t windowRows = copies * descriptor.taps[1];
  place(ringElements() * elementBytes);
  slot.ringRows = place(ringRows * static_cast<int64_t>(sizeof(int64_t)));
  for (int64_t *pointers : {&slot.values, &slot.weights, &slot.sums})
    *pointers = place(windowRows * static_cast<int64_t>(sizeof(void *)));
  slot.nearRow = place(stripColumns * lanes * elementBytes);
}

/// Neighbours in memory are neighbours in time.
Strip GroupPlan::getStrip(int64_t task) const {
  Strip strip{};
  strip.vector = task % blocks * blockVectors;
  strip.vectors = std::min(blockVectors, vectors - strip.vector);
  if (isBackwardWeights())
    return strip;
  task /= blocks;
  strip.column = task % columnCuts * stripColumns;
  strip.columns = std::min(stripColumns, near.columns - strip.column);
  task /= columnCuts;
  strip.row = task % rowCuts * stripRows;
  strip.rows = std::min(stripRows, near.rows - strip.row);
  strip.image = task / rowCuts;
  return strip;
}

bool GroupPlan::moveTo(int64_t number, Strip &strip) const {
  int64_t piece = number / near.rows;
  int64_t image = piece / columnCuts, column = piece % columnCuts * stripColumns;
  bool isElsewhere = strip.columns == 0 || image != strip.image || column != strip.column;
  strip.image = image;
  strip.column = column;
  strip.columns = std::min(stripColumns, near.columns - column);
  strip.row = number % near.rows;
  strip.rows = 1;
  return isElsewhere;
}
