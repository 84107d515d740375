//===- RecomputeElementwise.cpp - what to keep for backward, what to redo -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Backward ops use values that forward made, and every such value stays alive from one pass to the
// other. Many of them are cheap to make again: relu(bn(x)) follows from the convolution's result
// and statistics of a few bytes. RecomputeChoice decides which; here they are cloned as it says.
//
// Input:  a step of linalg.generic, views and library ops on tensors; ops of the backward pass and
//         the optimizer carry memopt.phase.
// Output: the same, with clones of pointwise generics and views in front of their backward readers.
// Clones: one for all readers that are close to each other (BackwardReaders.h).
// Bits:   never change; a clone evaluates the same scalar operations in the same order.
//
//===----------------------------------------------------------------------===//

#include "BackwardReaders.h"
#include "RecomputeChoice.h"

#include "memopt/Analysis/StepModel.h"
#include "memopt/Dialect/Memopt.h"
#include "memopt/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_RECOMPUTEELEMENTWISEPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Cloning
//===----------------------------------------------------------------------===//

namespace {
/// Gives backward its own copies of the recomputed ops.
class Cloner {
public:
  Cloner(Block &block, const RecomputeChoice &choice) : readers(block), choice(choice) {}

  /// Number of generics cloned.
  int64_t run() {
    // Readers first, so that all clones that read an op are there when it is cloned.
    for (Operation *op : llvm::reverse(choice.getRecomputed())) {
      int64_t instance = 0;
      for (const BackwardReaders::Group &group : readers.getGroups(op))
        makeClone(op, group, ++instance);
    }
    return clones;
  }

private:
  void makeClone(Operation *op, ArrayRef<OpOperand *> uses, int64_t instance) {
    Operation *reader = readers.getReader(*uses.front());
    OpBuilder b(reader);
    Operation *clone = b.clone(*op);
    clone->setAttr(MemoptDialect::kCloneAttr, b.getI64IntegerAttr(instance));
    setPhase(clone, Phase::Backward);
    readers.addInFrontOf(clone, reader);
    clones += isa<linalg::GenericOp>(op);
    for (OpOperand *use : uses)
      use->set(clone->getResult(cast<OpResult>(use->get()).getResultNumber()));
  }

  BackwardReaders readers;
  const RecomputeChoice &choice;
  int64_t clones = 0;
};
} // namespace

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

static void printChoice(const RecomputeChoice &choice) {
  for (Value value : choice.getKept())
    value.getDefiningOp()->emitRemark()
        << "kept for backward: " << getTensorBytes(value.getType()) << " bytes";
  for (Operation *op : choice.getRecomputed())
    op->emitRemark() << "recomputed in backward";
}

namespace {
struct RecomputeElementwisePass
    : mlir::memopt::impl::RecomputeElementwisePassBase<RecomputeElementwisePass> {
  using RecomputeElementwisePassBase::RecomputeElementwisePassBase;

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (failed(verifyTensorGraph(func)))
      return signalPassFailure();
    if (!enabled || func.isExternal())
      return markAllAnalysesPreserved();
    for (Block *block : getProgramBlocks(func.getBody().front()))
      recompute(func, *block);
  }

private:
  void recompute(func::FuncOp func, Block &block) {
    RecomputeChoice choice(block);
    if (print)
      printChoice(choice);
    int64_t clones = Cloner(block, choice).run();
    remark::passed(func.getLoc(), remark::RemarkOpts::name("RecomputeElementwise")
                                      .category("memopt-recompute-elementwise")
                                      .function(func.getName()))
        << remark::metric("BytesKeptBefore", choice.getBytesBefore())
        << remark::metric("BytesKeptAfter", choice.getBytesAfter())
        << remark::metric("Clones", clones);
  }
};
} // namespace
