//===- TrainingOps.cpp - optimizers, random bits -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Verification.h"
#include "memopt/Dialect/Memopt.h"

using namespace mlir;
using namespace mlir::memopt;

/// All of `values` have the type of the first; `what` names them in the message.
static LogicalResult verifySameTypes(Operation *op, ValueRange values, StringRef what) {
  for (Value value : values)
    if (value && value.getType() != values.front().getType())
      return op->emitOpError() << what << " must have one type, found " << values.front().getType()
                               << " and " << value.getType();
  return success();
}

static LogicalResult verifyScalars(Operation *op, ValueRange values) {
  for (Value value : values)
    if (tensorType(value).getRank() != 0)
      return op->emitOpError() << "expects a scalar tensor, found " << value.getType();
  return success();
}

/// Where a drawn tensor is a part of a larger one, both its place and the strides there are known.
template <typename OpType> static LogicalResult verifyDraw(OpType op) {
  SmallVector<Value> scalars{op.getSeed(), op.getStep()};
  if (op.getFirst())
    scalars.push_back(op.getFirst());
  if (failed(verifyScalars(op, scalars)))
    return failure();
  std::optional<ArrayRef<int64_t>> strides = op.getStrides();
  if (!op.getFirst() != !strides)
    return op.emitOpError("expects strides exactly when there is a first number");
  int64_t rank = tensorType(op.getResult()).getRank();
  if (strides && (static_cast<int64_t>(strides->size()) != rank ||
                  llvm::any_of(*strides, [](int64_t stride) { return stride < 0; })))
    return op.emitOpError() << "expects one stride, at least 0, for each of " << rank
                            << " dimensions";
  return success();
}

LogicalResult DropoutMaskOp::verify() {
  double probability = getProbability().convertToDouble();
  if (!(probability >= 0.0 && probability < 1.0))
    return emitOpError() << "probability must lie in [0, 1), found " << probability;
  return verifyDraw(*this);
}

LogicalResult RandomOp::verify() { return verifyDraw(*this); }

LogicalResult StochasticRoundOp::verify() {
  if (failed(verifyShape(*this, "result", tensorType(getInput()).getShape(), getResult())))
    return failure();
  return verifyScalars(*this, {getSeed(), getStep()});
}

LogicalResult OptimizerStepOp::verify() {
  if (failed(verifySameTypes(*this, {getParameter(), getGradient()}, "parameter and gradient")) ||
      failed(verifyProductTypes(*this, {getParameter()}, getNewParameter())) ||
      failed(verifyShape(*this, "new parameter", tensorType(getParameter()).getShape(),
                         getNewParameter())))
    return failure();
  size_t inputs = getInputs() ? getInputs()->size() : 0, given = getStateAndInputs().size();
  if (given != getState().size() + inputs || getOldState().getTypes() != getNewState().getTypes())
    return emitOpError() << "names " << getState().size() << " parts of state, takes "
                         << int64_t(given) - int64_t(inputs) << " and gives "
                         << getNewState().size() << ", which must agree in number and types";
  SmallVector<Value> scalars{getLearningRate(), getStep()};
  for (Value input : getStateAndInputs().drop_front(getState().size())) {
    if (!tensorType(input).getElementType().isF64())
      return emitOpError() << "has a hyperparameter of type " << input.getType()
                           << ", expected tensor<f64>";
    scalars.push_back(input);
  }
  return verifyScalars(*this, scalars);
}

Value OptimizerStepOp::getInput(StringRef name) {
  if (getInputs())
    for (auto [number, input] : llvm::enumerate(getInputs()->getAsValueRange<StringAttr>()))
      if (input == name)
        return getStateAndInputs()[getState().size() + number];
  return {};
}

LogicalResult GlobalNormOp::verify() { return verifyScalars(*this, {getResult()}); }

SmallVector<InPlaceOperand> AccumulateOp::getInPlaceOperands(unsigned) {
  return {{0, /*byRow=*/false}};
}

static int64_t countElements(Operation *op) {
  int64_t elements = 0;
  for (Value operand : op->getOperands())
    elements += tensorType(operand).getNumElements();
  return elements;
}

/// Ten rounds of two wide multiplications and four logical operations.
int64_t DropoutMaskOp::getFlops() { return 20 * tensorType(getResult()).getNumElements(); }
int64_t StochasticRoundOp::getFlops() { return 25 * tensorType(getResult()).getNumElements(); }
int64_t RandomOp::getFlops() { return 60 * tensorType(getResult()).getNumElements(); }
ScalarCost RandomWordOp::getScalarCost() { return ScalarCost::Series; }
int64_t OptimizerStepOp::getFlops() { return 4 * countElements(*this); }
int64_t GlobalNormOp::getFlops() { return 2 * countElements(*this); }
int64_t AccumulateOp::getFlops() { return tensorType(getResult()).getNumElements(); }
