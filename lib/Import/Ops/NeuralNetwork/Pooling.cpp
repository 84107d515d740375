//===- Pooling.cpp - pooling, resizing, padding -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Ops/Indexing/Indexing.h"
#include "memopt/Import/Ops/Reductions/Reductions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::ValueRange;
using Builder = mlir::ImplicitLocOpBuilder;
namespace arith = mlir::arith;
namespace math = mlir::math;

//===----------------------------------------------------------------------===//
// Pooling
//===----------------------------------------------------------------------===//

namespace {
struct Pool {
  Shape kernel, strides, low, high, dilations;
  Shape sizes; ///< of the result
};
} // namespace

/// Largest number that windows may contain; keeps their arithmetic far from overflow.
static Error checkWindow(OpContext &op, const Pool &pool) {
  for (const Shape *values : {&pool.kernel, &pool.strides, &pool.dilations})
    for (int64_t value : *values)
      if (value < 1 || value > (1 << 20))
        return op.error("expected positive kernel sizes, strides and dilations, found " +
                        toString(*values));
  for (int64_t value : pool.low)
    if (value < 0 || value > (1 << 20))
      return op.error("expected padding of at least 0, found " + toString(pool.low));
  return Error::success();
}

/// The input with a batch, which it may lack.
static Expected<Tensor> withBatch(OpContext &op, const Tensor &input, int64_t rank) {
  if ((input.rank() != rank + 2 && input.rank() != rank + 1) || input.getNumElements() == 0 ||
      !isFloat(input.dtype))
    return op.error("expected a floating-point input of rank " + Twine(rank + 2) + " or " +
                    Twine(rank + 1) + ", found " + getName(input.dtype) + toString(input.sizes));
  Shape sizes(input.sizes);
  if (input.rank() == rank + 1)
    sizes.insert(sizes.begin(), 1);
  return reshape(op, input, sizes);
}

/// Sets result i, without the batch if the file has none.
static Error setPooled(OpContext &op, size_t i, const Tensor &tensor) {
  ASSIGN_OR_RETURN(Tensor result, reshape(op, tensor, op.resultMeta(i).sizes));
  op.setResult(i, op.copy(result));
  return Error::success();
}

/// Where windows lie. With `ceil_mode` a last window may hang over the end: it is given padding
/// there.
static Expected<Pool> getPool(OpContext &op, const Tensor &input, bool hasDilation) {
  int64_t rank = input.rank() - 2;
  Pool pool;
  ASSIGN_OR_RETURN(pool.kernel, op.perDimension("kernel_size", rank));
  pool.strides = pool.kernel;
  if (!op.integers("stride").empty()) {
    ASSIGN_OR_RETURN(pool.strides, op.perDimension("stride", rank));
  }
  ASSIGN_OR_RETURN(pool.low, op.perDimension("padding", rank));
  pool.dilations.assign(rank, 1);
  if (hasDilation) {
    ASSIGN_OR_RETURN(pool.dilations, op.perDimension("dilation", rank));
  }
  RETURN_IF_ERROR(checkWindow(op, pool));
  pool.high = pool.low;
  pool.sizes.assign({input.sizes[0], input.sizes[1]});
  for (int64_t i = 0; i != rank; ++i) {
    int64_t size = input.sizes[i + 2], reach = pool.dilations[i] * (pool.kernel[i] - 1) + 1;
    int64_t room = size + 2 * pool.low[i] - reach;
    if (room < 0 && !(op.flag("ceil_mode") && room > -pool.strides[i]))
      return op.error("a window of " + Twine(reach) + " does not fit " + Twine(size) + " elements");
    int64_t count = room < 0 ? 0 : room / pool.strides[i] + 1;
    if (op.flag("ceil_mode")) {
      count = room < 0 ? 1 : (room + pool.strides[i] - 1) / pool.strides[i] + 1;
      if ((count - 1) * pool.strides[i] >= size + pool.low[i]) // would start in the padding
        --count;
      pool.high[i] =
          std::max(pool.low[i], (count - 1) * pool.strides[i] + reach - size - pool.low[i]);
    }
    pool.sizes.push_back(count);
  }
  return pool;
}

//===----------------------------------------------------------------------===//
// Maxima
//===----------------------------------------------------------------------===//

/// Whether windows of many elements lie side by side: what knows each element by itself, as the
/// pooling does, would be long.
static bool isReduction(const Pool &pool) {
  constexpr int64_t fewTaps = 64;
  Shape zeros(pool.kernel.size(), 0), ones(pool.kernel.size(), 1);
  return mlir::computeProduct(pool.kernel) > fewTaps && pool.strides == pool.kernel &&
         pool.low == zeros && pool.high == zeros && pool.dilations == ones;
}

