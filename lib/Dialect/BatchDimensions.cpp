//===- BatchDimensions.cpp - how batch dimensions travel through ops -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every rule answers: given which dimension of each operand counts samples (-1 for none), which one
// of each result does. Where samples would mix in another way than by a reduction over all of them,
// the rule fails without a diagnostic; the pass that asked knows what it wanted and reports that.
// Statistics of a batch norm are taken over the samples at hand, as PyTorch users expect of
// micro-batches, so that its result keeps the dimension.
//
//===----------------------------------------------------------------------===//

#include "UpstreamInterfaces.h"

#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::memopt;

using Dims = ArrayRef<int64_t>;
using ResultDims = MutableArrayRef<int64_t>;

static void setAll(ResultDims results, int64_t dimension) { llvm::fill(results, dimension); }

/// The one dimension that operands agree on; those without one are the same for every sample.
static FailureOr<int64_t> agree(Dims operands) {
  int64_t common = -1;
  for (int64_t dimension : operands) {
    if (dimension < 0 || dimension == common)
      continue;
    if (common >= 0)
      return failure();
    common = dimension;
  }
  return common;
}

/// Elementwise: results have the operands' dimension.
static LogicalResult keepDimension(Dims operands, ResultDims results) {
  FailureOr<int64_t> common = agree(operands);
  if (failed(common))
    return failure();
  setAll(results, *common);
  return success();
}

/// Only dimension `dimension` may count samples, and does in the results.
static LogicalResult keepOnly(int64_t dimension, Dims operands, ResultDims results) {
  for (int64_t operand : operands)
    if (operand >= 0 && operand != dimension)
      return failure();
  return keepDimension(operands, results);
}

static int64_t rankOf(Value value) { return cast<RankedTensorType>(value.getType()).getRank(); }

//===----------------------------------------------------------------------===//
// Shape ops
//===----------------------------------------------------------------------===//

LogicalResult BroadcastOp::inferBatchDimensions(Dims operands, ResultDims results) {
  results[0] = operands[0] < 0 ? -1 : getDimensions()[operands[0]];
  return success();
}

LogicalResult TransposeOp::inferBatchDimensions(Dims operands, ResultDims results) {
  results[0] = -1;
  for (auto [index, dimension] : llvm::enumerate(getPermutation()))
    if (dimension == operands[0])
      results[0] = index;
  return success();
}

LogicalResult ReduceOp::inferBatchDimensions(Dims operands, ResultDims results) {
  int64_t batch = operands[0];
  results[0] = batch;
  if (batch < 0)
    return success();
  for (int64_t dimension : getDimensions()) {
    if (dimension == batch) {
      results[0] = -1;
      return success();
    }
    results[0] -= dimension < batch;
  }
  return success();
}

/// Where samples are counted, ranks and micro-batches add their counts up.
LogicalResult CountOp::inferBatchDimensions(Dims, ResultDims results) {
  results[0] = -1;
  return success();
}

LogicalResult PadOp::inferBatchDimensions(Dims operands, ResultDims results) {
  int64_t batch = operands[0];
  if (batch >= 0 && (getLow()[batch] || getHigh()[batch]))
    return failure();
  results[0] = batch;
  return success();
}

LogicalResult ReverseOp::inferBatchDimensions(Dims operands, ResultDims results) {
  if (llvm::is_contained(getDimensions(), operands[0]))
    return failure();
  results[0] = operands[0];
  return success();
}

/// Where a dimension of what is indexed lies among the points that are walked; fails when indices
/// pick along it.
static FailureOr<int64_t> getPlace(int64_t dimension, ArrayRef<int64_t> indexed,
                                   ArrayRef<int64_t> positions) {
  if (dimension < 0)
    return dimension;
  if (llvm::is_contained(indexed, dimension))
    return failure();
  int64_t before = llvm::count_if(indexed, [&](int64_t other) { return other < dimension; });
  return positions[dimension - before];
}

