//===- Places.h - some of the indices along dimensions ----------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Places are a set of indices along one dimension of a tensor. A dimension that several were collapsed
// into is a product of factors, each with a set of its own: of [4 * 24 * 33] the first 12 of every 33
// are the factors (96, all) and (33, [0, 12)), not 96 runs.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_TRANSFORMS_GRAPH_PLACES_H
#define MEMOPT_LIB_TRANSFORMS_GRAPH_PLACES_H

#include "mlir/Support/LLVM.h"

#include <optional>

namespace mlir::memopt {

/// From an index to the one behind the last.
using Run = std::pair<int64_t, int64_t>;

/// Indices below `size`, as runs in ascending order that do not touch.
struct Factor {
  int64_t size;
  SmallVector<Run, 2> runs;

  static Factor all(int64_t size) { return {size, {Run(0, size)}}; }
  bool isAll() const { return runs.size() == 1 && runs.front() == Run(0, size); }
  int64_t count() const;
  bool operator==(const Factor &other) const { return size == other.size && runs == other.runs; }
};

class Places;
/// One for each dimension of a tensor: the elements whose indices are all among them.
using Box = SmallVector<Places, 0>;

class Places {
public:
  static Places all(int64_t size) { return Places({Factor::all(size)}); }
  static Places none(int64_t size) { return Places({Factor{size, {}}}); }
  explicit Places(SmallVector<Factor, 1> factors);

  ArrayRef<Factor> getFactors() const { return factors; }
  bool isAll() const { return factors.size() == 1 && factors.front().isAll(); }
  bool isNone() const { return factors.front().runs.empty(); }
  int64_t getSize() const;
  int64_t count() const;
  bool operator==(const Places &other) const { return factors == other.factors; }

  /// Whether both have the same factors, or one has all indices and so any.
  bool isAlignedWith(const Places &other) const;
  /// The factors, split as those of `other`, with which it is aligned.
  SmallVector<Factor, 1> splitAs(const Places &other) const;

  /// All indices of both, and more where their factors differ.
  Places unite(const Places &other) const;
  /// At least the indices that are in both.
  Places intersect(const Places &other) const;
  /// Those of [begin, end), counted from `begin`. Of one factor.
  Places cut(int64_t begin, int64_t end) const;
  /// The same in a dimension of `size`, behind `offset` others. Of one factor.
  Places shift(int64_t offset, int64_t size) const;

  /// The places of dimensions of these sizes that this one was collapsed from, where factors lie
  /// between them.
  std::optional<Box> expand(ArrayRef<int64_t> sizes) const;
  static Places collapse(ArrayRef<Places> dims);

private:
  SmallVector<Factor, 1> factors; ///< slowest first; all or none is one factor
};

Box getWholeBox(ArrayRef<int64_t> shape);
Box getEmptyBox(ArrayRef<int64_t> shape);
bool isWhole(ArrayRef<Places> box);
/// No elements. A tensor without dimensions has one.
bool isEmpty(ArrayRef<Places> box);
SmallVector<int64_t> getCounts(ArrayRef<Places> box);
/// A box that holds both.
Box unite(ArrayRef<Places> a, ArrayRef<Places> b);

} // namespace mlir::memopt

#endif // MEMOPT_LIB_TRANSFORMS_GRAPH_PLACES_H