/// The maxima of windows that lie side by side: of dimensions of their own.
static Expected<Extremes> reduceWindows(OpContext &op, Tensor input, const Pool &pool) {
  Shape split(ArrayRef(input.sizes).take_front(2));
  Reduction windows;
  for (int64_t dim = 0, rank = pool.kernel.size(); dim != rank; ++dim) {
    int64_t count = pool.sizes[dim + 2], size = pool.kernel[dim];
    ASSIGN_OR_RETURN(input, slice(op, input, dim + 2, 0, 1, count * size));
    windows.dimensions.push_back(split.size() + 1);
    split.append({count, size});
  }
  ASSIGN_OR_RETURN(Tensor apart, reshape(op, input, split));
  windows.value = op.get(apart);
  return findExtremes(op, windows, mlir::memopt::ReduceKind::Max);
}

/// Maxima, and the number of the element of its window that each is.
static Expected<Extremes> findMaxima(OpContext &op, const Tensor &input, const Pool &pool) {
  if (isReduction(pool)) {
    ASSIGN_OR_RETURN(Extremes found, reduceWindows(op, input, pool));
    ASSIGN_OR_RETURN(Tensor values, reshape(op, op.wrap(input.dtype, found.values), pool.sizes));
    ASSIGN_OR_RETURN(Tensor numbers, reshape(op, op.wrap(DType::I64, found.numbers), pool.sizes));
    return Extremes{op.get(values), op.get(numbers)};
  }
  mlir::Type tapType =
      mlir::computeProduct(pool.kernel) <= 127 ? op.b.getI8Type() : op.b.getI32Type();
  auto maxPool = mlir::memopt::MaxPoolOp::create(
      op.b, op.tensorType(input.dtype, pool.sizes), RankedTensorType::get(pool.sizes, tapType),
      op.get(input), pool.kernel, pool.strides, pool.low, pool.high,
      mlir::memopt::Layout::ChannelsFirst, pool.dilations);
  return Extremes{maxPool.getResult(), maxPool.getTaps()};
}

/// The positions of maxima among all elements of an image, [N, C, spatial...]. `begin` gives where
/// the windows of a dimension begin, from their numbers.
static Value getPositions(OpContext &op, Value tap, const Pool &pool, ArrayRef<int64_t> image,
                          function_ref<Value(Value, int64_t)> begin) {
  Builder &b = op.b;
  auto narrow = cast<RankedTensorType>(tap.getType()), type = narrow.clone(b.getI64Type());
  auto number = [&](int64_t value) {
    Scalar scalar;
    scalar.integer = value;
    return splat(b, type, scalar);
  };
  if (narrow != type)
    tap = arith::ExtSIOp::create(b, type, tap);
  Value position;
  int64_t rank = pool.kernel.size(), inner = 1;
  for (int64_t size : pool.kernel)
    inner *= size;
  for (int64_t dim = 0; dim != rank; ++dim) {
    inner /= pool.kernel[dim];
    Value own = arith::DivSIOp::create(b, tap, number(inner));
    tap = arith::RemSIOp::create(b, tap, number(inner));
    Value window = mlir::memopt::IotaOp::create(b, type, dim + 2);
    Value offset = arith::MulIOp::create(b, own, number(pool.dilations[dim]));
    Value at = arith::AddIOp::create(b, begin(window, dim), offset);
    if (position)
      at = arith::AddIOp::create(b, arith::MulIOp::create(b, position, number(image[dim])), at);
    position = at;
  }
  return position;
}

/// Sets the maxima, and their positions if somebody reads them.
static Error setMaxima(OpContext &op, const Tensor &windows, const Pool &pool, const Tensor &input,
                       function_ref<Value(Value, int64_t)> begin) {
  ASSIGN_OR_RETURN(Extremes maxima, findMaxima(op, windows, pool));
  RETURN_IF_ERROR(setPooled(op, 0, op.wrap(input.dtype, maxima.values)));
  if (op.getNumResults() < 2 || !op.isUsed(1))
    return Error::success();
  Value positions =
      getPositions(op, maxima.numbers, pool, ArrayRef(input.sizes).drop_front(2), begin);
  return setPooled(op, 1, op.wrap(DType::I64, positions));
}

