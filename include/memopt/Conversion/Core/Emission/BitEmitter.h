//===- BitEmitter.h - storage whose units hold several elements -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_CORE_EMISSION_BITEMITTER_H
#define MEMOPT_CONVERSION_CORE_EMISSION_BITEMITTER_H

#include "memopt/Conversion/Core/Emission/NodeEmitter.h"

namespace mlir::memopt {

/// Loads and stores of booleans that are bits of bytes.
class BitEmitter : EmitterPart {
public:
  explicit BitEmitter(NodeEmitter &nodes) : EmitterPart(nodes) {}
  Value load(const ElementNode &node);
  void store(Value buffer, const IndexExpr &address, Scope *scope, Value value);

private:
  bool areWholeBytes(const IndexExpr &address, Scope *scope);
  void storeOne(Value buffer, Value index, Value bit);
};

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_CORE_EMISSION_BITEMITTER_H
