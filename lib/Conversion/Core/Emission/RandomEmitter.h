//===- RandomEmitter.h - random words of kernels -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_CORE_EMISSION_RANDOMEMITTER_H
#define MEMOPT_LIB_CONVERSION_CORE_EMISSION_RANDOMEMITTER_H

#include "memopt/Conversion/Core/Emission/NodeEmitter.h"
#include "memopt/Dialect/Kernels/Philox.h"

namespace mlir::memopt {

class RandomEmitter : EmitterPart {
public:
  explicit RandomEmitter(NodeEmitter &nodes) : EmitterPart(nodes) {}
  Value emit(const ElementNode &node);

private:
  Value emitNeighbours(const RandomStream &stream, Value first, int64_t lanes);
  Value emitWords(const RandomStream &stream, Value first, Value number);
  Value emitWordsOfPart(const RandomStream &stream, Value first, Value begin, Value numbers,
                        int64_t lanes);
  bool isMultiple(NodeId node, int64_t divisor);
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_CORE_EMISSION_RANDOMEMITTER_H
