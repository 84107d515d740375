//===- FormMatmulCalls.cpp - products to library calls ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Libraries/CountedLines.h"
#include "memopt/Transforms/Libraries/FormLibraryCalls.h"
#include "memopt/Transforms/Libraries/LibraryCallBuilder.h"
#include "memopt/Transforms/Utils/TokenTiles.h"

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

namespace {
/// The value that a matrix is a view of, and a dimension of the matrix in it.
struct RootDimension {
  Value root;
  std::optional<int64_t> dim; ///< none where a reshape joins it with others
};
} // namespace

/// What a dimension of a matrix is in the value behind transposes and reshapes.
static RootDimension findRoot(Value matrix, std::optional<int64_t> dim) {
  while (Operation *view = matrix.getDefiningOp()) {
    if (auto transpose = dyn_cast<TransposeOp>(view)) {
      if (dim)
        dim = transpose.getPermutation()[*dim];
    } else if (isReshape(view)) {
      ArrayRef<int64_t> from = tensorType(view->getOperand(0)).getShape(),
                        to = tensorType(matrix).getShape();
      bool staysLast = dim && *dim + 1 == static_cast<int64_t>(to.size()) && !from.empty() &&
                       from.back() == to.back();
      dim = staysLast ? std::optional(static_cast<int64_t>(from.size()) - 1) : std::nullopt;
    } else {
      break;
    }
    matrix = view->getOperand(0);
  }
  return RootDimension{matrix, dim};
}

/// What a kernel of the step stores for a product, with lines as long as the library wants, and
/// zeros behind the end of these dimensions of the matrix, so that products may go on to a multiple
/// of `unit`: libraries have fast kernels for such extents alone.
static void padMatrix(Value matrix, ArrayRef<int64_t> dims, int64_t unit) {
  if (unit == 1)
    return;
  Value root = findRoot(matrix, std::nullopt).root;
  RankedTensorType type = tensorType(root);
  auto maker = root.getDefiningOp<linalg::GenericOp>();
  if (!maker || type.getRank() == 0)
    return;
  SmallVector<int64_t> shape = padLines(type.getShape(), unit);
  for (int64_t dim : dims)
    if (std::optional<int64_t> place = findRoot(matrix, dim).dim)
      shape[*place] = static_cast<int64_t>(llvm::alignTo(shape[*place], unit));
  if (ArrayRef(shape) == type.getShape() || !isReadThroughStrides(root))
    return;
  OpBuilder b(maker->getContext());
  b.setInsertionPointAfter(maker);
  SmallVector<int64_t> low(shape.size(), 0), high;
  for (auto [padded, extent] : llvm::zip_equal(shape, type.getShape()))
    high.push_back(padded - extent);
  auto padded = PadOp::create(b, root.getLoc(), type.clone(shape), root, low, high);
  Value lines = cutLines(b, padded, type.getShape());
  for (Operation *made : {padded.getOperation(), lines.getDefiningOp()}) {
    setPhase(made, getPhase(maker));
    // In the maker's kernel, which stores the zeros too.
    if (Attribute tile = maker->getDiscardableAttr(kTileAttr))
      made->setDiscardableAttr(kTileAttr, tile);
  }
  root.replaceAllUsesExcept(lines, padded);
}

/// How far a dimension of a matrix goes on with zeros in the buffer that it is a view of.
static int64_t getPaddedExtent(Value matrix, int64_t dim) {
  int64_t extent = tensorType(matrix).getDimSize(dim);
  auto [root, place] = findRoot(matrix, dim);
  auto cut = place ? root.getDefiningOp<tensor::ExtractSliceOp>() : nullptr;
  auto padded = cut ? cut.getSource().getDefiningOp<PadOp>() : nullptr;
  if (!padded || llvm::any_of(cut.getStaticOffsets(), [](int64_t offset) { return offset != 0; }) ||
      llvm::any_of(padded.getLow(), [](int64_t low) { return low != 0; }) ||
      padded.getType().getDimSize(*place) - padded.getHigh()[*place] != extent)
    return extent;
  return padded.getType().getDimSize(*place);
}

//===----------------------------------------------------------------------===//
// Lines that count
//===----------------------------------------------------------------------===//

namespace {
/// What a product multiplies, and the mask of the rows or terms that it has to.
struct CountedProduct {
  Value a, b, mask;
  bool countsRows = false;
};
} // namespace

