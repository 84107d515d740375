//===- KernelIndex.h - integer arithmetic on loop variables -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Addresses of a kernel as canonical linear combinations of loop variables. A remainder is written
// `e - c * (e / c)`, so quotients are the only nonlinear atoms, and cutting an index into pieces
// and gluing the pieces together again gives back the index: a reshape of packed tensors vanishes
// by arithmetic, with no case for it anywhere. MLIR's AffineExpr rewrites towards `mod` and knows
// no ranges, which makes exactly that hard.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_CONVERSION_CORE_GRAPH_KERNELINDEX_H
#define MEMOPT_CONVERSION_CORE_GRAPH_KERNELINDEX_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/raw_ostream.h"
#include <map>
#include <optional>
#include <vector>

namespace mlir::memopt {

/// Number of an atom in its IndexTable: a loop variable, a quotient, or an integer read from data.
using AtomId = unsigned;

/// constant + sum of coefficient * atom; terms sorted by atom, no coefficient zero.
struct IndexExpr {
  int64_t constant = 0;
  llvm::SmallVector<std::pair<AtomId, int64_t>, 4> terms;

  IndexExpr(int64_t constant = 0) : constant(constant) {}
  bool isConstant() const { return terms.empty(); }
  bool operator==(const IndexExpr &other) const {
    return constant == other.constant && terms == other.terms;
  }
  /// Appends an encoding that is equal exactly for equal expressions of one table.
  void encode(std::vector<int64_t> &key) const;
};

/// Inclusive bounds.
struct IndexRange {
  int64_t low, high;
};

struct IndexAtom {
  enum Kind { Variable, Quotient, Datum } kind;
  IndexRange range;
  IndexExpr dividend; ///< Quotient: floor(dividend / divisor)
  int64_t divisor = 1;
  unsigned node = 0; ///< Datum: the graph's node that computes it
  /// Loop variables that the value depends on, sorted.
  llvm::SmallVector<AtomId, 4> variables;
};

/// Consecutive values of a loop variable.
struct Lanes {
  AtomId variable;
  int64_t count;
  int64_t step; ///< divides the first of them
};

/// Owns the atoms; equal quotients and data get equal numbers.
class IndexTable {
public:
  /// A new loop variable over [0, size).
  AtomId addVariable(int64_t size);
  /// An integer that node `node` computes, known to lie in [0, size).
  IndexExpr getDatum(unsigned node, int64_t size, llvm::ArrayRef<AtomId> variables);

  const IndexAtom &getAtom(AtomId atom) const { return atoms[atom]; }
  int64_t getSize(AtomId variable) const { return atoms[variable].range.high + 1; }

  IndexExpr get(AtomId atom) const;
  static IndexExpr add(const IndexExpr &a, const IndexExpr &b, int64_t scaleOfB = 1);
  static IndexExpr scale(const IndexExpr &a, int64_t factor);
  /// Floor division and its remainder; `divisor` > 0.
  IndexExpr floorDiv(const IndexExpr &a, int64_t divisor);
  IndexExpr mod(const IndexExpr &a, int64_t divisor);
  /// Row-major position in a box of these sizes, and back.
  static IndexExpr linearize(llvm::ArrayRef<IndexExpr> indices, llvm::ArrayRef<int64_t> sizes);
  llvm::SmallVector<IndexExpr> delinearize(const IndexExpr &a, llvm::ArrayRef<int64_t> sizes);

  IndexRange getRange(const IndexExpr &a) const;
  /// Loop variables that `a` depends on, sorted.
  llvm::SmallVector<AtomId, 4> getVariables(const IndexExpr &a) const;
  /// What `a` grows by when `variable` grows by one; none when that is not a constant.
  std::optional<int64_t> getStride(const IndexExpr &a, AtomId variable) const;

  /// How far `a` is in each lane from what it is in the first; nothing where that is not known.
  ///
  /// A loop over several dims at once has some of them at quotients of its number: a value for each
  /// row that several columns take, a row that is taken again and again. These offsets are constants
  /// where blocks of lanes begin at multiples of the divisors.
  std::optional<llvm::SmallVector<int64_t>> getOffsets(const IndexExpr &a,
                                                       const Lanes &lanes) const;

  void print(const IndexExpr &a, llvm::raw_ostream &os) const;

private:
  std::vector<IndexAtom> atoms;
  std::map<std::vector<int64_t>, AtomId> known;
};

/// Union of sorted lists.
void mergeVariables(llvm::SmallVectorImpl<AtomId> &into, llvm::ArrayRef<AtomId> from);

} // namespace mlir::memopt

#endif // MEMOPT_CONVERSION_CORE_GRAPH_KERNELINDEX_H
