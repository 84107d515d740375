//===- ConstantTensor.h - integer and boolean tensors known at import -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Language models compute positions and masks from nothing but sizes. Evaluating that arithmetic
// while importing turns a mask into a constant, which can then be recognized as causal or as all
// true and need not exist at run time.
//
// A tensor here is a logical shape over stored elements: a dimension along which all elements are
// equal is stored with size 1. Operations keep it so, which makes a [batch, 1, 4096, 4096] mask of
// one causal triangle cost 16 MiB of bytes and a mask of all ones cost one.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_IMPORT_ARCHIVE_CONSTANTTENSOR_H
#define MEMOPT_IMPORT_ARCHIVE_CONSTANTTENSOR_H

#include "memopt/Import/Archive/Schema.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <memory>
#include <vector>

namespace memopt::pt2 {

class ConstantTensor;
using Constant = std::shared_ptr<const ConstantTensor>;

class ConstantTensor {
public:
  using Shape = llvm::SmallVector<int64_t, 4>;

  /// All elements `value`.
  static Constant splat(DType type, llvm::ArrayRef<int64_t> sizes, int64_t value);
  /// start, start + step, ...
  static Constant iota(DType type, int64_t start, int64_t step, int64_t count);
  /// Row-major elements; the caller has checked that there are as many as `sizes` says.
  static Constant dense(DType type, llvm::ArrayRef<int64_t> sizes,
                        llvm::ArrayRef<int64_t> elements);

  DType getType() const { return type; }
  llvm::ArrayRef<int64_t> getSizes() const { return sizes; }
  /// Per dimension: its size, or 1 where all elements along it are equal.
  llvm::ArrayRef<int64_t> getExtents() const { return extents; }
  /// Stored elements, row-major over the extents.
  int64_t getNumStored() const;
  int64_t getStored(int64_t i) const { return type == DType::Bool ? bits[i] : words[i]; }
  /// The element at a logical index.
  int64_t at(llvm::ArrayRef<int64_t> index) const;
  /// The value that all elements have, if they do.
  std::optional<int64_t> getSplat() const;

  // Each gives a new tensor. Arguments are valid: the caller has checked dimensions and sizes.
  static Constant reshape(const Constant &from, llvm::ArrayRef<int64_t> sizes);
  static Constant permute(const Constant &from, llvm::ArrayRef<int64_t> permutation);
  /// `sizes` has the rank of `from`, and its sizes except where they are 1.
  static Constant expand(const Constant &from, llvm::ArrayRef<int64_t> sizes);
  static Constant slice(const Constant &from, int64_t dim, int64_t begin, int64_t step,
                        int64_t count);
  static Constant concat(llvm::ArrayRef<Constant> parts, int64_t dim);
  static Constant cumsum(const Constant &from, int64_t dim, DType type);
  /// Elementwise over operands of equal sizes.
  static Constant map(DType type, llvm::ArrayRef<Constant> operands,
                      llvm::function_ref<int64_t(llvm::ArrayRef<int64_t>)> combine);
  /// Elements made from their logical index.
  static Constant generate(DType type, llvm::ArrayRef<int64_t> sizes,
                           llvm::function_ref<int64_t(llvm::ArrayRef<int64_t>)> element);

private:
  ConstantTensor(DType type, llvm::ArrayRef<int64_t> sizes, llvm::ArrayRef<int64_t> extents);
  void setStored(int64_t i, int64_t value);
  /// Shrinks dimensions along which all elements are equal.
  static Constant compact(std::shared_ptr<ConstantTensor> tensor);

  DType type;
  Shape sizes, extents;
  std::vector<uint8_t> bits;  ///< stored elements of booleans
  std::vector<int64_t> words; ///< stored elements of integers
};

/// Wraps a value to the range of an integer type, as arithmetic in that type would; booleans become
/// 0 or 1.
int64_t wrapTo(DType type, int64_t value);

} // namespace memopt::pt2

#endif // MEMOPT_IMPORT_ARCHIVE_CONSTANTTENSOR_H
