//===- InsertOptimizer.cpp - what becomes of the gradients -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Input: the joint graph, in which memopt.gradient marks gradients of parameters. Output: for each
// of them the optimizer's state is declared, one memopt.optimizer_step before the return reads the
// parameter, its gradient and its state, and memopt.write gives variables their new values. Updates
// are in the order of the parameters' declarations. The marks stay.
//
// Which optimizer updates which parameter follows from the settings (OptimizerPlan); what state it
// keeps, from its descriptor. Clipping is that of torch.nn.utils.clip_grad_norm_; the norm that it
// computes is left in @gradient_norm, and a limit of infinity does nothing else. The learning rate
// and the step's number are variables that the runtime writes, so that a schedule needs no other
// program: @lr, and @lr.1, @lr.2, ... for groups of parameters with a rate of their own, each with
// the rate that it starts from as initial value. A parameter with a count of its own
// (`step-count=own`) numbers its updates by @optimizer.step.PARAMETER, which is state. With
// `hyperparameters=inputs` among the settings, momentum, betas, weight decay and the limit of
// clipping are such variables, too:
// @hyperparameter.momentum, @hyperparameter.beta1, ..., and @hyperparameter.momentum.1, ... for the
// parameters of @lr.1.
//
// Where forward writes to a parameter, as layers do that keep their weights within a norm, its update
// begins with what was written, and takes the place of that write.
//
// A parameter that memopt.updated_where names is left as it is, with all of its state, in a step
// that does not use it, and counts its updates itself. A gradient of zero adds nothing to the norm.
//
// Ranks:   with `zero-stage` each rank updates its part of every parameter. Small parameters that are
//          updated alike are cut together (ShardUnits.h), and updated as one vector: an update that
//          can be shared out treats each element on its own. Left out are those with numbers of
//          their own, such as a count of updates.
//
// Refused: settings that no optimizer takes, and a function without gradients.
//
//===----------------------------------------------------------------------===//

#include "UpdateBuilder.h"

#include "memopt/Analysis/StepModel.h"
#include "memopt/Transforms/Optimizers/ParameterKind.h"
#include "memopt/Transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/FormatVariadic.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_INSERTOPTIMIZERPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

/// The marked gradients of `step` by parameter, in the order of declarations.
static FailureOr<SmallVector<std::pair<VariableOp, Value>>>
collectGradients(ModuleOp module, func::FuncOp step, SymbolTable &symbols) {
  DenseMap<Operation *, Value> marked;
  for (auto gradient : step.getOps<GradientOp>())
    if (!marked.try_emplace(symbols.lookup(gradient.getVariable()), gradient.getValue()).second)
      return gradient.emitOpError("is the second of its variable");
  if (marked.empty())
    return step.emitOpError("has no gradients; expected the output of memopt-autodiff");
  SmallVector<std::pair<VariableOp, Value>> ordered;
  for (VariableOp variable : module.getOps<VariableOp>())
    if (Value gradient = marked.lookup(variable))
      ordered.emplace_back(variable, gradient);
  return ordered;
}

/// By variable, what says whether a step uses it. The marks go.
static DenseMap<StringAttr, Value> takeUses(func::FuncOp step) {
  DenseMap<StringAttr, Value> uses;
  for (auto mark : llvm::make_early_inc_range(step.getOps<UpdatedWhereOp>())) {
    for (auto name : mark.getVariables().getAsRange<FlatSymbolRefAttr>())
      uses[name.getAttr()] = mark.getCount();
    mark.erase();
  }
  return uses;
}

/// An update of a part must not need the rest.
static LogicalResult verifyShared(ArrayRef<std::pair<VariableOp, Value>> parameters,
                                  ArrayRef<ParameterUpdate> choices) {
  for (auto [entry, choice] : llvm::zip_equal(parameters, choices)) {
    VariableOp parameter = entry.first;
    if (!llvm::is_contained(choice.optimizer->getStateBits(), 8u))
      return parameter.emitError()
             << "'" << choice.optimizer->getName() << "' updates '" << parameter.getSymName()
             << "' as a whole, which ranks cannot share out: use --zero-stage=0, or an optimizer "
                "that treats each element on its own";
    if (!parameter.getTensorType().getElementType().isF32() &&
        !parameter.getTensorType().getElementType().isF64())
      return parameter.emitError()
             << "'" << parameter.getSymName() << "' holds "
             << parameter.getTensorType().getElementType()
             << ", whose rounding ranks cannot share out: use --zero-stage=0, or "
                "--master-weights=fp32";
  }
  return success();
}

