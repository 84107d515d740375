//===- TokenSegment.h - what can run for some tokens at a time ---*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A segment is a convex part of a block whose ops treat each token by itself, or sum over tokens:
// a linear layer over a large vocabulary with its loss and their gradients, say. It grows from one
// wide value through all that reads and makes wide values, and holds whatever lies between.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_BATCHES_TOKENSEGMENT_H
#define MEMOPT_LIB_TRANSFORMS_BATCHES_TOKENSEGMENT_H

#include "memopt/Dialect/Memopt.h"

#include "llvm/ADT/SetVector.h"

namespace mlir::memopt {

class TokenSegment {
public:
  using Belongs = llvm::function_ref<bool(Operation *)>;

  /// What a segment fails at.
  struct Obstacle {
    Operation *op;
    StringRef reason;
  };

  /// The segment around `seed`, whose first dimension counts tokens; failure where some of it mixes
  /// tokens, or where a wide value is needed as a whole. With `belongs` it holds what that says,
  /// however wide that is, and what lies between. Where it fails, `obstacle` says at what, if
  /// wanted.
  static FailureOr<TokenSegment> create(Value seed, Belongs belongs = nullptr,
                                        Obstacle *obstacle = nullptr);

  /// The part of such a segment that one phase runs. Wide values may leave the forward pass for the
  /// backward pass alone.
  static FailureOr<TokenSegment> createOfPhase(Value seed, Phase phase);

  /// Takes in what would make values of members wait for all tokens though only sums over tokens
  /// follow from them, and what makes values for members alone out of fewer bytes that nobody keeps
  /// for the segment. A segment that would get more than `mostOps` stays as it is.
  void absorb(size_t mostOps);

  int64_t getTokens() const { return count; }
  /// In program order.
  ArrayRef<Operation *> getOps() const { return ops; }
  bool contains(Operation *op) const { return members.contains(op); }
  /// How many leading dimensions of `value` count tokens, together; 0 for what all tokens share.
  unsigned getTokenDims(Value value) const { return tokenDims.lookup(value); }
  /// The type of `value` for so many tokens.
  RankedTensorType getTileType(Value value, int64_t tokens) const;
  /// Whether the op computes each element of its results by itself.
  static bool isPointwise(Operation *op);
  /// Whether a member reads nothing that belongs to a token: whoever needs it elsewhere keeps it.
  bool isSameForAll(Operation *op) const {
    return llvm::none_of(op->getOperands(), [&](Value value) { return getTokenDims(value) != 0; });
  }
  /// Whether a member's result has to wait for tokens. The count of labels has not, but where the
  /// labels follow from tokens themselves (pseudo-labels).
  bool isOfTokens(OpResult result) const;
  /// Whether what reads `value` at `use` needs its numbers. A count of labels needs no logits.
  static bool isRead(OpOperand &use);

private:
  TokenSegment(Block *block, int64_t count, int64_t leastElements)
      : block(block), count(count), leastElements(leastElements) {}

  /// Why there is no segment, or nothing.
  std::optional<Obstacle> build(Value seed, Belongs belongs);

  void sortOps();
  bool isWide(Value value) const;
  void grow(Belongs belongs);
  bool add(Operation *op);
  bool addReshape(Operation *op);
  bool addLoops(Operation *op);
  bool isLeading(ArrayRef<AffineExpr> exprs, ArrayRef<int64_t> shape,
                 const llvm::SetVector<unsigned> &loops, unsigned &dims) const;
  SmallVector<Operation *> findBetween() const;
  Operation *findWaiting() const;
  bool addAll(ArrayRef<Operation *> added);
  llvm::SetVector<Operation *> findSumsBehind() const;
  SmallVector<Operation *> findFreeing(const llvm::SetVector<Operation *> &behind) const;
  bool isForMembers(Operation *op) const;
  int64_t countNewBytes(Operation *op) const;
  void addMakers(Operation *last);
  Operation *findReaderOfWhole(bool mayLeaveForGradient) const;

  Block *block;
  int64_t count;         ///< tokens
  int64_t leastElements; ///< of a wide value
  llvm::SetVector<Operation *> members;
  DenseSet<Operation *> refused;
  DenseMap<Value, unsigned> tokenDims;
  SmallVector<Value> open; ///< wide values whose makers and readers are still to be seen
  SmallVector<Operation *> ops;
};

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_BATCHES_TOKENSEGMENT_H
