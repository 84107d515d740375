//===- FormMatmulCalls.cpp - products to library calls ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Libraries/FormLibraryCalls.h"
#include "memopt/Transforms/Libraries/LibraryCallBuilder.h"

using namespace mlir;
using namespace mlir::memopt;

/// A matrix whose strides the target's library does not read is gathered first.
static StridedView getMatrixView(Value value, TargetAttrInterface target) {
  StridedView view = getStridedView(value);
  size_t row = view.shape.size() - 2, column = view.shape.size() - 1;
  bool isReadable = target.canReadMatrix(view.strides[row], view.strides[column]) ||
                    view.shape[column] == 1 || view.shape[row] == 1;
  return isReadable ? view : getPackedView(value);
}

/// Strides of the matrix, transposed ones exchanged.
static SmallVector<int64_t> addMatrix(LibraryCallBuilder &builder, Value value, bool transposed) {
  StridedView view = getMatrixView(value, getTarget(value.getParentBlock()->getParentOp()));
  builder.addOperand(view);
  if (transposed)
    std::swap(view.strides[view.strides.size() - 1], view.strides[view.strides.size() - 2]);
  return view.strides;
}

LogicalResult mlir::memopt::formMatmulCall(MatmulOp op) {
  LibraryCallBuilder builder(op);
  RankedTensorType result = tensorType(op.getResult());
  ArrayRef<int64_t> shape = result.getShape(), a = tensorType(op.getA()).getShape();
  int64_t k = op.getTransposeA() ? a[a.size() - 2] : a.back();
  SmallVector<int64_t> aStrides = addMatrix(builder, op.getA(), op.getTransposeA());
  SmallVector<int64_t> bStrides = addMatrix(builder, op.getB(), op.getTransposeB());
  Type type = tensorType(op.getA()).getElementType();
  std::optional<BiasAddition> bias;
  if (type == getComputeType(type) || getTarget(op).storesWideSums())
    bias = builder.takeBias(op.getResult(), shape.size() - 1, /*mayReshape=*/true);
  Type stored = builder.takeRounding(bias, type);
  linalg::GenericOp accumulation = bias ? nullptr : builder.takeAccumulation(/*mayPermute=*/true);
  SmallVector<int64_t> cStrides = builder.addResult(op.getResult(), /*mayPermute=*/!bias);
  auto emitError = [&] { return op.emitOpError(); };
  auto call = MatmulAttr::getChecked(function_ref<InFlightDiagnostic()>(emitError), op.getContext(),
                                     shape.drop_back(2), shape[shape.size() - 2], shape.back(), k,
                                     ArrayRef(aStrides), ArrayRef(bStrides), ArrayRef(cStrides),
                                     bias.has_value(), accumulation != nullptr, type,
                                     getComputeType(type), stored == type ? Type() : stored);
  if (!call)
    return failure();
  FailureOr<LibraryCallOp> made = builder.create(call);
  if (failed(made))
    return failure();
  if (accumulation)
    replaceAccumulation(accumulation, made->getResult(0));
  else if (bias)
    replaceWithBias(*bias, made->getResult(0));
  else
    builder.replaceResult(op->getResult(0), made->getResult(0));
  op->erase();
  return success();
}
