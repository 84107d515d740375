//===- CallBlock.h - a block of threads at a call of attention --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a kernel knows of its call: sizes, buffers, and the random stream of dropout.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_CALLBLOCK_H
#define MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_CALLBLOCK_H

#include "AttentionKernels.h"
#include "memopt/Dialect/Kernels/Philox.h"
#include "memopt/Dialect/Memopt.h"

namespace mlir::memopt {

/// `Block` is an AttentionBlock or a MatrixBlock, with `tiles` of its own and the type that it takes
/// behind them.
template <typename Block> class CallBlock : public Block {
public:
  template <typename Tiles>
  CallBlock(OpBuilder &builder, Location location, AttentionAttr call, const Tiles &tiles,
            Type type, const AttentionArguments &arguments)
      : Block(builder, location, arguments.ops, tiles, type), call(call), batch(call.getBatch()),
        heads(call.getHeads()), groups(call.getKvHeads()), queries(call.getQueryLength()),
        keys(call.getKeyLength()), head(call.getHeadDim()), value(call.getValueDim()),
        firstOut(countAttentionInputs(call)), buffers(arguments.buffers) {
    if (!call.getDropout())
      return;
    unsigned scalar = kMaskBuffer + (call.getMaskType() ? 1 : 0);
    random = {loadScalar(scalar), loadScalar(scalar + 1), arguments.randomId};
    if (call.getFirst())
      firstScore = loadScalar(scalar + 2);
  }

  Value getBuffer(unsigned number) const { return buffers[number]; }
  unsigned getWorkspace() const { return static_cast<unsigned>(buffers.size()) - 1; }

  AttentionAttr call;
  const int64_t batch, heads, groups, queries, keys, head, value;
  const unsigned firstOut; ///< of the buffers: out, lse, and behind them the gradients

protected:
  SmallVector<Value> buffers;
  RandomStream random; ///< of dropout
  Value firstScore;

private:
  Value loadScalar(unsigned buffer) {
    return this->load(buffers[buffer], this->b.getI64Type(), sizeof(int64_t));
  }
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_CONVERSION_THREADS_ATTENTION_CALLBLOCK_H
