//===- IterationSpace.h - loops of an op and what they read -----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The mathematics of an op on tensors as a nest of loops, and one affine map from loops to indices
// for each operand and result: what linalg says of its ops (Vasilache et al., Composable and
// Modular Code Generation in MLIR, section 3) and upstream's sharding interface of others, said of
// named ops before they are lowered. From it follow how a batch travels through the op, what it
// sums over the samples, and how it may be cut over ranks.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_INTERFACES_ITERATIONSPACE_H
#define MEMOPT_INTERFACES_ITERATIONSPACE_H

#include "mlir/IR/AffineMap.h"
#include "llvm/ADT/SmallVector.h"

namespace mlir::memopt {

enum class LoopKind {
  Parallel,  ///< results on its iterations do not depend on each other
  Sum,       ///< results that lack the loop are sums over it
  Statistic, ///< results depend on all of it, as batch normalization does on its batch: what holds
             ///< of a part of the loop is another, valid statistic
  Mix,       ///< results depend on all of it in some other way
};

struct IterationSpace {
  SmallVector<int64_t> sizes;
  SmallVector<LoopKind> kinds;
  /// Operands, then results; null for what is no ranked tensor.
  SmallVector<AffineMap> maps;

  unsigned getNumLoops() const { return sizes.size(); }
};

} // namespace mlir::memopt

#endif // MEMOPT_INTERFACES_ITERATIONSPACE_H
