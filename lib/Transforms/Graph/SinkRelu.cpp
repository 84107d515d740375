//===- SinkRelu.cpp - rectify what a max pool leaves -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The largest of rectified numbers is the rectified largest number:
//
//   max_pool(relu(x))  ->  relu(max_pool(x))
//
// In the first form the backward pass keeps relu(x) to know where x was positive; in the second it
// keeps the pool's result, which the next layer keeps anyway and which is a quarter as large or
// less.
//
// Bits stay. A positive winner is the same element in both forms, for relu changes neither it nor
// what is equal to it; gradients reach it unchanged. Where a window has no positive element the
// forms may choose different ones, and none of them gets a gradient. NaN wins in both.
//
// Refused: a rectified value that has other readers, which is needed as it is; winners that the
// graph itself reads.
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Remarks.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_SINKRELUPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

/// The relu in front of `pool` when the two can change places, or null.
static ReluOp findSinkable(MaxPoolOp pool) {
  auto relu = pool.getInput().getDefiningOp<ReluOp>();
  return relu && relu->hasOneUse() && pool.getTaps().use_empty() ? relu : ReluOp();
}

static void sink(ReluOp relu, MaxPoolOp pool) {
  pool.getInputMutable().assign(relu.getInput());
  OpBuilder builder(pool);
  builder.setInsertionPointAfter(pool);
  Value pooled = pool.getResult();
  auto after = ReluOp::create(builder, relu.getLoc(), pooled.getType(), pooled);
  pooled.replaceAllUsesExcept(after, after);
  relu.erase();
}

namespace {
struct SinkReluPass : mlir::memopt::impl::SinkReluPassBase<SinkReluPass> {
  void runOnOperation() override {
    func::FuncOp function = getOperation();
    SmallVector<MaxPoolOp> pools(function.getOps<MaxPoolOp>());
    for (MaxPoolOp pool : pools)
      if (ReluOp relu = findSinkable(pool)) {
        remark::passed(pool.getLoc(), remark::RemarkOpts::name("SinkRelu")
                                          .category("memopt-sink-relu")
                                          .function(function.getName()))
            << remark::metric("BytesBefore", getTensorBytes(relu.getType()))
            << remark::metric("BytesAfter", getTensorBytes(pool.getResult().getType()));
        sink(relu, pool);
      }
  }
};
} // namespace
