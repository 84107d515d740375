//===- ScatterEmitter.h - scatters of kernels --------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_CORE_EMISSION_SCATTEREMITTER_H
#define MEMOPT_CONVERSION_CORE_EMISSION_SCATTEREMITTER_H

#include "memopt/Conversion/Core/Emission/NodeEmitter.h"
#include "memopt/Conversion/Core/Schedule/KernelSchedule.h"

namespace mlir::memopt {

class ScatterEmitter : protected EmitterPart {
public:
  explicit ScatterEmitter(NodeEmitter &nodes) : EmitterPart(nodes) {}
  /// `body` for each token, from the loop of `level` on.
  void emitTokens(const KernelScatter &scatter, size_t level, llvm::function_ref<void()> body);
  /// One element, or one block of lanes, of the result; nothing where an index lies outside.
  void emitUpdate(const KernelScatter &scatter);
  /// Where the indices point, and whether they do; both null without indices.
  struct Place {
    Value inside, offset;
  };
  Place emitPlace(const KernelScatter &scatter, int64_t lanes);
  /// Loads what is at element `address` (of lane 0, or one for each lane), combines and stores.
  void emitCombined(const KernelScatter &scatter, Value address, Value mask);
  /// Lanes of the block of columns that is being emitted; 0 when elements are alone.
  int64_t getLanesOf(const KernelPoints &points);

private:
  Value join(StringRef name, Value a, Value b, int64_t lanes);
  unsigned getAlignmentOf(const KernelScatter &scatter, Type element);
  Value emitWideIndex(NodeId node);
};

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_CORE_EMISSION_SCATTEREMITTER_H
