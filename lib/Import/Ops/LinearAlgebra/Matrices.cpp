//===- Matrices.cpp - formulas over matrices --------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Ops/LinearAlgebra/Matrices.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::memopt::ReduceKind;
using Builder = mlir::ImplicitLocOpBuilder;

//===----------------------------------------------------------------------===//
// Arguments and results
//===----------------------------------------------------------------------===//

Expected<Element> memopt::pt2::getMatrices(OpContext &op, const Tensor &tensor) {
  if (!isFloat(tensor.dtype) || tensor.rank() < 2 || tensor.getNumElements() == 0)
    return op.error("expected floating-point matrices with elements, found " +
                    getName(tensor.dtype) + toString(tensor.sizes));
  ArrayRef<int64_t> sizes(tensor.sizes);
  int64_t each = sizes[sizes.size() - 1] * sizes[sizes.size() - 2];
  Value value = op.get(tensor);
  return Element(op.b, reshapeValue(op.b, value,
                                    {tensor.getNumElements() / each, sizes[sizes.size() - 2],
                                     sizes[sizes.size() - 1]}));
}

Expected<Element> memopt::pt2::getMatrices(OpContext &op, StringRef parameter) {
  return getMatrices(op, op.tensor(parameter));
}

Expected<Element> memopt::pt2::getSquare(OpContext &op, StringRef parameter) {
  ASSIGN_OR_RETURN(Element a, getMatrices(op, parameter));
  if (countRows(a) != countColumns(a))
    return op.error("argument '" + parameter + "': expected square matrices, found " +
                    toString(op.tensor(parameter).sizes));
  return a;
}

Expected<Element> memopt::pt2::getForSingularValues(OpContext &op, StringRef parameter) {
  ASSIGN_OR_RETURN(Element a, getMatrices(op, parameter));
  RETURN_IF_ERROR(checkRows(op, a, kMostTurned, "the singular values"));
  return a;
}

Expected<Tensor> memopt::pt2::asColumns(OpContext &op, const Tensor &vectors) {
  Shape sizes(vectors.sizes);
  sizes.push_back(1);
  return reshape(op, vectors, sizes);
}

Expected<std::pair<Element, Element>> memopt::pt2::getTogether(OpContext &op, const Tensor &a,
                                                               const Tensor &b) {
  if (a.rank() < 2 || b.rank() < 2 || a.dtype != b.dtype)
    return op.error("expected matrices of one type, found " + getName(a.dtype) + toString(a.sizes) +
                    " and " + getName(b.dtype) + toString(b.sizes));
  ASSIGN_OR_RETURN(Shape batch, broadcastShapes(op, ArrayRef(a.sizes).drop_back(2),
                                                ArrayRef(b.sizes).drop_back(2)));
  auto widen = [&](const Tensor &tensor) -> Expected<Element> {
    Shape sizes(batch);
    sizes.append(tensor.sizes.end() - 2, tensor.sizes.end());
    ASSIGN_OR_RETURN(Tensor wide, expand(op, tensor, sizes));
    return getMatrices(op, wide);
  };
  ASSIGN_OR_RETURN(Element left, widen(a));
  ASSIGN_OR_RETURN(Element right, widen(b));
  return std::pair(left, right);
}

Error memopt::pt2::setMatrices(OpContext &op, size_t place, Element value) {
  const TensorMeta &meta = op.resultMeta(place);
  ASSIGN_OR_RETURN(Tensor shaped, reshape(op, op.wrap(meta.dtype, value), meta.sizes));
  op.setResult(place, op.copy(shaped));
  return Error::success();
}

void memopt::pt2::setInfo(OpContext &op, size_t place) {
  op.setResult(place, splat(op.b, op.resultType(place), 0.0));
}

Error memopt::pt2::checkRows(OpContext &op, Element a, int64_t most, StringRef what) {
  int64_t rows = std::min(countRows(a), countColumns(a)),
          longer = std::max(countRows(a), countColumns(a));
  bool isLong = longer > mlir::memopt::kMaxMatrixExtent;
  if (hasLibrary(a))
    most = mlir::memopt::kMaxMatrixSquare;
  if (rows <= most && !isLong)
    return Error::success();
  return op.error(what + " of a matrix of " + Twine(isLong ? longer : rows) +
                  " rows is not supported, only up to " +
                  Twine(isLong ? mlir::memopt::kMaxMatrixExtent : most) +
                  (hasLibrary(a) ? "" : " on this target") +
                  "; compute it outside of the step and pass the result as an input or a buffer");
}

//===----------------------------------------------------------------------===//
// Parts
//===----------------------------------------------------------------------===//

ArrayRef<int64_t> memopt::pt2::sizesOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

