//===- ElementGraphViews.cpp - views as index arithmetic -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ElementGraph.h"

#include "memopt/Dialect/Memopt.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::memopt;

static ArrayRef<int64_t> getShape(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

static SmallVector<IndexExpr> mapSlice(tensor::ExtractSliceOp op, ArrayRef<IndexExpr> indices) {
  llvm::SmallBitVector dropped = op.getDroppedDims();
  SmallVector<IndexExpr> result;
  const IndexExpr *next = indices.begin();
  for (auto [dim, offset] : llvm::enumerate(op.getStaticOffsets())) {
    IndexExpr index(offset);
    if (!dropped[dim])
      index = IndexTable::add(index, *next++, op.getStaticStrides()[dim]);
    result.push_back(index);
  }
  return result;
}

static SmallVector<IndexExpr> mapExpand(tensor::ExpandShapeOp op, ArrayRef<IndexExpr> indices) {
  SmallVector<IndexExpr> result;
  ArrayRef<int64_t> sizes = getShape(op.getResult());
  for (const ReassociationIndices &group : op.getReassociationIndices())
    result.push_back(IndexTable::linearize(indices.slice(group.front(), group.size()),
                                           sizes.slice(group.front(), group.size())));
  return result;
}

static SmallVector<IndexExpr> mapCollapse(IndexTable &table, tensor::CollapseShapeOp op,
                                          ArrayRef<IndexExpr> indices) {
  SmallVector<IndexExpr> result;
  ArrayRef<int64_t> sizes = getShape(op.getSrc());
  for (auto [group, index] : llvm::zip_equal(op.getReassociationIndices(), indices))
    result.append(table.delinearize(index, sizes.slice(group.front(), group.size())));
  // A scalar that came from sizes of 1 alone has no groups.
  result.resize(sizes.size());
  return result;
}

static SmallVector<IndexExpr> mapBroadcast(BroadcastOp op, ArrayRef<IndexExpr> indices) {
  SmallVector<IndexExpr> result;
  for (auto [size, dim] : llvm::zip_equal(getShape(op.getInput()), op.getDimensions()))
    result.push_back(size == 1 ? IndexExpr() : indices[dim]);
  return result;
}

static SmallVector<IndexExpr> mapTranspose(TransposeOp op, ArrayRef<IndexExpr> indices) {
  SmallVector<IndexExpr> result(indices.size());
  for (auto [dim, source] : llvm::enumerate(op.getPermutation()))
    result[source] = indices[dim];
  return result;
}

static SmallVector<IndexExpr> mapReverse(ReverseOp op, ArrayRef<IndexExpr> indices) {
  SmallVector<IndexExpr> result(indices);
  for (int64_t dim : op.getDimensions())
    result[dim] = IndexTable::add(IndexExpr(getShape(op.getInput())[dim] - 1), result[dim], -1);
  return result;
}

FailureOr<NodeId> ElementGraph::buildView(Operation *op, ArrayRef<IndexExpr> indices,
                                          NodeId guard) {
  if (auto slice = dyn_cast<tensor::ExtractSliceOp>(op))
    return build(slice.getSource(), mapSlice(slice, indices), guard);
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op))
    return build(expand.getSrc(), mapExpand(expand, indices), guard);
  if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op))
    return build(collapse.getSrc(), mapCollapse(table, collapse, indices), guard);
  if (auto broadcast = dyn_cast<BroadcastOp>(op))
    return build(broadcast.getInput(), mapBroadcast(broadcast, indices), guard);
  if (auto transpose = dyn_cast<TransposeOp>(op))
    return build(transpose.getInput(), mapTranspose(transpose, indices), guard);
  if (auto reverse = dyn_cast<ReverseOp>(op))
    return build(reverse.getInput(), mapReverse(reverse, indices), guard);
  if (isa<tensor::ConcatOp>(op))
    return buildConcat(op, indices, guard);
  if (isa<PadOp>(op))
    return buildPad(op, indices, guard);
  if (auto iota = dyn_cast<IotaOp>(op)) {
    NodeId index = getIndex(indices[iota.getDimension()]);
    Type type = getElementTypeOrSelf(iota.getResult().getType());
    if (type.isInteger(64))
      return index;
    StringRef cast = isa<FloatType>(type) ? arith::SIToFPOp::getOperationName()
                                          : arith::TruncIOp::getOperationName();
    return getApply(OperationName(cast, context), DictionaryAttr::get(context), index, type);
  }
  return op->emitError("'") << op->getName() << "' is not computed by any kernel";
}

FailureOr<NodeId> ElementGraph::buildConcat(Operation *op, ArrayRef<IndexExpr> indices,
                                            NodeId guard) {
  auto concat = cast<tensor::ConcatOp>(op);
  unsigned dim = concat.getDim();
  int64_t begin = 0;
  SmallVector<std::pair<NodeId, NodeId>> pieces; // where it is, what is there
  for (Value input : concat.getInputs()) {
    int64_t end = begin + getShape(input)[dim];
    NodeId inside = conjoin(compareIndex(indices[dim], /*isBelow=*/false, begin),
                            compareIndex(indices[dim], /*isBelow=*/true, end));
    const ElementNode &node = nodes[inside];
    bool never =
        node.kind == ElementNode::Constant && cast<IntegerAttr>(node.attribute).getValue().isZero();
    if (!never) {
      SmallVector<IndexExpr> inner(indices);
      inner[dim] = IndexTable::add(inner[dim], IndexExpr(-begin));
      bool always = node.kind == ElementNode::Constant;
      FailureOr<NodeId> piece = build(input, inner, always ? guard : conjoin(guard, inside));
      if (failed(piece) || always)
        return piece;
      pieces.push_back({inside, *piece});
    }
    begin = end;
  }
  if (pieces.empty())
    return getZero(getElementTypeOrSelf(concat.getResult().getType()));
  NodeId result = pieces.back().second;
  for (auto [inside, piece] : llvm::drop_begin(llvm::reverse(pieces)))
    result = getSelect(inside, piece, result);
  return result;
}

FailureOr<NodeId> ElementGraph::buildPad(Operation *op, ArrayRef<IndexExpr> indices, NodeId guard) {
  auto pad = cast<PadOp>(op);
  NodeId inside = getConstant(BoolAttr::get(context, true));
  SmallVector<IndexExpr> inner;
  for (auto [index, low, size] : llvm::zip_equal(indices, pad.getLow(), getShape(pad.getInput()))) {
    inside = conjoin(inside, compareIndex(index, /*isBelow=*/false, low));
    inside = conjoin(inside, compareIndex(index, /*isBelow=*/true, low + size));
    inner.push_back(IndexTable::add(index, IndexExpr(-low)));
  }
  NodeId zero = getZero(getElementTypeOrSelf(pad.getResult().getType()));
  const ElementNode &node = nodes[inside];
  if (node.kind == ElementNode::Constant) {
    if (cast<IntegerAttr>(node.attribute).getValue().isZero())
      return zero;
    return build(pad.getInput(), inner, guard);
  }
  FailureOr<NodeId> value = build(pad.getInput(), inner, conjoin(guard, inside));
  if (failed(value))
    return failure();
  return getSelect(inside, *value, zero);
}
