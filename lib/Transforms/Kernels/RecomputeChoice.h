//===- RecomputeChoice.h - what backward keeps, what it recomputes --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The decision of recompute-elementwise, apart from its rewriting. A minimum cut over bytes, after
// the min-cut partitioner of PyTorch (H. He, A. Jain, torch/_functorch/partitioners.py): each
// forward value is a node with its bytes as capacity; results that must not be recomputed hang on
// the source, what backward reads on the sink; the cut values are those to keep.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_KERNELS_RECOMPUTECHOICE_H
#define MEMOPT_LIB_TRANSFORMS_KERNELS_RECOMPUTECHOICE_H

#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::memopt {

/// Which forward ops the backward pass repeats. Deterministic: follows from the order of ops alone.
class RecomputeChoice {
public:
  explicit RecomputeChoice(Block &block);

  /// Forward ops whose results backward makes again, in program order. Each is pointwise or a view.
  ArrayRef<Operation *> getRecomputed() const { return recomputed.getArrayRef(); }
  bool isRecomputed(Operation *op) const { return recomputed.contains(op); }
  /// Values that stay alive from forward to backward, in program order.
  ArrayRef<Value> getKept() const { return kept; }
  /// Bytes alive between the passes when backward reads what the program says, and when it
  /// recomputes. What is alive all the time (arguments, variables, results of the step) is not
  /// counted.
  int64_t getBytesBefore() const { return bytesBefore; }
  int64_t getBytesAfter() const { return bytesAfter; }

private:
  enum class Role {
    Free,      ///< alive anyway, or made of nothing where it is read
    View,      ///< another way to read its operand: costs nothing, keeps nothing
    Pointwise, ///< may be computed again
    Fixed,     ///< kept or not, but never computed again
  };
  Role getRole(Value value) const;
  static Role classify(Operation *op);
  void collect(Block &block);
  void cut();
  bool banLongChains();
  double getCost(Operation *op, double limit) const;
  Value getRoot(Value value) const;

  SmallVector<Operation *> forward;        ///< in program order
  llvm::DenseMap<Operation *, Role> roles; ///< of forward ops
  llvm::SetVector<Value> needed;           ///< forward values that backward reads
  llvm::DenseSet<Value> returned;          ///< alive to the end
  llvm::SetVector<Operation *> recomputed;
  SmallVector<Value> kept;
  int64_t bytesBefore = 0, bytesAfter = 0;
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_KERNELS_RECOMPUTECHOICE_H
