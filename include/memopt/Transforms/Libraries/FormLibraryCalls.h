//===- FormLibraryCalls.h - named ops to library calls ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_LIBRARIES_FORMLIBRARYCALLS_H
#define MEMOPT_TRANSFORMS_LIBRARIES_FORMLIBRARYCALLS_H

#include "memopt/Dialect/ApartOps.h"

#include "mlir/IR/Block.h"

namespace mlir::memopt {

/// Replaces every op of the block that a library computes by a call, planned for the module's
/// target.
LogicalResult formLibraryCalls(Block &block);

/// What a block writes to each variable.
using VariableWrites = llvm::DenseMap<Attribute, SmallVector<WriteOp, 1>>;

/// Each replaces one op and what it folds into the call. Sums that are written to a variable are
/// found among `writes`, those of the op's block.
LogicalResult formMatmulCall(MatmulOp op, const VariableWrites &writes);
LogicalResult formConvolutionCall(ConvolutionOp op);
LogicalResult formConvolutionCall(ConvolutionBackwardDataOp op);
LogicalResult formConvolutionCall(ConvolutionBackwardWeightsOp op, const VariableWrites &writes);
LogicalResult formAttentionCall(AttentionOp op);
LogicalResult formAttentionCall(AttentionBackwardOp op);
LogicalResult formLinearAlgebraCall(LinearAlgebraOp op);

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_LIBRARIES_FORMLIBRARYCALLS_H
