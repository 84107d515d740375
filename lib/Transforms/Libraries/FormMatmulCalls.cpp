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

//===----------------------------------------------------------------------===//
// Lines of matrices
//===----------------------------------------------------------------------===//

/// Elements at whose multiples lines of matrices begin: a device's tensor cores are fed with 16
/// bytes at a time. Products too small to be theirs gain nothing.
static int64_t getLineUnit(MatmulOp op) {
  constexpr int64_t kSmall = 64;
  TargetAttrInterface target = getTarget(op);
  RankedTensorType a = tensorType(op.getA());
  ArrayRef<int64_t> result = tensorType(op.getResult()).getShape();
  int64_t k = op.getTransposeA() ? a.getShape()[a.getRank() - 2] : a.getShape().back();
  bool isSmall = std::min({k, result.back(), result[result.size() - 2]}) < kSmall;
  bool isNarrow = a.getElementType().getIntOrFloatBitWidth() == 16;
  return target.isDevice() && isNarrow && !isSmall ? target.getLeastAlignment() / 2 : 1;
}

/// Whether all users read through strides: longer lines are seen nowhere else.
static bool isReadThroughStrides(Value value) {
  return llvm::all_of(value.getUsers(), [](Operation *user) {
    if (isReshape(user) || isa<TransposeOp>(user))
      return isReadThroughStrides(user->getResult(0));
    return isa<linalg::GenericOp, MatmulOp>(user);
  });
}

/// What a kernel of the step stores for a product, as long lines as the library wants.
static void padLinesOf(Value matrix, int64_t unit) {
  Value root = matrix;
  while (Operation *view = root.getDefiningOp()) {
    if (!isa<TransposeOp>(view) && !isReshape(view))
      break;
    root = view->getOperand(0);
  }
  RankedTensorType type = tensorType(root);
  auto maker = root.getDefiningOp<linalg::GenericOp>();
  SmallVector<int64_t> shape = padLines(type.getShape(), unit);
  if (!maker || ArrayRef(shape) == type.getShape() || !isReadThroughStrides(root))
    return;
  OpBuilder b(maker->getContext());
  b.setInsertionPointAfter(maker);
  SmallVector<int64_t> low(shape.size(), 0), high(shape.size(), 0);
  high.back() = shape.back() - type.getShape().back();
  auto padded = PadOp::create(b, root.getLoc(), type.clone(shape), root, low, high);
  Value lines = cutLines(b, padded, type.getShape());
  for (Operation *made : {padded.getOperation(), lines.getDefiningOp()})
    setPhase(made, getPhase(maker));
  root.replaceAllUsesExcept(lines, padded);
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

LogicalResult mlir::memopt::formMatmulCall(MatmulOp op) {
  int64_t unit = getLineUnit(op);
  padLinesOf(op.getA(), unit);
  padLinesOf(op.getB(), unit);
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
  Value last = op.getResult();
  if (bias)
    last = bias->getLast()->getResult(0);
  bool isPadded = stored == type && !accumulation && isReadThroughStrides(last);
  SmallVector<int64_t> cStrides =
      builder.addResult(op.getResult(), /*mayPermute=*/!bias, isPadded ? unit : 1);
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
    replaceWithBias(*bias, builder.getResult(*made));
  else
    builder.replaceResult(op->getResult(0), builder.getResult(*made));
  op->erase();
  return success();
}