LogicalResult GatherOp::inferBatchDimensions(Dims operands, ResultDims results) {
  FailureOr<int64_t> place = getPlace(operands[0], getIndexed(), getPositions());
  if (failed(place))
    return failure();
  SmallVector<int64_t> dims(operands);
  dims[0] = *place;
  return keepDimension(dims, results);
}

/// Samples that add into one tensor sum up; otherwise each changes a part of its own.
LogicalResult ScatterOp::inferBatchDimensions(Dims operands, ResultDims results) {
  FailureOr<int64_t> points = agree(operands.drop_front());
  FailureOr<int64_t> place = getPlace(operands[0], getIndexed(), getPositions());
  if (failed(points) || failed(place))
    return failure();
  if (*points < 0 || (operands[0] >= 0 && *place == *points)) {
    results[0] = operands[0];
    return success();
  }
  if (operands[0] >= 0)
    return failure();
  // The input is the same for all samples.
  const int64_t *position = llvm::find(getPositions(), *points);
  if (position == getPositions().end()) {
    results[0] = -1;
    return success(getKind() == ScatterKind::Add && matchPattern(getInput(), m_AnyZeroFloat()));
  }
  int64_t dimension = position - getPositions().begin();
  for (int64_t other : getIndexed())
    dimension += other <= dimension;
  results[0] = dimension;
  return success();
}

/// Along an axis samples would mix.
static LogicalResult keepUnlessAxis(int64_t axis, Dims operands, ResultDims results) {
  if (llvm::is_contained(operands, axis))
    return failure();
  return keepDimension(operands, results);
}
LogicalResult ArgsortOp::inferBatchDimensions(Dims operands, ResultDims results) {
  return keepUnlessAxis(getAxis(), operands, results);
}
LogicalResult LinearScanOp::inferBatchDimensions(Dims operands, ResultDims results) {
  return keepUnlessAxis(getAxis(), operands, results);
}
LogicalResult LogSumExpScanOp::inferBatchDimensions(Dims operands, ResultDims results) {
  return keepUnlessAxis(getAxis(), operands, results);
}
LogicalResult ArgextremeScanOp::inferBatchDimensions(Dims operands, ResultDims results) {
  return keepUnlessAxis(getAxis(), operands, results);
}

LogicalResult EmbeddingOp::inferBatchDimensions(Dims operands, ResultDims results) {
  if (operands[0] >= 0)
    return failure();
  results[0] = operands[1];
  return success();
}

/// Each step draws its own mask: no dimension comes from the scalars, and any may meet it.
LogicalResult DropoutMaskOp::inferBatchDimensions(Dims operands, ResultDims results) {
  return keepOnly(-1, operands, results);
}

LogicalResult StopGradientOp::inferBatchDimensions(Dims operands, ResultDims results) {
  return keepDimension(operands, results);
}
LogicalResult IncomingGradientOp::inferBatchDimensions(Dims operands, ResultDims results) {
  return keepDimension(operands, results);
}
LogicalResult CustomGradientOp::inferBatchDimensions(Dims operands, ResultDims results) {
  llvm::copy(operands.take_front(results.size()), results.begin());
  return success();
}

LogicalResult RandomOp::inferBatchDimensions(Dims operands, ResultDims results) {
  return keepOnly(-1, operands, results);
}

//===----------------------------------------------------------------------===//
// Neural-network ops
//===----------------------------------------------------------------------===//

/// Samples go along dimension 0 of the activation, the filter is shared.
static LogicalResult inferConvolution(Dims operands, ResultDims results) {
  if (operands[1] >= 0)
    return failure();
  return keepOnly(0, operands, results);
}
LogicalResult ConvolutionOp::inferBatchDimensions(Dims operands, ResultDims results) {
  return inferConvolution(operands, results);
}
LogicalResult ConvolutionBackwardDataOp::inferBatchDimensions(Dims operands, ResultDims results) {
  return inferConvolution(operands, results);
}

