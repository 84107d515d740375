//===- Convolutions.cpp - convolutions and transposed convolutions -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GraphImporter.h"

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

/// The number of spatial dimensions; batched tensors only.
static Expected<int64_t> getSpatialRank(OpContext &op, const Tensor &input, const Tensor &weight) {
  int64_t rank = input.rank() - 2;
  if (rank < 1 || rank > 3 || weight.rank() != input.rank() ||
      int64_t(op.resultMeta(0).sizes.size()) != input.rank())
    return op.error("expected input, weight and result of one rank from 3 to 5, found input " +
                    toString(input.sizes) + " and weight " + toString(weight.sizes));
  RETURN_IF_ERROR(checkRange(op, "weight", ArrayRef(weight.sizes).drop_front(2), 1));
  return rank;
}

static Error addBias(OpContext &op, Value result) {
  if (std::optional<Tensor> bias = op.optionalTensor("bias")) {
    ArrayRef<int64_t> sizes = cast<RankedTensorType>(result.getType()).getShape();
    if (bias->rank() != 1 || bias->sizes[0] != sizes[1])
      return op.error("expected a bias of shape [" + Twine(sizes[1]) + "], found " +
                      toString(bias->sizes));
    op.importer.suggestInitial(*bias, 0);
    result = arith::AddFOp::create(op.b, result, broadcastAlong(op.b, op.get(*bias), 1, sizes));
  }
  op.setResult(0, result);
  return Error::success();
}

static Error convolve(OpContext &op, const Tensor &input, const Tensor &weight,
                      const Window &window) {
  Value result = mlir::memopt::ConvolutionOp::create(
      op.b, op.resultType(0), op.get(input), op.get(weight), window.strides, window.low,
      window.high, window.dilations, window.groups, mlir::memopt::Layout::ChannelsFirst);
  return addBias(op, result);
}

/// The gradient of the convolution that would map the result back to `input`. `output_padding`
/// picks one of the several sizes that such a convolution's input can have; the file says which.
static Error convolveTransposed(OpContext &op, const Tensor &input, const Tensor &weight,
                                const Window &window) {
  Value result = mlir::memopt::ConvolutionBackwardDataOp::create(
      op.b, op.resultType(0), op.get(input), op.get(weight), window.strides, window.low,
      window.high, window.dilations, window.groups, mlir::memopt::Layout::ChannelsFirst);
  return addBias(op, result);
}

static Error lowerConvolution(OpContext &op) {
  Tensor input = op.tensor("input"), weight = op.tensor("weight");
  ASSIGN_OR_RETURN(int64_t rank, getSpatialRank(op, input, weight));
  ASSIGN_OR_RETURN(Window window, getWindow(op, rank));
  RETURN_IF_ERROR(setPadding(op, window, rank));
  return convolve(op, input, weight, window);
}

/// Padding by name: "same" keeps the size at stride 1, the odd element behind.
static Error lowerConvolutionPadding(OpContext &op) {
  Tensor input = op.tensor("input"), weight = op.tensor("weight");
  ASSIGN_OR_RETURN(int64_t rank, getSpatialRank(op, input, weight));
  ASSIGN_OR_RETURN(Window window, getWindow(op, rank));
  window.low.assign(rank, 0);
  window.high.assign(rank, 0);
  StringRef padding = op.text("padding");
  if (padding == "same") {
    for (int64_t i = 0; i != rank; ++i) {
      int64_t total = window.dilations[i] * (weight.sizes[i + 2] - 1);
      RETURN_IF_ERROR(checkRange(op, "dilation", total, 0));
      window.low[i] = total / 2;
      window.high[i] = total - total / 2;
    }
  } else if (padding != "valid") {
    return op.error("argument 'padding': expected same or valid, found " + padding);
  }
  return convolve(op, input, weight, window);
}

static Error lowerConvTranspose(OpContext &op) {
  Tensor input = op.tensor("input"), weight = op.tensor("weight");
  ASSIGN_OR_RETURN(int64_t rank, getSpatialRank(op, input, weight));
  ASSIGN_OR_RETURN(Window window, getWindow(op, rank));
  RETURN_IF_ERROR(setPadding(op, window, rank));
  return convolveTransposed(op, input, weight, window);
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
