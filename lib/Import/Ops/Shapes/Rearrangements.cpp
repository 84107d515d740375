//===- Rearrangements.cpp - diagonals, flips, stacks and copies of views -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Ops/Indexing/Indexing.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::Value;
using mlir::ValueRange;
using Builder = mlir::ImplicitLocOpBuilder;
namespace arith = mlir::arith;

//===----------------------------------------------------------------------===//
// Flips
//===----------------------------------------------------------------------===//

static Error lowerFlip(OpContext &op) {
  Tensor self = op.tensor("self");
  Shape dims;
  for (int64_t given : op.integers("dims")) {
    ASSIGN_OR_RETURN(int64_t dim, op.dimension("dims", given, self.rank()));
    if (self.rank() > 0)
      dims.push_back(dim);
  }
  return setResult(op, flip(op, self, dims));
}

template <int64_t dim> static Error lowerFlipDimension(OpContext &op) {
  Tensor self = op.tensor("self");
  if (self.rank() <= dim)
    return op.error("expected a tensor of rank " + Twine(dim + 1) + " at least");
  return setResult(op, flip(op, self, dim));
}

/// Quarter turns in the plane of two dimensions.
static Error lowerRot90(OpContext &op) {
  Tensor self = op.tensor("self");
  ArrayRef<int64_t> plane = op.integers("dims");
  if (plane.size() != 2 || self.rank() < 2)
    return op.error("expected two dimensions, found " + toString(plane));
  ASSIGN_OR_RETURN(int64_t a, op.dimension("dims", plane[0], self.rank()));
  ASSIGN_OR_RETURN(int64_t b, op.dimension("dims", plane[1], self.rank()));
  if (a == b)
    return op.error("expected two dimensions, found one twice");
  int64_t turns = ((op.integer("k") % 4) + 4) % 4;
  if (turns == 2)
    return setResult(op, flip(op, self, {a, b}));
  Shape order;
  append_range(order, seq<int64_t>(0, self.rank()));
  if (turns != 0)
    std::swap(order[a], order[b]);
  // A turn is a flip and an exchange of the two; the third turn flips afterwards.
  if (turns == 1)
    return setResult(op, op.copy(permute(op, flip(op, self, b), order)));
  if (turns == 3)
    return setResult(op, flip(op, permute(op, self, order), b));
  return setResult(op, op.copy(self));
}

//===----------------------------------------------------------------------===//
// Diagonals
//===----------------------------------------------------------------------===//

namespace {
/// Which diagonal: of the matrices that two dimensions span.
struct Diagonal {
  int64_t offset, first, second;
};
} // namespace

static Expected<Diagonal> getDiagonal(OpContext &op, int64_t rank) {
  Diagonal result{op.integer("offset"), 0, 0};
  ASSIGN_OR_RETURN(result.first, op.dimension("dim1", rank));
  ASSIGN_OR_RETURN(result.second, op.dimension("dim2", rank));
  if (rank < 2 || result.first == result.second)
    return op.error("expected two dimensions of a tensor of rank " + Twine(rank));
  if (result.offset < -(int64_t(1) << 40) || result.offset > int64_t(1) << 40)
    return op.error("argument 'offset': out of range: " + Twine(result.offset));
  return result;
}

/// All dimensions but two, then these.
static Shape getOrder(int64_t rank, const Diagonal &diagonal) {
  Shape order;
  for (int64_t dim = 0; dim != rank; ++dim)
    if (dim != diagonal.first && dim != diagonal.second)
      order.push_back(dim);
  order.push_back(diagonal.first);
  order.push_back(diagonal.second);
  return order;
}

/// Matrices laid flat, in which a diagonal is every (columns + 1)-th element.
static Expected<Tensor> takeDiagonal(OpContext &op, const Tensor &self, const Diagonal &diagonal) {
  Tensor matrices = permute(op, self, getOrder(self.rank(), diagonal));
  int64_t last = self.rank() - 1, rows = matrices.sizes[last - 1], columns = matrices.sizes[last];
  int64_t down = std::max<int64_t>(0, -diagonal.offset),
          right = std::max<int64_t>(0, diagonal.offset);
  int64_t count = std::min(rows - down, columns - right);
  if (count < 1)
    return op.error("diagonal " + Twine(diagonal.offset) + " of " + toString(self.sizes) +
                    " has no elements");
  Shape flat(ArrayRef(matrices.sizes).drop_back(2));
  flat.push_back(rows * columns);
  ASSIGN_OR_RETURN(Tensor row, reshape(op, matrices, flat));
  return slice(op, row, last - 1, down * columns + right, columns + 1, count);
}