LogicalResult MatmulOp::inferBatchDimensions(Dims operands, ResultDims results) {
  int64_t rank = rankOf(getResult());
  // The dimension as it is after op(): M, N or K last.
  auto seen = [&](int64_t dimension, bool transposed) {
    return dimension < rank - 2 || !transposed ? dimension : 2 * rank - 3 - dimension;
  };
  int64_t a = seen(operands[0], getTransposeA()), b = seen(operands[1], getTransposeB());
  // Contraction over the samples sums them up.
  if (a == rank - 1 && b == rank - 2) {
    results[0] = -1;
    return success();
  }
  if (a == rank - 1 || b == rank - 2)
    return failure();
  return keepDimension({a, b}, results);
}

LogicalResult AttentionOp::inferBatchDimensions(Dims operands, ResultDims results) {
  return keepOnly(0, operands, results);
}
LogicalResult MaxPoolOp::inferBatchDimensions(Dims operands, ResultDims results) {
  return keepOnly(0, operands, results);
}
LogicalResult AvgPoolOp::inferBatchDimensions(Dims operands, ResultDims results) {
  return keepOnly(0, operands, results);
}
LogicalResult InterpolateOp::inferBatchDimensions(Dims operands, ResultDims results) {
  return keepOnly(0, operands, results);
}

LogicalResult CheckOp::inferBatchDimensions(Dims operands, ResultDims results) {
  return keepDimension(operands, results);
}
LogicalResult ReluOp::inferBatchDimensions(Dims operands, ResultDims results) {
  return keepDimension(operands, results);
}
LogicalResult SigmoidOp::inferBatchDimensions(Dims operands, ResultDims results) {
  return keepDimension(operands, results);
}
LogicalResult SoftplusOp::inferBatchDimensions(Dims operands, ResultDims results) {
  return keepDimension(operands, results);
}

LogicalResult BatchNormOp::inferBatchDimensions(Dims operands, ResultDims results) {
  if (operands[0] == static_cast<int64_t>(getAxis()) || agree(operands.drop_front()) != -1)
    return failure();
  setAll(results, -1);
  results[0] = operands[0];
  return success();
}

/// Dimensions from `begin` on are normalized over; scale and offset lie along them.
static LogicalResult inferRowNorm(int64_t begin, Dims operands, ResultDims results) {
  if (operands[0] >= begin || agree(operands.drop_front()) != -1)
    return failure();
  setAll(results, operands[0]);
  return success();
}
LogicalResult LayerNormOp::inferBatchDimensions(Dims operands, ResultDims results) {
  return inferRowNorm(getBegin(), operands, results);
}
LogicalResult RmsNormOp::inferBatchDimensions(Dims operands, ResultDims results) {
  return inferRowNorm(getBegin(), operands, results);
}
LogicalResult GroupNormOp::inferBatchDimensions(Dims operands, ResultDims results) {
  return inferRowNorm(/*begin=*/1, operands, results);
}

LogicalResult SoftmaxOp::inferBatchDimensions(Dims operands, ResultDims results) {
  if (operands[0] == static_cast<int64_t>(getAxis()))
    return failure();
  return keepDimension(operands, results);
}
LogicalResult LogSoftmaxOp::inferBatchDimensions(Dims operands, ResultDims results) {
  if (operands[0] == static_cast<int64_t>(getAxis()))
    return failure();
  return keepDimension(operands, results);
}

LogicalResult CrossEntropyOp::inferBatchDimensions(Dims operands, ResultDims results) {
  if (getClassWeights() && operands[2] >= 0)
    return failure();
  if (failed(keepOnly(0, operands, results)))
    return failure();
  results[0] = results[1] = -1;
  return success();
}

//===----------------------------------------------------------------------===//
// Upstream ops
//===----------------------------------------------------------------------===//

