//===- LaneOffsets.cpp - which elements lanes read ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LaneOffsets.h"

#include <numeric>

using namespace mlir;
using namespace mlir::memopt;

/// By lane, floor((n + lane) / divisor) - floor(n / divisor), where n is all that is known of
/// `dividend` in the first lane.
static std::optional<SmallVector<int64_t>>
divideLanes(const IndexTable &table, const IndexAtom &quotient, const ScopedBuilder::Scope &scope) {
  AtomId vector = *scope.vector;
  if (table.getStride(quotient.dividend, vector) != 1)
    return std::nullopt;
  // What divides the first lane's number and the divisor.
  int64_t common = std::gcd(quotient.divisor, quotient.dividend.constant);
  for (auto [atom, coefficient] : quotient.dividend.terms)
    common = std::gcd(common, atom == vector ? scope.step : coefficient);
  // Else lanes cross from one quotient to the next at places that differ from block to block.
  if (common != quotient.divisor && common < scope.lanes)
    return std::nullopt;
  SmallVector<int64_t> result;
  for (int64_t lane = 0; lane < scope.lanes; ++lane)
    result.push_back(common == quotient.divisor ? lane / quotient.divisor : 0);
  return result;
}

std::optional<SmallVector<int64_t>>
mlir::memopt::getLaneOffsets(const IndexTable &table, const IndexExpr &expr,
                             const ScopedBuilder::Scope &scope) {
  SmallVector<int64_t> result(scope.lanes, 0);
  for (auto [id, coefficient] : expr.terms) {
    const IndexAtom &atom = table.getAtom(id);
    if (!llvm::is_contained(atom.variables, *scope.vector))
      continue;
    if (atom.kind == IndexAtom::Datum)
      return std::nullopt;
    std::optional<SmallVector<int64_t>> steps;
    if (atom.kind == IndexAtom::Variable)
      steps = llvm::to_vector(llvm::seq<int64_t>(0, scope.lanes));
    else
      steps = divideLanes(table, atom, scope);
    if (!steps)
      return std::nullopt;
    for (auto [offset, step] : llvm::zip_equal(result, *steps))
      offset += coefficient * step;
  }
  return result;
}

std::optional<SharedReads> mlir::memopt::shareReads(ArrayRef<int64_t> laneOffsets) {
  SharedReads reads;
  auto lanes = static_cast<int64_t>(laneOffsets.size());
  int64_t low = *llvm::min_element(laneOffsets), high = *llvm::max_element(laneOffsets);
  if (high - low < lanes) {
    reads.offsets = llvm::to_vector(llvm::seq_inclusive(low, high));
  } else {
    reads.offsets.assign(laneOffsets.begin(), laneOffsets.end());
    llvm::sort(reads.offsets);
    reads.offsets.erase(llvm::unique(reads.offsets), reads.offsets.end());
    if (static_cast<int64_t>(reads.offsets.size()) > lanes / 2)
      return std::nullopt;
  }
  for (int64_t offset : laneOffsets)
    reads.choice.push_back(llvm::lower_bound(reads.offsets, offset) - reads.offsets.begin());
  return reads;
}
