//===- Convolutions.cpp - convolutions and transposed convolutions -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Import/Graph/GraphImporter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace llvm;
using namespace memopt::pt2;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::ValueRange;
using Builder = mlir::ImplicitLocOpBuilder;
namespace arith = mlir::arith;
namespace math = mlir::math;

namespace {
/// The window of a convolution over `rank` spatial dimensions.
struct Window {
  Shape strides, low, high, dilations;
  int64_t groups = 1;
};
} // namespace

/// Numbers beyond this would overflow where the dialect multiplies them.
static Error checkRange(OpContext &op, StringRef name, ArrayRef<int64_t> values, int64_t least) {
  for (int64_t value : values)
    if (value < least || value > std::numeric_limits<int32_t>::max())
      return op.error("argument '" + name + "': expected numbers from " + Twine(least) +
                      ", found " + toString(values));
  return Error::success();
}

static Expected<Window> getWindow(OpContext &op, int64_t rank) {
  Window window;
  ASSIGN_OR_RETURN(window.strides, op.perDimension("stride", rank));
  ASSIGN_OR_RETURN(window.dilations, op.perDimension("dilation", rank));
  window.groups = op.integer("groups");
  RETURN_IF_ERROR(checkRange(op, "stride", window.strides, 1));
  RETURN_IF_ERROR(checkRange(op, "dilation", window.dilations, 1));
  RETURN_IF_ERROR(checkRange(op, "groups", window.groups, 1));
  return window;
}

static Error setPadding(OpContext &op, Window &window, int64_t rank) {
  ASSIGN_OR_RETURN(window.low, op.perDimension("padding", rank));
  RETURN_IF_ERROR(checkRange(op, "padding", window.low, 0));
  window.high = window.low;
  return Error::success();
}

namespace {
/// The operands of a convolution: `input` [N, C, spatial..], where a single image got a batch of
/// one, and the sizes of the result with its batch.
struct Images {
  Tensor input, weight;
  Shape resultSizes;
  int64_t rank; ///< spatial dimensions
};
} // namespace

static Expected<Images> getImages(OpContext &op) {
  Images images{op.tensor("input"), op.tensor("weight"), Shape(op.resultMeta(0).sizes), 0};
  images.rank = images.weight.rank() - 2;
  if (images.input.rank() == images.weight.rank() - 1) {
    Shape sizes(images.input.sizes);
    sizes.insert(sizes.begin(), 1);
    ASSIGN_OR_RETURN(images.input, reshape(op, images.input, sizes));
    images.resultSizes.insert(images.resultSizes.begin(), 1);
  }
  if (images.rank < 1 || images.rank > 3 || images.input.rank() != images.weight.rank() ||
      int64_t(images.resultSizes.size()) != images.input.rank())
    return op.error("expected a weight of rank 3 to 5 and images of that rank or one less, found "
                    "input " +
                    toString(images.input.sizes) + " and weight " + toString(images.weight.sizes));
  RETURN_IF_ERROR(checkRange(op, "weight", ArrayRef(images.weight.sizes).drop_front(2), 1));
  if (!isFloat(images.input.dtype) || images.weight.dtype != images.input.dtype)
    return op.error("convolves " + getName(images.input.dtype) + " with " +
                    getName(images.weight.dtype) +
                    "; convert both to one floating-point type before");
  return images;
}

/// Adds the bias and gives the result, without the batch that a single image got.
static Error finish(OpContext &op, Value result) {
  if (std::optional<Tensor> bias = op.optionalTensor("bias")) {
    ArrayRef<int64_t> sizes = cast<RankedTensorType>(result.getType()).getShape();
    if (bias->rank() != 1 || bias->sizes[0] != sizes[1])
      return op.error("expected a bias of shape [" + Twine(sizes[1]) + "], found " +
                      toString(bias->sizes));
    op.importer.suggestInitial(*bias, 0);
    result = arith::AddFOp::create(op.b, result, broadcastAlong(op.b, op.get(*bias), 1, sizes));
  }
  op.setResult(0, reshapeValue(op.b, result, op.resultMeta(0).sizes));
  return Error::success();
}

static Error convolve(OpContext &op, const Images &images, const Window &window) {
  Value result = mlir::memopt::ConvolutionOp::create(
      op.b, op.tensorType(images.input.dtype, images.resultSizes), op.get(images.input),
      op.get(images.weight), window.strides, window.low, window.high, window.dilations,
      window.groups, mlir::memopt::Layout::ChannelsFirst);
  return finish(op, result);
}

/// Whether the convolution with this window maps the result's sizes back to those of the input.
static bool isExact(const Images &images, const Window &window) {
  for (int64_t i = 0; i != images.rank; ++i) {
    int64_t reach = window.dilations[i] * (images.weight.sizes[i + 2] - 1);
    int64_t rest = images.resultSizes[i + 2] + window.low[i] + window.high[i] - reach - 1;
    if (rest < 0 || rest / window.strides[i] + 1 != images.input.sizes[i + 2])
      return false;
  }
  return true;
}

