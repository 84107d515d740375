//===- SkipOverflow.cpp - steps whose gradients overflow --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Gradients of a scaled loss may overflow in f16 (Micikevicius et al., Mixed Precision Training,
// ICLR 2018, section 3.2). Such a step must change nothing, and the scale must shrink. What
// torch.amp.GradScaler decides on the host is part of the program here:
//
//   ok = all gradients finite
//   write select(ok, new, old), @state       for every write of state
//   step of the optimizers = step - skipped  so a skipped step is none to them
//   skipped += !ok
//   scale   = ok ? (grown now ? scale * growth : scale) : scale * backoff
//
// A step that was skipped leaves the bits of never having seen its batch, running statistics
// included; PyTorch moves those.
//
// Input:   the joint graph behind guard-state and split-batch: state is written in the step's own
//          block, gradients are marked there, and autodiff has divided them by @loss_scale.
// Cost:    no update begins before the last gradient is known, as with clipping.
//
//===----------------------------------------------------------------------===//

#include "memopt/Analysis/StepModel.h"
#include "memopt/Transforms/Passes.h"
#include "memopt/Transforms/Utils/TensorBuilders.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <cmath>

namespace mlir::memopt {
#define GEN_PASS_DEF_SKIPOVERFLOWPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// The graph
//===----------------------------------------------------------------------===//

namespace {
/// How the scale moves.
struct ScaleRule {
  bool isDynamic;
  double growth, backoff;
  int64_t interval;
};

class OverflowSkipper {
public:
  OverflowSkipper(const StepModel &step, const ScaleRule &rule)
      : step(step), rule(rule), symbols(step.getModule()), builder(step.getReturn()),
        location(step.getFunction().getLoc()) {}

  LogicalResult run();

private:
  Value areAllFinite();
  void countUpdates();
  void selectState(WriteOp write);
  void moveScale();
  Value largestMagnitude(Value gradient);

  template <typename OpTy, typename... Args> Value make(Args &&...args) {
    auto op = OpTy::create(builder, location, std::forward<Args>(args)...);
    setPhase(op, Phase::Optimizer);
    return op->getResult(0);
  }
  Value constant(Type type, double number);
  VariableOp declare(StringRef name, Type type);
  Value read(StringRef name, RankedTensorType type) {
    return make<ReadOp>(type, FlatSymbolRefAttr::get(builder.getContext(), name));
  }
  void write(Value value, StringRef name) {
    setPhase(WriteOp::create(builder, location, value,
                             FlatSymbolRefAttr::get(builder.getContext(), name)),
             Phase::Optimizer);
  }
  RankedTensorType scalar(Type type) const { return RankedTensorType::get({}, type); }

  const StepModel &step;
  const ScaleRule rule;
  SymbolTable symbols;
  OpBuilder builder;
  Location location;
  Value ok;
};
} // namespace

static constexpr StringLiteral kScale = MemoptDialect::kLossScaleName,
                               kSkipped = "loss_scale.skipped_steps",
                               kGood = "loss_scale.good_steps";

Value OverflowSkipper::constant(Type type, double number) {
  return createSplat(builder, location, scalar(type), number);
}

/// A count that starts at zero.
VariableOp OverflowSkipper::declare(StringRef name, Type type) {
  OpBuilder atStart(step.getFunction());
  auto variable = VariableOp::create(atStart, location, name, scalar(type), Role::LossScale);
  variable.setNamesAttr(builder.getStrArrayAttr({name}));
  variable.setInitValueAttr(builder.getF64FloatAttr(0));
  return variable;
}

/// NaN where an element is.
Value OverflowSkipper::largestMagnitude(Value gradient) {
  auto type = cast<RankedTensorType>(gradient.getType());
  Value size = make<math::AbsFOp>(gradient);
  if (type.getRank())
    size = make<ReduceOp>(
        scalar(type.getElementType()), size,
        ReduceKindAttr::get(builder.getContext(), ReduceKind::Max),
        builder.getDenseI64ArrayAttr(llvm::to_vector(llvm::seq<int64_t>(0, type.getRank()))));
  if (type.getElementTypeBitWidth() < 32)
    size = make<arith::ExtFOp>(scalar(builder.getF32Type()), size);
  return size;
}

Value OverflowSkipper::areAllFinite() {
  Value all;
  for (GradientOp gradient : step.getGradients()) {
    Value size = largestMagnitude(gradient.getValue());
    Value limit = constant(cast<RankedTensorType>(size.getType()).getElementType(), INFINITY);
    Value finite = make<arith::CmpFOp>(arith::CmpFPredicate::OLT, size, limit);
    all = all ? make<arith::AndIOp>(all, finite) : finite;
  }
  return all;
}

/// Updates that are numbered as the steps are so without those that were skipped; a count of a
/// parameter's own is state, which such a step leaves as it was.
void OverflowSkipper::countUpdates() {
  auto count = scalar(builder.getI64Type());
  declare(kSkipped, builder.getI64Type());
  Value before = read(kSkipped, count), updates;
  for (auto update : step.getBody().getOps<OptimizerStepOp>()) {
    if (!update.getStep().getDefiningOp<ReadOp>())
      continue;
    if (!updates) {
      OpBuilder::InsertionGuard guard(builder);
      builder.setInsertionPoint(update);
      updates = make<arith::SubIOp>(update.getStep(), read(kSkipped, count));
    }
    update.getStepMutable().assign(updates);
  }
  Value more = make<arith::AddIOp>(before, constant(builder.getI64Type(), 1));
  write(make<arith::SelectOp>(ok, before, more), kSkipped);
}

void OverflowSkipper::selectState(WriteOp op) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(op);
  auto type = cast<RankedTensorType>(op.getValue().getType());
  Value old = read(op.getVariable(), type);
  Value condition = ok;
  if (type.getRank())
    condition =
        make<BroadcastOp>(type.clone(builder.getI1Type()), ok, builder.getDenseI64ArrayAttr({}));
  op.getValueMutable().assign(make<arith::SelectOp>(condition, op.getValue(), old));
}

