//===- StepGraphs.cpp - a step that was written down ----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/execution/StepGraphs.h"
#include <algorithm>
#include <utility>

using namespace memopt;

Status StepGraphs::begin() {
  MEMOPT_RETURN_IF_ERROR(device.getStream().beginCapture());
  isCapturing = true;
  return device.beginStep();
}

Status StepGraphs::cut(Stop stop, int64_t iteration) {
  MEMOPT_RETURN_IF_ERROR(transfers.join());
  MEMOPT_RETURN_IF_ERROR(device.joinCollectives());
  if (stop != Stop::Batch)
    MEMOPT_RETURN_IF_ERROR(device.bringBack());
  isCapturing = false;
  MEMOPT_RETURN_IF_ERROR(keep(stop, iteration));
  if (stop == Stop::End)
    return Status::ok();
  MEMOPT_RETURN_IF_ERROR(device.getStream().beginCapture());
  isCapturing = true;
  return Status::ok();
}

/// What ends at the second batch of a repeat is its first iteration, and what ends at a later one
/// is as that was.
Status StepGraphs::keep(Stop stop, int64_t iteration) {
  MEMOPT_ASSIGN_OR_RETURN(std::shared_ptr<Graph> graph, device.getStream().endCapture());
  auto first = std::find_if(pieces.rbegin(), pieces.rend(), [](const Piece &piece) {
    return piece.stop == Stop::Batch && piece.iteration == 1;
  });
  if (stop == Stop::Batch && iteration > 1 && first != pieces.rend())
    graph = first->graph;
  pieces.push_back({std::move(graph), stop, iteration});
  return Status::ok();
}

Status StepGraphs::end(Status status) {
  if (status.isOk())
    status = cut(Stop::End);
  if (std::exchange(isCapturing, false))
    (void)device.getStream().endCapture().takeStatus();
  transfers.abandon();
  device.abandonCollectives();
  if (status.isOk() && hasHostWork)
    return badInput("the program works on the host between kernels");
  return status;
}
