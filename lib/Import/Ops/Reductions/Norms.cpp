//===- Norms.cpp - lengths of vectors and distances between them -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The p-norm is (sum |x|^p)^(1/p). Its gradient is sign(x) |x|^(p-1) norm^(1-p), of which the first
// part belongs to an element and the second to its row; written so, and not as the derivative of
// the formula, it is finite at zero, where it is zero as in PyTorch.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Ops/Indexing/Indexing.h"
#include "memopt/Import/Ops/Reductions/Reductions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::memopt::ReduceKind;

Element memopt::pt2::distanceRoot(Element squares) {
  Element root = sqrt(squares);
  return withSlopes(root, {{squares, select(equals(root, 0), 0.0, 0.5 / root)}});
}

/// The p-norm for p neither 0 nor infinite.
static Value powerNorm(OpContext &op, const Reduction &reduction, double p) {
  Element x(op.b, reduction.value), size = abs(x), power = p == 1 ? size : pow(size, size.like(p));
  if (p == 2)
    power = x * x;
  Element slope = p == 2 ? x : signOf(x) * (p == 1 ? x.like(1) : pow(size, size.like(p - 1)));
  if (p < 1)
    slope = select(equals(x, 0), 0.0, slope);
  Element sum(op.b, reduce(op, reduction, withSlopes(power, {{x, slope}}), ReduceKind::Add));
  if (p == 1)
    return sum;
  Element norm = p == 2 ? sqrt(sum) : pow(sum, sum.like(1 / p));
  Element rest = p == 2 ? 1 / norm : pow(norm, norm.like(1 - p));
  return withSlopes(norm, {{sum, p < 1 ? rest : select(equals(norm, 0), 0.0, rest)}});
}

Value memopt::pt2::normOf(OpContext &op, const Reduction &reduction, double order) {
  Element x(op.b, reduction.value);
  if (order == 0)
    return reduce(op, reduction, select(differs(x, 0), x.like(1), x.like(0)), ReduceKind::Add);
  if (std::isinf(order))
    return reduce(op, reduction, abs(x), order > 0 ? ReduceKind::Max : ReduceKind::Min);
  return powerNorm(op, reduction, order);
}

//===----------------------------------------------------------------------===//
// Norms
//===----------------------------------------------------------------------===//

Error memopt::pt2::setVectorNorm(OpContext &op, StringRef dimensions, double order) {
  RETURN_IF_ERROR(op.checkReal(op.resultMeta(0).dtype));
  DType type = op.resultMeta(0).dtype;
  ASSIGN_OR_RETURN(Reduction reduction, getReduction(op, dimensions, type));
  return setResult(op, op.wrap(type, normOf(op, reduction, order)));
}

static Error lowerVectorNorm(OpContext &op) {
  return setVectorNorm(op, "dim", op.has("ord") ? op.number("ord") : 2);
}

/// torch.norm, which takes tensors of any rank as vectors.
static Error lowerNorm(OpContext &op) {
  return setVectorNorm(op, op.hasParameter("dim") ? "dim" : "", op.has("p") ? op.number("p") : 2);
}

//===----------------------------------------------------------------------===//
// Distances
//===----------------------------------------------------------------------===//

/// x - y with PyTorch's promotion.
static Expected<Tensor> getDifference(OpContext &op, const Tensor &x, const Tensor &y,
                                      double offset = 0) {
  DType type = op.resultMeta(0).dtype;
  RETURN_IF_ERROR(op.checkReal(type));
  return elementwise(op, {x, y}, type, type, inBuild([&](ArrayRef<Element> v) {
                       Element difference = v[0] - v[1];
                       return offset == 0 ? difference : difference + offset;
                     }));
}

static Error setDistance(OpContext &op, const Tensor &difference, ArrayRef<int64_t> dimensions,
                         bool keep, double order) {
  Reduction reduction;
  reduction.value = op.get(difference);
  reduction.dimensions.assign(dimensions.begin(), dimensions.end());
  reduction.keep = keep;
  return setResult(op, op.wrap(difference.dtype, normOf(op, reduction, order)));
}

/// The norm of the difference of two tensors.
static Error lowerDistance(OpContext &op) {
  ASSIGN_OR_RETURN(Tensor difference, getDifference(op, op.tensor("self"), op.tensor("other")));
  return setDistance(op, difference, to_vector(seq<int64_t>(0, difference.rank())), false,
                     op.number("p"));
}

static Error lowerPairwiseDistance(OpContext &op) {
  RETURN_IF_ERROR(op.checkNoBytes({"x1", "x2"}));
  ASSIGN_OR_RETURN(Tensor difference,
                   getDifference(op, op.tensor("x1"), op.tensor("x2"), op.number("eps")));
  if (difference.rank() == 0)
    return op.error("expected tensors with dimensions");
  return setDistance(op, difference, difference.rank() - 1, op.flag("keepdim"), op.number("p"));
}

/// Between all rows of two matrices.
/// Of each pair of rows, the first by the second, once.
static Error lowerPdist(OpContext &op) {
  Tensor self = op.tensor("self");
  if (self.rank() != 2 || self.sizes[0] < 2 || self.sizes[1] == 0)
    return op.error("expected a matrix of two rows at least, found " + toString(self.sizes));
  ASSIGN_OR_RETURN(std::vector<Tensor> pairs,
                   listCombinations(op, self.sizes[0], 2, /*withRepeats=*/false));
  ASSIGN_OR_RETURN(Tensor x, selectAlong(op, self, pairs[0], 0));
  ASSIGN_OR_RETURN(Tensor y, selectAlong(op, self, pairs[1], 0));
  ASSIGN_OR_RETURN(Tensor difference, getDifference(op, x, y));
  return setDistance(op, difference, 1, false, op.number("p"));
}

