//===- LiveElementsZeros.cpp - where values are zero ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LiveElements.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::memopt;
using tensor::CollapseShapeOp;
using tensor::ConcatOp;
using tensor::ExpandShapeOp;
using tensor::ExtractSliceOp;

static ArrayRef<int64_t> getShape(Value value) { return tensorType(value).getShape(); }

Box LiveElements::getSupport(Value value) const {
  auto known = support.find(value);
  return known == support.end() ? getWholeBox(getShape(value)) : known->second;
}

static bool areFinite(DenseElementsAttr numbers) {
  if (numbers.isSplat())
    return numbers.getSplatValue<APFloat>().isFinite();
  return llvm::all_of(numbers.getValues<APFloat>(),
                      [](const APFloat &number) { return number.isFinite(); });
}

/// Whether a product with zeros is zero: a constant of the model without infinities.
bool LiveElements::isFinite(Value value) const {
  Operation *op = value.getDefiningOp();
  if (auto read = dyn_cast_or_null<ReadOp>(op))
    return isFiniteVariable(read);
  if (isa_and_nonnull<ExtractSliceOp, CollapseShapeOp, ExpandShapeOp, TransposeOp, BroadcastOp,
                      ReverseOp>(op))
    return isFinite(op->getOperand(0));
  DenseFPElementsAttr numbers;
  return matchPattern(value, m_Constant(&numbers)) && areFinite(numbers);
}

/// Nobody knows it by a name, so nobody writes to it.
bool LiveElements::isFiniteVariable(ReadOp read) const {
  if (auto known = finite.find(read.getVariableAttr().getAttr()); known != finite.end())
    return known->second;
  auto variable = symbols.lookup<VariableOp>(read.getVariable());
  if (!variable || variable.getRole() != Role::Buffer || variable.getTrainable() ||
      !variable.getNames() || !variable.getNamesAttr().empty() || !variable.getInitial())
    return false;
  if (llvm::any_of(block.getOps<WriteOp>(),
                   [&](WriteOp write) { return write.getVariable() == read.getVariable(); }))
    return false;
  auto type = cast<RankedTensorType>(variable.getInitial()->getType());
  auto dense = dyn_cast<DenseElementsAttr>(*variable.getInitial());
  size_t bytes = type.getNumElements() * type.getElementTypeBitWidth() / CHAR_BIT;
  if (auto resource = dyn_cast<DenseResourceElementsAttr>(*variable.getInitial()))
    if (AsmResourceBlob *blob = resource.getRawHandle().getBlob();
        blob && isa<Float32Type, Float64Type>(type.getElementType()) &&
        blob->getData().size() == bytes)
      dense = DenseElementsAttr::getFromRawBuffer(type, blob->getData());
  bool isFinite = dense && isa<FloatType>(type.getElementType()) && areFinite(dense);
  finite[read.getVariableAttr().getAttr()] = isFinite;
  return isFinite;
}

/// Of an op that makes a zero of zeros, what its operands let through.
std::optional<Box> LiveElements::passZeros(Operation *op) const {
  SmallVector<Value> operands(op->getOperands());
  if (isa<arith::MulFOp>(op)) {
    if (isFinite(operands[1]))
      operands.pop_back();
    else if (isFinite(operands[0]))
      operands.erase(operands.begin());
  } else if (auto reduce = dyn_cast<ReduceOp>(op);
             !isa<arith::AddFOp, arith::SubFOp, arith::NegFOp, arith::ExtFOp, arith::TruncFOp,
                  TransposeOp, BroadcastOp, StopGradientOp>(op) &&
             !(reduce && reduce.getKind() == ReduceKind::Add)) {
    return std::nullopt;
  }
  CuttableLoops loops(cast<IterationOpInterface>(op));
  ArrayRef<int64_t> shape = getShape(op->getResult(0));
  Box result = getEmptyBox(shape);
  for (auto [number, value] : llvm::enumerate(op->getOperands())) {
    Box box = getSupport(value);
    if (!llvm::is_contained(operands, value) || isEmpty(box))
      continue;
    Box reached = getWholeBox(shape);
    for (size_t dim = 0; dim < box.size(); ++dim)
      for (size_t to = 0; to < shape.size(); ++to)
        if (auto loop = loops.find(number, dim);
            loop && loop == loops.find(loops.space.maps.size() - 1, to))
          reached[to] = box[dim];
    result = unite(result, reached);
  }
  return result;
}

/// Rows of zeros times finite columns are zeros.
std::optional<Box> LiveElements::passZerosOfProduct(Operation *op) const {
  CuttableLoops loops(cast<IterationOpInterface>(op));
  Box result = getWholeBox(getShape(op->getResult(0)));
  for (unsigned number : {0, 1}) {
    if (!isFinite(op->getOperand(1 - number)))
      continue;
    Box box = getSupport(op->getOperand(number));
    if (isEmpty(box))
      return getEmptyBox(getShape(op->getResult(0)));
    for (size_t dim = 0; dim < box.size(); ++dim)
      for (size_t to = 0; to < result.size(); ++to)
        if (auto loop = loops.find(number, dim); loop && loop == loops.find(2, to))
          result[to] = result[to].intersect(box[dim]);
  }
  return result;
}

std::optional<Box> LiveElements::findOwnZeros(Operation *op) const {
  Value result = op->getResult(0);
  ArrayRef<int64_t> shape = getShape(result);
  if (matchPattern(result, m_AnyZeroFloat()) || matchPattern(result, m_Zero()))
    return shape.empty() ? std::optional<Box>() : getEmptyBox(shape);
  if (isa<MatmulOp>(op))
    return passZerosOfProduct(op);
  if (isa<CollapseShapeOp>(op))
    return collapseBox(getGroups(op), getSupport(op->getOperand(0)));
  if (isa<ExpandShapeOp>(op))
    return expandBox(getGroups(op), getSupport(op->getOperand(0)), shape);
  if (auto slice = dyn_cast<ExtractSliceOp>(op)) {
    Box box = getSupport(slice.getSource());
    for (auto [dim, places] : llvm::enumerate(box)) {
      int64_t begin = slice.getStaticOffsets()[dim];
      if (shape[dim] != places.getSize())
        places = places.getFactors().size() == 1 ? places.cut(begin, begin + shape[dim])
                                                 : Places::all(shape[dim]);
    }
    return isEmpty(box) ? getEmptyBox(shape) : box;
  }
  if (isa<ConcatOp, PadOp>(op)) {
    Box box = getEmptyBox(shape);
    for (const Piece &piece : getPieces(op)) {
      Box part = getSupport(op->getOperand(piece.operand));
      for (auto [dim, places] : llvm::enumerate(part))
        if (places.getSize() != shape[dim])
          places = (places.getFactors().size() == 1 ? places : Places::all(places.getSize()))
                       .shift(piece.offsets[dim], shape[dim]);
      box = unite(box, part);
    }
    return box;
  }
  return passZeros(op);
}

void LiveElements::findZeros(Operation *op) {
  auto hasZeros = [&](Value operand) { return support.contains(operand); };
  if (!isa<arith::ConstantOp, PadOp>(op) && llvm::none_of(op->getOperands(), hasZeros))
    return;
  if (std::optional<Box> box = findOwnZeros(op); box && !isWhole(*box))
    support[op->getResult(0)] = std::move(*box);
}
