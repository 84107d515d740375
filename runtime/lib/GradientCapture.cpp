//===- GradientCapture.cpp - the gradients of one step --------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GradientCapture.h"
#include <cstring>

using namespace memopt;

void GradientCapture::begin() {
  kept.clear();
  for (const GradientSpec &gradient : manifest.gradients)
    kept.emplace_back(size_t(gradient.bytes));
  isActive = true;
}

void GradientCapture::keep(int64_t instruction) {
  if (!isActive)
    return;
  for (size_t i = 0; i < kept.size(); ++i)
    if (const GradientSpec &gradient = manifest.gradients[i];
        gradient.readyAfter == instruction && gradient.bytes)
      std::memcpy(kept[i].data(), arenas.getAddress(gradient), size_t(gradient.bytes));
}

std::vector<TensorToWrite> GradientCapture::getTensors() const {
  std::vector<TensorToWrite> tensors;
  for (size_t i = 0; i < kept.size(); ++i) {
    const GradientSpec &gradient = manifest.gradients[i];
    tensors.push_back({gradient.name, gradient.dtype, gradient.shape, kept[i].data()});
  }
  return tensors;
}