namespace {
struct InsertOptimizerPass : mlir::memopt::impl::InsertOptimizerPassBase<InsertOptimizerPass> {
  using InsertOptimizerPassBase::InsertOptimizerPassBase;

  void runOnOperation() override {
    if (failed(insertOptimizer()))
      signalPassFailure();
  }

private:
  FailureOr<OptimizerPlan> readSettings();
  LogicalResult insertOptimizer();
};
} // namespace

FailureOr<OptimizerPlan> InsertOptimizerPass::readSettings() {
  if (!(maxGradNorm >= 0.0))
    return getOperation().emitError() << "--max-grad-norm expects a number in [0, inf], found "
                                      << llvm::formatv("{0}", double(maxGradNorm)).str();
  llvm::Expected<OptimizerPlan> plan = OptimizerPlan::parse(settings);
  if (!plan)
    return getOperation().emitError(llvm::toString(plan.takeError()));
  return std::move(*plan);
}

LogicalResult InsertOptimizerPass::insertOptimizer() {
  ModuleOp module = getOperation();
  FailureOr<OptimizerPlan> plan = readSettings();
  if (failed(plan))
    return failure();
  SymbolTable symbols(module);
  FailureOr<StepModel> model = StepModel::create(module);
  if (failed(model))
    return failure();
  func::FuncOp step = model->getFunction();
  auto found = collectGradients(module, step, symbols);
  if (failed(found))
    return failure();
  ReadsOf reads;
  for (auto read : step.getOps<ReadOp>())
    reads[read.getVariableAttr().getAttr()].push_back(read);
  SmallVector<ParameterInfo> parameters = llvm::map_to_vector(*found, [&](auto &entry) {
    return describeParameter(entry.first, reads[entry.first.getSymNameAttr()]);
  });
  auto choices = plan->choose(parameters);
  if (!choices)
    return module.emitError(llvm::toString(choices.takeError()));

  DenseMap<StringAttr, Value> uses = takeUses(step);
  for (auto [entry, choice] : llvm::zip_equal(*found, *choices))
    choice.hasOwnCount |= uses.contains(entry.first.getSymNameAttr());

  int64_t shardRanks = zeroStage ? ranks : 1;
  if (shardRanks > 1 && failed(verifyShared(*found, *choices)))
    return failure();
  UpdateBuilder updates(module, symbols, step.getBody().front().getTerminator(), shardRanks);
  if (failed(updates.readHyperparameters(step.getLoc(), plan->getRate())))
    return failure();
  SmallVector<UpdateTarget> targets = formTargets(
      {*found, parameters, *choices, plan->getAverageSettings()}, reads, shardRanks, formsUnits);
  for (UpdateTarget &target : targets)
    if (!target.isUnit())
      target.uses = uses.lookup(target.members.front().parameter.getSymNameAttr());
  if (shardRanks > 1) {
    DenseMap<StringAttr, GradientOp> marks;
    for (auto mark : step.getOps<GradientOp>())
      marks[mark.getVariableAttr().getAttr()] = mark;
    for (UpdateTarget &target : targets)
      target.gradient = updates.takeShard(
          target, llvm::map_to_vector(target.members, [&](UpdateTarget::Member &member) {
            return marks.lookup(member.parameter.getSymNameAttr());
          }));
  }
  SmallVector<Value> gradients =
      llvm::map_to_vector(targets, [](UpdateTarget &target) { return target.gradient; });
  if (maxGradNorm > 0.0) {
    FailureOr<Value> norm = updates.reportNorm(step.getLoc(), gradients);
    if (failed(norm))
      return failure();
    if (std::isfinite(maxGradNorm)) {
      FailureOr<Value> limit =
          updates.getLimit(step.getLoc(), maxGradNorm, plan->hasInputs(), *norm);
      if (failed(limit))
        return failure();
      updates.clip(step.getLoc(), *limit, *norm, gradients);
    }
  }
  if (std::optional<OptimizerSettings> average = plan->getAverageSettings())
    updates.keepAverage(*average);
  for (auto [target, gradient] : llvm::zip_equal(targets, gradients)) {
    target.gradient = gradient;
    if (failed(updates.update(target)))
      return failure();
  }
  return success();
}
