//===- Autodiff.cpp - from the training graph to the joint graph -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reverse-mode differentiation of the step (Griewank and Walther, Evaluating Derivatives, chapter
// 3).
//
// Input: a function of one block that returns the loss among its results. Output: the same
// function with a `memopt.gradient` for each trainable parameter that the loss depends on. The
// backward ops come before the return, carry `memopt.phase` = "backward" and the location of the op
// they differentiate.
//
// Two parts. `GradientPath` decides: a value is on the path when it depends on a trainable
// parameter and the loss depends on it. `BackwardBuilder` obeys: it visits the ops on the path from
// the loss backwards (ReverseSweep), asks each for its rule, and adds up what several uses
// contribute (GradientSums). Rules belong to ops (DifferentiableOpInterface); nothing here knows an
// op of the forward graph. The gradient of a loop is a loop (ScanGradient).
//
// A parameter on the path whose gradient is zero everywhere (through floor, say) gets zeros, as in
// PyTorch, so that weight decay still acts on it; one that is not on the path gets no gradient and
// never moves.
//
// Ops that say something about gradients (stop_gradient, custom_gradient) go when all is built.
//
// Refused: an op on the path without a rule, or whose rule has none for this use; a loss that is
// not one floating-point number; a loss that depends on no trainable parameter; several blocks.
//
//===----------------------------------------------------------------------===//

#include "GradientSums.h"
#include "ReverseSweep.h"

#include "memopt/Analysis/StepModel.h"
#include "memopt/Transforms/Passes.h"
#include "memopt/Transforms/Utils/TensorBuilders.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/Debug.h"

#define DEBUG_TYPE "memopt-autodiff"

namespace mlir::memopt {
#define GEN_PASS_DEF_AUTODIFFPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// What has a gradient
//===----------------------------------------------------------------------===//

namespace {
/// Which values lie on a way from a trainable parameter to the loss.
class GradientPath {
public:
  GradientPath(Block &body, Value loss, SymbolTable &symbols);

  bool contains(Value value) const { return dependent.contains(value) && useful.contains(value); }
  /// A trainable parameter that `value` depends on, or null.
  VariableOp getOrigin(Value value) const { return dependent.lookup(value); }
  void print(raw_ostream &os, Block &body) const;

private:
  /// Values that depend on a trainable parameter, with the first such one.
  DenseMap<Value, VariableOp> dependent;
  /// Values that the loss depends on.
  DenseSet<Value> useful;
};
} // namespace

/// Operands that a gradient may flow to: those of `op`, and of what it holds in regions.
static SmallVector<Value> getActiveOperands(Operation *op) {
  SmallVector<Value> operands;
  auto rule = dyn_cast<DifferentiableOpInterface>(op);
  for (OpOperand &operand : op->getOpOperands())
    if (!rule || rule.passesGradient(operand.getOperandNumber()))
      operands.push_back(operand.get());
  for (Region &region : op->getRegions())
    region.walk([&](Operation *inner) { llvm::append_range(operands, inner->getOperands()); });
  return operands;
}

GradientPath::GradientPath(Block &body, Value loss, SymbolTable &symbols) {
  for (Operation &op : body) {
    VariableOp origin;
    if (auto read = dyn_cast<ReadOp>(op)) {
      auto variable = symbols.lookup<VariableOp>(read.getVariable());
      origin = variable && variable.getTrainable() ? variable : VariableOp();
    } else {
      for (Value operand : getActiveOperands(&op))
        if (!origin)
          origin = dependent.lookup(operand);
    }
    if (!origin)
      continue;
    for (Value result : op.getResults())
      if (holdsRealNumbers(result))
        dependent[result] = origin;
  }
  useful.insert(loss);
  for (Operation &op : llvm::reverse(body))
    if (llvm::any_of(op.getResults(), [&](Value result) { return contains(result); }))
      for (Value operand : getActiveOperands(&op))
        useful.insert(operand);
}

void GradientPath::print(raw_ostream &os, Block &body) const {
  for (Operation &op : body)
    for (Value result : op.getResults())
      if (contains(result))
        os << result << " depends on " << getOrigin(result).getSymName() << "\n";
}

//===----------------------------------------------------------------------===//
// The backward graph
//===----------------------------------------------------------------------===//

namespace {
class BackwardBuilder {
public:
  /// With a `scale` gradients are those of so many times the loss, but for those of parameters.
  BackwardBuilder(func::FuncOp step, const GradientPath &path, VariableOp scale)
      : path(path), scale(scale), body(step.getBody().front()), builder(body.getTerminator()),
        lastForward(body.getTerminator()->getPrevNode()),
        sweep(
            builder, [&path](Value value) { return path.contains(value); },
            [this](Operation *op, InFlightDiagnostic &diagnostic) { explain(op, diagnostic); }) {}

