//===- BatchNormUses.h - batch norms in a training graph --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// By the statistics of the batch a normalization is `memopt.batch_norm`. By running statistics it
// is an affine function of each channel, and stands in the graph as just that,
//
//   x * broadcast(factor) + broadcast(shift)    factor = rsqrt(variance + eps) [* scale]
//
// which is found here by its form: PyTorch's own norms and frozen ones that models spell out alike.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_GRAPH_BATCHNORMUSES_H
#define MEMOPT_LIB_TRANSFORMS_GRAPH_BATCHNORMUSES_H

#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <optional>

namespace mlir::memopt {

/// A tensor that repeats one number for each index along `axis`.
struct ChannelValue {
  Value numbers; ///< as many elements as the axis is long, in a tensor of any rank
  int64_t axis;
};

/// What `value` repeats, when it is a broadcast along all dimensions but one.
std::optional<ChannelValue> getChannelValue(Value value);

/// A normalization by running statistics.
struct RunningNorm {
  Value input;
  ChannelValue factor, shift;
  math::RsqrtOp deviation; ///< one divided by the standard deviation, somewhere in `factor`
  arith::MulFOp scaled;    ///< input times factor; nobody else uses it
  arith::AddFOp result;
};

std::optional<RunningNorm> matchRunningNorm(Operation *op);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_GRAPH_BATCHNORMUSES_H