/// Processors go from row to row in any order; a device computes tiles of them.
static CountedProduct findCounted(MatmulOp op) {
  CountedProduct product{op.getA(), op.getB(), Value()};
  RankedTensorType type = tensorType(op.getA());
  if (type.getRank() != 2 || type.getElementType() != getComputeType(type.getElementType()) ||
      getTarget(op).isDevice())
    return product;
  int64_t aRows = op.getTransposeA() ? 1 : 0, bTerms = op.getTransposeB() ? 1 : 0;
  product.mask = findCountedLines(product.a, aRows);
  product.countsRows = product.mask != nullptr;
  if (product.countsRows) {
    product.a = getUncounted(product.a, aRows, product.mask);
    return product;
  }
  product.mask = findCountedLines(product.a, 1 - aRows);
  if (!product.mask)
    product.mask = findCountedLines(product.b, bTerms);
  if (product.mask) {
    product.a = getUncounted(product.a, 1 - aRows, product.mask);
    product.b = getUncounted(product.b, bTerms, product.mask);
  }
  return product;
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

LogicalResult mlir::memopt::formMatmulCall(MatmulOp op, const VariableWrites &writes) {
  int64_t unit = getLineUnit(op);
  RankedTensorType result = tensorType(op.getResult());
  ArrayRef<int64_t> shape = result.getShape(), a = tensorType(op.getA()).getShape();
  int64_t last2 = result.getRank() - 2, last1 = result.getRank() - 1;
  int64_t aSums = op.getTransposeA() ? last2 : last1, bSums = op.getTransposeB() ? last1 : last2,
          bColumns = op.getTransposeB() ? last2 : last1;
  padMatrix(op.getA(), aSums, unit);
  padMatrix(op.getB(), {bSums, bColumns}, unit);
  // Sums go on over zeros where both operands have them.
  int64_t k = std::max(
      a[aSums], std::min(getPaddedExtent(op.getA(), aSums), getPaddedExtent(op.getB(), bSums)));
  LibraryCallBuilder builder(op);
  CountedProduct product = findCounted(op);
  SmallVector<int64_t> aStrides = addMatrix(builder, product.a, op.getTransposeA());
  SmallVector<int64_t> bStrides = addMatrix(builder, product.b, op.getTransposeB());
  Type type = tensorType(op.getA()).getElementType();
  std::optional<BiasAddition> bias;
  if (type == getComputeType(type) || getTarget(op).storesWideSums())
    bias = builder.takeBias(op.getResult(), shape.size() - 1, /*mayReshape=*/true);
  else
    bias = builder.takeRoundedBias(op.getResult(), shape.size() - 1, type);
  if (product.mask)
    builder.addPacked(product.mask);
  Type stored = builder.takeRounding(bias, type);
  linalg::GenericOp accumulation =
      bias ? nullptr : builder.takeAccumulation(/*mayPermute=*/true, writes);
  Value last = op.getResult();
  if (bias)
    last = bias->getLast()->getResult(0);
  bool isCut = isReadThroughStrides(last), isPadded = stored == type && !accumulation && isCut;
  // Rows behind the last are sums of zeros, too. A sum goes on with as many as it has so far.
  int64_t m = shape[last2],
          rows = isCut && shape.size() == 2
                     ? getPaddedExtent(op.getA(), op.getTransposeA() ? last1 : last2)
                     : m;
  if (accumulation && builder.getLastOperandType().getShape().front() != rows)
    rows = m;
  SmallVector<int64_t> cStrides =
      builder.addResult(op.getResult(), /*mayPermute=*/!bias, isPadded ? unit : 1, rows);
  if (cStrides.back() == 1)
    m = rows;
  // Columns behind the last are sums of zeros, in what the result's lines have there anyway.
  int64_t n = shape.back(), columns = getPaddedExtent(op.getB(), bColumns);
  if (cStrides.back() == 1 && cStrides[last2] >= columns && isPadded)
    n = columns;
  auto emitError = [&] { return op.emitOpError(); };
  auto call = MatmulAttr::getChecked(
      function_ref<InFlightDiagnostic()>(emitError), op.getContext(), shape.drop_back(2), m, n, k,
      ArrayRef(aStrides), ArrayRef(bStrides), ArrayRef(cStrides), bias.has_value(),
      accumulation != nullptr, type, getComputeType(type), stored == type ? Type() : stored,
      bias && bias->isRounded, product.countsRows, product.mask && !product.countsRows, int64_t(0));
  if (!call)
    return failure();
  FailureOr<LibraryCallOp> made = builder.create(call);
  if (failed(made))
    return failure();
  if (accumulation)
    replaceAccumulation(accumulation, builder.getResult(*made));
  else if (bias)
    replaceWithBias(*bias, builder.getResult(*made));
  else
    builder.replaceResult(op->getResult(0), builder.getResult(*made));
  op->erase();
  return success();
}
