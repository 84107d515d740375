//===- LowerToLinalgOptimizers.cpp - optimizer steps --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An update is built by the rule of its optimizer's descriptor.
//
//===----------------------------------------------------------------------===//

#include "LowerToLinalg.h"
#include "memopt/Transforms/Optimizers/Update.h"

using namespace mlir;
using namespace mlir::memopt;

/// Every option of the optimizer has its value, so that a rule finds what it reads.
static LogicalResult checkSettings(OptimizerStepOp op, const Optimizer &optimizer,
                                   const OptimizerSettings &settings) {
  for (const OptimizerOption &option : optimizer.getOptions()) {
    bool isWord = option.kind == OptimizerOption::Choice;
    size_t numbers = isWord ? 0 : option.kind == OptimizerOption::Pair ? 2 : 1;
    if (option.name == "lr" ||
        (settings.has(option.name) && settings.getNumbers(option.name).size() == numbers))
      continue;
    return op.emitOpError() << "needs "
                            << (isWord         ? "a word"
                                : numbers == 2 ? "two numbers"
                                               : "a number")
                            << " for the setting '" << option.name << "' of "
                            << optimizer.getName();
  }
  return success();
}

/// State is as the descriptor asks for it.
static LogicalResult checkState(OptimizerStepOp op, const Optimizer &optimizer,
                                const ParameterInfo &parameter, const OptimizerSettings &settings) {
  auto hasElements = [&](auto isElement) {
    return llvm::any_of(op.getOldState(),
                        [&](Value state) { return isElement(tensorType(state).getElementType()); });
  };
  bool isHalved = settings.has(Update::kStateBits);
  unsigned bits = hasElements([](Type type) { return type.isInteger(8); }) ? (isHalved ? 4 : 8)
                  : isHalved                                               ? 4
                  : hasElements([](Type type) { return type.isBF16(); })   ? 16
                                                                           : 32;
  if (!optimizer.refuseBits(settings, bits).empty())
    return op.emitOpError() << "has state in " << bits << " bits, which " << optimizer.getName()
                            << " does not keep";
  SmallVector<StateTensor> expected = getStateTensors(optimizer, parameter, settings, bits);
  if (expected.size() != op.getState().size())
    return op.emitOpError() << "has " << op.getState().size() << " parts of state, expected "
                            << expected.size() << " for " << optimizer.getName();
  for (auto [tensor, name, value] :
       llvm::zip_equal(expected, op.getState().getAsValueRange<StringAttr>(), op.getOldState()))
    if (tensor.name != name || tensor.type != value.getType())
      return op.emitOpError() << "has the state '" << name << "' of type " << value.getType()
                              << ", expected '" << tensor.name << "' of type " << tensor.type;
  return success();
}

static Lowered lowerOptimizerStep(OptimizerStepOp op, ImplicitLocOpBuilder &b) {
  const Optimizer *optimizer = findOptimizer(op.getOptimizer());
  if (!optimizer)
    return op.emitOpError() << "names no optimizer: '" << op.getOptimizer() << "'";
  ParameterInfo parameter{{""}, ParameterKind::Other, tensorType(op.getParameter())};
  if (optimizer->getSubstitute(parameter))
    return op.emitOpError() << "updates a tensor of type " << parameter.type << ", which "
                            << optimizer->getName() << " does not";
  OptimizerSettings settings = OptimizerSettings::fromAttribute(op.getSettings());
  if (failed(checkSettings(op, *optimizer, settings)) ||
      failed(checkState(op, *optimizer, parameter, settings)))
    return failure();
  Update update(op, *optimizer, b);
  optimizer->build(update);
  return update.finish();
}

void mlir::memopt::populateOptimizerLowerings(LinalgLowerings &lowerings) {
  lowerings.add<OptimizerStepOp>(lowerOptimizerStep);
}
