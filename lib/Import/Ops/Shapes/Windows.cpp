//===- Windows.cpp - overlapping parts of tensors -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Windows of `size` elements, `step` apart, consist of blocks of g = gcd(size, step) elements:
// element j g + i of window l is element i of block j + l step / g. So unfolding is a concatenation
// of size / g strided slices of whole blocks, and folding the sum of as many paddings. The gradient
// of each is the other, in this same form.
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Ops/Indexing/Indexing.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <numeric>

using namespace llvm;
using namespace memopt::pt2;
using mlir::Value;
using mlir::ValueRange;
using Builder = mlir::ImplicitLocOpBuilder;
namespace arith = mlir::arith;

namespace {
/// `count` windows of `size` elements that lie `dilation` apart, along one dimension.
struct Windows {
  int64_t size, step, dilation, count;

  int64_t block() const { return dilation == 1 ? std::gcd(size, step) : 1; }
  int64_t numBlocks() const { return size / block(); }
  /// Elements from the first window's begin to the last one's end.
  int64_t reach() const { return (count - 1) * step + (size - 1) * dilation + 1; }
};
} // namespace

/// More slices than this are gathered instead: each is an op of its own.
static constexpr int64_t kMostSlices = 64;

static Expected<Windows> getWindows(OpContext &op, int64_t length, int64_t size, int64_t step,
                                    int64_t dilation = 1) {
  constexpr int64_t most = 1 << 24;
  if (size < 1 || step < 1 || dilation < 1 || size > most || step > most || dilation > most ||
      (size - 1) * dilation + 1 > length)
    return op.error("windows of " + Twine(size) + " elements, " + Twine(dilation) +
                    " apart, do not fit " + Twine(length));
  return Windows{size, step, dilation, (length - (size - 1) * dilation - 1) / step + 1};
}

//===----------------------------------------------------------------------===//
// Unfold
//===----------------------------------------------------------------------===//

/// By an index for each element of each window, which no slices give cheaply.
static Expected<Tensor> gatherWindows(OpContext &op, const Tensor &self, int64_t dim,
                                      const Windows &windows) {
  Shape sizes(self.sizes);
  sizes[dim] = windows.count;
  sizes.insert(sizes.begin() + dim + 1, windows.size);
  RETURN_IF_ERROR(checkFoldable(op, Shape{windows.count, windows.size}));
  Shape indexSizes(sizes.size(), 1);
  indexSizes[dim] = windows.count;
  indexSizes[dim + 1] = windows.size;
  Constant index = ConstantTensor::generate(DType::I64, indexSizes, [&](ArrayRef<int64_t> at) {
    return at[dim] * windows.step + at[dim + 1] * windows.dilation;
  });
  Places places;
  places.sizes = sizes;
  places.indices.resize(self.rank());
  for (int64_t other = 0; other != self.rank(); ++other)
    places.positions.push_back(other < dim ? other : other + 1);
  places.indices[dim] = op.wrap(index);
  return gather(op, self, std::move(places));
}

/// Dimension `dim` becomes two: windows, and elements in a window.
static Expected<Tensor> unfold(OpContext &op, const Tensor &self, int64_t dim,
                               const Windows &windows) {
  if (windows.numBlocks() > kMostSlices)
    return gatherWindows(op, self, dim, windows);
  int64_t block = windows.block(), apart = windows.step / block;
  ASSIGN_OR_RETURN(Tensor whole, slice(op, self, dim, 0, 1, windows.reach()));
  Shape blocks(whole.sizes), piece(whole.sizes);
  blocks[dim] = windows.reach() / block;
  blocks.insert(blocks.begin() + dim + 1, block);
  piece[dim] = windows.count;
  piece.insert(piece.begin() + dim + 1, block);
  if (block > 1) {
    ASSIGN_OR_RETURN(whole, reshape(op, whole, blocks));
  }
  std::vector<Tensor> parts;
  for (int64_t j = 0; j != windows.numBlocks(); ++j) {
    ASSIGN_OR_RETURN(Tensor part,
                     slice(op, whole, dim, j * windows.dilation, apart, windows.count));
    ASSIGN_OR_RETURN(part, reshape(op, part, piece));
    parts.push_back(part);
  }
  return concatenate(op, parts, dim + 1);
}

