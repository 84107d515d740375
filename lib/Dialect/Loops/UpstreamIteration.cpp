//===- UpstreamIteration.cpp - loops of arith, math and tensor ops -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../IR/UpstreamInterfaces.h"
#include "IterationBuilder.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
template <typename OpTy>
struct ElementwiseIteration
    : IterationOpInterface::ExternalModel<ElementwiseIteration<OpTy>, OpTy> {
  IterationSpace getIterationSpace(Operation *op) const { return getElementwiseSpace(op); }
};

/// Each element may be a number of its own, unless all are one.
struct ConstantIteration
    : IterationOpInterface::ExternalModel<ConstantIteration, arith::ConstantOp> {
  IterationSpace getIterationSpace(Operation *op) const {
    IterationBuilder b(op);
    Value result = op->getResult(0);
    auto elements = dyn_cast<ElementsAttr>(cast<arith::ConstantOp>(op).getValue());
    if (isa<RankedTensorType>(result.getType()))
      b.setResult(0, b.addLoops(result, elements && elements.isSplat() ? LoopKind::Parallel
                                                                       : LoopKind::Mix));
    return b.take();
  }

  void resize(Operation *op, TypeRange types) const {
    auto constant = cast<arith::ConstantOp>(op);
    auto type = cast<RankedTensorType>(types.front());
    if (type == op->getResult(0).getType())
      return;
    constant.setValueAttr(cast<DenseElementsAttr>(constant.getValue()).resizeSplat(type));
    op->getResult(0).setType(type);
  }
};

/// A dimension that is cut or dropped is read at an offset, one that stays whole as it is.
struct ExtractSliceIteration
    : IterationOpInterface::ExternalModel<ExtractSliceIteration, tensor::ExtractSliceOp> {
  IterationSpace getIterationSpace(Operation *op) const {
    auto slice = cast<tensor::ExtractSliceOp>(op);
    IterationBuilder b(op);
    Exprs loops = b.addLoops(slice.getResult()), read;
    llvm::SmallBitVector dropped = slice.getDroppedDims();
    size_t next = 0;
    for (int64_t dim = 0; dim < slice.getSourceType().getRank(); ++dim) {
      bool isWhole = !dropped.test(dim) &&
                     slice.getStaticSizes()[dim] == slice.getSourceType().getDimSize(dim);
      AffineExpr at =
          dropped.test(dim) ? getAffineConstantExpr(0, op->getContext()) : loops[next++];
      read.push_back(isWhole ? at
                             : at * slice.getStaticStrides()[dim] + slice.getStaticOffsets()[dim] +
                                   b.addLoop(1, LoopKind::Mix));
    }
    b.setOperand(0, read);
    b.setResult(0, loops);
    return b.take();
  }

  void resize(Operation *op, TypeRange types) const {
    auto slice = cast<tensor::ExtractSliceOp>(op);
    SmallVector<int64_t> sizes(slice.getStaticSizes()), offsets(slice.getStaticOffsets());
    llvm::SmallBitVector dropped = slice.getDroppedDims();
    auto type = cast<RankedTensorType>(types.front());
    size_t next = 0;
    for (auto [dim, size] : llvm::enumerate(sizes))
      if (!dropped.test(dim)) {
        int64_t newSize = type.getDimSize(next++);
        // What lies in front is resized alike; a whole dimension begins where it did.
        if (newSize != size && !ShapedType::isDynamic(offsets[dim]))
          offsets[dim] = offsets[dim] * newSize / size;
        size = newSize;
      }
    slice.setStaticSizes(sizes);
    slice.setStaticOffsets(offsets);
    slice.getResult().setType(type);
  }
};

struct ConcatIteration : IterationOpInterface::ExternalModel<ConcatIteration, tensor::ConcatOp> {
  IterationSpace getIterationSpace(Operation *op) const {
    auto concat = cast<tensor::ConcatOp>(op);
    IterationBuilder b(op);
    Exprs loops = b.addLoops(concat.getResult());
    int64_t begin = 0;
    for (OpOperand &operand : op->getOpOperands()) {
      Exprs read = loops;
      read[concat.getDim()] = loops[concat.getDim()] - begin + b.addLoop(1, LoopKind::Mix);
      begin += cast<RankedTensorType>(operand.get().getType()).getDimSize(concat.getDim());
      b.setOperand(operand.getOperandNumber(), read);
    }
    b.setResult(0, loops);
    return b.take();
  }
};

/// The linear index taken apart and put together again.
template <typename OpTy>
struct ReshapeIteration : IterationOpInterface::ExternalModel<ReshapeIteration<OpTy>, OpTy> {
  IterationSpace getIterationSpace(Operation *op) const {
    IterationBuilder b(op);
    constexpr bool expands = std::is_same_v<OpTy, tensor::ExpandShapeOp>;
    Value fine = expands ? op->getResult(0) : op->getOperand(0);
    Exprs loops = b.addLoops(fine), merged;
    ArrayRef<int64_t> shape = cast<RankedTensorType>(fine.getType()).getShape();
    for (const ReassociationIndices &group : cast<OpTy>(op).getReassociationIndices()) {
      AffineExpr index = getAffineConstantExpr(0, op->getContext());
      for (int64_t dim : group)
        index = index * shape[dim] + (shape[dim] == 1 && group.size() > 1
                                          ? getAffineConstantExpr(0, op->getContext())
                                          : loops[dim]);
      merged.push_back(index);
    }
    b.setOperand(0, expands ? merged : loops);
    b.setResult(0, expands ? loops : merged);
    return b.take();
  }

  void resize(Operation *op, TypeRange types) const {
    if constexpr (std::is_same_v<OpTy, tensor::ExpandShapeOp>)
      cast<tensor::ExpandShapeOp>(op).setStaticOutputShape(
          cast<RankedTensorType>(types.front()).getShape());
    op->getResult(0).setType(cast<RankedTensorType>(types.front()));
  }
};
} // namespace

void mlir::memopt::attachUpstreamIteration(MLIRContext *context) {
  // Ahead of the table, which lists it too: the first model stays.
  arith::ConstantOp::attachInterface<ConstantIteration>(*context);
#define SCALAR(OP, FLOPS, COST) OP::attachInterface<ElementwiseIteration<OP>>(*context);
#include "../IR/ScalarOps.def"
  math::FPowIOp::attachInterface<ElementwiseIteration<math::FPowIOp>>(*context);
  arith::SelectOp::attachInterface<ElementwiseIteration<arith::SelectOp>>(*context);
  arith::ExtFOp::attachInterface<ElementwiseIteration<arith::ExtFOp>>(*context);
  arith::TruncFOp::attachInterface<ElementwiseIteration<arith::TruncFOp>>(*context);
  tensor::CastOp::attachInterface<ElementwiseIteration<tensor::CastOp>>(*context);
  tensor::EmptyOp::attachInterface<ElementwiseIteration<tensor::EmptyOp>>(*context);
  tensor::CollapseShapeOp::attachInterface<ReshapeIteration<tensor::CollapseShapeOp>>(*context);
  tensor::ExpandShapeOp::attachInterface<ReshapeIteration<tensor::ExpandShapeOp>>(*context);
  tensor::ExtractSliceOp::attachInterface<ExtractSliceIteration>(*context);
  tensor::ConcatOp::attachInterface<ConcatIteration>(*context);
}