/// The transposed convolution without padding, of which padding cuts off the border, and
/// `output_padding` adds zeros behind where it goes beyond.
static Value convolveAndCut(OpContext &op, const Images &images, Window window) {
  Shape full(images.resultSizes), begin(full.size(), 0), part, none(full.size(), 0), behind(none);
  for (int64_t i = 0; i != images.rank; ++i)
    full[i + 2] = (images.input.sizes[i + 2] - 1) * window.strides[i] +
                  window.dilations[i] * (images.weight.sizes[i + 2] - 1) + 1;
  for (auto [dim, size] : enumerate(full)) {
    int64_t low = dim < 2 ? 0 : window.low[dim - 2];
    part.push_back(std::max<int64_t>(0, std::min(images.resultSizes[dim], size - low)));
    begin[dim] = low;
    behind[dim] = images.resultSizes[dim] - part.back();
  }
  window.low.assign(images.rank, 0);
  auto type = op.tensorType(images.input.dtype, full);
  Value result = mlir::memopt::ConvolutionBackwardDataOp::create(
      op.b, type, op.get(images.input), op.get(images.weight), window.strides, window.low,
      window.low, window.dilations, window.groups, mlir::memopt::Layout::ChannelsFirst);
  SmallVector<mlir::OpFoldResult> ones(full.size(), op.b.getIndexAttr(1));
  result = mlir::tensor::ExtractSliceOp::create(
      op.b, type.clone(part), result, mlir::getAsIndexOpFoldResult(op.b.getContext(), begin),
      mlir::getAsIndexOpFoldResult(op.b.getContext(), part), ones);
  if (part == images.resultSizes)
    return result;
  return mlir::memopt::PadOp::create(op.b, type.clone(images.resultSizes), result, none, behind);
}

/// The gradient of the convolution that would map the result back to `input`. `output_padding`
/// picks one of the several sizes that such a convolution's input can have; the file says which.
static Error convolveTransposed(OpContext &op, const Images &images, const Window &window) {
  if (!isExact(images, window))
    return finish(op, convolveAndCut(op, images, window));
  Value result = mlir::memopt::ConvolutionBackwardDataOp::create(
      op.b, op.tensorType(images.input.dtype, images.resultSizes), op.get(images.input),
      op.get(images.weight), window.strides, window.low, window.high, window.dilations,
      window.groups, mlir::memopt::Layout::ChannelsFirst);
  return finish(op, result);
}

//===----------------------------------------------------------------------===//
// Operators
//===----------------------------------------------------------------------===//

static Error lowerConvolution(OpContext &op) {
  ASSIGN_OR_RETURN(Images images, getImages(op));
  ASSIGN_OR_RETURN(Window window, getWindow(op, images.rank));
  RETURN_IF_ERROR(setPadding(op, window, images.rank));
  return convolve(op, images, window);
}

/// Padding by name: "same" keeps the size at stride 1, the odd element behind.
static Error lowerConvolutionPadding(OpContext &op) {
  ASSIGN_OR_RETURN(Images images, getImages(op));
  ASSIGN_OR_RETURN(Window window, getWindow(op, images.rank));
  window.low.assign(images.rank, 0);
  window.high.assign(images.rank, 0);
  StringRef padding = op.text("padding");
  if (padding == "same") {
    for (int64_t i = 0; i != images.rank; ++i) {
      int64_t total = window.dilations[i] * (images.weight.sizes[i + 2] - 1);
      RETURN_IF_ERROR(checkRange(op, "dilation", total, 0));
      window.low[i] = total / 2;
      window.high[i] = total - total / 2;
    }
  } else if (padding != "valid") {
    return op.error("argument 'padding': expected same or valid, found " + padding);
  }
  return convolve(op, images, window);
}

static Error lowerConvTranspose(OpContext &op) {
  ASSIGN_OR_RETURN(Images images, getImages(op));
  ASSIGN_OR_RETURN(Window window, getWindow(op, images.rank));
  RETURN_IF_ERROR(setPadding(op, window, images.rank));
  return convolveTransposed(op, images, window);
}

static Error lowerGeneralConvolution(OpContext &op) {
  return op.flag("transposed") ? lowerConvTranspose(op) : lowerConvolution(op);
}

void memopt::pt2::registerConvolutions(OpTable &table) {
  constexpr StringLiteral plain =
      "Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, int[] padding=0, "
      "int[] dilation=1, int groups=1";
  constexpr StringLiteral named =
      "Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, str padding='valid', "
      "int[] dilation=1, int groups=1";
  constexpr StringLiteral transposed =
      "Tensor input, Tensor weight, Tensor? bias=None, int[] stride=1, int[] padding=0, "
      "int[] output_padding=0, int groups=1, int[] dilation=1";
  table.add("aten.conv1d.default", plain, lowerConvolution);
  table.add("aten.conv2d.default", plain, lowerConvolution);
  table.add("aten.conv3d.default", plain, lowerConvolution);
  table.add("aten.conv1d.padding", named, lowerConvolutionPadding);
  table.add("aten.conv2d.padding", named, lowerConvolutionPadding);
  table.add("aten.conv3d.padding", named, lowerConvolutionPadding);
  table.add("aten.conv_transpose1d.default", transposed, lowerConvTranspose);
  table.add("aten.conv_transpose2d.input", transposed, lowerConvTranspose);
  table.add("aten.conv_transpose3d.input", transposed, lowerConvTranspose);
  table.add(
      "aten.convolution.default",
      "Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, "
      "bool transposed, int[] output_padding, int groups",
      lowerGeneralConvolution);
}