static Error lowerUnfold(OpContext &op) {
  Tensor self = op.tensor("self");
  ASSIGN_OR_RETURN(int64_t dim, op.dimension("dimension", self.rank()));
  if (self.rank() == 0) {
    ASSIGN_OR_RETURN(self, reshape(op, self, 1));
  }
  if (self.getNumElements() == 0)
    return op.error("tensors without elements are not supported");
  ASSIGN_OR_RETURN(Windows windows,
                   getWindows(op, self.sizes[dim], op.integer("size"), op.integer("step")));
  ASSIGN_OR_RETURN(Tensor result, unfold(op, self, dim, windows));
  Shape order;
  append_range(order, seq<int64_t>(0, result.rank()));
  order.erase(order.begin() + dim + 1);
  order.push_back(dim + 1);
  ASSIGN_OR_RETURN(result, reshape(op, permute(op, result, order), op.resultMeta(0).sizes));
  return setResult(op, op.copy(result));
}

//===----------------------------------------------------------------------===//
// Fold
//===----------------------------------------------------------------------===//

/// `part` [.., count, block, ..] laid `step` apart from element `begin` on, zeros elsewhere.
static Expected<Tensor> layOut(OpContext &op, Tensor part, int64_t dim, const Windows &windows,
                               int64_t begin, int64_t length) {
  int64_t rank = part.rank(), block = part.sizes[dim + 1];
  SmallVector<int64_t> none(rank, 0), high(rank, 0);
  high[dim + 1] = windows.step - block;
  part = padZeros(op, part, none, high);
  Shape merged(part.sizes);
  merged[dim] = windows.count * windows.step;
  merged.erase(merged.begin() + dim + 1);
  ASSIGN_OR_RETURN(part, reshape(op, part, merged));
  // The zeros behind the last block may hang over the end.
  int64_t kept = std::min(merged[dim], length - begin);
  ASSIGN_OR_RETURN(part, slice(op, part, dim, 0, 1, kept));
  SmallVector<int64_t> low(rank - 1, 0), after(rank - 1, 0);
  low[dim] = begin;
  after[dim] = length - begin - kept;
  return padZeros(op, part, low, after);
}

static Expected<Tensor> add(OpContext &op, const Tensor &a, const Tensor &b) {
  return elementwise(op, {a, b}, a.dtype, a.dtype, [&](Builder &b, ValueRange v) -> Value {
    return isFloat(a.dtype) ? arith::AddFOp::create(b, v[0], v[1]).getResult()
                            : arith::AddIOp::create(b, v[0], v[1]).getResult();
  });
}

/// Dimensions `dim` (windows) and `dim + 1` (elements in a window) become one of `length` elements,
/// each the sum of what windows have there.
static Expected<Tensor> fold(OpContext &op, const Tensor &self, int64_t dim, const Windows &windows,
                             int64_t length) {
  if (windows.numBlocks() > kMostSlices)
    return op.error("windows of " + Twine(windows.size) + " elements every " + Twine(windows.step) +
                    " have too many parts; the limit is " + Twine(kMostSlices));
  int64_t block = windows.block();
  std::optional<Tensor> sum;
  for (int64_t j = 0; j != windows.numBlocks(); ++j) {
    ASSIGN_OR_RETURN(Tensor part, slice(op, self, dim + 1, j * block, 1, block));
    ASSIGN_OR_RETURN(part, layOut(op, part, dim, windows, j * block * windows.dilation, length));
    if (sum) {
      ASSIGN_OR_RETURN(part, add(op, *sum, part));
    }
    sum = part;
  }
  return *sum;
}

//===----------------------------------------------------------------------===//
// im2col and col2im
//===----------------------------------------------------------------------===//

namespace {
/// Two-dimensional windows over an image that is padded on all sides.
struct ImageWindows {
  Windows rows, columns;
  int64_t height, width; ///< with padding
  Shape padding;
};
} // namespace