static Element numbersAlong(Element like, int64_t dimension) {
  Builder &b = like.getBuilder();
  auto type = RankedTensorType::get(sizesOf(like), b.getI64Type());
  return {b, mlir::memopt::IotaOp::create(b, type, dimension)};
}
Element memopt::pt2::rowNumbers(Element like) { return numbersAlong(like, 1); }
Element memopt::pt2::columnNumbers(Element like) { return numbersAlong(like, 2); }

Element memopt::pt2::over(Element part, Element whole) {
  Builder &b = whole.getBuilder();
  return {b, broadcastValue(b, part, sizesOf(whole))};
}

Element memopt::pt2::turn(Element a) {
  return {a.getBuilder(), transposeValue(a.getBuilder(), a, {0, 2, 1})};
}

std::pair<Value, bool> memopt::pt2::readThrough(Value value) {
  auto transpose = value.getDefiningOp<mlir::memopt::TransposeOp>();
  if (transpose && transpose.getPermutation() == ArrayRef<int64_t>{0, 2, 1})
    return {transpose.getInput(), true};
  return {value, false};
}

Element memopt::pt2::product(Element a, Element b) {
  Builder &builder = a.getBuilder();
  auto type = RankedTensorType::get({sizesOf(a)[0], countRows(a), countColumns(b)},
                                    mlir::getElementTypeOrSelf(a.getType()));
  auto [left, turnLeft] = readThrough(a);
  auto [right, turnRight] = readThrough(b);
  return {builder, mlir::memopt::MatmulOp::create(builder, type, left, right, turnLeft, turnRight)};
}

Element memopt::pt2::outerProduct(Element a, Element b) {
  if (countColumns(a) != 1)
    return product(a, b);
  auto widen = [&](Element part) -> Element {
    Builder &builder = part.getBuilder();
    return {builder, broadcastValue(builder, part, {sizesOf(a)[0], countRows(a), countColumns(b)})};
  };
  return widen(a) * widen(b);
}

Element memopt::pt2::identityLike(Element a) {
  return select(equals(rowNumbers(a), columnNumbers(a)), a.like(1), a.like(0));
}

Element memopt::pt2::makeIdentity(Element like, int64_t rows, int64_t columns) {
  Builder &b = like.getBuilder();
  auto type = RankedTensorType::get({sizesOf(like)[0], rows, columns},
                                    mlir::getElementTypeOrSelf(like.getType()));
  return identityLike({b, splat(b, type, 0.0)});
}

Element memopt::pt2::lowerPart(Element a, int64_t less) {
  return select(lessOrEqual(columnNumbers(a) + double(less), rowNumbers(a)), a, 0.0);
}
Element memopt::pt2::upperPart(Element a, int64_t less) {
  return select(lessOrEqual(rowNumbers(a) + double(less), columnNumbers(a)), a, 0.0);
}

Element memopt::pt2::mirrorLower(Element a) { return lowerPart(a) + turn(lowerPart(a, 1)); }

Element memopt::pt2::diagonalOf(Element a) {
  return total(select(equals(rowNumbers(a), columnNumbers(a)), a, 0.0), 1);
}

Element memopt::pt2::diagonalMatrix(Element row) {
  Builder &b = row.getBuilder();
  int64_t n = countColumns(row);
  Element whole(b, broadcastValue(b, row, {sizesOf(row)[0], n, n}));
  return select(equals(rowNumbers(whole), columnNumbers(whole)), whole, 0.0);
}

Element memopt::pt2::total(Element a, ArrayRef<int64_t> dimensions, ReduceKind kind) {
  return {a.getBuilder(), reduceValue(a.getBuilder(), a, kind, dimensions, /*keep=*/true)};
}
Element memopt::pt2::largest(Element a, ArrayRef<int64_t> dimensions) {
  return total(a, dimensions, ReduceKind::Max);
}

Element memopt::pt2::take(Element a, int64_t dimension, int64_t first, int64_t count) {
  Shape sizes(sizesOf(a));
  if (sizes[dimension] == count)
    return a;
  Builder &b = a.getBuilder();
  sizes[dimension] = count;
  SmallVector<mlir::OpFoldResult> offsets(sizes.size(), b.getIndexAttr(0)), counts,
      strides(sizes.size(), b.getIndexAttr(1));
  offsets[dimension] = b.getIndexAttr(first);
  for (int64_t size : sizes)
    counts.push_back(b.getIndexAttr(size));
  return {b, mlir::tensor::ExtractSliceOp::create(b, a, offsets, counts, strides)};
}

Element memopt::pt2::join(Element a, Element b, int64_t dimension) {
  Builder &builder = a.getBuilder();
  return {builder,
          mlir::tensor::ConcatOp::create(builder, dimension, mlir::ValueRange{a, b}).getResult()};
}

