//===- MatmulDescriptor.h - what a matmul call multiplies ---------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DESCRIPTORS_MATMULDESCRIPTOR_H
#define MEMOPT_RUNTIME_DESCRIPTORS_MATMULDESCRIPTOR_H

#include "memopt-runtime/descriptors/DescriptorReader.h"
#include "memopt-runtime/descriptors/ElementTypes.h"
#include "memopt-runtime/descriptors/LibraryCalls.h"
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace memopt::libraries {

/// The key "dtype".
ElementType readElementType(DescriptorReader &reader);
/// Whether "result_dtype" asks for sums of 16-bit numbers as they are, in f32.
bool readWideResult(DescriptorReader &reader, ElementType type);

/// The call `Own` for the element types of `descriptor`. Sums are made in f32 at least, and in f64
/// where they shall check others.
template <template <typename, typename> class Own, typename Descriptor>
std::unique_ptr<LibraryCall> createForTypes(const Descriptor &d, int threads) {
  switch (d.type) {
  case ElementType::F64:
    return std::make_unique<Own<double, double>>(d, threads);
  case ElementType::BF16:
    if (d.reference)
      return std::make_unique<Own<BFloat16, double>>(d, threads);
    return std::make_unique<Own<BFloat16, float>>(d, threads);
  case ElementType::F16:
    if (d.reference)
      return std::make_unique<Own<Float16, double>>(d, threads);
    return std::make_unique<Own<Float16, float>>(d, threads);
  case ElementType::F32:
    break;
  }
  if (d.reference)
    return std::make_unique<Own<float, double>>(d, threads);
  return std::make_unique<Own<float, float>>(d, threads);
}

/// Strides of one operand, in elements.
struct MatrixStrides {
  std::vector<int64_t> batch; ///< 0: the same matrix for every index (operands only)
  int64_t row, column;
};

/// What a mask beside the operands counts: rows of the product, of which the others are zero, or
/// terms of its sums, of which the others are left out.
enum class Counted { All, Rows, Terms };

/// c[i..., m, n] = (accumulate ? addend[i..., m, n] : 0) + bias[n]
///               + sum over k of a[i..., m, k] * b[i..., k, n]
/// The addend lies as c does, and may be c.
struct MatmulDescriptor {
  ElementType type;
  std::vector<int64_t> batch;
  int64_t m, n, k;
  MatrixStrides a, b, c;
  bool bias, accumulate, reference;
  bool narrowBias; ///< of the type of 16-bit operands, as the result is then; a device's alone
  bool wideResult; ///< of 16-bit operands, in f32
  Counted counted;
  bool packs = false;  ///< packs b for such a call and does nothing else
  int64_t packedBytes; ///< of a b that lies as the library reads it; 0: of a plain one
  int64_t workspaceLimit = maxExtent;

  static StatusOr<MatmulDescriptor> parse(const nlohmann::json &descriptor);

  /// Index of c in the list of buffers; the workspace follows it.
  int resultIndex() const { return addendIndex() + (accumulate && !packs ? 1 : 0); }
  /// That of the addend, where there is one.
  int addendIndex() const { return packs ? 1 : maskIndex() + (counted == Counted::All ? 0 : 1); }
  /// That of the mask of what is counted, where there is one.
  int maskIndex() const { return bias ? 3 : 2; }
  /// Lines that the mask may count.
  int64_t maskLength() const { return counted == Counted::Rows ? m : k; }
  std::vector<BufferUse> getBuffers() const;
  int64_t batchCount() const;
  /// Whether packing b takes a share of the call's time that shows: each number is used by few rows.
  bool hasFewRows() const {
    constexpr int64_t fewRows = 128;
    return batch.empty() && m <= fewRows && counted == Counted::All;
  }

  /// Merges batch dimensions that are one dimension in all three operands, and a batch that only
  /// stacks rows of a into the rows. Changes no address that is touched, nor any sum.
  void simplify();
};

/// Our own kernels: every element type, every stride. As of oneDNN a packed b must have the bytes of
/// packedWeightBytes.
std::unique_ptr<LibraryCall> createOwnMatmul(const MatmulDescriptor &descriptor, int threads);

/// Whether b is copied to the layout that oneDNN likes best before it is used: not at all, whole,
/// piece by piece, each of which makes a piece of c, or ahead, by a call of its own; or whether the
/// transposed product is made and copied, whose right operand is a.
enum class Packing { None, Whole, Pieces, Exchanged, Ahead };

/// oneDNN; null when it has no implementation that keeps the promises of LibraryCalls.h. b is
/// packed, or the operands exchanged, where that is faster on this processor and keeps to the limit
/// of the workspace; what is above the limit has no other way with the same bits.
std::unique_ptr<LibraryCall> createDnnlMatmul(const MatmulDescriptor &descriptor, int threads);
/// The same in one way; null where there is none.
std::unique_ptr<LibraryCall> createDnnlMatmul(const MatmulDescriptor &descriptor, int threads,
                                              Packing packing);

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_DESCRIPTORS_MATMULDESCRIPTOR_H
