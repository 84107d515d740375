//===- BlockBuilder.h - what threads of a block compute ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Numbers, control and memory of the threads that attention runs on, whatever their tiles are made
// of. Indices have one type, and numbers another.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_BLOCKBUILDER_H
#define MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_BLOCKBUILDER_H

#include "memopt/Conversion/Threads/DeviceOps.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace mlir::memopt {

class BlockBuilder {
public:
  using Values = SmallVector<Value>;
  using LoopFn = llvm::function_ref<Values(Value, ValueRange)>;

  BlockBuilder(OpBuilder &builder, Location location, const DeviceOps &ops, Type index, Type type)
      : b(location, builder), ops(ops), index(index), type(type) {}

  // Indices, and numbers.
  Value integer(int64_t value);
  Value number(double value, int64_t lanes = 1);
  Value add(Value x, Value y);
  Value add(Value x, int64_t y) { return y ? add(x, integer(y)) : x; }
  Value multiply(Value x, int64_t y);
  Value divide(Value x, int64_t y);
  Value remainder(Value x, int64_t y);
  Value isBelow(Value x, Value y);
  Value isBelow(Value x, int64_t y) { return isBelow(x, integer(y)); }
  Value smaller(Value x, int64_t y);
  Value select(Value condition, Value x, Value y);
  Value addNumbers(Value x, Value y);
  Value subtractNumbers(Value x, Value y);
  Value multiplyNumbers(Value x, Value y);

  // Control.
  Values loop(Value lower, Value upper, int64_t step, ValueRange carried, LoopFn body);
  /// Without a condition the body is always run.
  void where(Value condition, llvm::function_ref<void()> body);
  void synchronizeBlock() { ops.synchronizeBlock(b); }
  Value getWholeWarp(); ///< the mask of all threads

  // Memory.
  /// The element `index` behind `base`.
  Value getAddress(Value base, Type element, Value index);
  Value load(Value address, Type element, int64_t alignment);
  void store(Value address, Value value, int64_t alignment);

  ImplicitLocOpBuilder b;
  const DeviceOps &ops;
  const Type index, type; ///< of indices, and of numbers that are computed with
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_BLOCKBUILDER_H
