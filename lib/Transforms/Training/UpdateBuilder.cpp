//===- UpdateBuilder.cpp - the instructions of an update ------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "UpdateBuilder.h"

#include "memopt/Analysis/StateForm.h"
#include "memopt/Transforms/Ranks/Shards.h"
#include "memopt/Transforms/Utils/TensorBuilders.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::memopt;

UpdateBuilder::UpdateBuilder(ModuleOp module, SymbolTable &symbols, Operation *terminator,
                             int64_t shardRanks)
    : module(module), symbols(symbols), builder(terminator), shardRanks(shardRanks) {
  for (auto write : terminator->getBlock()->getOps<WriteOp>())
    forwardWrites[write.getVariableAttr().getAttr()] = write;
}

template <typename OpTy, typename... Args>
OpTy UpdateBuilder::create(Location loc, Args &&...args) {
  OpTy op = OpTy::create(builder, loc, std::forward<Args>(args)...);
  setPhase(op, Phase::Optimizer);
  return op;
}

/// New declarations follow the old ones, in order.
static void declare(ModuleOp module, SymbolTable &symbols, VariableOp variable) {
  Block &body = *module.getBody();
  Block::iterator place = body.end(); // from which functions, which are few, are passed
  while (place != body.begin() && !isa<VariableOp>(*std::prev(place)))
    --place;
  symbols.insert(variable, place);
}

ReadOp UpdateBuilder::read(VariableOp variable, Location loc) {
  return create<ReadOp>(loc, variable.getTensorType(), FlatSymbolRefAttr::get(variable));
}

Value UpdateBuilder::takeOld(VariableOp parameter) {
  WriteOp write = forwardWrites.lookup(parameter.getSymNameAttr());
  if (!write)
    return read(parameter, parameter.getLoc());
  Value written = write.getValue();
  forwardWrites.erase(parameter.getSymNameAttr());
  write.erase();
  return written;
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
  return Value(read(variable, loc));
}

LogicalResult UpdateBuilder::readHyperparameters(Location loc, double rate) {
  FailureOr<Value> number = readHyperparameter(loc, "lr", builder.getF64Type(), rate);
  if (failed(number))
    return failure();
  learningRate = *number;
  number = readHyperparameter(loc, "step", builder.getI64Type(), 1.0);
  if (failed(number))
    return failure();
  stepNumber = *number;
  return success();
}

FailureOr<Value> UpdateBuilder::readRate(Location loc, std::optional<double> own) {
  if (!own)
    return learningRate;
  for (auto [rate, value] : rates)
    if (rate == *own)
      return value;
  FailureOr<Value> value =
      readHyperparameter(loc, "lr." + std::to_string(rates.size() + 1), builder.getF64Type(), *own);
  if (succeeded(value))
    rates.emplace_back(*own, *value);
  return value;
}

FailureOr<Value> UpdateBuilder::readInput(Location loc, const HyperparameterInput &input,
                                          Value rate) {
  auto key = std::make_tuple(rate, input.name, input.initial);
  auto *found = llvm::find_if(inputs, [&](auto &entry) { return entry.first == key; });
  Value value = found != inputs.end() ? found->second : Value();
  if (!value) {
    std::string name = "hyperparameter." + input.name;
    for (auto [number, entry] : llvm::enumerate(rates))
      if (entry.second == rate)
        name += "." + std::to_string(number + 1);
    // A group may have the rate of another, and a decay of its own.
    int64_t others = llvm::count_if(inputs, [&](auto &entry) {
      return std::get<0>(entry.first) == rate && std::get<1>(entry.first) == input.name;
    });
    if (others)
      name += "-" + std::to_string(others + 1);
    if (Operation *other = symbols.lookup(name))
      return other->emitOpError() << "has the name '" << name << "', which the optimizer needs";
    FailureOr<Value> made = readHyperparameter(loc, name, builder.getF64Type(), input.initial);
    if (failed(made))
      return failure();
    value = *made;
    inputs.emplace_back(key, value);
  }
  if (input.factor == 1)
    return value;
  auto type = cast<RankedTensorType>(value.getType());
  Value factor = createSplat(builder, loc, type, input.factor);
  setPhase(factor.getDefiningOp(), Phase::Optimizer);
  return Value(create<arith::MulFOp>(loc, value, factor));
}

Value UpdateBuilder::convert(Value value, Type elementType) {
  Value made = convertFloats(builder, value.getLoc(), value, elementType);
  if (made != value)
    setPhase(made.getDefiningOp(), Phase::Optimizer);
  return made;
}