static Error lowerCdist(OpContext &op) {
  Tensor x = op.tensor("x1"), y = op.tensor("x2");
  if (x.rank() < 2 || y.rank() < 2 || x.sizes.back() != y.sizes.back() || x.sizes.back() == 0)
    return op.error("expected matrices with rows of one length, found " + toString(x.sizes) +
                    " and " + toString(y.sizes));
  Shape left(x.sizes), right(y.sizes);
  left.insert(left.end() - 1, 1);
  right.insert(right.end() - 2, 1);
  ASSIGN_OR_RETURN(x, reshape(op, x, left));
  ASSIGN_OR_RETURN(y, reshape(op, y, right));
  ASSIGN_OR_RETURN(Tensor difference, getDifference(op, x, y));
  return setDistance(op, difference, difference.rank() - 1, false, op.number("p"));
}

/// Rows along `dim` that are longer than `maxnorm` are shortened to it.
static Error lowerRenorm(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  RETURN_IF_ERROR(op.checkReal(type));
  Tensor self = op.tensor("self");
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", self.rank()));
  if (self.rank() < 2 || self.getNumElements() == 0)
    return op.error("expected a tensor of rank 2 at least, found " + toString(self.sizes));
  Reduction others;
  others.value = op.get(self);
  others.keep = true;
  for (int64_t i = 0; i != self.rank(); ++i)
    if (i != dim)
      others.dimensions.push_back(i);
  double most = op.number("maxnorm");
  Element norm(op.b, normOf(op, others, op.number("p")));
  Element isLong = greater(norm, most), shortened = most / (norm + 1e-7);
  Element factor = withSlopes(select(isLong, shortened, 1.0),
                              {{norm, select(isLong, -(shortened / (norm + 1e-7)), 0.0)}});
  Element scaled = Element(op.b, others.value) * spread(op, others, factor);
  return setResult(op, op.wrap(type, scaled));
}

/// x . y / (max(|x|, eps) max(|y|, eps)); where a length is held up, its gradient passes all the
/// same.
static Error lowerCosineSimilarity(OpContext &op) {
  DType type = op.resultMeta(0).dtype;
  double eps = op.number("eps");
  Tensor x = op.tensor("x1"), y = op.tensor("x2");
  ASSIGN_OR_RETURN(Shape sizes, broadcastShapes(op, x.sizes, y.sizes));
  RETURN_IF_ERROR(op.checkReal(op.resultMeta(0).dtype));
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dim", sizes.size()));
  ASSIGN_OR_RETURN(x, expand(op, castTo(op, x, type), sizes));
  ASSIGN_OR_RETURN(y, expand(op, castTo(op, y, type), sizes));
  if (x.getNumElements() == 0)
    return op.error("tensors without elements are not supported");
  Shape dimensions;
  if (!sizes.empty())
    dimensions.push_back(dim);
  auto normalized = [&](const Tensor &tensor) {
    Reduction row{op.get(tensor), dimensions, /*keep=*/true};
    Element norm(op.b, normOf(op, row, 2));
    Element bounded = withSlopes(largerOf(norm, norm.like(eps)), {{norm, norm.like(1)}});
    return Element(op.b, row.value) / spread(op, row, bounded);
  };
  Element product = normalized(x) * normalized(y);
  return setResult(op, op.wrap(type, reduceValue(op.b, product, ReduceKind::Add, dimensions)));
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerNorms(OpTable &table) {
  table.add("aten.linalg_vector_norm.default",
            "Tensor self, Scalar ord=2, int[]? dim=None, bool keepdim=False, dtype? dtype=None",
            lowerVectorNorm);
  table.add("aten.norm.Scalar", "Tensor self, Scalar? p=2", lowerNorm);
  table.add("aten.norm.ScalarOpt_dtype", "Tensor self, Scalar? p, dtype dtype", lowerNorm);
  table.add("aten.norm.ScalarOpt_dim", "Tensor self, Scalar? p, int[] dim, bool keepdim=False",
            lowerNorm);
  table.add("aten.norm.ScalarOpt_dim_dtype",
            "Tensor self, Scalar? p, int[] dim, bool keepdim, dtype dtype", lowerNorm);
  table.add("aten.dist.default", "Tensor self, Tensor other, Scalar p=2", lowerDistance);
  table.add("aten.pairwise_distance.default",
            "Tensor x1, Tensor x2, float p=2.0, float eps=1e-06, bool keepdim=False",
            lowerPairwiseDistance);
  table.add("aten.pdist.default", "Tensor self, float p=2.0", lowerPdist);
  table.add("aten.cdist.default", "Tensor x1, Tensor x2, float p=2.0, int? compute_mode=None",
            lowerCdist);
  table.add("aten._cdist_forward.default", "Tensor x1, Tensor x2, float p, int? compute_mode",
            lowerCdist);
  table.add("aten.renorm.default", "Tensor self, Scalar p, int dim, Scalar maxnorm", lowerRenorm);
  table.add("aten.cosine_similarity.default", "Tensor x1, Tensor x2, int dim=1, float eps=1e-08",
            lowerCosineSimilarity);
}