/// Where the diagonal of matrices of these sizes is.
static Value markDiagonal(OpContext &op, ArrayRef<int64_t> sizes, int64_t offset) {
  int64_t rank = sizes.size();
  auto type = op.tensorType(DType::I64, sizes);
  Value row = mlir::memopt::IotaOp::create(op.b, type, rank - 2);
  Value column = mlir::memopt::IotaOp::create(op.b, type, rank - 1);
  Scalar distance;
  distance.integer = offset;
  Value shifted = arith::AddIOp::create(op.b, row, splat(op.b, type, distance));
  return arith::CmpIOp::create(op.b, arith::CmpIPredicate::eq, shifted, column);
}

/// Matrices of `rows` and `columns` with `self`'s last dimension on a diagonal, elements of `rest`
/// (zeros without it) elsewhere; the two dimensions come last.
static Expected<Tensor> putDiagonal(OpContext &op, const Tensor &self, int64_t offset, int64_t rows,
                                    int64_t columns,
                                    const std::optional<Tensor> &rest = std::nullopt) {
  Shape sizes(ArrayRef(self.sizes).drop_back()), along(self.sizes);
  sizes.append({rows, columns});
  RETURN_IF_ERROR(countElements(op, sizes).takeError());
  // Element k is in row k - min(offset, 0) and column k + max(offset, 0): along the shorter way
  // its number is the coordinate, up to a shift by padding.
  SmallVector<int64_t> low(self.rank(), 0), high(self.rank(), 0);
  low.back() = std::max<int64_t>(0, -offset);
  high.back() = rows - self.sizes.back() - low.back();
  Tensor byRow = padZeros(op, self, low, high);
  Shape column(byRow.sizes);
  column.push_back(1);
  ASSIGN_OR_RETURN(Tensor spread, reshape(op, byRow, column));
  ASSIGN_OR_RETURN(spread, expand(op, spread, sizes));
  Value mark = markDiagonal(op, sizes, offset);
  Value other = rest ? op.get(*rest) : splat(op.b, op.tensorType(self.dtype, sizes), 0.0);
  return op.wrap(self.dtype, arith::SelectOp::create(op.b, mark, op.get(spread), other));
}

/// The last two dimensions go to `first` and `second`.
static Tensor placeMatrices(OpContext &op, const Tensor &self, const Diagonal &diagonal) {
  Shape order = getOrder(self.rank(), diagonal), inverse(order.size());
  for (auto [from, to] : enumerate(order))
    inverse[to] = from;
  return op.copy(permute(op, self, inverse));
}

static Error lowerDiagonal(OpContext &op) {
  Tensor self = op.tensor("self");
  ASSIGN_OR_RETURN(Diagonal diagonal, getDiagonal(op, self.rank()));
  return setResult(op, takeDiagonal(op, self, diagonal));
}
static Error lowerDiagonalCopy(OpContext &op) {
  Tensor self = op.tensor(op.hasParameter("A") ? "A" : "self");
  ASSIGN_OR_RETURN(Diagonal diagonal, getDiagonal(op, self.rank()));
  ASSIGN_OR_RETURN(Tensor result, takeDiagonal(op, self, diagonal));
  return setResult(op, op.copy(result));
}

static Error lowerDiagEmbed(OpContext &op) {
  Tensor self = op.tensor("self");
  if (self.rank() == 0 || self.getNumElements() == 0)
    return op.error("expected a tensor with dimensions and elements");
  ASSIGN_OR_RETURN(Diagonal diagonal, getDiagonal(op, self.rank() + 1));
  int64_t size = self.sizes.back() + std::abs(diagonal.offset);
  ASSIGN_OR_RETURN(Tensor result, putDiagonal(op, self, diagonal.offset, size, size));
  return setResult(op, placeMatrices(op, result, diagonal));
}

