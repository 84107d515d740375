//===- WarpScatter.h - scatters of warps -------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_THREADS_WARPSCATTER_H
#define MEMOPT_LIB_CONVERSION_THREADS_WARPSCATTER_H

#include "ThreadGroup.h"
#include "memopt/Conversion/Core/Emission/StageEmitter.h"

namespace mlir::memopt {

/// Scatters whose parallel loop is over tokens, each of which is a warp's.
class WarpScatter : EmitterPart {
public:
  WarpScatter(NodeEmitter &nodes, StageEmitter &emitter, ScatterEmitter &scatters,
              ThreadGroup &threads)
      : EmitterPart(nodes), emitter(emitter), scatters(scatters), threads(threads) {}
  void emit(const KernelScatter &scatter, Value token);

private:
  void bindTokens(const KernelScatter &scatter, Value token);
  Value emitKey(const KernelScatter &scatter, Value token);
  Value hasKey(const KernelScatter &scatter, Value token, Value end, Value key);
  Value isFirstOfKey(const KernelScatter &scatter, Value token, Value key);
  void emitTokensOfKey(const KernelScatter &scatter, Value token, Value key);
  void emitTokensOfMask(Value mask, llvm::function_ref<void(Value)> body);
  void emitTokenRow(const KernelScatter &scatter, Value token, Value key);

  StageEmitter &emitter;
  ScatterEmitter &scatters;
  ThreadGroup &threads;
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_THREADS_WARPSCATTER_H