/// As torch.amp.GradScaler.update: a scale that would not be finite does not grow.
void OverflowSkipper::moveScale() {
  Type f32 = builder.getF32Type(), i64 = builder.getI64Type();
  declare(kGood, i64);
  Value scale = read(kScale, scalar(f32)), good = read(kGood, scalar(i64));
  Value count = make<arith::AddIOp>(good, constant(i64, 1));
  Value isDue = make<arith::CmpIOp>(arith::CmpIPredicate::sge, count,
                                    constant(i64, static_cast<double>(rule.interval)));
  Value grown = make<arith::MulFOp>(scale, constant(f32, rule.growth));
  Value fits = make<arith::CmpFOp>(arith::CmpFPredicate::OLT, grown, constant(f32, INFINITY));
  Value kept = make<arith::SelectOp>(make<arith::AndIOp>(isDue, fits), grown, scale);
  Value shrunk = make<arith::MulFOp>(scale, constant(f32, rule.backoff));
  Value zero = constant(i64, 0);
  Value next = make<arith::SelectOp>(isDue, zero, count);
  write(make<arith::SelectOp>(ok, kept, shrunk), kScale);
  write(make<arith::SelectOp>(ok, next, zero), kGood);
}

LogicalResult OverflowSkipper::run() {
  if (!step.getCommit())
    return step.getFunction().emitOpError("has no memopt.commit; expected the output of "
                                          "memopt-guard-state");
  for (GradientOp gradient : step.getGradients())
    if (gradient.getShard())
      return gradient.emitOpError("is one rank's shard: ranks would not agree on whether gradients "
                                  "are finite; expected whole gradients, without a ZeRO stage");
  SmallVector<WriteOp> writes;
  for (auto &[variable, all] : step.getAllWrites())
    for (WriteOp op : all)
      if (op->getBlock() == &step.getBody() && step.writesState(op))
        writes.push_back(op);
  // Behind the commit and everything that gradients are made of, in front of the first update that
  // reads the answer.
  OpBuilder::InsertionGuard guard(builder);
  Operation *last = step.getCommit();
  for (GradientOp gradient : step.getGradients())
    if (Operation *maker = gradient.getValue().getDefiningOp();
        maker && last->isBeforeInBlock(maker))
      last = maker;
  builder.setInsertionPointAfter(last);
  ok = areAllFinite();
  Operation *known = ok.getDefiningOp();
  auto early =
      llvm::filter_to_vector(writes, [&](WriteOp op) { return op->isBeforeInBlock(known); });
  for (WriteOp op : early)
    op->moveAfter(known);
  builder.setInsertionPoint(step.getReturn());
  for (WriteOp op : writes)
    selectState(op);
  countUpdates();
  if (rule.isDynamic)
    moveScale();
  return success();
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

namespace {
struct SkipOverflowPass : mlir::memopt::impl::SkipOverflowPassBase<SkipOverflowPass> {
  using SkipOverflowPassBase::SkipOverflowPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (!module.lookupSymbol<VariableOp>(kScale))
      return markAllAnalysesPreserved();
    FailureOr<StepModel> step = StepModel::create(module);
    if (failed(step) || failed(checkRule()) ||
        failed(OverflowSkipper(*step, {isDynamic, growth, backoff, interval}).run()) ||
        failed(StepModel::create(module)->verifyAccesses()))
      signalPassFailure();
  }

private:
  LogicalResult checkRule() {
    if (!(growth > 1 && std::isfinite(growth)))
      return getOperation().emitError()
             << "the growth factor must be above 1, found " << growth.getValue();
    if (!(backoff > 0 && backoff < 1))
      return getOperation().emitError()
             << "the backoff factor must lie between 0 and 1, found " << backoff.getValue();
    if (interval < 1)
      return getOperation().emitError()
             << "the growth interval must be at least 1, found " << interval.getValue();
    return success();
  }
};
} // namespace
