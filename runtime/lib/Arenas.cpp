//===- Arenas.cpp - the memory of a session -------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/Arenas.h"

using namespace memopt;

StatusOr<Arenas> Arenas::allocate(Device &device, const BytesBySpace &bytes, bool isChecked) {
  Arenas result;
  for (int space = 0; space < MEMOPT_SPACE_COUNT; ++space) {
    auto arena = device.allocate(space, bytes[size_t(space)], isChecked);
    if (!arena.isOk())
      return arena.takeStatus().withContext(std::string(getSpaceName(space)) + " memory");
    result.arenas[size_t(space)] = *std::move(arena);
  }
  return result;
}

void Arenas::reset() {
  for (const auto &arena : arenas)
    arena->reset();
}

void Arenas::noteHandedOut(const void *address, int64_t size) {
  for (const auto &arena : arenas)
    arena->noteHandedOut(address, size);
}

Status Arenas::observe() {
  for (const auto &arena : arenas) {
    arena->updateMark();
    MEMOPT_RETURN_IF_ERROR(arena->checkSlack());
  }
  return Status::ok();
}

bool Arenas::isGuard(const void *address) const {
  for (const auto &arena : arenas)
    if (arena->isGuard(address))
      return true;
  return false;
}

BytesBySpace Arenas::getUsedPeakBytes() const {
  BytesBySpace bytes{};
  for (int space = 0; space < MEMOPT_SPACE_COUNT; ++space)
    bytes[size_t(space)] = (*this)[space].usedPeakBytes();
  return bytes;
}

int64_t Arenas::getResidentBytes() const {
  int64_t bytes = 0;
  for (const auto &arena : arenas)
    bytes += arena->residentBytes();
  return bytes;
}
