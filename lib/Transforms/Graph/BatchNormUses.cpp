//===- BatchNormUses.cpp - batch norms in a training graph -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BatchNormUses.h"

#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mlir::memopt;

std::optional<ChannelValue> mlir::memopt::getChannelValue(Value value) {
  auto broadcast = value.getDefiningOp<BroadcastOp>();
  if (!broadcast)
    return std::nullopt;
  auto from = cast<RankedTensorType>(broadcast.getInput().getType());
  auto to = cast<RankedTensorType>(broadcast.getType());
  std::optional<int64_t> axis;
  for (auto [size, dimension] : llvm::zip_equal(from.getShape(), broadcast.getDimensions())) {
    if (size == 1 && from.getRank() > 1)
      continue;
    if (axis || size != to.getDimSize(dimension))
      return std::nullopt;
    axis = dimension;
  }
  return axis ? std::optional(ChannelValue{broadcast.getInput(), *axis}) : std::nullopt;
}

/// Whether `root` is 1 / sqrt(x + constant).
static bool isInverseDeviation(math::RsqrtOp root) {
  auto sum = root.getOperand().getDefiningOp<arith::AddFOp>();
  return sum && llvm::any_of(sum->getOperands(),
                             [](Value term) { return matchPattern(term, m_Constant()); });
}

/// The inverse deviation among the factors of `value`, reshapes looked through; or null.
static math::RsqrtOp findDeviation(Value value) {
  llvm::SetVector<Operation *> open;
  auto follow = [&](Value factor) {
    if (Operation *op = factor.getDefiningOp())
      open.insert(op);
  };
  follow(value);
  for (size_t next = 0; next < open.size(); ++next) {
    Operation *op = open[next];
    if (auto root = dyn_cast<math::RsqrtOp>(op); root && isInverseDeviation(root))
      return root;
    if (isa<arith::MulFOp>(op) || isReshape(op))
      llvm::for_each(op->getOperands(), follow);
  }
  return {};
}

/// The two operands of a commutative op, the one along channels second.
static std::optional<std::pair<Value, ChannelValue>> splitChannelValue(Operation *op) {
  Value left = op->getOperand(0), right = op->getOperand(1);
  if (std::optional<ChannelValue> channel = getChannelValue(right))
    return std::pair(left, *channel);
  if (std::optional<ChannelValue> channel = getChannelValue(left))
    return std::pair(right, *channel);
  return std::nullopt;
}

std::optional<RunningNorm> mlir::memopt::matchRunningNorm(Operation *op) {
  auto result = dyn_cast<arith::AddFOp>(op);
  if (!result)
    return std::nullopt;
  auto sum = splitChannelValue(result);
  auto scaled = sum ? sum->first.getDefiningOp<arith::MulFOp>() : arith::MulFOp();
  if (!scaled || !scaled->hasOneUse())
    return std::nullopt;
  auto product = splitChannelValue(scaled);
  if (!product || product->second.axis != sum->second.axis)
    return std::nullopt;
  math::RsqrtOp deviation = findDeviation(product->second.numbers);
  if (!deviation)
    return std::nullopt;
  return RunningNorm{product->first, product->second, sum->second, deviation, scaled, result};
}