/// In f64, which holds the square of any f32.
Value UpdateBuilder::joinNorms(Value norm) {
  Location loc = norm.getLoc();
  Value wide = convert(norm, builder.getF64Type());
  Value square = create<arith::MulFOp>(loc, wide, wide);
  Value sum = create<CollectiveOp>(loc, cast<RankedTensorType>(square.getType()),
                                   CollectiveKind::AllReduce, square, shardRanks);
  return convert(create<math::SqrtOp>(loc, sum), getElementTypeOrSelf(norm));
}

FailureOr<Value> UpdateBuilder::reportNorm(Location loc, ValueRange gradients) {
  constexpr StringLiteral name = "gradient_norm";
  auto scalar = RankedTensorType::get(
      {}, getComputeType(cast<RankedTensorType>(gradients.front().getType()).getElementType()));
  if (Operation *other = symbols.lookup(name))
    return other->emitOpError() << "has the name '" << name << "', which the optimizer needs";
  declare(module, symbols,
          makeVariable(builder, module.getLoc(), name, scalar, Role::Gradient,
                       builder.getF64FloatAttr(0.0)));
  Value norm = create<GlobalNormOp>(loc, scalar, gradients);
  if (shardRanks > 1)
    norm = joinNorms(norm);
  write(norm, name, loc);
  return norm;
}

FailureOr<Value> UpdateBuilder::getLimit(Location loc, double limit, bool isInput, Value norm) {
  if (!isInput)
    return createSplat(builder, loc, cast<RankedTensorType>(norm.getType()), limit);
  FailureOr<Value> value = readInput(loc, {"max_grad_norm", limit}, learningRate);
  if (failed(value))
    return failure();
  return convert(*value, getElementTypeOrSelf(norm));
}

// clip_grad_norm_: factor min(1, limit / (norm + 1e-6)), NaN where the norm is.
void UpdateBuilder::clip(Location loc, Value limit, Value norm, SmallVectorImpl<Value> &gradients) {
  auto scalar = cast<RankedTensorType>(norm.getType());
  auto constant = [&](double number) { return createSplat(builder, loc, scalar, number); };
  Value shifted = create<arith::AddFOp>(loc, norm, constant(1e-6));
  Value ratio = create<arith::DivFOp>(loc, limit, shifted);
  Value factor = create<arith::MinimumFOp>(loc, ratio, constant(1.0));
  for (Value &gradient : gradients) {
    auto type = cast<RankedTensorType>(gradient.getType());
    RankedTensorType wide = type.clone(getComputeType(type.getElementType()));
    Value repeated = convert(factor, wide.getElementType());
    if (wide.getRank())
      repeated = create<BroadcastOp>(loc, wide, repeated, ArrayRef<int64_t>());
    Value scaled = create<arith::MulFOp>(gradient.getLoc(),
                                         convert(gradient, wide.getElementType()), repeated);
    gradient = convert(scaled, type.getElementType());
  }
}

/// Blocks of state in codes belong to one rank.
RankedTensorType UpdateBuilder::getShardType(RankedTensorType whole,
                                             const ParameterUpdate &choice) const {
  if (shardRanks == 1)
    return whole;
  return choice.stateBits <= 8 ? getPieceType(whole, shardRanks, Update::getBlock(choice.stateBits))
                               : getPieceType(whole, shardRanks);
}

Value UpdateBuilder::pack(const UpdateTarget &target, ValueRange values) {
  if (!target.isUnit())
    return values.front();
  auto element = cast<RankedTensorType>(values.front().getType()).getElementType();
  SmallVector<int64_t> firsts;
  for (const UpdateTarget::Member &member : target.members)
    firsts.push_back(member.first);
  return create<PackOp>(target.getLoc(), target.type.clone({target.type.getNumElements()}, element),
                        values, firsts);
}

Value UpdateBuilder::takeShard(const UpdateTarget &target, SmallVector<GradientOp> marks) {
  SmallVector<Value> gradients;
  for (GradientOp mark : marks)
    gradients.push_back(mark.getValue());
  Value whole = pack(target, gradients);
  auto type = cast<RankedTensorType>(whole.getType());
  Value shard = create<CollectiveOp>(marks.front().getLoc(), getShardType(type, *target.choice),
                                     CollectiveKind::OwnShard, whole, shardRanks);
  for (auto [mark, member] : llvm::zip_equal(marks, target.members)) {
    auto own = cast<RankedTensorType>(mark.getValue().getType());
    mark.getValueMutable().assign(shard);
    mark.setShardAttr(ShardAttr::getOf(own, shardRanks, member.first));
    mark->moveAfter(shard.getDefiningOp());
  }
  return shard;
}