template <int64_t rank> static Error lowerMaxPool(OpContext &op) {
  ASSIGN_OR_RETURN(Tensor input, withBatch(op, op.tensor("self"), rank));
  ASSIGN_OR_RETURN(Pool pool, getPool(op, input, /*hasDilation=*/true));
  return setMaxima(op, input, pool, input, [&](Value window, int64_t dim) {
    Scalar stride, low;
    stride.integer = pool.strides[dim];
    low.integer = pool.low[dim];
    Value scaled = arith::MulIOp::create(op.b, window, splat(op.b, window.getType(), stride));
    return arith::SubIOp::create(op.b, scaled, splat(op.b, window.getType(), low)).getResult();
  });
}

/// First element of window i of `count` over `size` elements: floor(i size / count).
static int64_t getWindowBegin(int64_t i, int64_t size, int64_t count) { return i * size / count; }
static int64_t getWindowEnd(int64_t i, int64_t size, int64_t count) {
  return ((i + 1) * size + count - 1) / count;
}

/// Windows of different sizes are laid side by side, shorter ones filled up with their last
/// element, which is not the first maximum anywhere.
static Expected<Tensor> separateWindows(OpContext &op, const Tensor &input, int64_t dim,
                                        int64_t count, int64_t longest) {
  int64_t size = input.sizes[dim];
  SmallVector<int64_t> picked;
  for (int64_t i = 0; i != count; ++i)
    for (int64_t j = 0; j != longest; ++j)
      picked.push_back(
          std::min(getWindowBegin(i, size, count) + j, getWindowEnd(i, size, count) - 1));
  Tensor index = op.wrap(ConstantTensor::dense(DType::I64, int64_t(picked.size()), picked));
  return selectAlong(op, input, index, dim);
}

template <int64_t rank> static Error lowerAdaptiveMaxPool(OpContext &op) {
  ASSIGN_OR_RETURN(Tensor input, withBatch(op, op.tensor("self"), rank));
  ASSIGN_OR_RETURN(Shape output, op.perDimension("output_size", rank));
  Pool pool;
  pool.sizes.assign({input.sizes[0], input.sizes[1]});
  Tensor windows = input;
  for (int64_t dim = 0; dim != rank; ++dim) {
    int64_t size = input.sizes[dim + 2], count = output[dim], longest = 1;
    if (count < 1 || count > (1 << 20))
      return op.error("expected a positive output size, found " + toString(output));
    for (int64_t i = 0; i != count; ++i)
      longest = std::max(longest, getWindowEnd(i, size, count) - getWindowBegin(i, size, count));
    if (size % count) {
      ASSIGN_OR_RETURN(windows, separateWindows(op, windows, dim + 2, count, longest));
    }
    pool.kernel.push_back(longest);
    pool.sizes.push_back(count);
  }
  pool.strides = pool.kernel;
  pool.low.assign(rank, 0);
  pool.high.assign(rank, 0);
  pool.dilations.assign(rank, 1);
  return setMaxima(op, windows, pool, input, [&](Value window, int64_t dim) {
    Scalar size, count;
    size.integer = input.sizes[dim + 2];
    count.integer = output[dim];
    Value scaled = arith::MulIOp::create(op.b, window, splat(op.b, window.getType(), size));
    return arith::DivSIOp::create(op.b, scaled, splat(op.b, window.getType(), count)).getResult();
  });
}

/// Elements, each put where its index among the places of the last `rank` dimensions of `output`
/// says; zeros elsewhere.
static Expected<Tensor> putInPlanes(OpContext &op, mlir::memopt::ScatterKind kind,
                                    const Tensor &elements, const Tensor &indices,
                                    ArrayRef<int64_t> output) {
  int64_t rank = output.size();
  if (elements.sizes != indices.sizes || elements.rank() < rank || elements.getNumElements() == 0)
    return op.error("expected elements and indices of one shape, found " +
                    toString(elements.sizes) + " and " + toString(indices.sizes));
  Shape lead(ArrayRef(elements.sizes).drop_back(rank)), flat(lead), image(lead), whole(lead);
  append_range(whole, output);
  RETURN_IF_ERROR(countElements(op, whole).takeError());
  flat.push_back(mlir::computeProduct(ArrayRef(elements.sizes).take_back(rank)));
  image.push_back(mlir::computeProduct(output));
  ASSIGN_OR_RETURN(Tensor values, reshape(op, elements, flat));
  ASSIGN_OR_RETURN(Tensor index, reshape(op, indices, flat));
  Places at = Places::identity(flat);
  ASSIGN_OR_RETURN(at.indices.back(), prepareIndex(op, index, image.back(), false));
  Tensor zeros = op.wrap(values.dtype, splat(op.b, op.tensorType(values.dtype, image), 0.0));
  ASSIGN_OR_RETURN(Tensor result, scatter(op, kind, zeros, values, at));
  return reshape(op, result, whole);
}

