//===- InsertOptimizer.cpp - what becomes of the gradients -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Input: the joint graph, in which memopt.gradient marks gradients of parameters. Output: for each
// of them the optimizer's state is declared, one update op before the return reads the parameter,
// its gradient and its state, and memopt.write gives variables their new values. Updates are in the
// order of the parameters' declarations. The marks stay.
//
// Meaning and defaults are those of torch.optim.SGD, Adam and AdamW and of
// torch.nn.utils.clip_grad_norm_. The learning rate and the step's number are variables that the
// runtime writes, so that a schedule needs no other program; `lr` is only what @lr starts from.
//
// Refused: options outside PyTorch's ranges, and a function without gradients.
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/Format.h"

namespace mlir::memopt {
#define GEN_PASS_DEF_INSERTOPTIMIZERPASS
#include "memopt/Transforms/Passes.h.inc"
} // namespace mlir::memopt

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Settings
//===----------------------------------------------------------------------===//

namespace {
enum class Algorithm { Sgd, Adam, AdamW };

struct Settings {
  Algorithm algorithm = Algorithm::Sgd;
  double learningRate, momentum, dampening, weightDecay, beta1, beta2, eps;
  /// Not clipped when zero.
  double maxGradNorm;
  bool nesterov;
};

struct Interval {
  StringRef name;
  double value;
  double low;
  /// Excluded.
  double high;
};
} // namespace

/// As a person would write the number: 0.1, inf.
static std::string toText(double number) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%g", number);
  return text;
}

static LogicalResult checkRanges(Operation *op, ArrayRef<Interval> ranges) {
  for (const Interval &range : ranges)
    if (!(range.value >= range.low && range.value < range.high))
      return op->emitError() << "optimizer option '" << range.name << "' must lie in ["
                             << toText(range.low) << ", " << toText(range.high) << "), found "
                             << toText(range.value);
  return success();
}

static LogicalResult checkSettings(Operation *op, const Settings &settings) {
  double infinity = std::numeric_limits<double>::infinity();
  if (failed(checkRanges(op, {{"lr", settings.learningRate, 0, infinity},
                              {"momentum", settings.momentum, 0, infinity},
                              {"weight-decay", settings.weightDecay, 0, infinity},
                              {"betas", settings.beta1, 0, 1},
                              {"betas", settings.beta2, 0, 1},
                              {"eps", settings.eps, 0, infinity},
                              {"max-grad-norm", settings.maxGradNorm, 0, infinity}})))
    return failure();
  if (!std::isfinite(settings.dampening))
    return op->emitError() << "optimizer option 'dampening' must be finite, found "
                           << toText(settings.dampening);
  if (settings.nesterov && (settings.momentum == 0.0 || settings.dampening != 0.0))
    return op->emitError("optimizer option 'nesterov' requires a momentum and zero dampening");
  return success();
}

//===----------------------------------------------------------------------===//
// Updates
//===----------------------------------------------------------------------===//

namespace {
class UpdateBuilder {
public:
  UpdateBuilder(ModuleOp module, SymbolTable &symbols, Operation *terminator,
                const Settings &settings)
      : module(module), symbols(symbols), settings(settings), builder(terminator) {}

  /// Reads the learning rate and the step's number, declaring them if nobody has.
  LogicalResult readHyperparameters(Location loc);
  /// Scales gradients whose global norm is above the limit.
  void clip(Location loc, SmallVectorImpl<Value> &gradients);
  LogicalResult update(VariableOp parameter, Value gradient);

private:
  FailureOr<Value> readHyperparameter(Location loc, StringRef name, Type elementType,
                                      double initial);
  /// Declares state of `parameter` and reads it.
  FailureOr<Value> readState(VariableOp parameter, StringRef slot);
  Value read(VariableOp variable, Location loc);
  void write(Value value, StringRef variable, Location loc);
  LogicalResult updateSgd(VariableOp parameter, Value gradient, Location loc);
  LogicalResult updateAdam(VariableOp parameter, Value gradient, Location loc);
  template <typename OpTy, typename... Args> OpTy create(Location loc, Args &&...args);

  ModuleOp module;
  SymbolTable &symbols;
  const Settings &settings;
  OpBuilder builder;
  Value learningRate, stepNumber;
};
} // namespace

template <typename OpTy, typename... Args>
OpTy UpdateBuilder::create(Location loc, Args &&...args) {
  OpTy op = OpTy::create(builder, loc, std::forward<Args>(args)...);
  setPhase(op, Phase::Optimizer);
  return op;
}

/// New declarations follow the old ones, in order.
static void declare(ModuleOp module, SymbolTable &symbols, VariableOp variable) {
  Operation *last = nullptr;
  for (VariableOp old : module.getOps<VariableOp>())
    last = old;
  symbols.insert(variable, last ? std::next(Block::iterator(last)) : module.getBody()->begin());
}

