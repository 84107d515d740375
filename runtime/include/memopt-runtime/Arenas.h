//===- Arenas.h - the memory of a session -----------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_ARENAS_H
#define MEMOPT_RUNTIME_ARENAS_H

#include "memopt-runtime/Device.h"
#include "memopt-runtime/Manifest.h"

namespace memopt {

/// One arena for each space that has addresses. What programs and data write must be within the
/// host's reach.
class Arenas {
public:
  /// Takes memory for a program; a failure names the space.
  static StatusOr<Arenas> allocate(Device &device, const BytesBySpace &bytes, bool isChecked);

  Arena &operator[](int space) const { return *arenas[size_t(space)]; }
  char *getAddress(const PlacedTensor &tensor) const {
    return (*this)[tensor.space].base() + tensor.offset;
  }
  double readElement(const PlacedTensor &tensor, int64_t index) const {
    return memopt::readElement(tensor.dtype, getAddress(tensor), index);
  }

  /// Fills all as they were when they were allocated.
  void reset();

  /// See Arena, whose functions these are for all spaces.
  void noteHandedOut(const void *address, int64_t size);
  Status observe();
  bool isGuard(const void *address) const;
  BytesBySpace getUsedPeakBytes() const;
  int64_t getResidentBytes() const;

private:
  std::array<std::unique_ptr<Arena>, MEMOPT_SPACE_COUNT> arenas;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_ARENAS_H
