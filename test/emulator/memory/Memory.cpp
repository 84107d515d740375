//===- Memory.cpp - the memory of an emulated device ----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "emulator/memory/Memory.h"
#include <cstdio>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

using namespace memopt::emulator;
using namespace memopt::cuda;

static void *toPointer(uintptr_t address) { return reinterpret_cast<void *>(address); }

static bool isRound(size_t value) { return value && value % Memory::granularity == 0; }

Memory::Ranges::const_iterator Memory::find(const Ranges &ranges, uintptr_t address, size_t bytes) {
  auto after = ranges.upper_bound(address);
  if (after == ranges.begin())
    return ranges.end();
  auto range = std::prev(after);
  size_t offset = address - range->first;
  return offset <= range->second.bytes && bytes <= range->second.bytes - offset ? range
                                                                                : ranges.end();
}

CUresult Memory::take(size_t &bytes) {
  bytes = (bytes + pieceBytes - 1) / pieceBytes * pieceBytes;
  if (bytes > getFree())
    return CUDA_ERROR_OUT_OF_MEMORY;
  used += bytes;
  return CUDA_SUCCESS;
}

//===----------------------------------------------------------------------===//
// Virtual memory management
//===----------------------------------------------------------------------===//

CUresult Memory::reserve(uintptr_t &address, size_t bytes) {
  if (!isRound(bytes))
    return CUDA_ERROR_INVALID_VALUE;
  // Room to begin at a multiple.
  char *room = static_cast<char *>(::mmap(nullptr, bytes + granularity, PROT_NONE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (room == MAP_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  address = (reinterpret_cast<uintptr_t>(room) + granularity - 1) / granularity * granularity;
  size_t before = address - reinterpret_cast<uintptr_t>(room);
  if (before)
    ::munmap(room, before);
  ::munmap(toPointer(address + bytes), granularity - before);
  reservations[address] = {bytes, ""};
  return CUDA_SUCCESS;
}

CUresult Memory::unreserve(uintptr_t address, size_t bytes) {
  auto range = reservations.find(address);
  auto mapped = mappings.lower_bound(address);
  if (range == reservations.end() || range->second.bytes != bytes ||
      (mapped != mappings.end() && mapped->first < address + bytes))
    return CUDA_ERROR_INVALID_VALUE;
  ::munmap(toPointer(address), bytes);
  reservations.erase(range);
  return CUDA_SUCCESS;
}

CUresult Memory::create(uint64_t &handle, size_t bytes) {
  if (!isRound(bytes))
    return CUDA_ERROR_INVALID_VALUE;
  if (bytes > getFree())
    return CUDA_ERROR_OUT_OF_MEMORY;
  int file = ::memfd_create("emulated device memory", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, off_t(bytes)) != 0) {
    if (file >= 0)
      ::close(file);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  used += bytes;
  handle = ++lastHandle;
  physical[handle] = {file, bytes};
  return CUDA_SUCCESS;
}

/// Memory goes when it is neither mapped nor held.
void Memory::drop(uint64_t handle) {
  auto memory = physical.find(handle);
  if (memory->second.users || !memory->second.isReleased)
    return;
  ::close(memory->second.file);
  used -= memory->second.bytes;
  physical.erase(memory);
}

CUresult Memory::release(uint64_t handle) {
  auto memory = physical.find(handle);
  if (memory == physical.end() || memory->second.isReleased)
    return CUDA_ERROR_INVALID_VALUE;
  memory->second.isReleased = true;
  drop(handle);
  return CUDA_SUCCESS;
}

CUresult Memory::map(uintptr_t address, size_t bytes, size_t offset, uint64_t handle) {
  auto memory = physical.find(handle);
  bool isFree =
      !isInside(mappings, address, 0) && (mappings.lower_bound(address) == mappings.end() ||
                                          mappings.lower_bound(address)->first >= address + bytes);
  if (memory == physical.end() || !isRound(bytes) || offset != 0 || bytes != memory->second.bytes ||
      !isInside(reservations, address, bytes) || !isFree)
    return CUDA_ERROR_INVALID_VALUE;
  if (::mmap(toPointer(address), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             memory->second.file, 0) == MAP_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  std::memset(toPointer(address), 0xCB, bytes); // nobody promised zeros
  ::mprotect(toPointer(address), bytes, PROT_NONE);
  ++memory->second.users;
  mappings[address] = {bytes, "", handle, /*isReachable=*/false};
  return CUDA_SUCCESS;
}

CUresult Memory::unmap(uintptr_t address, size_t bytes) {
  auto mapping = mappings.find(address);
  if (mapping == mappings.end() || mapping->second.bytes != bytes)
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t handle = mapping->second.handle;
  ::mmap(toPointer(address), bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  mappings.erase(mapping);
  names.erase(names.lower_bound(address), names.lower_bound(address + bytes));
  --physical[handle].users;
  drop(handle);
  return CUDA_SUCCESS;
}

CUresult Memory::setAccess(uintptr_t address, size_t bytes) {
  auto mapping = mappings.find(address);
  if (mapping == mappings.end() || mapping->second.bytes != bytes)
    return CUDA_ERROR_INVALID_VALUE;
  mapping->second.isReachable = true;
  return CUDA_SUCCESS;
}

//===----------------------------------------------------------------------===//
// Whole allocations, pinned memory, names
//===----------------------------------------------------------------------===//

CUresult Memory::allocate(uintptr_t &address, size_t bytes) {
  size_t round = (bytes + granularity - 1) / granularity * granularity;
  uint64_t handle;
  if (bytes == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (CUresult result = create(handle, round))
    return result;
  if (CUresult result = reserve(address, round)) {
    (void)release(handle);
    return result;
  }
  (void)map(address, round, 0, handle);
  (void)setAccess(address, round);
  (void)release(handle);
  allocations[address] = {round, ""};
  return name(address, bytes, "allocation " + std::to_string(handle));
}

CUresult Memory::free(uintptr_t address) {
  auto allocation = allocations.find(address);
  if (allocation == allocations.end())
    return CUDA_ERROR_INVALID_VALUE;
  size_t bytes = allocation->second.bytes;
  allocations.erase(allocation);
  (void)unmap(address, bytes);
  return unreserve(address, bytes);
}

CUresult Memory::pin(uintptr_t address, size_t bytes) {
  auto after = pinned.lower_bound(address);
  if (bytes == 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (isInside(pinned, address, 1) || (after != pinned.end() && after->first < address + bytes))
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  pinned[address] = {bytes, "pinned memory"};
  return CUDA_SUCCESS;
}

CUresult Memory::unpin(uintptr_t address, size_t *bytes) {
  auto range = pinned.find(address);
  if (range == pinned.end())
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  *bytes = range->second.bytes;
  pinned.erase(range);
  return CUDA_SUCCESS;
}

CUresult Memory::name(uintptr_t address, size_t bytes, const std::string &name) {
  names.erase(address);
  if (bytes == 0)
    return CUDA_SUCCESS;
  if (!isInside(mappings, address, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  names[address] = {bytes, name};
  return CUDA_SUCCESS;
}

//===----------------------------------------------------------------------===//
// Questions
//===----------------------------------------------------------------------===//

bool Memory::hasNames(const Range &mapping, uintptr_t begin) const {
  auto name = names.lower_bound(begin);
  return name != names.end() && name->first < begin + mapping.bytes;
}

bool Memory::isReachable(uintptr_t address, size_t bytes) const {
  auto mapping = find(mappings, address, bytes);
  return (mapping != mappings.end() && mapping->second.isReachable) ||
         isInside(pinned, address, bytes);
}

std::pair<uintptr_t, uintptr_t> Memory::findForKernels(uintptr_t address) const {
  auto toBounds = [](Ranges::const_iterator range) {
    return std::pair(range->first, range->first + range->second.bytes);
  };
  for (const Ranges *ranges : {&names, &pinned})
    if (auto range = find(*ranges, address, 1); range != ranges->end())
      return toBounds(range);
  auto mapping = find(mappings, address, 1);
  if (mapping == mappings.end() || !mapping->second.isReachable ||
      hasNames(mapping->second, mapping->first))
    return {0, 0};
  return toBounds(mapping);
}

std::pair<std::string, uint64_t> Memory::locate(uintptr_t address) const {
  for (const Ranges *ranges : {&names, &mappings, &pinned})
    if (auto range = find(*ranges, address, 1); range != ranges->end())
      return {range->second.name.empty() ? "device memory" : range->second.name,
              address - range->first};
  return {"no memory", address};
}

std::string Memory::describe(uintptr_t address) const {
  auto [place, offset] = locate(address);
  if (place == "no memory") {
    char text[64];
    std::snprintf(text, sizeof text, "address 0x%llx", static_cast<unsigned long long>(offset));
    return text;
  }
  std::string text = "offset " + std::to_string(offset) + " of " + place;
  auto after = names.upper_bound(address);
  if (!isInside(names, address, 1) && after != names.begin()) {
    auto before = std::prev(after);
    text += ", " + std::to_string(address - before->first - before->second.bytes) +
            " bytes behind the end of " + before->second.name;
  }
  return text;
}

void Memory::protect(bool isOpen) {
  openings += isOpen ? 1 : -1;
  if (openings != (isOpen ? 1 : 0))
    return;
  for (const auto &[address, mapping] : mappings)
    if (mapping.isReachable)
      ::mprotect(toPointer(address), mapping.bytes, isOpen ? PROT_READ | PROT_WRITE : PROT_NONE);
}