Element memopt::pt2::padTo(Element a, int64_t rows, int64_t columns) {
  Builder &b = a.getBuilder();
  for (auto [dimension, size] : {std::pair<int64_t, int64_t>(1, rows), {2, columns}}) {
    Shape more(sizesOf(a));
    more[dimension] = size - more[dimension];
    auto type = RankedTensorType::get(more, mlir::getElementTypeOrSelf(a.getType()));
    if (more[dimension] > 0)
      a = join(a, {b, splat(b, type, 0.0)}, dimension);
  }
  return a;
}

//===----------------------------------------------------------------------===//
// Library calls
//===----------------------------------------------------------------------===//

bool memopt::pt2::hasLibrary(Element a) {
  mlir::Operation *parent = a.getBuilder().getInsertionBlock()->getParentOp();
  auto module = parent->getParentOfType<mlir::ModuleOp>();
  auto target = module ? module->getAttrOfType<mlir::memopt::TargetAttrInterface>(
                             mlir::memopt::MemoptDialect::kTargetAttr)
                       : nullptr;
  return !target || target.computesLinearAlgebra();
}

/// The results' types are those of a library call's views.
Matrices memopt::pt2::compute(mlir::memopt::LinearAlgebraKind kind, Elements inputs,
                              SolveFlags flags) {
  Builder &b = inputs.front().getBuilder();
  ArrayRef<int64_t> sizes = sizesOf(inputs.front());
  ArrayRef<int64_t> last = sizesOf(inputs.back()).drop_back(flags.pairs);
  int64_t width = inputs.size() == 1 ? 0 : flags.right ? last[last.size() - 2] : last.back();
  auto call = mlir::memopt::LinearAlgebraAttr::get(
      b.getContext(), kind, sizes[0], sizes[1], sizes[2], width, flags.upper, flags.unit,
      flags.transposed, flags.right, flags.pairs,
      mlir::getElementTypeOrSelf(inputs.front().getType()));
  SmallVector<mlir::Type> types;
  for (const mlir::memopt::BufferView &view :
       ArrayRef(call.getViews()).drop_front(call.getNumOperands()))
    types.push_back(RankedTensorType::get(view.extents, view.elementType));
  SmallVector<Value> operands(inputs.begin(), inputs.end());
  auto op = mlir::memopt::LinearAlgebraOp::create(b, types, operands, kind, flags.upper, flags.unit,
                                                  flags.transposed, flags.right, flags.pairs);
  Matrices results;
  for (Value value : op.getResults())
    results.push_back({b, value});
  return results;
}

Element memopt::pt2::numbersAsRow(Element numbers) {
  ArrayRef<int64_t> sizes = sizesOf(numbers);
  return {numbers.getBuilder(),
          reshapeValue(numbers.getBuilder(), numbers, {sizes[0], 1, sizes[1]})};
}
Element memopt::pt2::numbersAsColumn(Element numbers) {
  ArrayRef<int64_t> sizes = sizesOf(numbers);
  return {numbers.getBuilder(),
          reshapeValue(numbers.getBuilder(), numbers, {sizes[0], sizes[1], 1})};
}

//===----------------------------------------------------------------------===//
// Loops and gradients
//===----------------------------------------------------------------------===//

Element memopt::pt2::asSlices(Element a) {
  return {a.getBuilder(), transposeValue(a.getBuilder(), a, {1, 0, 2})};
}

Element memopt::pt2::asRow(Element slice) {
  ArrayRef<int64_t> sizes = sizesOf(slice);
  return {slice.getBuilder(), reshapeValue(slice.getBuilder(), slice, {sizes[0], 1, sizes[1]})};
}

Element memopt::pt2::fromSlices(Element slices) {
  Builder &b = slices.getBuilder();
  ArrayRef<int64_t> sizes = sizesOf(slices); // [rows, batch, 1, columns]
  Value rows = reshapeValue(b, slices, {sizes[0], sizes[1], sizes[2] * sizes[3]});
  return {b, transposeValue(b, rows, {1, 0, 2})};
}

Matrices memopt::pt2::withBackward(Elements values, Elements inputs,
                                   function_ref<Matrices(Elements)> backward) {
  Builder &b = values.front().getBuilder();
  SmallVector<Value> forward(values.begin(), values.end()), reaching;
  Matrices incoming;
  for (auto [number, value] : enumerate(forward)) {
    reaching.push_back(
        mlir::memopt::IncomingGradientOp::create(b, value, b.getI64IntegerAttr(number)));
    incoming.push_back({b, reaching.back()});
  }
  SmallVector<Value> from(inputs.begin(), inputs.end()), gradients;
  for (Element gradient : backward(incoming))
    gradients.push_back(gradient);
  auto marked = mlir::memopt::CustomGradientOp::create(b, mlir::ValueRange(forward).getTypes(),
                                                       forward, reaching, from, gradients);
  Matrices results;
  for (Value value : marked.getResults())
    results.push_back({b, value});
  return results;
}
