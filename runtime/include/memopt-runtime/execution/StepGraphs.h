//===- StepGraphs.h - a step that was written down --------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A step does the same every time: the same kernels, calls and transfers on the same addresses, in
// the same order. So the program is run once with all streams writing down what they are given, and
// from then on the graphs that come of it are replayed without the program.
//
// The host has its say in the course of a step: it fills inputs at the iterations of a repeat, and
// it decides whether the step commits. There one graph ends and the next begins. What is in flight
// at an end is joined there, for a graph holds whole transfers only.
//
// The iterations of a repeat that reads inputs are alike, so all but the last, behind which the
// step goes on, share the graph of the first.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_EXECUTION_STEPGRAPHS_H
#define MEMOPT_RUNTIME_EXECUTION_STEPGRAPHS_H

#include "memopt-runtime/execution/DeviceProgram.h"
#include "memopt-runtime/execution/Transfers.h"

namespace memopt {

class StepGraphs {
public:
  /// What the host does when a graph is on its way.
  enum class Stop { Batch, Commit, End };

  struct Piece {
    std::shared_ptr<Graph> graph;
    Stop stop;
    int64_t iteration; ///< whose samples are filled, of a batch
  };

  /// Both must outlive it.
  StepGraphs(DeviceProgram &device, Transfers &transfers) : device(device), transfers(transfers) {}

  /// Begins to write down, with what every step begins with.
  Status begin();
  /// The host has its say here.
  Status cut(Stop stop, int64_t iteration = 0);
  /// Where the program does what is no device's: the step cannot be replayed.
  void noteHostWork() { hasHostWork = true; }
  /// Ends writing down; what stood against it is the answer. `status` is the program's.
  Status end(Status status);

  const std::vector<Piece> &getPieces() const { return pieces; }

private:
  Status keep(Stop stop, int64_t iteration);

  DeviceProgram &device;
  Transfers &transfers;
  bool isCapturing = false, hasHostWork = false;
  std::vector<Piece> pieces;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_EXECUTION_STEPGRAPHS_H
