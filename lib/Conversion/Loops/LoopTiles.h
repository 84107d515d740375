//===- LoopTiles.h - transposed tiles of loops -------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_LOOPS_LOOPTILES_H
#define MEMOPT_LIB_CONVERSION_LOOPS_LOOPTILES_H

#include "memopt/Conversion/Core/Emission/StageEmitter.h"

namespace mlir::memopt {

class LoopTiles : EmitterPart {
public:
  LoopTiles(NodeEmitter &nodes, StageEmitter &emitter) : EmitterPart(nodes), emitter(emitter) {}
  void emitLoop(const KernelNest &nest);
  /// Tile number `block` of the loop.
  void emitAt(const KernelNest &nest, Value block);
  /// A staged load's lanes out of the tile that is being computed; null outside of tiles, and for
  /// other nodes.
  Value load(NodeId id);

private:
  void emitTile(const KernelNest &nest, Value first);
  void emitPlainRows(const KernelNest &nest, Value first, int64_t count);
  void fillTile(const KernelNest &nest, NodeId id, Value buffer);
  Value getBuffer(const KernelNest &nest, NodeId id);

  StageEmitter &emitter;
  llvm::DenseMap<NodeId, Value> buffers; ///< of staged loads
  Value tileRow;                         ///< that is being computed; null outside of tiles
  int64_t tileLanes = 0;
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_LOOPS_LOOPTILES_H
