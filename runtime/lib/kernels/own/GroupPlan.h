//===- GroupPlan.h - how a grouped convolution is cut -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `near` is the activation that lanes count the channels of: the result, or the gradient beside
// which the gradient of the weights is summed. `far` is the one that is read through windows. A
// task takes a strip of near's rows for a few vectors of its channels, and packs the rows of far
// that it meets into a ring, one after the other.
//
// Cuts follow from shapes and from the lanes of the processor, never from the number of threads: so
// does the order of every sum.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_KERNELS_OWN_GROUPPLAN_H
#define MEMOPT_RUNTIME_LIB_KERNELS_OWN_GROUPPLAN_H

#include "memopt-runtime/descriptors/ConvolutionDescriptor.h"
#include <algorithm>
#include <vector>

namespace memopt::libraries {

/// Positions residue + q * phases of near along one axis. Its tap firstTap + m * tapStep meets
/// position first + q * step + m * tapReach of far.
struct Phase {
  int64_t first, step, firstTap, tapStep, tapReach, taps;
};

/// An activation of one or two spatial dimensions.
struct GroupActivation {
  ActivationStrides strides;
  int64_t channels, groupChannels, rows, columns;
};

/// Rows and columns of near in one image, and vectors of its channels.
struct Strip {
  int64_t image, vector, vectors, row, rows, column, columns;
};

/// Where the parts of a task's own memory begin, in bytes; the ring is the first of them.
struct SlotLayout {
  int64_t ringRows = 0; ///< the row of far that each place of the ring holds, i64
  int64_t values = 0, weights = 0, sums = 0; ///< pointers to the rows of a window
  int64_t nearRow = 0;                       ///< of one vector
  int64_t bytes = 0;
};

class GroupPlan {
public:
  static constexpr int64_t maxTaps = 64; ///< along an axis

  /// Kernels have `lanes` channels in a vector, of `elementBytes` each.
  GroupPlan(const ConvolutionDescriptor &descriptor, int64_t lanes, int64_t elementBytes,
            int threads);

  /// Whether the call has groups of at most `groupChannels` channels, and a window that a ring of
  /// rows in a near cache holds.
  static bool canPlan(const ConvolutionDescriptor &descriptor, int64_t groupChannels);

  bool isBackwardWeights() const {
    return descriptor.direction == ConvolutionDirection::BackwardWeights;
  }
  bool isBackwardData() const { return descriptor.direction == ConvolutionDirection::BackwardData; }
  int64_t tapCount() const { return descriptor.taps[1] * descriptor.taps[2]; }
  /// Weights of one near channel.
  int64_t filterSize() const { return far.groupChannels * tapCount(); }
  /// Channels of a vector, fewer in the last one.
  int64_t laneCount(int64_t vector) const {
    return std::min(lanes, near.channels - vector * lanes);
  }
  /// The channel of far that is number `member` of a near channel's group.
  int64_t farChannel(int64_t channel, int64_t member) const {
    return channel / near.groupChannels * far.groupChannels + member;
  }
  /// Elements of a packed row of far, for one vector of channels.
  int64_t rowElements() const { return copies * farColumns * lanes; }
  int64_t ringElements() const { return ringRows * blockVectors * rowElements(); }
  /// The column of far that a packed row of a strip begins with.
  int64_t firstFarColumn(int64_t column) const {
    return column / static_cast<int64_t>(columnPhases.size()) * columnPhases.front().step + least;
  }

  /// What a task makes; of the gradient of weights the vectors alone.
  Strip getStrip(int64_t task) const;
  /// Moves the strip of the gradient of weights to the row with this number, counted through all
  /// images and cuts of columns; whether it left its image or columns.
  bool moveTo(int64_t number, Strip &strip) const;

  int64_t workspaceBytes() const { return tasksAt + slots * slot.bytes; }

  const ConvolutionDescriptor descriptor;
  const int64_t lanes, elementBytes;
  GroupActivation near, far;
  std::vector<Phase> rowPhases, columnPhases; ///< by residue
  int64_t least = 0;                          ///< far column that the taps of column 0 begin with
  int64_t group = 1;                          ///< channels of a group that meet in registers
  int64_t copies = 1; ///< of a packed row, for the channels of a group that do not
  int64_t vectors;    ///< of near's channels
  int64_t blockVectors = 1, blocks = 1; ///< vectors of a strip, and strips beside each other
  int64_t stripColumns = 0, stripRows = 0, columnCuts = 1, rowCuts = 1;
  int64_t chunks = 1;                   ///< of the rows that the gradient of weights is summed over
  int64_t ringRows = 1, farColumns = 0; ///< packed rows, and columns of each
  int64_t tasks = 0;
  int64_t tasksAt = 0; ///< in the workspace, behind weights or sums
  SlotLayout slot;
  int slots = 1;

private:
  void chooseStrips();
  void chooseTasks(int threads);
  void layOutSlot();
  void setColumns(int64_t columns);

  int64_t reach = 0; ///< columns of far from the first to the last that a column meets
};

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_LIB_KERNELS_OWN_GROUPPLAN_H
