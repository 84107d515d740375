//===- AttentionDescriptor.h - what an attention call computes ----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DESCRIPTORS_ATTENTIONDESCRIPTOR_H
#define MEMOPT_RUNTIME_DESCRIPTORS_ATTENTIONDESCRIPTOR_H

#include "memopt-runtime/descriptors/MatmulDescriptor.h"
#include <array>

namespace memopt::libraries {

/// Strides of a [batch, heads, tokens, features] view, in elements.
using HeadStrides = std::array<int64_t, 4>;

enum class MaskType { None, Boolean, F32, F64 };

/// scores[b, h, i, j] = scale * q[b, h, i] . k[b, h', j] (+ mask), h' = h / (heads / kvHeads)
/// lse[b, h, i] = log of the sum over visible j of exp(scores), infinite when none is visible
/// out[b, h, i] = sum over visible j of dropout(exp(scores - lse)) v[b, h', j]
struct AttentionDescriptor {
  bool backward, causal, reference;
  ElementType type;
  int64_t batch, heads, kvHeads, queries, keys, headSize, valueSize;
  double scale;
  MaskType mask;
  HeadStrides maskStrides; ///< [batch, heads, queries, keys]; 0 broadcasts
  bool dropout;
  double dropoutProbability;
  int64_t dropoutId;
  bool dropoutFirst; ///< a third scalar says which number the first score has
  HeadStrides q, k, v, out, dOut, dq, dk, dv;
  /// The gradient of a mask that is added, summed over what its strides of 0 repeat; packed.
  bool maskGradient;
  HeadStrides dMask; ///< [batch, heads, queries, keys]

  static StatusOr<AttentionDescriptor> parse(const nlohmann::json &descriptor, bool backward);

  /// Heads of queries that have the same keys and values.
  int64_t headsOfKeyHead() const { return heads / kvHeads; }
  /// Places in the list of buffers.
  int maskIndex() const { return 3; }
  int seedIndex() const { return mask == MaskType::None ? 3 : 4; }
  int outIndex() const { return seedIndex() + (dropout ? 2 + dropoutFirst : 0); }
  int workspaceIndex() const { return outIndex() + (backward ? 6 + maskGradient : 2); }
  std::vector<BufferUse> getBuffers() const;
  /// Extents of the mask's gradient, 1 where it is repeated.
  std::array<int64_t, 4> maskExtents() const {
    return {dMask[0] ? batch : 1, dMask[1] ? heads : 1, dMask[2] ? queries : 1,
            dMask[3] ? keys : 1};
  }
};

std::unique_ptr<LibraryCall> createAttentionForward(const AttentionDescriptor &descriptor,
                                                    int threads);
std::unique_ptr<LibraryCall> createAttentionBackward(const AttentionDescriptor &descriptor,
                                                     int threads);

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_DESCRIPTORS_ATTENTIONDESCRIPTOR_H
