//===- Work.h - what one instruction does, in counts ------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Counts that follow from the instruction alone; a target's rates turn them into seconds.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_INTERFACES_WORK_H
#define MEMOPT_INTERFACES_WORK_H

namespace mlir::memopt {

/// Instructions of one class share a rate of arithmetic.
enum class WorkClass {
  Kernel, ///< generated code
  Matmul,
  Convolution,                ///< forward, and the gradient of its input
  ConvolutionWeight,          ///< the gradient of its weights
  PointwiseConvolution,       ///< of filters of one tap, which are products of matrices
  PointwiseConvolutionWeight, ///< the gradient of such weights
  TiledConvolution, ///< of 3 x 3 taps, where the library takes tiles for them (LibraryCalls.md)
  TiledConvolutionWeight, ///< the gradient of such weights
  GroupConvolution,       ///< all three with few channels in a group, depthwise among them
  AttentionForward,
  AttentionBackward,
  Copy,         ///< within one memory: packed weights, what ranks read of each other
  HostTransfer, ///< between a device and its host; on a processor, a copy
  DiskTransfer, ///< between the host and a disk
  HostKernel,   ///< generated code that the host of a device runs
};

/// Operations of products are counted in whole vectors of so many elements, the longest that any
/// processor has; those of attention in whole tiles, those of the runtime's own code. Rates are
/// measured of work that is counted in the same way, so these are units of the count.
inline constexpr double kWorkVector = 16, kWorkAttentionTile = 96;

/// How a product of matrices or a convolution multiplies.
enum class Multiplication {
  Full,      ///< in 32 bits or more, as its operands are
  Narrow,    ///< 16-bit operands by instructions that take them
  Converted, ///< 16-bit operands, widened on the way
};

struct Work {
  WorkClass workClass = WorkClass::Kernel;
  Multiplication multiplication = Multiplication::Full;
  /// Of the library's sums (a multiply-add counts as two), filled up to whole vectors; or the cheap
  /// ones of a kernel on elements of 32 bits.
  double operations = 0;
  /// Of a kernel: exponentials, logarithms and the like; a division counts as a quarter. Of
  /// attention: passes over scores.
  double functions = 0;
  /// Bytes that have to be read and written once.
  double bytes = 0;
  /// Of a convolution: weights that it brings into an order of its own, or out of it. Products with
  /// few positions of an image repeat each weight rarely, so this is not small beside them.
  double weights = 0;
};

} // namespace mlir::memopt

#endif // MEMOPT_INTERFACES_WORK_H