namespace {
template <typename OpTy>
struct ElementwiseBatch : BatchDimensionOpInterface::ExternalModel<ElementwiseBatch<OpTy>, OpTy> {
  LogicalResult inferBatchDimensions(Operation *, Dims operands, ResultDims results) const {
    return keepDimension(operands, results);
  }
};

/// Samples may be counted by the outermost factor of a collapsed dimension: [B, T, D] and [B * T,
/// D].
template <typename OpTy>
struct ReshapeBatch : BatchDimensionOpInterface::ExternalModel<ReshapeBatch<OpTy>, OpTy> {
  LogicalResult inferBatchDimensions(Operation *op, Dims operands, ResultDims results) const {
    int64_t batch = operands[0];
    results[0] = batch;
    if (batch < 0)
      return success();
    auto reshape = cast<OpTy>(op);
    bool collapses = isa<tensor::CollapseShapeOp>(op);
    ArrayRef<int64_t> shape = reshape.getSrcType().getShape();
    for (auto [number, group] : llvm::enumerate(reshape.getReassociationIndices())) {
      if (!collapses && static_cast<int64_t>(number) == batch) {
        results[0] = group.empty() ? -1 : group.front();
        return success();
      }
      if (!collapses || !llvm::is_contained(group, batch))
        continue;
      results[0] = number;
      return success(llvm::all_of(
          group, [&](int64_t dimension) { return dimension >= batch || shape[dimension] == 1; }));
    }
    return failure();
  }
};

/// A slice takes all samples or none of their dimension.
struct ExtractSliceBatch
    : BatchDimensionOpInterface::ExternalModel<ExtractSliceBatch, tensor::ExtractSliceOp> {
  LogicalResult inferBatchDimensions(Operation *op, Dims operands, ResultDims results) const {
    auto slice = cast<tensor::ExtractSliceOp>(op);
    int64_t batch = operands[0];
    results[0] = batch;
    if (batch < 0)
      return success();
    llvm::SmallBitVector dropped = slice.getDroppedDims();
    if (slice.getStaticSizes()[batch] != slice.getSourceType().getDimSize(batch) ||
        dropped.test(batch))
      return failure();
    results[0] -= llvm::count_if(dropped.set_bits(), [&](int bit) { return bit < batch; });
    return success();
  }
};

struct ConcatBatch : BatchDimensionOpInterface::ExternalModel<ConcatBatch, tensor::ConcatOp> {
  LogicalResult inferBatchDimensions(Operation *op, Dims operands, ResultDims results) const {
    if (llvm::is_contained(operands, static_cast<int64_t>(cast<tensor::ConcatOp>(op).getDim())))
      return failure();
    return keepDimension(operands, results);
  }
};
} // namespace

void memopt::attachUpstreamBatchDimensions(MLIRContext *context) {
#define UNARY(OP, FLOPS, DX) OP::attachInterface<ElementwiseBatch<OP>>(*context);
#define BINARY(OP, FLOPS, DA, DB) OP::attachInterface<ElementwiseBatch<OP>>(*context);
#define TERNARY(OP, FLOPS, DA, DB, DC) OP::attachInterface<ElementwiseBatch<OP>>(*context);
#define ZERO(OP, FLOPS) OP::attachInterface<ElementwiseBatch<OP>>(*context);
#include "ElementaryGradients.def"
  math::FPowIOp::attachInterface<ElementwiseBatch<math::FPowIOp>>(*context);
  arith::SelectOp::attachInterface<ElementwiseBatch<arith::SelectOp>>(*context);
  arith::ExtFOp::attachInterface<ElementwiseBatch<arith::ExtFOp>>(*context);
  arith::TruncFOp::attachInterface<ElementwiseBatch<arith::TruncFOp>>(*context);
  tensor::CastOp::attachInterface<ElementwiseBatch<tensor::CastOp>>(*context);
  tensor::CollapseShapeOp::attachInterface<ReshapeBatch<tensor::CollapseShapeOp>>(*context);
  tensor::ExpandShapeOp::attachInterface<ReshapeBatch<tensor::ExpandShapeOp>>(*context);
  tensor::ExtractSliceOp::attachInterface<ExtractSliceBatch>(*context);
  tensor::ConcatOp::attachInterface<ConcatBatch>(*context);
}