FailureOr<ReadOp> UpdateBuilder::declareState(VariableOp parameter, const StateTensor &tensor,
                                              RankedTensorType whole) {
  std::string name = ("optimizer." + tensor.name + "." + parameter.getSymName()).str();
  if (Operation *other = symbols.lookup(name))
    return other->emitOpError() << "has the name of optimizer state of '" << parameter.getSymName()
                                << "'";
  VariableOp variable = makeVariable(builder, parameter.getLoc(), name, tensor.type,
                                     Role::OptimizerState, builder.getF64FloatAttr(tensor.initial));
  variable.setOfAttr(FlatSymbolRefAttr::get(parameter));
  variable.setSlotAttr(builder.getStringAttr(tensor.name));
  if (shardRanks > 1 && tensor.type.getRank() != 0) // a single number is the same for all
    variable.setShardAttr(ShardAttr::getOf(whole, shardRanks));
  declare(module, symbols, variable);
  return read(variable, parameter.getLoc());
}

LogicalResult
UpdateBuilder::readState(const UpdateTarget &target,
                         function_ref<SmallVector<StateTensor>(const ParameterInfo &)> getTensors,
                         RankedTensorType piece) {
  state.clear();
  slots.clear();
  ParameterInfo own = target.members.front().info;
  own.type = piece;
  for (auto [number, tensor] : llvm::enumerate(getTensors(own))) {
    VariableOp joined;
    FailureOr<ReadOp> old = failure();
    for (const UpdateTarget::Member &member : target.members) {
      RankedTensorType whole = getTensors(member.info)[number].type;
      old = declareState(member.parameter, tensor, whole);
      if (failed(old))
        return failure();
      if (!target.isUnit())
        continue;
      auto variable = symbols.lookup<VariableOp>(old->getVariable());
      if (!joined) {
        joined = createJoined(variable, getUnitName(variable.getSymName()), tensor.type);
        symbols.insert(joined);
      }
      // Blocks of elements begin where members do.
      placeInUnit(variable, joined, whole, shardRanks,
                  member.first * tensor.type.getNumElements() / piece.getNumElements());
      old->erase();
    }
    if (joined)
      old = read(joined, target.getLoc());
    state.push_back(*old);
    slots.push_back(*symbols.lookup<VariableOp>(old->getVariable()).getSlot());
  }
  return success();
}

void UpdateBuilder::writeState(OptimizerStepOp step, Value condition) {
  for (auto [old, made] : llvm::zip_equal(state, step.getNewState()))
    write(choose(condition, made, old), old.getDefiningOp<ReadOp>().getVariable(), step.getLoc());
}

Value UpdateBuilder::findCondition(const UpdateTarget &target) {
  if (!target.uses)
    return {};
  Value &condition = conditions[target.uses];
  if (!condition) {
    Location loc = target.uses.getLoc();
    Value zero = createSplat(builder, loc, cast<RankedTensorType>(target.uses.getType()), 0.0);
    setPhase(zero.getDefiningOp(), Phase::Optimizer);
    condition = create<arith::CmpFOp>(loc, arith::CmpFPredicate::OGT, target.uses, zero);
  }
  return condition;
}

Value UpdateBuilder::choose(Value condition, Value updated, Value old) {
  if (!condition)
    return updated;
  Location loc = updated.getLoc();
  auto type = cast<RankedTensorType>(updated.getType());
  if (type.getRank())
    condition = create<BroadcastOp>(loc, type.clone(builder.getI1Type()), condition,
                                    builder.getDenseI64ArrayAttr({}));
  return create<arith::SelectOp>(loc, condition, updated, convert(old, type.getElementType()));
}

FailureOr<Value> UpdateBuilder::countUpdate(VariableOp parameter, const ParameterUpdate &choice,
                                            Value condition) {
  if (!choice.hasOwnCount)
    return stepNumber;
  auto type = RankedTensorType::get({}, builder.getI64Type());
  FailureOr<ReadOp> old = declareState(parameter, {"step", type, 0.0}, type);
  if (failed(old))
    return failure();
  Location loc = parameter.getLoc();
  Value one = createSplat(builder, loc, type, 1);
  setPhase(one.getDefiningOp(), Phase::Optimizer);
  Value number = create<arith::AddIOp>(loc, *old, one);
  write(choose(condition, number, *old), old->getVariable(), loc);
  return number;
}

