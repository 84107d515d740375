//===- LaneDims.cpp - which dims of a sum are a run of lanes ----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Graph/LaneDims.h"

#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;
using namespace mlir::memopt;

/// Whether an operand that `map` reads is contiguous along a reduction dim; nothing where it has
/// none.
static std::optional<bool> readsAlongReduction(AffineMap map, ArrayRef<int64_t> sizes,
                                               const llvm::SmallBitVector &isReduced) {
  std::optional<bool> last;
  bool isPart = false;
  for (AffineExpr expr : map.getResults()) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    if (isa<AffineConstantExpr>(expr) || (dim && sizes[dim.getPosition()] == 1))
      continue;
    last = dim && isReduced[dim.getPosition()];
    for (unsigned reduced : isReduced.set_bits())
      isPart |= expr.isFunctionOfDim(reduced);
  }
  return isPart ? last : std::nullopt;
}

unsigned mlir::memopt::countLaneDims(linalg::LinalgOp op, const LaneRules &rules) {
  constexpr int64_t kLongSum = 64;
  SmallVector<int64_t> sizes = op.getStaticLoopRanges(), reduced;
  llvm::SmallBitVector isReduced(sizes.size());
  bool isLastReduced = false;
  int64_t results = 1;
  for (auto [dim, iterator] : llvm::enumerate(op.getIteratorTypesArray())) {
    if (sizes[dim] == 1)
      continue;
    isLastReduced = iterator == utils::IteratorType::reduction;
    if (!isLastReduced) {
      results *= sizes[dim];
      continue;
    }
    isReduced.set(dim);
    reduced.push_back(sizes[dim]);
  }
  int along = 0, across = 0;
  for (OpOperand *input : op.getDpsInputOperands())
    if (std::optional<bool> votes =
            readsAlongReduction(op.getMatchingIndexingMap(input), sizes, isReduced))
      ++(*votes ? along : across);
  bool isFew = results < rules.fewResults && llvm::product_of(reduced) >= kLongSum;
  if (!isFew && (along || across ? along <= across : !isLastReduced))
    return 0;
  int64_t run = 1;
  unsigned count = 0;
  while (count < reduced.size() && run < rules.run)
    run *= reduced[reduced.size() - ++count];
  return run < 4 ? 0 : count;
}
