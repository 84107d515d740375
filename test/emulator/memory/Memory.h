//===- Memory.h - the memory of an emulated device --------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Device memory is memory of this process that the host has no business with: between operations
// its pages cannot be touched, so that a host that follows a device address faults, as it would
// with a real one. Pinned memory is the host's, and within the device's reach.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_EMULATOR_MEMORY_H
#define MEMOPT_EMULATOR_MEMORY_H

#include "emulator/base/Settings.h"

namespace memopt::emulator {

class Memory {
public:
  /// Of VMM: what sizes and places are multiples of.
  static constexpr size_t granularity = size_t(2) << 20;

  explicit Memory(size_t total) : total(total) {}

  /// What a context takes, and what code and graphs take in pieces of.
  static constexpr size_t contextBytes = size_t(3) << 20, pieceBytes = size_t(64) << 10;
  /// Of an instantiated graph, for each of its nodes.
  static constexpr size_t nodeBytes = 512;

  size_t getTotal() const { return total; }
  size_t getFree() const { return total - used; }

  // Virtual memory management: ranges of addresses, physical memory, mappings.
  CUresult reserve(uintptr_t &address, size_t bytes);
  CUresult unreserve(uintptr_t address, size_t bytes);
  CUresult create(uint64_t &handle, size_t bytes);
  CUresult release(uint64_t handle);
  CUresult map(uintptr_t address, size_t bytes, size_t offset, uint64_t handle);
  CUresult unmap(uintptr_t address, size_t bytes);
  CUresult setAccess(uintptr_t address, size_t bytes);

  /// Takes memory that nobody but the driver reaches: whole pieces.
  CUresult take(size_t &bytes);
  void giveBack(size_t bytes) { used -= bytes; }

  /// All of these in one.
  CUresult allocate(uintptr_t &address, size_t bytes);
  CUresult free(uintptr_t address);

  CUresult pin(uintptr_t address, size_t bytes);
  /// Gives the bytes that were pinned there.
  CUresult unpin(uintptr_t address, size_t *bytes);
  CUresult name(uintptr_t address, size_t bytes, const std::string &name);

  /// Whether copies may touch all of the bytes: a mapping with access, or pinned memory.
  bool isReachable(uintptr_t address, size_t bytes) const;
  /// The bytes [begin, end) around an address that kernels may touch, none if it is not one: they
  /// are kept to the named bytes where a mapping has any.
  std::pair<uintptr_t, uintptr_t> findForKernels(uintptr_t address) const;
  bool isReachableByKernels(uintptr_t address, size_t bytes) const {
    auto [begin, end] = findForKernels(address);
    return address >= begin && address + bytes <= end;
  }
  bool isPinned(uintptr_t address, size_t bytes) const { return isInside(pinned, address, bytes); }
  bool isDevice(uintptr_t address) const { return isInside(mappings, address, 1); }

  /// What holds an address, and the offset there.
  std::pair<std::string, uint64_t> locate(uintptr_t address) const;
  /// The same in words, also of an address that nothing holds.
  std::string describe(uintptr_t address) const;

  /// While it lives device memory can be touched.
  class Open {
  public:
    explicit Open(Memory &memory) : memory(memory) { memory.protect(true); }
    ~Open() { memory.protect(false); }
    Open(const Open &) = delete;
    Open &operator=(const Open &) = delete;

  private:
    Memory &memory;
  };

private:
  struct Range {
    size_t bytes;
    std::string name;        ///< of named bytes
    uint64_t handle = 0;     ///< of a mapping
    bool isReachable = true; ///< of a mapping
  };
  using Ranges = std::map<uintptr_t, Range>;
  struct Physical {
    int file;
    size_t bytes;
    int users = 0;
    bool isReleased = false;
  };

  static Ranges::const_iterator find(const Ranges &ranges, uintptr_t address, size_t bytes);
  static bool isInside(const Ranges &ranges, uintptr_t address, size_t bytes) {
    return find(ranges, address, bytes) != ranges.end();
  }
  bool hasNames(const Range &mapping, uintptr_t begin) const;
  void drop(uint64_t handle);
  void protect(bool isOpen);

  size_t total, used = 0;
  uint64_t lastHandle = 0;
  int openings = 0;
  std::map<uint64_t, Physical> physical;
  Ranges reservations, mappings, allocations, pinned, names; ///< disjoint, by their begin
};

} // namespace memopt::emulator

#endif // MEMOPT_EMULATOR_MEMORY_H
