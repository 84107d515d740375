//===- Views.cpp - ops that move elements and compute nothing ---*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where each element of a view comes from, for the ops of this dialect and for upstream's.
//
//===----------------------------------------------------------------------===//

#include "../IR/UpstreamInterfaces.h"
#include "../IR/Verification.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/AffineExpr.h"

using namespace mlir;
using namespace mlir::memopt;

using Exprs = SmallVector<AffineExpr>;

/// One index for each dimension of the result.
static Exprs getIndices(Operation *view) {
  Exprs indices;
  for (int64_t dim = 0; dim < tensorType(view->getResult(0)).getRank(); ++dim)
    indices.push_back(getAffineDimExpr(dim, view->getContext()));
  return indices;
}

static AffineMap mapIndices(Operation *view, ArrayRef<AffineExpr> exprs) {
  return AffineMap::get(tensorType(view->getResult(0)).getRank(), 0, exprs, view->getContext());
}

/// All of the result, from operand 0.
static SmallVector<ViewPart> getWhole(Operation *view, ArrayRef<AffineExpr> exprs) {
  SmallVector<int64_t> sizes(tensorType(view->getResult(0)).getShape());
  return {{0, SmallVector<int64_t>(sizes.size(), 0), sizes, mapIndices(view, exprs)}};
}

/// Operand `operand` as it is, with its first element at `offsets`.
static ViewPart getPiece(Operation *view, unsigned operand, ArrayRef<int64_t> offsets) {
  Exprs exprs;
  for (auto [index, offset] : llvm::zip_equal(getIndices(view), offsets))
    exprs.push_back(index - offset);
  return {operand, SmallVector<int64_t>(offsets),
          SmallVector<int64_t>(tensorType(view->getOperand(operand)).getShape()),
          mapIndices(view, exprs)};
}

//===----------------------------------------------------------------------===//
// The dialect's
//===----------------------------------------------------------------------===//

ViewKind BroadcastOp::getViewKind() { return ViewKind::Strided; }
SmallVector<ViewPart> BroadcastOp::getViewParts() {
  Exprs indices = getIndices(*this), exprs;
  for (auto [size, dim] : llvm::zip_equal(tensorType(getInput()).getShape(), getDimensions())) {
    bool repeats = size != tensorType(getResult()).getDimSize(dim);
    exprs.push_back(repeats ? getAffineConstantExpr(0, getContext()) : indices[dim]);
  }
  return getWhole(*this, exprs);
}

ViewKind TransposeOp::getViewKind() { return ViewKind::Strided; }
SmallVector<ViewPart> TransposeOp::getViewParts() {
  Exprs indices = getIndices(*this), exprs(indices.size());
  for (auto [dim, from] : llvm::enumerate(getPermutation()))
    exprs[from] = indices[dim];
  return getWhole(*this, exprs);
}

ViewKind ReverseOp::getViewKind() { return ViewKind::Assembled; }
SmallVector<ViewPart> ReverseOp::getViewParts() {
  Exprs exprs = getIndices(*this);
  for (int64_t dim : getDimensions())
    exprs[dim] = tensorType(getInput()).getDimSize(dim) - 1 - exprs[dim];
  return getWhole(*this, exprs);
}

ViewKind PadOp::getViewKind() { return ViewKind::Assembled; }
SmallVector<ViewPart> PadOp::getViewParts() { return {getPiece(*this, 0, getLow())}; }

//===----------------------------------------------------------------------===//
// Upstream's
//===----------------------------------------------------------------------===//

namespace {
struct SliceView : ViewOpInterface::ExternalModel<SliceView, tensor::ExtractSliceOp> {
  ViewKind getViewKind(Operation *) const { return ViewKind::Strided; }
  bool showsWhole(Operation *, unsigned) const { return false; }

  SmallVector<ViewPart> getViewParts(Operation *op) const {
    auto slice = cast<tensor::ExtractSliceOp>(op);
    llvm::SmallBitVector dropped = slice.getDroppedDims();
    Exprs indices = getIndices(op), exprs;
    const AffineExpr *next = indices.begin();
    for (auto [dim, offset] : llvm::enumerate(slice.getStaticOffsets()))
      exprs.push_back(dropped[dim] ? getAffineConstantExpr(offset, op->getContext())
                                   : *next++ * slice.getStaticStrides()[dim] + offset);
    return getWhole(op, exprs);
  }
};

struct ConcatView : ViewOpInterface::ExternalModel<ConcatView, tensor::ConcatOp> {
  ViewKind getViewKind(Operation *) const { return ViewKind::Assembled; }

  SmallVector<ViewPart> getViewParts(Operation *op) const {
    auto concat = cast<tensor::ConcatOp>(op);
    SmallVector<int64_t> offsets(concat.getRank(), 0);
    SmallVector<ViewPart> parts;
    for (unsigned operand = 0; operand < op->getNumOperands(); ++operand) {
      parts.push_back(getPiece(op, operand, offsets));
      offsets[concat.getDim()] += parts.back().sizes[concat.getDim()];
    }
    return parts;
  }
};

struct ExpandView : ViewOpInterface::ExternalModel<ExpandView, tensor::ExpandShapeOp> {
  ViewKind getViewKind(Operation *) const { return ViewKind::Reshape; }

  SmallVector<ViewPart> getViewParts(Operation *op) const {
    Exprs indices = getIndices(op), exprs;
    ArrayRef<int64_t> shape = tensorType(op->getResult(0)).getShape();
    for (const ReassociationIndices &group :
         cast<tensor::ExpandShapeOp>(op).getReassociationIndices()) {
      AffineExpr linear = getAffineConstantExpr(0, op->getContext());
      for (int64_t dim : group) // a dimension of one element adds nothing to others
        if (shape[dim] != 1 || group.size() == 1)
          linear = linear * shape[dim] + indices[dim];
      exprs.push_back(linear);
    }
    return getWhole(op, exprs);
  }
};

struct CollapseView : ViewOpInterface::ExternalModel<CollapseView, tensor::CollapseShapeOp> {
  ViewKind getViewKind(Operation *) const { return ViewKind::Reshape; }

  SmallVector<ViewPart> getViewParts(Operation *op) const {
    ArrayRef<int64_t> shape = tensorType(op->getOperand(0)).getShape();
    // A scalar that came from sizes of 1 alone has no groups.
    Exprs exprs(shape.size(), getAffineConstantExpr(0, op->getContext()));
    auto groups = cast<tensor::CollapseShapeOp>(op).getReassociationIndices();
    for (auto [group, index] : llvm::zip_equal(groups, getIndices(op))) {
      SmallVector<int64_t> counting(
          llvm::make_filter_range(group, [&](int64_t dim) { return shape[dim] != 1; }));
      AffineExpr rest = index;
      for (int64_t dim : llvm::reverse(ArrayRef(counting).drop_front(!counting.empty()))) {
        exprs[dim] = rest % shape[dim];
        rest = rest.floorDiv(shape[dim]);
      }
      exprs[counting.empty() ? group.front() : counting.front()] = rest;
    }
    return getWhole(op, exprs);
  }
};
} // namespace

void mlir::memopt::attachUpstreamViews(MLIRContext *context) {
  tensor::ExtractSliceOp::attachInterface<SliceView>(*context);
  tensor::ConcatOp::attachInterface<ConcatView>(*context);
  tensor::ExpandShapeOp::attachInterface<ExpandView>(*context);
  tensor::CollapseShapeOp::attachInterface<CollapseView>(*context);
}