Value UpdateBuilder::read(VariableOp variable, Location loc) {
  return create<ReadOp>(loc, variable.getTensorType(), FlatSymbolRefAttr::get(variable));
}

void UpdateBuilder::write(Value value, StringRef variable, Location loc) {
  create<WriteOp>(loc, value, FlatSymbolRefAttr::get(builder.getContext(), variable));
}

static VariableOp makeVariable(OpBuilder &builder, Location loc, StringRef name,
                               RankedTensorType type, Role role, FloatAttr initial) {
  OperationState state(loc, VariableOp::getOperationName());
  VariableOp::build(builder, state, name, type, role);
  auto variable = cast<VariableOp>(Operation::create(state));
  variable.setInitValueAttr(initial);
  variable.setNamesAttr(builder.getStrArrayAttr({name}));
  return variable;
}

FailureOr<Value> UpdateBuilder::readHyperparameter(Location loc, StringRef name, Type elementType,
                                                   double initial) {
  auto type = RankedTensorType::get({}, elementType);
  auto variable = symbols.lookup<VariableOp>(name);
  if (!variable) {
    if (Operation *other = symbols.lookup(name))
      return other->emitOpError() << "has the name '" << name << "', which the optimizer needs";
    variable = makeVariable(builder, module.getLoc(), name, type, Role::Hyperparameter,
                            builder.getF64FloatAttr(initial));
    declare(module, symbols, variable);
  }
  if (variable.getTensorType() != type)
    return variable.emitOpError() << "has type " << variable.getTensorType()
                                  << ", but the optimizer expects " << type;
  return read(variable, loc);
}

LogicalResult UpdateBuilder::readHyperparameters(Location loc) {
  FailureOr<Value> rate =
      readHyperparameter(loc, "lr", builder.getF64Type(), settings.learningRate);
  if (failed(rate))
    return failure();
  FailureOr<Value> number = readHyperparameter(loc, "step", builder.getI64Type(), 1.0);
  if (failed(number))
    return failure();
  learningRate = *rate;
  stepNumber = *number;
  return success();
}

// clip_grad_norm_: factor min(1, limit / (norm + 1e-6)), NaN where the norm is.
void UpdateBuilder::clip(Location loc, SmallVectorImpl<Value> &gradients) {
  if (settings.maxGradNorm == 0.0)
    return;
  auto scalar = RankedTensorType::get(
      {}, cast<RankedTensorType>(gradients.front().getType()).getElementType());
  auto constant = [&](double number) -> Value {
    FloatAttr value = builder.getFloatAttr(scalar.getElementType(), number);
    return arith::ConstantOp::create(builder, loc,
                                     DenseElementsAttr::get(scalar, value.getValue()));
  };
  Value norm = create<GlobalNormOp>(loc, scalar, gradients);
  Value shifted = create<arith::AddFOp>(loc, norm, constant(1e-6));
  Value ratio = create<arith::DivFOp>(loc, constant(settings.maxGradNorm), shifted);
  Value factor = create<arith::MinimumFOp>(loc, ratio, constant(1.0));
  for (Value &gradient : gradients) {
    Value repeated = factor;
    auto type = cast<RankedTensorType>(gradient.getType());
    if (type.getElementType() != scalar.getElementType()) {
      auto to = RankedTensorType::get({}, type.getElementType());
      if (to.getElementTypeBitWidth() > scalar.getElementTypeBitWidth())
        repeated = create<arith::ExtFOp>(loc, to, factor);
      else
        repeated = create<arith::TruncFOp>(loc, to, factor);
    }
    if (type.getRank())
      repeated = create<BroadcastOp>(loc, type, repeated, ArrayRef<int64_t>());
    gradient = create<arith::MulFOp>(gradient.getLoc(), gradient, repeated);
  }
}

FailureOr<Value> UpdateBuilder::readState(VariableOp parameter, StringRef slot) {
  std::string name = ("optimizer." + slot + "." + parameter.getSymName()).str();
  if (Operation *other = symbols.lookup(name))
    return other->emitOpError() << "has the name of optimizer state of '" << parameter.getSymName()
                                << "'";
  VariableOp state = makeVariable(builder, parameter.getLoc(), name, parameter.getTensorType(),
                                  Role::OptimizerState, builder.getF64FloatAttr(0.0));
  state.setOfAttr(FlatSymbolRefAttr::get(parameter));
  state.setSlotAttr(builder.getStringAttr(slot));
  declare(module, symbols, state);
  return read(state, parameter.getLoc());
}

LogicalResult UpdateBuilder::update(VariableOp parameter, Value gradient) {
  // The update belongs to the module that owns the parameter, wherever the gradient was finished.
  Location loc = parameter.getLoc();
  return settings.algorithm == Algorithm::Sgd ? updateSgd(parameter, gradient, loc)
                                              : updateAdam(parameter, gradient, loc);
}

