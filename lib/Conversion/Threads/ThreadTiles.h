//===- ThreadTiles.h - transposed tiles of a device --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_THREADS_THREADTILES_H
#define MEMOPT_LIB_CONVERSION_THREADS_THREADTILES_H

#include "ThreadGroup.h"
#include "memopt/Conversion/Core/Emission/StageEmitter.h"

namespace mlir::memopt {

class ThreadTiles : EmitterPart {
public:
  ThreadTiles(NodeEmitter &nodes, StageEmitter &emitter, ThreadGroup &threads)
      : EmitterPart(nodes), emitter(emitter), threads(threads) {}
  void emitAll(const KernelNest &nest);
  void emitTile(const KernelNest &nest, Value number);

private:
  /// Of an element of a tile along one loop: that of the tile's first, and its number in the tile.
  struct Position {
    Value first, number;
  };
  void emitTileElement(const KernelNest &nest, Position row, Position column, bool isVector,
                       llvm::function_ref<void()> body);
  void fillTileLine(const KernelNest &nest, Position row, Position column);
  void emitTileLine(const KernelNest &nest, Position row, Position column);
  Value getTileSquare(const KernelNest &nest, NodeId id);

  StageEmitter &emitter;
  ThreadGroup &threads;
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_THREADS_THREADTILES_H