static Expected<ImageWindows> getImageWindows(OpContext &op, int64_t height, int64_t width) {
  ASSIGN_OR_RETURN(Shape kernel, op.perDimension("kernel_size", 2));
  ASSIGN_OR_RETURN(Shape dilation, op.perDimension("dilation", 2));
  ASSIGN_OR_RETURN(Shape padding, op.perDimension("padding", 2));
  ASSIGN_OR_RETURN(Shape stride, op.perDimension("stride", 2));
  constexpr int64_t most = 1 << 20;
  for (int64_t value : padding)
    if (value < 0 || value > most)
      return op.error("expected padding of at least 0, found " + toString(padding));
  height += 2 * padding[0];
  width += 2 * padding[1];
  ASSIGN_OR_RETURN(Windows rows, getWindows(op, height, kernel[0], stride[0], dilation[0]));
  ASSIGN_OR_RETURN(Windows columns, getWindows(op, width, kernel[1], stride[1], dilation[1]));
  return ImageWindows{rows, columns, height, width, padding};
}

/// [N, C, H, W], or without N.
static Expected<Tensor> withImageBatch(OpContext &op, const Tensor &self, int64_t rank) {
  if (self.getNumElements() == 0 || (self.rank() != rank && self.rank() != rank - 1))
    return op.error("expected a tensor of rank " + Twine(rank - 1) + " or " + Twine(rank) +
                    ", found " + toString(self.sizes));
  Shape sizes(self.sizes);
  if (self.rank() == rank - 1)
    sizes.insert(sizes.begin(), 1);
  return reshape(op, self, sizes);
}

/// [N, C, H, W] to [N, C kh kw, windows].
static Error lowerIm2col(OpContext &op) {
  ASSIGN_OR_RETURN(Tensor self, withImageBatch(op, op.tensor("self"), 4));
  ASSIGN_OR_RETURN(ImageWindows windows, getImageWindows(op, self.sizes[2], self.sizes[3]));
  SmallVector<int64_t> around{0, 0, windows.padding[0], windows.padding[1]};
  Tensor padded = padZeros(op, self, around, around);
  ASSIGN_OR_RETURN(Tensor result, unfold(op, padded, 3, windows.columns)); // N C H ow kw
  ASSIGN_OR_RETURN(result, unfold(op, result, 2, windows.rows));           // N C oh kh ow kw
  result = permute(op, result, {0, 1, 3, 5, 2, 4});
  ASSIGN_OR_RETURN(result, reshape(op, result, op.resultMeta(0).sizes));
  return setResult(op, op.copy(result));
}

/// [N, C kh kw, windows] to [N, C, H, W].
static Error lowerCol2im(OpContext &op) {
  ASSIGN_OR_RETURN(Tensor self, withImageBatch(op, op.tensor("self"), 3));
  ASSIGN_OR_RETURN(Shape image, op.perDimension("output_size", 2));
  ASSIGN_OR_RETURN(ImageWindows windows, getImageWindows(op, image[0], image[1]));
  const Windows &rows = windows.rows, &columns = windows.columns;
  int64_t taps = rows.size * columns.size;
  if (self.sizes[1] % taps || self.sizes[2] != rows.count * columns.count)
    return op.error("windows of " + toString(image) + " do not have the shape " +
                    toString(self.sizes));
  Shape split{self.sizes[0], self.sizes[1] / taps, rows.size,
              columns.size,  rows.count,           columns.count};
  ASSIGN_OR_RETURN(Tensor result, reshape(op, self, split));
  result = permute(op, result, {0, 1, 4, 2, 5, 3}); // N C oh kh ow kw
  ASSIGN_OR_RETURN(result, fold(op, result, 2, rows, windows.height));
  ASSIGN_OR_RETURN(result, fold(op, result, 3, columns, windows.width));
  for (int64_t i = 0; i != 2; ++i) {
    ASSIGN_OR_RETURN(result, slice(op, result, 2 + i, windows.padding[i], 1, image[i]));
  }
  ASSIGN_OR_RETURN(result, reshape(op, result, op.resultMeta(0).sizes));
  return setResult(op, op.copy(result));
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerWindows(OpTable &table) {
  table.add("aten.unfold.default", "Tensor self, int dimension, int size, int step", lowerUnfold);
  table.add("aten.unfold_copy.default", "Tensor self, int dimension, int size, int step",
            lowerUnfold);
  table.add("aten.im2col.default",
            "Tensor self, int[] kernel_size, int[] dilation, int[] padding, int[] stride",
            lowerIm2col);
  table.add("aten.col2im.default",
            "Tensor self, int[] output_size, int[] kernel_size, int[] dilation, int[] padding, "
            "int[] stride",
            lowerCol2im);
}