LogicalResult UpdateBuilder::updateSgd(VariableOp parameter, Value gradient, Location loc) {
  FailureOr<Value> buffer = Value();
  if (settings.momentum != 0.0)
    buffer = readState(parameter, "momentum");
  if (failed(buffer))
    return failure();
  Type type = parameter.getTensorType();
  auto step = create<SgdStepOp>(
      loc, type, *buffer ? type : Type(), read(parameter, loc), gradient, *buffer, learningRate,
      stepNumber, builder.getF64FloatAttr(settings.momentum),
      builder.getF64FloatAttr(settings.dampening), builder.getF64FloatAttr(settings.weightDecay),
      settings.nesterov ? builder.getUnitAttr() : UnitAttr());
  write(step.getNewParameter(), parameter.getSymName(), loc);
  if (*buffer)
    write(step.getNewBuffer(), buffer->getDefiningOp<ReadOp>().getVariable(), loc);
  return success();
}

LogicalResult UpdateBuilder::updateAdam(VariableOp parameter, Value gradient, Location loc) {
  FailureOr<Value> first = readState(parameter, "exp_avg");
  if (failed(first))
    return failure();
  FailureOr<Value> second = readState(parameter, "exp_avg_sq");
  if (failed(second))
    return failure();
  Type type = parameter.getTensorType();
  bool decoupled = settings.algorithm == Algorithm::AdamW;
  auto step = create<AdamStepOp>(
      loc, type, type, type, read(parameter, loc), gradient, *first, *second, learningRate,
      stepNumber, builder.getF64FloatAttr(settings.beta1), builder.getF64FloatAttr(settings.beta2),
      builder.getF64FloatAttr(settings.eps), builder.getF64FloatAttr(settings.weightDecay),
      decoupled ? builder.getUnitAttr() : UnitAttr());
  write(step.getNewParameter(), parameter.getSymName(), loc);
  write(step.getNewFirstMoment(), first->getDefiningOp<ReadOp>().getVariable(), loc);
  write(step.getNewSecondMoment(), second->getDefiningOp<ReadOp>().getVariable(), loc);
  return success();
}

//===----------------------------------------------------------------------===//
// Pass
//===----------------------------------------------------------------------===//

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

namespace {
struct InsertOptimizerPass : memopt::impl::InsertOptimizerPassBase<InsertOptimizerPass> {
  using InsertOptimizerPassBase::InsertOptimizerPassBase;

  void runOnOperation() override {
    if (failed(insertOptimizer()))
      signalPassFailure();
  }

private:
  FailureOr<Settings> readSettings();
  LogicalResult insertOptimizer();
};
} // namespace

FailureOr<Settings> InsertOptimizerPass::readSettings() {
  Settings settings;
  if (optimizer == "sgd")
    settings.algorithm = Algorithm::Sgd;
  else if (optimizer == "adam")
    settings.algorithm = Algorithm::Adam;
  else if (optimizer == "adamw")
    settings.algorithm = Algorithm::AdamW;
  else
    return getOperation().emitError()
           << "unknown optimizer '" << optimizer << "', expected sgd, adam or adamw";
  if (!betas.empty() && betas.size() != 2)
    return getOperation().emitError()
           << "optimizer option 'betas' needs two numbers, found " << betas.size();
  double defaultDecay = settings.algorithm == Algorithm::AdamW ? 0.01 : 0.0;
  settings.learningRate = lr;
  settings.momentum = momentum;
  settings.dampening = dampening;
  settings.nesterov = nesterov;
  settings.weightDecay = weightDecay == -1.0 ? defaultDecay : weightDecay;
  settings.beta1 = betas.empty() ? 0.9 : betas[0];
  settings.beta2 = betas.empty() ? 0.999 : betas[1];
  settings.eps = eps;
  settings.maxGradNorm = maxGradNorm;
  if (failed(checkSettings(getOperation(), settings)))
    return failure();
  return settings;
}

LogicalResult InsertOptimizerPass::insertOptimizer() {
  ModuleOp module = getOperation();
  FailureOr<Settings> settings = readSettings();
  if (failed(settings))
    return failure();
  SymbolTable symbols(module);
  auto step = symbols.lookup<func::FuncOp>(function);
  if (!step || !step.getBody().hasOneBlock())
    return module.emitOpError() << "has no function '" << function << "' of one block";
  auto found = collectGradients(module, step, symbols);
  if (failed(found))
    return failure();

  UpdateBuilder updates(module, symbols, step.getBody().front().getTerminator(), *settings);
  if (failed(updates.readHyperparameters(step.getLoc())))
    return failure();
  SmallVector<Value> gradients = llvm::to_vector(llvm::make_second_range(*found));
  updates.clip(step.getLoc(), gradients);
  for (auto [entry, gradient] : llvm::zip(*found, gradients))
    if (failed(updates.update(entry.first, gradient)))
      return failure();
  return success();
}
