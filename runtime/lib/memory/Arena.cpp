//===- Arena.cpp - one block of memory of known size ----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/memory/Arena.h"
#include "memopt-runtime/memory/AllocationCounter.h"
#include "memopt-runtime/memory/ArenaPattern.h"
#include "memopt-runtime/memory/AvailableMemory.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

using namespace memopt;

int64_t HostArena::getRegionBytes(int64_t bytes) {
  int64_t page = ::sysconf(_SC_PAGESIZE);
  return bytes ? roundUp(bytes, page) + 2 * page : 0;
}

StatusOr<std::unique_ptr<Arena>> HostArena::allocate(int64_t bytes, bool isChecked) {
  if (bytes == 0)
    return std::unique_ptr<Arena>(new HostArena());
  if (bytes < 0)
    return badInput("an arena cannot have " + std::to_string(bytes) + " bytes");
  int64_t available = getAvailableMemory();
  if (bytes > available)
    return environmentError("the arena takes " + std::to_string(bytes) +
                            " bytes, this machine or its control group has " +
                            std::to_string(available) + " available");
  int64_t total = getRegionBytes(bytes);
  void *address =
      ::mmap(nullptr, size_t(total), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    return environmentError("allocating an arena of " + std::to_string(bytes) +
                            " bytes: " + std::strerror(errno));
  auto arena = placeIn(static_cast<char *>(address), bytes, isChecked);
  if (arena.isOk())
    static_cast<HostArena &>(**arena).isOwner = true;
  else
    ::munmap(address, size_t(total));
  return arena;
}

StatusOr<std::unique_ptr<Arena>> HostArena::placeIn(char *region, int64_t bytes, bool isChecked) {
  std::unique_ptr<HostArena> arena(new HostArena());
  if (bytes == 0)
    return std::unique_ptr<Arena>(std::move(arena));
  int64_t page = ::sysconf(_SC_PAGESIZE);
  arena->mapping = region;
  arena->totalBytes = getRegionBytes(bytes);
  arena->mapped = region + page;
  arena->mappedBytes = arena->totalBytes - 2 * page;
  if (::mprotect(arena->mapped, size_t(arena->mappedBytes), PROT_READ | PROT_WRITE) != 0)
    return environmentError("allocating an arena of " + std::to_string(bytes) +
                            " bytes: " + std::strerror(errno));
  ::madvise(arena->mapped, size_t(arena->mappedBytes), MADV_HUGEPAGE); // only a hint
  arena->bytes = bytes;
  arena->isChecked = isChecked;
  arena->start =
      isChecked ? arena->mapped + arena->mappedBytes - roundUp(bytes, 64) : arena->mapped;
  if (isChecked)
    MEMOPT_RETURN_IF_ERROR(arena->reset()); // else its pages are zeros, and come when it is reset
  return std::unique_ptr<Arena>(std::move(arena));
}

HostArena::~HostArena() {
  release();
  if (mapping && isOwner)
    ::munmap(mapping, size_t(totalBytes));
}

Status HostArena::read(int64_t offset, void *to, int64_t size) const {
  if (size)
    std::memcpy(to, start + offset, size_t(size));
  return Status::ok();
}

Status HostArena::write(int64_t offset, const void *from, int64_t size) {
  if (size)
    std::memcpy(start + offset, from, size_t(size));
  return Status::ok();
}

Status HostArena::reset(const PieceRunner &runPieces) {
  constexpr int64_t blockBytes = 2 << 20; // a huge page has one place
  mark = 0;
  runPieces((mappedBytes + blockBytes - 1) / blockBytes, [&](int64_t first, int64_t last) {
    char *begin = mapped + first * blockBytes,
         *end = mapped + std::min(mappedBytes, last * blockBytes);
    if (!isChecked)
      std::memset(begin, 0, size_t(end - begin));
    for (char *byte = begin; isChecked && byte != end; ++byte)
      *byte = char(getPattern(byte - start));
  });
  return Status::ok();
}

void Arena::noteHandedOut(const void *address, int64_t size) {
  const char *begin = static_cast<const char *>(address);
  if (begin >= start && begin < start + bytes)
    mark = std::max(mark, std::min(bytes, int64_t(begin - start) + size));
}

Status Arena::forgetAbove(int64_t offset) {
  std::vector<char> pattern(size_t(1) << 20);
  for (int64_t at = offset; at < bytes; at += int64_t(pattern.size())) {
    int64_t size = std::min(int64_t(pattern.size()), bytes - at);
    for (int64_t i = 0; i < size; ++i)
      pattern[size_t(i)] = char(getPattern(at + i));
    MEMOPT_RETURN_IF_ERROR(write(at, pattern.data(), size));
  }
  mark = std::min(mark, offset);
  return Status::ok();
}

Status HostArena::updateMark() {
  for (int64_t offset = bytes; offset > mark; --offset)
    if (static_cast<unsigned char>(start[offset - 1]) != getPattern(offset - 1))
      mark = offset;
  return Status::ok();
}

Status memopt::describeSlack(const char *where, int64_t bytes, int64_t offset) {
  return badInput("the program wrote " + std::string(where) + " its arena of " +
                  std::to_string(bytes) + " bytes, at offset " + std::to_string(offset));
}

Status HostArena::checkSlack() const {
  auto check = [&](const char *begin, const char *end, const char *where) {
    for (const char *byte = begin; byte < end; ++byte)
      if (static_cast<unsigned char>(*byte) != getPattern(byte - start))
        return describeSlack(where, bytes, byte - start);
    return Status::ok();
  };
  if (!isChecked || !mapping)
    return Status::ok();
  MEMOPT_RETURN_IF_ERROR(check(start + bytes, mapped + mappedBytes, "behind"));
  return check(mapped, start, "before");
}

bool HostArena::isGuard(const void *address) const {
  const char *byte = static_cast<const char *>(address);
  return mapping && byte >= mapping && byte < mapping + totalBytes &&
         !(byte >= mapped && byte < mapped + mappedBytes);
}
