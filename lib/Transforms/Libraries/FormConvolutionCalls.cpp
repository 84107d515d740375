//===- FormConvolutionCalls.cpp - convolutions to library calls -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Libraries/FormLibraryCalls.h"
#include "memopt/Transforms/Libraries/LibraryCallBuilder.h"
#include "memopt/Transforms/Utils/GenericBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::memopt;

/// Sizes in the order [N, C, spatial...] whatever the layout.
static SmallVector<int64_t> getChannelsFirst(Value value, Layout layout) {
  SmallVector<int64_t> shape(tensorType(value).getShape());
  if (layout == Layout::ChannelsLast)
    std::rotate(shape.begin() + 1, shape.end() - 1, shape.end());
  return shape;
}

template <typename OpType>
static ConvolutionAttr describe(OpType op, ConvolutionKind kind, Value input, Value output,
                                Value weight, bool bias, bool relu, bool accumulate, Type stored) {
  Layout layout = op.getLayout();
  Type type = tensorType(op->getOperand(0)).getElementType();
  SmallVector<int64_t> inputShape = getChannelsFirst(input, layout);
  SmallVector<int64_t> outputShape = getChannelsFirst(output, layout);
  auto emitError = [&] { return op.emitOpError(); };
  return ConvolutionAttr::getChecked(
      function_ref<InFlightDiagnostic()>(emitError), op.getContext(), kind, layout,
      ArrayRef(inputShape), tensorType(weight).getShape(), ArrayRef(outputShape), op.getStrides(),
      op.getPaddingLow(), op.getPaddingHigh(), op.getDilations(), op.getGroupsAttr().getInt(), bias,
      relu, accumulate, /*packed=*/int64_t(0), type, getComputeType(type),
      stored == type ? Type() : stored);
}

/// Lets users widen again what the call stores rounded to `type`.
static Type roundResult(Operation *op, Type type) {
  Value result = op->getResult(0);
  RankedTensorType wide = tensorType(result), narrow = wide.clone(type);
  result.setType(narrow);
  ImplicitLocOpBuilder b(op->getLoc(), op);
  b.setInsertionPointAfter(op);
  AffineMap identity = b.getMultiDimIdentityMap(narrow.getRank());
  Value widened = createPointwise(
      b, narrow.getShape(), Read{result, identity}, wide.getElementType(),
      [&](auto &inner, ValueRange scalars) {
        return SmallVector<Value>{arith::ExtFOp::create(inner, wide.getElementType(), scalars[0])};
      })[0];
  setPhase(widened.getDefiningOp(), getPhase(op));
  result.replaceAllUsesExcept(widened, widened.getDefiningOp());
  return type;
}

template <typename OpType>
static LogicalResult form(OpType op, ConvolutionKind kind, Value input, Value output, Value weight,
                          const VariableWrites &writes = VariableWrites()) {
  LibraryCallBuilder builder(op);
  for (Value operand : op->getOperands())
    builder.addPacked(operand);
  Type type = tensorType(op->getOperand(0)).getElementType();
  bool mayBeWide = type == getComputeType(type) || getTarget(op).storesWideSums();
  std::optional<BiasAddition> bias;
  if (kind == ConvolutionKind::Forward && mayBeWide) {
    int64_t last = tensorType(output).getRank() - 1;
    bias = builder.takeBias(output, op.getLayout() == Layout::ChannelsLast ? last : 1,
                            /*mayReshape=*/false);
  }
  Type stored = builder.takeRounding(bias, type);
  if (stored != type && !mayBeWide)
    stored = roundResult(op, type);
  linalg::GenericOp relu;
  if (kind == ConvolutionKind::Forward)
    relu = findRelu(bias ? bias->add->getResult(0) : output);
  linalg::GenericOp accumulation;
  if (kind == ConvolutionKind::BackwardWeights && getTarget(op).accumulatesConvolutions())
    accumulation = builder.takeAccumulation(/*mayPermute=*/false, writes);
  auto make = [&](bool isRectified) {
    return describe(op, kind, input, output, weight, bias.has_value(), isRectified,
                    accumulation != nullptr, stored);
  };
  ConvolutionAttr call = make(relu != nullptr);
  if (call && relu && !getTarget(op).rectifies(call)) {
    relu = nullptr;
    call = make(false);
  }
  if (!call)
    return failure();
  builder.addResult(op.getResult(), /*mayPermute=*/false);
  FailureOr<LibraryCallOp> made = builder.create(call);
  if (failed(made))
    return failure();
  if (accumulation)
    replaceAccumulation(accumulation, made->getResult(0));
  else if (bias)
    replaceWithBias(*bias, made->getResult(0));
  else
    builder.replaceResult(op->getResult(0), made->getResult(0));
  if (relu) {
    relu->getResult(0).replaceAllUsesWith(made->getResult(0));
    moveActivationNumber(relu, *made);
    relu->erase();
  }
  op->erase();
  return success();
}

LogicalResult mlir::memopt::formConvolutionCall(ConvolutionOp op) {
  return form(op, ConvolutionKind::Forward, op.getInput(), op.getResult(), op.getFilter());
}

LogicalResult mlir::memopt::formConvolutionCall(ConvolutionBackwardDataOp op) {
  return form(op, ConvolutionKind::BackwardData, op.getResult(), op.getGradient(), op.getFilter());
}

LogicalResult mlir::memopt::formConvolutionCall(ConvolutionBackwardWeightsOp op,
                                                const VariableWrites &writes) {
  return form(op, ConvolutionKind::BackwardWeights, op.getInput(), op.getGradient(), op.getResult(),
              writes);
}
