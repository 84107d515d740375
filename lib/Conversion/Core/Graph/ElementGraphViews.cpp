//===- ElementGraphViews.cpp - views as index arithmetic -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Graph/ElementGraph.h"

#include "memopt/Dialect/Memopt.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::memopt;

/// Nothing where no kernel computes the expression.
static std::optional<IndexExpr> apply(IndexTable &table, AffineExpr expr,
                                      ArrayRef<IndexExpr> dims) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return IndexExpr(constant.getValue());
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return dims[dim.getPosition()];
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary)
    return std::nullopt;
  std::optional<IndexExpr> left = apply(table, binary.getLHS(), dims);
  std::optional<IndexExpr> right = apply(table, binary.getRHS(), dims);
  if (!left || !right)
    return std::nullopt;
  if (expr.getKind() == AffineExprKind::Add)
    return IndexTable::add(*left, *right);
  if (expr.getKind() == AffineExprKind::Mul && left->isConstant())
    std::swap(left, right);
  if (!right->isConstant())
    return std::nullopt;
  int64_t factor = right->constant;
  if (expr.getKind() == AffineExprKind::Mul)
    return IndexTable::scale(*left, factor);
  if (factor <= 0)
    return std::nullopt;
  if (expr.getKind() == AffineExprKind::FloorDiv)
    return table.floorDiv(*left, factor);
  if (expr.getKind() == AffineExprKind::CeilDiv)
    return table.floorDiv(IndexTable::add(*left, IndexExpr(factor - 1)), factor);
  return table.mod(*left, factor);
}

std::optional<SmallVector<IndexExpr>> ElementGraph::mapIndices(AffineMap map,
                                                               ArrayRef<IndexExpr> indices) {
  SmallVector<IndexExpr> mapped;
  for (AffineExpr expr : map.getResults()) {
    std::optional<IndexExpr> index = apply(table, expr, indices);
    if (!index)
      return std::nullopt;
    mapped.push_back(*index);
  }
  return mapped;
}

/// Whether an element of a view lies in a part.
NodeId ElementGraph::isInside(const ViewPart &part, ArrayRef<IndexExpr> indices) {
  NodeId inside = getConstant(BoolAttr::get(context, true));
  for (auto [index, offset, size] : llvm::zip_equal(indices, part.offsets, part.sizes)) {
    inside = conjoin(inside, compareIndex(index, /*isBelow=*/false, offset));
    inside = conjoin(inside, compareIndex(index, /*isBelow=*/true, offset + size));
  }
  return inside;
}

/// What is known of the index may leave one part, or none.
FailureOr<NodeId> ElementGraph::buildView(ViewOpInterface view, ArrayRef<IndexExpr> at,
                                          NodeId guard) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(view->getResult(0).getType()).getShape();
  SmallVector<IndexExpr> indices(at);
  for (auto [index, size] : llvm::zip_equal(indices, shape))
    if (size == 1)
      index = IndexExpr();
  SmallVector<ViewPart> parts = view.getViewParts();
  SmallVector<std::pair<NodeId, NodeId>> pieces; // where it is, what is there
  for (const ViewPart &part : parts) {
    NodeId inside = isInside(part, indices);
    std::optional<bool> isKnown = getTruth(inside);
    if (isKnown == false)
      continue;
    std::optional<SmallVector<IndexExpr>> source = mapIndices(part.map, indices);
    if (!source)
      return view->emitError("has an index that no kernel computes");
    FailureOr<NodeId> piece =
        build(view->getOperand(part.operand), *source, isKnown ? guard : conjoin(guard, inside));
    if (failed(piece) || isKnown)
      return piece;
    pieces.push_back({inside, *piece});
  }
  bool hasZeros = !areComplete(parts, shape) || pieces.empty();
  NodeId result = hasZeros ? getZero(getElementTypeOrSelf(view->getResult(0).getType()))
                           : pieces.pop_back_val().second;
  for (auto [inside, piece] : llvm::reverse(pieces))
    result = getSelect(inside, piece, result);
  return result;
}

NodeId ElementGraph::buildIota(IotaOp iota, ArrayRef<IndexExpr> indices) {
  NodeId index = getIndex(indices[iota.getDimension()]);
  Type type = getElementTypeOrSelf(iota.getResult().getType());
  if (type.isInteger(64))
    return index;
  StringRef cast = isa<FloatType>(type) ? arith::SIToFPOp::getOperationName()
                                        : arith::TruncIOp::getOperationName();
  return getApply(OperationName(cast, context), DictionaryAttr::get(context), index, type);
}