template <int64_t rank> static Error lowerMaxUnpool(OpContext &op) {
  Tensor self = op.tensor("self");
  ASSIGN_OR_RETURN(Shape output, op.perDimension("output_size", rank));
  if (self.rank() <= rank)
    return op.error("expected channels in front of " + Twine(rank) + " dimensions, found " +
                    toString(self.sizes));
  return setResult(
      op, putInPlanes(op, mlir::memopt::ScatterKind::Set, self, op.tensor("indices"), output));
}

/// Gradients of a max pooling's results, each added where the result came from.
template <int64_t rank> static Error lowerMaxPoolBackward(OpContext &op) {
  Tensor self = op.tensor("self"), gradient = castTo(op, op.tensor("grad_output"), self.dtype);
  if (self.rank() < rank || gradient.rank() != self.rank() ||
      !equal(ArrayRef(self.sizes).drop_back(rank), ArrayRef(gradient.sizes).drop_back(rank)))
    return op.error("expected gradients of the results of pooling " + toString(self.sizes) +
                    ", found " + toString(gradient.sizes));
  return setResult(op, putInPlanes(op, mlir::memopt::ScatterKind::Add, gradient,
                                   op.tensor("indices"), ArrayRef(self.sizes).take_back(rank)));
}

//===----------------------------------------------------------------------===//
// Means
//===----------------------------------------------------------------------===//

/// How many elements each window counts: those in the input and its padding, but not those beyond,
/// which a hanging window only reaches.
static Expected<Tensor> divideByCounts(OpContext &op, Tensor sums, const Pool &pool,
                                       const Tensor &input) {
  for (int64_t dim = 0, rank = pool.kernel.size(); dim != rank; ++dim) {
    int64_t end = input.sizes[dim + 2] + 2 * pool.low[dim];
    SmallVector<int64_t> counts;
    for (int64_t i = 0; i != pool.sizes[dim + 2]; ++i)
      counts.push_back(std::min(pool.kernel[dim], end - i * pool.strides[dim]));
    Tensor known = op.wrap(ConstantTensor::dense(DType::I64, int64_t(counts.size()), counts));
    ASSIGN_OR_RETURN(known, placeAt(op, known, rank + 2, dim + 2));
    ASSIGN_OR_RETURN(sums, elementwise(op, {sums, known}, sums.dtype, sums.dtype,
                                       [](Builder &b, ValueRange v) -> Value {
                                         return arith::DivFOp::create(b, v[0], v[1]);
                                       }));
  }
  return sums;
}

template <int64_t rank> static Error lowerAvgPool(OpContext &op) {
  ASSIGN_OR_RETURN(Tensor input, withBatch(op, op.tensor("self"), rank));
  ASSIGN_OR_RETURN(Pool pool, getPool(op, input, /*hasDilation=*/false));
  bool counts = op.flag("count_include_pad");
  int64_t divisor = rank > 1 && op.has("divisor_override") ? op.integer("divisor_override") : 0;
  if (rank > 1 && op.has("divisor_override") && divisor <= 0)
    return op.error("argument 'divisor_override': expected a positive integer, found " +
                    Twine(divisor));
  bool hangs = counts && divisor == 0 && pool.high != pool.low;
  Tensor result =
      op.wrap(input.dtype, mlir::memopt::AvgPoolOp::create(
                               op.b, op.tensorType(input.dtype, pool.sizes), op.get(input),
                               pool.kernel, pool.strides, pool.low, pool.high,
                               mlir::memopt::Layout::ChannelsFirst, counts, hangs ? 1 : divisor));
  if (hangs) {
    ASSIGN_OR_RETURN(result, divideByCounts(op, result, pool, input));
  }
  return setPooled(op, 0, result);
}

