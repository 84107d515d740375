//===- GradientCapture.cpp - the gradients of one step --------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GradientCapture.h"
#include "JoinShards.h"
#include <algorithm>

using namespace memopt;

void GradientCapture::begin() {
  kept.clear();
  for (const GradientSpec &gradient : manifest.gradients)
    kept.emplace_back(size_t(gradient.bytes));
  isActive = true;
}

bool GradientCapture::isWanted(int64_t instruction) const {
  return isActive && std::any_of(manifest.gradients.begin(), manifest.gradients.end(),
                                 [&](const GradientSpec &gradient) {
                                   return gradient.readyAfter == instruction;
                                 });
}

Status GradientCapture::keep(int64_t instruction) {
  for (size_t i = 0; isActive && i < kept.size(); ++i)
    if (const GradientSpec &gradient = manifest.gradients[i]; gradient.readyAfter == instruction)
      MEMOPT_RETURN_IF_ERROR(arenas.read(gradient, kept[i].data()));
  return Status::ok();
}

Status GradientCapture::joinParts(Communicator *communicator) {
  for (size_t i = 0; i < kept.size(); ++i)
    if (const GradientSpec &gradient = manifest.gradients[i];
        gradient.wholeShape && kept[i].size() == size_t(gradient.bytes)) {
      std::vector<char> whole;
      MEMOPT_RETURN_IF_ERROR(joinShards(*communicator, gradient, kept[i].data(), whole, true));
      kept[i] = std::move(whole);
    }
  return Status::ok();
}

std::vector<TensorToWrite> GradientCapture::getTensors() const {
  std::vector<TensorToWrite> tensors;
  for (size_t i = 0; i < kept.size(); ++i) {
    const GradientSpec &gradient = manifest.gradients[i];
    tensors.push_back({gradient.name, gradient.dtype, gradient.getWholeShape(), kept[i].data()});
  }
  return tensors;
}
