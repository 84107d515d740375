//===- LowerToLinalg.cpp - named ops to linalg.generic ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Turns the named ops of a step into linalg.generic on tensors, the one form that fusion and code
// generation read. One walk in program order: an op is replaced by what its family's lowering
// builds in front of it, and the new ops take over its location and phase.
//
// Input:   the joint graph, layouts chosen (memopt-choose-layout), since the cut of statistics into
//          chunks follows the order of dimensions in memory.
// Output:  linalg.generic, linalg.fill, tensor.empty, constants, views, reads and writes, and the
// ops
//          that libraries or hand-written loops compute.
// Refuses: elementwise ops whose operands are not all tensors of the result's shape.
//
//===----------------------------------------------------------------------===//

#include "LowerToLinalg.h"
#include "memopt/Analysis/StepModel.h"
#include "memopt/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_LOWERTOLINALGPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Elementwise ops of arith and math
//===----------------------------------------------------------------------===//

static bool isScalarOpOfTensors(Operation *op) {
  bool isScalarOp = isa_and_nonnull<arith::ArithDialect, math::MathDialect>(op->getDialect());
  return (isScalarOp || isa<CheckOp>(op)) && OpTrait::hasElementwiseMappableTraits(op) &&
         op->getNumResults() == 1 && isa<RankedTensorType>(op->getResult(0).getType());
}

static Lowered lowerElementwise(Operation *op, ImplicitLocOpBuilder &b) {
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  SmallVector<Read> reads;
  for (Value operand : op->getOperands()) {
    auto operandType = dyn_cast<RankedTensorType>(operand.getType());
    if (!operandType || operandType.getShape() != type.getShape())
      return op->emitOpError() << "expects operands of the result's shape " << type << ", found "
                               << operand.getType();
    reads.push_back(readAll(b, operand));
  }
  return createPointwise(b, type.getShape(), reads, {type.getElementType()},
                         [&](ImplicitLocOpBuilder &inner, ValueRange scalars) {
                           OperationState state(op->getLoc(), op->getName());
                           state.addOperands(scalars);
                           state.addTypes(type.getElementType());
                           state.propertiesAttr = op->getPropertiesAsAttribute();
                           return SmallVector<Value>{
                               static_cast<OpBuilder &>(inner).create(state)->getResult(0)};
                         });
}

//===----------------------------------------------------------------------===//
// Ops about gradients, which evaluation has no use for
//===----------------------------------------------------------------------===//

template <typename OpType> static Lowered forwardOperands(OpType op, ImplicitLocOpBuilder &) {
  return llvm::to_vector(op->getOperands().take_front(op->getNumResults()));
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

namespace {
struct LowerToLinalgPass : mlir::memopt::impl::LowerToLinalgPassBase<LowerToLinalgPass> {
  using LowerToLinalgPassBase::LowerToLinalgPassBase;

  LogicalResult initialize(MLIRContext *) override {
    lowerings.add<StopGradientOp>(forwardOperands);
    lowerings.add<IncomingGradientOp>(forwardOperands);
    lowerings.add<CustomGradientOp>(forwardOperands);
    populateActivationLowerings(lowerings);
    populateBatchNormLowerings(lowerings);
    populateInterpolationLowerings(lowerings);
    populateNormLowerings(lowerings);
    populatePoolingLowerings(lowerings);
    populateRandomLowerings(lowerings);
    populateLossLowerings(lowerings);
    populateOptimizerLowerings(lowerings);
    populateShapeLowerings(lowerings);
    return success();
  }

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (failed(verifyTensorGraph(func)))
      return signalPassFailure();
    if (func.isExternal())
      return;
    SmallVector<Block *> blocks = getProgramBlocks(func.getBody().front());
    for (Block *block : llvm::reverse(blocks)) {
      for (Operation &op : llvm::make_early_inc_range(*block))
        if (failed(lower(&op)))
          return signalPassFailure();
      for (WriteOp write : block->getOps<WriteOp>())
        copyForeignState(write);
      eraseDeadOps(*block);
    }
  }

private:
  LogicalResult lower(Operation *op) {
    const LinalgLowerings::Function *function = lowerings.find(op);
    if (!function && !isScalarOpOfTensors(op))
      return success();
    Operation *before = op->getPrevNode();
    ImplicitLocOpBuilder b(op->getLoc(), op);
    Lowered values = function ? (*function)(op, b) : lowerElementwise(op, b);
    if (failed(values))
      return failure();
    Block *block = op->getBlock();
    auto first = before ? std::next(before->getIterator()) : block->begin();
    SmallVector<Operation *> draws; // of optimizers
    for (Operation &made : llvm::make_range(first, op->getIterator())) {
      for (NamedAttribute attribute : op->getDiscardableAttrs())
        made.setDiscardableAttr(attribute.getName(), attribute.getValue());
      if (isa<RandomOp>(made))
        draws.push_back(&made);
    }
    op->replaceAllUsesWith(*values);
    op->erase();
    for (Operation *draw : draws)
      if (failed(lower(draw)))
        return failure();
    return success();
  }

  /// State that moves from one variable to another is copied: both may change in this step, and two
  /// that are exchanged could not be written in any order.
  static void copyForeignState(WriteOp write) {
    Value source = write.getValue();
    while (isReshape(source.getDefiningOp()))
      source = source.getDefiningOp()->getOperand(0);
    auto read = source.getDefiningOp<ReadOp>();
    if (!read || read.getVariable() == write.getVariable())
      return;
    ImplicitLocOpBuilder b(write.getLoc(), write);
    RankedTensorType type = tensorType(write.getValue());
    auto copy = createPointwise(
        b, type.getShape(), {readAll(b, write.getValue())}, {type.getElementType()},
        [](ImplicitLocOpBuilder &, ValueRange x) { return llvm::to_vector_of<Value>(x); });
    write.getValueMutable().assign(copy.front());
  }

  /// Views and constants that became part of indexing maps have no users left.
  static void eraseDeadOps(Block &block) {
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
      if (isOpTriviallyDead(&op))
        op.erase();
  }

  LinalgLowerings lowerings;
};
} // namespace