/// Windows of equal size are a pool, one over everything is a plain mean; others a resampling.
template <int64_t rank> static Error lowerAdaptiveAvgPool(OpContext &op) {
  ASSIGN_OR_RETURN(Tensor input, withBatch(op, op.tensor("self"), rank));
  ASSIGN_OR_RETURN(Shape output, op.perDimension("output_size", rank));
  Shape kernel, sizes(ArrayRef(input.sizes).take_front(2));
  SmallVector<double> scales;
  int64_t elements = 1;
  bool isEven = true;
  for (int64_t i = 0; i != rank; ++i) {
    int64_t size = input.sizes[i + 2];
    if (output[i] < 1)
      return op.error("expected a positive output size, found " + toString(output));
    isEven &= size % output[i] == 0;
    kernel.push_back(size / output[i]);
    elements *= kernel.back();
    sizes.push_back(output[i]);
    scales.push_back(double(size) / double(output[i]));
  }
  RETURN_IF_ERROR(countElements(op, sizes).takeError());
  Value value = op.get(input);
  if (isEven && elements == 1)
    return setPooled(op, 0, input);
  if (all_of(output, [](int64_t size) { return size == 1; })) {
    Value sum = reduceValue(op.b, value, mlir::memopt::ReduceKind::Add,
                            to_vector(seq<int64_t>(2, input.rank())), /*keep=*/true);
    Value mean = arith::DivFOp::create(op.b, sum, splat(op.b, sum.getType(), double(elements)));
    return setPooled(op, 0, op.wrap(input.dtype, mean));
  }
  Shape none(rank, 0);
  auto type = op.tensorType(input.dtype, sizes);
  Value result =
      isEven ? mlir::memopt::AvgPoolOp::create(op.b, type, value, kernel, kernel, none, none)
                   .getResult()
             : mlir::memopt::InterpolateOp::create(op.b, type, value, scales,
                                                   mlir::memopt::Resampling::Area, false)
                   .getResult();
  return setPooled(op, 0, op.wrap(input.dtype, result));
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

void memopt::pt2::registerPooling(OpTable &table) {
  constexpr StringLiteral maxPool =
      "Tensor self, int[] kernel_size, int[] stride=[], int[] padding=0, "
      "int[] dilation=1, bool ceil_mode=False";
  constexpr StringLiteral avgPool =
      "Tensor self, int[] kernel_size, int[] stride=[], int[] padding=0, "
      "bool ceil_mode=False, bool count_include_pad=True, "
      "int? divisor_override=None";
  constexpr StringLiteral adaptive = "Tensor self, int[] output_size";
  constexpr StringLiteral maxima = "Tensor self, Tensor indices, int[] output_size";
  table.add("aten.max_pool1d.default", maxPool, lowerMaxPool<1>);
  table.add("aten.max_pool2d.default", maxPool, lowerMaxPool<2>);
  table.add("aten.max_pool3d.default", maxPool, lowerMaxPool<3>);
  table.add("aten.max_pool1d_with_indices.default", maxPool, lowerMaxPool<1>);
  table.add("aten.max_pool2d_with_indices.default", maxPool, lowerMaxPool<2>);
  table.add("aten.max_pool3d_with_indices.default", maxPool, lowerMaxPool<3>);
  table.add("aten.max_unpool2d.default", maxima, lowerMaxUnpool<2>);
  table.add("aten.max_unpool3d.default",
            "Tensor self, Tensor indices, int[] output_size, ignored stride, ignored padding",
            lowerMaxUnpool<3>);
  constexpr StringLiteral maxPoolBackward =
      "Tensor grad_output, Tensor self, ignored kernel_size, ignored stride, ignored padding, "
      "ignored dilation, ignored ceil_mode, Tensor indices";
  table.add("aten.max_pool2d_with_indices_backward.default", maxPoolBackward,
            lowerMaxPoolBackward<2>);
  table.add("aten.max_pool3d_with_indices_backward.default", maxPoolBackward,
            lowerMaxPoolBackward<3>);
  table.add("aten.avg_pool1d.default", avgPool, lowerAvgPool<1>);
  table.add("aten.avg_pool2d.default", avgPool, lowerAvgPool<2>);
  table.add("aten.avg_pool3d.default", avgPool, lowerAvgPool<3>);
  table.add("aten.adaptive_avg_pool1d.default", adaptive, lowerAdaptiveAvgPool<1>);
  table.add("aten.adaptive_avg_pool2d.default", adaptive, lowerAdaptiveAvgPool<2>);
  table.add("aten._adaptive_avg_pool2d.default", adaptive, lowerAdaptiveAvgPool<2>);
  table.add("aten.adaptive_avg_pool3d.default", adaptive, lowerAdaptiveAvgPool<3>);
  table.add("aten._adaptive_avg_pool3d.default", adaptive, lowerAdaptiveAvgPool<3>);
  table.add("aten.adaptive_max_pool1d.default", adaptive, lowerAdaptiveMaxPool<1>);
  table.add("aten.adaptive_max_pool2d.default", adaptive, lowerAdaptiveMaxPool<2>);
  table.add("aten.adaptive_max_pool3d.default", adaptive, lowerAdaptiveMaxPool<3>);
}