FailureOr<Value> UpdateBuilder::round(VariableOp parameter, Value updated) {
  // Apart from those of the model's own draws, which count from 0.
  constexpr int64_t kFirstId = int64_t(1) << 31;
  RankedTensorType type = parameter.getTensorType();
  if (updated.getType() == type)
    return updated;
  Location loc = parameter.getLoc();
  if (!type.getElementType().isBF16())
    return emitError(loc) << "parameter '" << parameter.getSymName() << "' has elements of "
                          << type.getElementType()
                          << ", to which no update is rounded; keep it in float32 and compute with "
                             "--precision=fp16";
  if (!seed) {
    FailureOr<Value> number = readHyperparameter(loc, "seed", builder.getI64Type(), 0.0);
    if (failed(number))
      return failure();
    seed = *number;
  }
  return Value(create<StochasticRoundOp>(loc, type, updated, seed, stepNumber,
                                         builder.getI64IntegerAttr(kFirstId + roundings++)));
}

LogicalResult UpdateBuilder::update(const UpdateTarget &target) {
  // The update belongs to the module that owns the parameter, wherever the gradient was finished.
  Location loc = target.getLoc();
  const ParameterUpdate &choice = *target.choice;
  RankedTensorType whole = target.type, type = getShardType(whole, choice);
  auto getTensors = [&](const ParameterInfo &of) {
    return getStateTensors(*choice.optimizer, of, choice.settings, choice.stateBits);
  };
  if (failed(readState(target, getTensors, type)))
    return failure();
  Value condition = findCondition(target);
  FailureOr<Value> rate = readRate(loc, choice.rate),
                   number = countUpdate(target.members.front().parameter, choice, condition);
  if (failed(rate) || failed(number))
    return failure();
  SmallVector<Value> operands(state);
  SmallVector<StringRef> inputNames;
  for (const HyperparameterInput &input : choice.inputs) {
    FailureOr<Value> value = readInput(loc, input, *rate);
    if (failed(value))
      return failure();
    operands.push_back(*value);
    inputNames.push_back(input.name);
  }
  SmallVector<Value> parameters;
  for (const UpdateTarget::Member &member : target.members)
    parameters.push_back(takeOld(member.parameter));
  Value old = pack(target, parameters), gradient = target.gradient;
  if (shardRanks > 1)
    old = create<CollectiveOp>(loc, type, CollectiveKind::OwnShard, old, shardRanks);
  if (choice.settings.isOn(kMaximize))
    gradient = create<arith::NegFOp>(loc, gradient);
  auto step = create<OptimizerStepOp>(
      loc, type.clone(getComputeType(type.getElementType())), ValueRange(state).getTypes(), old,
      gradient, *rate, *number, operands, builder.getStringAttr(choice.optimizer->getName()),
      builder.getStrArrayAttr(slots), choice.settings.toAttribute(builder.getContext()),
      inputNames.empty() ? ArrayAttr() : builder.getStrArrayAttr(inputNames));
  Value part = choose(condition, step.getNewParameter(), old), updated = part;
  if (shardRanks > 1)
    updated = create<CollectiveOp>(
        loc, whole.clone(cast<RankedTensorType>(updated.getType()).getElementType()),
        CollectiveKind::AllGather, updated, shardRanks);
  FailureOr<Value> written = writeParameters(target, updated);
  if (failed(written))
    return failure();
  writeState(step, condition);
  if (!average)
    return success();
  return updateAverage(target, shardRanks > 1 ? part : *written, *rate);
}

FailureOr<Value> UpdateBuilder::writeParameters(const UpdateTarget &target, Value updated) {
  Value written;
  for (const UpdateTarget::Member &member : target.members) {
    VariableOp parameter = member.parameter;
    Value own = updated;
    if (target.isUnit())
      own =
          create<UnpackOp>(parameter.getLoc(),
                           parameter.getTensorType().clone(getElementTypeOrSelf(updated.getType())),
                           updated, member.first);
    FailureOr<Value> rounded = round(parameter, own);
    if (failed(rounded))
      return failure();
    written = *rounded;
    write(written, parameter.getSymName(), parameter.getLoc());
  }
  return written;
}

/// Of what this rank has of a parameter: a part of it is not rounded (verifyShared).
LogicalResult UpdateBuilder::updateAverage(const UpdateTarget &target, Value updated, Value rate) {
  Location loc = target.getLoc();
  auto type = cast<RankedTensorType>(updated.getType());
  auto getTensors = [&](const ParameterInfo &of) {
    return getStateTensors(getAverage(), of, *average, /*bits=*/32);
  };
  if (failed(readState(target, getTensors, type)))
    return failure();
  auto step = create<OptimizerStepOp>(
      loc, type.clone(getComputeType(type.getElementType())), ValueRange(state).getTypes(), updated,
      updated, rate, stepNumber, state, builder.getStringAttr(kAverageName),
      builder.getStrArrayAttr(slots), average->toAttribute(builder.getContext()), ArrayAttr());
  writeState(step);
  return success();
}
