//===- GradientCapture.h - the gradients of one step ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_LIB_SESSION_GRADIENTCAPTURE_H
#define MEMOPT_RUNTIME_LIB_SESSION_GRADIENTCAPTURE_H

#include "memopt-runtime/execution/Arenas.h"
#include "memopt-runtime/package/Safetensors.h"
#include "memopt-runtime/ranks/Communicator.h"
#include <vector>

namespace memopt {

/// Copies gradients at the moment when the program has them: their buffers are used again.
class GradientCapture {
public:
  /// Both must outlive it.
  GradientCapture(const Manifest &manifest, const Arenas &arenas)
      : manifest(manifest), arenas(arenas) {}

  /// From now on gradients are kept; takes the memory for them.
  void begin();
  void end() { isActive = false; }
  /// Whether the step's gradients are kept.
  bool isKeeping() const { return isActive; }

  /// Keeps what is ready once an instruction has run; -1 stands for the begin of the step. In a
  /// repeat the last iteration's value stays.
  Status keep(int64_t instruction);
  /// Whether something is.
  bool isWanted(int64_t instruction) const;

  /// Makes wholes of what ranks have parts of, on each of them.
  Status joinParts(Communicator *communicator);

  /// What was kept; it lies in this object.
  std::vector<TensorToWrite> getTensors() const;

private:
  const Manifest &manifest;
  const Arenas &arenas;
  bool isActive = false;
  std::vector<std::vector<char>> kept; ///< as in the manifest
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_LIB_SESSION_GRADIENTCAPTURE_H