static Error lowerDiagonalScatter(OpContext &op) {
  Tensor self = op.tensor("self"), source = castTo(op, op.tensor("src"), self.dtype);
  ASSIGN_OR_RETURN(Diagonal diagonal, getDiagonal(op, self.rank()));
  Tensor matrices = permute(op, self, getOrder(self.rank(), diagonal));
  int64_t rows = matrices.sizes[self.rank() - 2], columns = matrices.sizes.back();
  if (source.rank() != self.rank() - 1 || source.getNumElements() == 0)
    return op.error("expected a source of the diagonal's shape, found " + toString(source.sizes));
  ASSIGN_OR_RETURN(Tensor result,
                   putDiagonal(op, source, diagonal.offset, rows, columns, matrices));
  return setResult(op, placeMatrices(op, result, diagonal));
}

/// A vector becomes a matrix, a matrix a vector.
static Error lowerDiag(OpContext &op) {
  Tensor self = op.tensor("self");
  Diagonal diagonal{op.integer("diagonal"), 0, 1};
  if (self.rank() == 2) {
    ASSIGN_OR_RETURN(Tensor result, takeDiagonal(op, self, diagonal));
    return setResult(op, op.copy(result));
  }
  if (self.rank() != 1)
    return op.error("expected a vector or a matrix, found " + toString(self.sizes));
  int64_t size = self.sizes.back() + std::abs(diagonal.offset);
  return setResult(op, putDiagonal(op, self, diagonal.offset, size, size));
}

static Error lowerDiagflat(OpContext &op) {
  Tensor self = op.tensor("self");
  int64_t offset = op.integer("offset"), size = self.getNumElements() + std::abs(offset);
  ASSIGN_OR_RETURN(Tensor flat, reshape(op, self, self.getNumElements()));
  return setResult(op, putDiagonal(op, flat, offset, size, size));
}

static Error lowerTrace(OpContext &op) {
  Tensor self = castTo(op, op.tensor("self"), op.resultMeta(0).dtype);
  if (self.rank() != 2 || self.getNumElements() == 0)
    return op.error("expected a matrix with elements, found " + toString(self.sizes));
  ASSIGN_OR_RETURN(Tensor diagonal, takeDiagonal(op, self, {0, 0, 1}));
  return setResult(op, op.wrap(self.dtype, reduceValue(op.b, op.get(diagonal),
                                                       mlir::memopt::ReduceKind::Add, 0)));
}

/// Rows and columns of a matrix's elements on one side of a diagonal, as two rows of a tensor.
template <bool isLower> static Error lowerTriangleIndices(OpContext &op) {
  int64_t rows = op.integer("row"), columns = op.integer("col"), offset = op.integer("offset");
  RETURN_IF_ERROR(checkFoldable(op, Shape{rows, columns}));
  SmallVector<int64_t> first, second;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      if (isLower ? j <= i + offset : j >= i + offset) {
        first.push_back(i);
        second.push_back(j);
      }
  int64_t count = first.size();
  append_range(first, second);
  if (count == 0)
    return op.error("tensors without elements are not supported");
  return setResult(op, op.wrap(ConstantTensor::dense(op.resultMeta(0).dtype, {2, count}, first)));
}

//===----------------------------------------------------------------------===//
// Stacks
//===----------------------------------------------------------------------===//

static Expected<Tensor> atLeast(OpContext &op, const Tensor &tensor, int64_t rank) {
  Shape sizes(tensor.sizes);
  while (int64_t(sizes.size()) < rank)
    sizes.size() == 2 ? sizes.push_back(1) : void(sizes.insert(sizes.begin(), 1));
  return reshape(op, tensor, sizes);
}

/// hstack, vstack and dstack: tensors get `rank` dimensions and are joined along `dim`.
template <int64_t rank, int64_t dim> static Error lowerStackAlong(OpContext &op) {
  std::vector<Tensor> parts;
  for (const std::optional<Tensor> &tensor : op.tensors("tensors")) {
    ASSIGN_OR_RETURN(Tensor part, atLeast(op, *tensor, rank));
    parts.push_back(part);
  }
  if (parts.empty())
    return op.error("expected at least one tensor");
  return setResult(op, concatenate(op, parts, parts.front().rank() == 1 ? 0 : dim));
}

/// Vectors become columns.
static Error lowerColumnStack(OpContext &op) {
  std::vector<Tensor> parts;
  for (const std::optional<Tensor> &tensor : op.tensors("tensors")) {
    Tensor part = *tensor;
    if (part.rank() < 2) {
      ASSIGN_OR_RETURN(part, reshape(op, part, {part.getNumElements(), 1}));
    }
    parts.push_back(part);
  }
  if (parts.empty())
    return op.error("expected at least one tensor");
  return setResult(op, concatenate(op, parts, 1));
}