  /// Builds the gradients of everything on the path and marks those of parameters.
  LogicalResult run(Value loss);
  /// Removes backward ops that nothing uses, and what was said about gradients; marks the others.
  void finish();

private:
  LogicalResult visit(Operation *op);
  void explain(Operation *op, InFlightDiagnostic &diagnostic) const;
  void removeMarks();
  void markGradients();

  Value readScale(Type elementType);
  Value seed(Value loss);
  Value unscale(Value gradient);

  const GradientPath &path;
  VariableOp scale;
  Block &body;
  OpBuilder builder;
  Operation *lastForward;
  ReverseSweep sweep;
  /// In the order in which the backward pass reaches the reads.
  llvm::MapVector<Operation *, SmallVector<ReadOp, 1>> reads;
};
} // namespace

/// As a scalar of `elementType`.
Value BackwardBuilder::readScale(Type elementType) {
  Location loc = scale.getLoc();
  Value value = ReadOp::create(builder, loc, scale.getTensorType(), FlatSymbolRefAttr::get(scale));
  auto type = RankedTensorType::get({}, elementType);
  if (elementType.isF64())
    return arith::ExtFOp::create(builder, loc, type, value);
  return elementType.isF32() ? value : arith::TruncFOp::create(builder, loc, type, value);
}

/// `value` of a scalar in every element of `type`.
static Value repeat(OpBuilder &builder, Location loc, Value scalar, RankedTensorType type) {
  return type.getRank()
             ? BroadcastOp::create(builder, loc, type, scalar, builder.getDenseI64ArrayAttr({}))
             : scalar;
}

Value BackwardBuilder::seed(Value loss) {
  if (!scale)
    return createSplat(builder, loss.getLoc(), tensorType(loss), 1.0);
  auto type = cast<RankedTensorType>(loss.getType());
  return repeat(builder, loss.getLoc(), readScale(type.getElementType()), type);
}

Value BackwardBuilder::unscale(Value gradient) {
  if (!scale || isZeroGradient(gradient))
    return gradient;
  auto type = cast<RankedTensorType>(gradient.getType());
  Location loc = gradient.getLoc();
  Value factor = readScale(type.getElementType());
  Value one = createSplat(builder, loc, tensorType(factor), 1.0);
  Value inverse = arith::DivFOp::create(builder, loc, one, factor);
  return arith::MulFOp::create(builder, loc, gradient, repeat(builder, loc, inverse, type));
}

LogicalResult BackwardBuilder::run(Value loss) {
  sweep.contribute(loss, seed(loss));
  SmallVector<Operation *> forward;
  for (Operation &op : body) {
    if (op.getNumResults())
      forward.push_back(&op);
    if (&op == lastForward)
      break;
  }
  for (Operation *op : llvm::reverse(forward))
    if (failed(visit(op)))
      return failure();
  markGradients();
  return success();
}

LogicalResult BackwardBuilder::visit(Operation *op) {
  if (auto read = dyn_cast<ReadOp>(op)) {
    if (path.contains(read.getResult()))
      reads[path.getOrigin(read.getResult())].push_back(read);
    return success();
  }
  // What keeps more for the backward pass takes the place of the op.
  Operation *before = op->getPrevNode();
  bool isLast = op == lastForward;
  if (failed(sweep.visit(op)))
    return failure();
  if (isLast)
    lastForward = before ? before->getNextNode() : &body.front();
  return success();
}

/// Which way an op without a gradient stands in.
void BackwardBuilder::explain(Operation *op, InFlightDiagnostic &diagnostic) const {
  Value onPath =
      *llvm::find_if(op->getResults(), [&](Value value) { return path.contains(value); });
  VariableOp origin = path.getOrigin(onPath);
  diagnostic << " between the trainable parameter '" << origin.getSymName() << "' and the loss";
  diagnostic.attachNote(origin.getLoc())
      << "declared here; without 'trainable' it needs no gradient";
}

/// A parameter that is read several times (tied weights) collects from all reads.
void BackwardBuilder::markGradients() {
  for (auto &[variable, places] : reads) {
    SmallVector<Value> all;
    for (ReadOp read : places)
      for (Value contribution : sweep.getContributions(read.getResult()))
        all.push_back(stripRounding(contribution));
    Type type = places.front().getResult().getType();
    Location loc = places.front().getLoc();
    Value gradient = addUp(builder, loc, type, all);
    if (!gradient)
      gradient = createSplat(builder, loc, cast<RankedTensorType>(type), 0.0);
    // As early as possible, so that the mark keeps nothing alive.
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointAfterValue(gradient);
    gradient = unscale(gradient);
    auto mark = GradientOp::create(builder, loc, gradient, FlatSymbolRefAttr::get(variable));
    setPhase(mark, Phase::Backward);
  }
}

/// Their operands take the place of ops that only say something about gradients.
void BackwardBuilder::removeMarks() {
  for (Operation &op : llvm::make_early_inc_range(body)) {
    auto rule = dyn_cast<DifferentiableOpInterface>(op);
    if (!rule || !rule.isGradientMark())
      continue;
    op.replaceAllUsesWith(op.getOperands().take_front(op.getNumResults()));
    if (lastForward == &op)
      lastForward = op.getPrevNode();
    op.erase();
  }
}

void BackwardBuilder::finish() {
  removeMarks();
  Operation *terminator = body.getTerminator();
  for (Operation *op = terminator->getPrevNode(); op && op != lastForward;) {
    Operation *previous = op->getPrevNode();
    if (isOpTriviallyDead(op))
      op->erase();
    else
      op->walk([](Operation *made) { // what loops hold, too
        if (!matchPattern(made, m_Constant()) && !made->hasTrait<OpTrait::IsTerminator>())
          setPhase(made, Phase::Backward);
      });
    op = previous;
  }
}

//===----------------------------------------------------------------------===//
// The step's results
//===----------------------------------------------------------------------===//

static FailureOr<Value> findLoss(const StepModel &model) {
  func::FuncOp step = model.getFunction();
  Value loss = model.getLoss();
  if (!loss)
    return step.emitOpError("returns no loss: expected a result with memopt.role = \"loss\", or a "
                            "floating-point scalar");
  auto type = cast<RankedTensorType>(loss.getType());
  if (type.getNumElements() != 1 || !isa<FloatType>(type.getElementType()))
    return step.emitOpError() << "has a loss of type " << loss.getType()
                              << ", expected one floating-point number";
  return loss;
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

namespace {
struct AutodiffPass : mlir::memopt::impl::AutodiffPassBase<AutodiffPass> {
  using AutodiffPassBase::AutodiffPassBase;

  void runOnOperation() override {
    if (failed(differentiateStep()))
      signalPassFailure();
  }

private:
  LogicalResult differentiateStep();
  FailureOr<VariableOp> declareScale(SymbolTable &symbols, func::FuncOp step);
};
} // namespace

/// The variable of the loss's scale; null where there is none.
FailureOr<VariableOp> AutodiffPass::declareScale(SymbolTable &symbols, func::FuncOp step) {
  constexpr StringLiteral name = MemoptDialect::kLossScaleName;
  if (lossScale == 0)
    return VariableOp();
  if (!(lossScale > 0 && lossScale <= std::numeric_limits<float>::max()))
    return step.emitError() << "the scale of the loss must be a positive f32, found "
                            << lossScale.getValue();
  if (Operation *other = symbols.lookup(name))
    return other->emitOpError() << "has the name '" << name
                                << "', which the scale of the loss needs";
  OpBuilder builder(step);
  auto type = RankedTensorType::get({}, builder.getF32Type());
  auto variable = VariableOp::create(builder, step.getLoc(), name, type, Role::LossScale);
  variable.setNamesAttr(builder.getStrArrayAttr({name}));
  variable.setInitValueAttr(builder.getF64FloatAttr(lossScale));
  return variable;
}

LogicalResult AutodiffPass::differentiateStep() {
  ModuleOp module = getOperation();
  SymbolTable symbols(module);
  FailureOr<StepModel> model = StepModel::create(module);
  if (failed(model))
    return failure();
  func::FuncOp step = model->getFunction();
  if (!step.getOps<GradientOp>().empty())
    return step.emitOpError("already has gradients");
  FailureOr<Value> loss = findLoss(*model);
  if (failed(loss))
    return failure();
  GradientPath path(step.getBody().front(), *loss, symbols);
  if (!path.contains(*loss))
    return step.emitOpError("has a loss that depends on no trainable parameter");
  LLVM_DEBUG(path.print(llvm::dbgs(), step.getBody().front()));

  FailureOr<VariableOp> scale = declareScale(symbols, step);
  if (failed(scale))
    return failure();
  BackwardBuilder backward(step, path, *scale);
  if (failed(backward.run(*loss)))
    return failure();
  backward.finish();
  return success();
}
