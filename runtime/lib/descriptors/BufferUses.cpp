//===- BufferUses.cpp - what library calls touch --------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A view is counted from its first to its last element, gaps included.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/descriptors/AttentionDescriptor.h"
#include "memopt-runtime/descriptors/ConvolutionDescriptor.h"
#include "memopt-runtime/descriptors/MatmulDescriptor.h"

using namespace memopt;
using namespace memopt::libraries;

/// Elements from the first to the last of a view.
static int64_t getSpan(const std::vector<int64_t> &extents, const std::vector<int64_t> &strides) {
  int64_t last = 0;
  for (size_t i = 0; i < extents.size(); ++i)
    last += (extents[i] - 1) * strides[i];
  return last + 1;
}

/// Of biases, logarithms and masks beside elements of a type.
static int64_t getSumSize(ElementType type) { return type == ElementType::F64 ? 8 : 4; }

std::vector<BufferUse> MatmulDescriptor::getBuffers() const {
  int64_t size = getElementBytes(type), resultSize = wideResult ? 4 : size;
  auto span = [&](const MatrixStrides &strides, int64_t rows, int64_t columns) {
    std::vector<int64_t> extents = batch, steps = strides.batch;
    extents.insert(extents.end(), {rows, columns});
    steps.insert(steps.end(), {strides.row, strides.column});
    return getSpan(extents, steps);
  };
  int64_t right = span(b, k, n) * size;
  if (packs)
    return {{right, false}, {packedBytes, true}};
  std::vector<BufferUse> uses = {{span(a, m, k) * size, false},
                                 {packedBytes ? packedBytes : right, false}};
  if (bias)
    uses.push_back({n * (narrowBias ? size : getSumSize(type)), false});
  if (counted != Counted::All)
    uses.push_back({maskLength(), false});
  if (accumulate)
    uses.push_back({span(c, m, n) * resultSize, false});
  uses.push_back({span(c, m, n) * resultSize, true});
  return uses;
}

std::vector<BufferUse> ConvolutionDescriptor::getBuffers() const {
  int64_t size = getElementBytes(type), resultSize = wideResult ? 4 : size;
  int64_t x = images * inputChannels * volume(input), y = images * outputChannels * volume(output),
          w = outputChannels * groupInputs() * volume(taps);
  if (packs)
    return {{w * size, false}, {packedBytes, true}};
  int64_t read = packedBytes ? packedBytes : w * size;
  switch (direction) {
  case ConvolutionDirection::BackwardData:
    return {{y * size, false}, {read, false}, {x * resultSize, true}};
  case ConvolutionDirection::BackwardWeights:
    if (accumulate)
      return {
          {x * size, false}, {y * size, false}, {w * resultSize, false}, {w * resultSize, true}};
    return {{x * size, false}, {y * size, false}, {w * resultSize, true}};
  case ConvolutionDirection::Forward:
    break;
  }
  std::vector<BufferUse> uses = {{x * size, false}, {read, false}};
  if (bias)
    uses.push_back({outputChannels * getSumSize(type), false});
  uses.push_back({y * resultSize, true});
  return uses;
}

std::vector<BufferUse> AttentionDescriptor::getBuffers() const {
  int64_t size = getElementBytes(type);
  auto span = [&](const HeadStrides &s, int64_t groups, int64_t tokens, int64_t features) {
    return getSpan({batch, groups, tokens, features}, {s.begin(), s.end()});
  };
  std::vector<BufferUse> uses = {{span(q, heads, queries, headSize) * size, false},
                                 {span(k, kvHeads, keys, headSize) * size, false},
                                 {span(v, kvHeads, keys, valueSize) * size, false}};
  if (mask != MaskType::None) {
    int64_t maskSize = mask == MaskType::Boolean ? 1 : mask == MaskType::F64 ? 8 : 4;
    uses.push_back({span(maskStrides, heads, queries, keys) * maskSize, false});
  }
  for (int i = 0; i < (dropout ? 2 + dropoutFirst : 0); ++i)
    uses.push_back({8, false});
  int64_t lse = batch * heads * queries * getSumSize(type);
  uses.push_back({span(out, heads, queries, valueSize) * size, !backward});
  uses.push_back({lse, !backward});
  if (!backward)
    return uses;
  uses.push_back({span(dOut, heads, queries, valueSize) * size, false});
  uses.push_back({span(dq, heads, queries, headSize) * size, true});
  uses.push_back({span(dk, kvHeads, keys, headSize) * size, true});
  uses.push_back({span(dv, kvHeads, keys, valueSize) * size, true});
  if (maskGradient)
    uses.push_back({span(dMask, heads, queries, keys) * getSumSize(type), true});
  return uses;
}