static Error lowerBlockDiag(OpContext &op) {
  std::vector<Tensor> rows;
  int64_t width = 0, before = 0;
  for (const std::optional<Tensor> &tensor : op.tensors("tensors")) {
    if (tensor->rank() > 2 || tensor->getNumElements() == 0)
      return op.error("expected matrices, found " + toString(tensor->sizes));
    ASSIGN_OR_RETURN(Tensor block, atLeast(op, *tensor, 2));
    width += block.sizes[1];
    rows.push_back(castTo(op, block, op.resultMeta(0).dtype));
  }
  for (Tensor &row : rows) {
    int64_t own = row.sizes[1];
    row = padZeros(op, row, {0, before}, {0, width - before - own});
    before += own;
  }
  if (rows.empty())
    return op.error("expected at least one tensor");
  return setResult(op, concatenate(op, rows, 0));
}

/// Channels in groups, [g, c / g], exchanged (Zhang et al., ShuffleNet, 2018).
static Error lowerChannelShuffle(OpContext &op) {
  Tensor self = op.tensor("self");
  int64_t groups = op.integer("groups");
  if (self.rank() < 3 || groups < 1 || self.sizes[1] % groups || self.getNumElements() == 0)
    return op.error("expected channels that " + Twine(groups) + " groups divide, found " +
                    toString(self.sizes));
  Shape split{self.sizes[0], groups, self.sizes[1] / groups}, order{0, 2, 1};
  append_range(split, ArrayRef(self.sizes).drop_front(2));
  append_range(order, seq<int64_t>(3, split.size()));
  ASSIGN_OR_RETURN(Tensor result, reshape(op, self, split));
  ASSIGN_OR_RETURN(result, reshape(op, permute(op, result, order), self.sizes));
  return setResult(op, op.copy(result));
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerRearrangements(OpTable &table) {
  table.add("aten.flip.default", "Tensor self, int[] dims", lowerFlip);
  table.add("aten.fliplr.default", "Tensor self", lowerFlipDimension<1>);
  table.add("aten.flipud.default", "Tensor self", lowerFlipDimension<0>);
  table.add("aten.rot90.default", "Tensor self, int k=1, int[] dims=[0 1]", lowerRot90);
  constexpr StringLiteral diagonal = "Tensor self, int offset=0, int dim1=0, int dim2=1";
  table.add("aten.diagonal.default", diagonal, lowerDiagonal);
  table.add("aten.diagonal_copy.default", diagonal, lowerDiagonalCopy);
  table.add("aten.linalg_diagonal.default", "Tensor A, int offset=0, int dim1=-2, int dim2=-1",
            lowerDiagonalCopy);
  table.add("aten.diag_embed.default", "Tensor self, int offset=0, int dim1=-2, int dim2=-1",
            lowerDiagEmbed);
  table.add("aten.diagonal_scatter.default",
            "Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1", lowerDiagonalScatter);
  table.add("aten.diag.default", "Tensor self, int diagonal=0", lowerDiag);
  table.add("aten.diagflat.default", "Tensor self, int offset=0", lowerDiagflat);
  table.add("aten.trace.default", "Tensor self", lowerTrace);
  constexpr StringLiteral triangle =
      "int row, int col, int offset=0, ignored dtype, ignored layout, ignored device, ignored "
      "pin_memory";
  table.add("aten.tril_indices.default", triangle, lowerTriangleIndices<true>);
  table.add("aten.triu_indices.default", triangle, lowerTriangleIndices<false>);
  table.add("aten.hstack.default", "Tensor[] tensors", lowerStackAlong<1, 1>);
  table.add("aten.vstack.default", "Tensor[] tensors", lowerStackAlong<2, 0>);
  table.add("aten.dstack.default", "Tensor[] tensors", lowerStackAlong<3, 2>);
  table.add("aten.column_stack.default", "Tensor[] tensors", lowerColumnStack);
  table.add("aten.block_diag.default", "Tensor[] tensors", lowerBlockDiag);
  table.add("aten.channel_shuffle.default", "Tensor self, int groups", lowerChannelShuffle);
  table.add("aten.native_channel_shuffle.default", "Tensor self, int groups", lowerChannelShuffle);
}
