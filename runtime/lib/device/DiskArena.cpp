//===- DiskArena.cpp - the arena of a disk --------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/DiskArena.h"
#include "memopt-runtime/memory/ArenaPattern.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>

using namespace memopt;

static constexpr int64_t bufferBytes = 1 << 20;

static int64_t roundDown(int64_t offset) { return offset / diskBlockBytes * diskBlockBytes; }

void DiskArena::Free::operator()(char *memory) const { std::free(memory); }

StatusOr<std::unique_ptr<Arena>> DiskArena::allocate(const std::string &folder, int64_t bytes,
                                                     DiskFileLimits limits) {
  std::unique_ptr<DiskArena> arena(new DiskArena());
  if (bytes == 0)
    return std::unique_ptr<Arena>(std::move(arena));
  MEMOPT_ASSIGN_OR_RETURN(arena->file,
                          DiskFile::create(folder, roundUp(bytes, diskBlockBytes), limits));
  arena->buffer.reset(static_cast<char *>(std::aligned_alloc(diskBlockBytes, bufferBytes)));
  if (!arena->buffer)
    return environmentError("there is no memory for a buffer of " + std::to_string(bufferBytes) +
                            " bytes");
  arena->bytes = bytes;
  return std::unique_ptr<Arena>(std::move(arena));
}

Status DiskArena::reset(const PieceRunner &) {
  mark = 0;
  return Status::ok();
}

Status DiskArena::forgetAbove(int64_t offset) {
  mark = std::min(mark, offset);
  return Status::ok();
}

Status DiskArena::readBlocks(int64_t offset, char *to, int64_t size) {
  return file->read(offset, to, size);
}

Status DiskArena::writeBlocks(int64_t offset, const char *from, int64_t size) {
  MEMOPT_RETURN_IF_ERROR(file->write(offset, from, size));
  mark = std::max(mark, std::min(bytes, offset + size));
  return Status::ok();
}

Status DiskArena::read(int64_t offset, void *to, int64_t size) const {
  auto *target = static_cast<char *>(to);
  for (int64_t at = offset, end = offset + size; at < end;) {
    int64_t begin = roundDown(at),
            blocks = std::min(bufferBytes, roundUp(end, diskBlockBytes) - begin),
            next = std::min(end, begin + blocks);
    MEMOPT_RETURN_IF_ERROR(file->read(begin, buffer.get(), blocks));
    std::memcpy(target + (at - offset), buffer.get() + (at - begin), size_t(next - at));
    at = next;
  }
  return Status::ok();
}

/// Blocks of which others have a part are read first.
Status DiskArena::write(int64_t offset, const void *from, int64_t size) {
  const auto *source = static_cast<const char *>(from);
  for (int64_t at = offset, end = offset + size; at < end;) {
    int64_t begin = roundDown(at),
            blocks = std::min(bufferBytes, roundUp(end, diskBlockBytes) - begin),
            next = std::min(end, begin + blocks);
    if (at != begin || next != begin + blocks)
      MEMOPT_RETURN_IF_ERROR(file->read(begin, buffer.get(), blocks));
    std::memcpy(buffer.get() + (at - begin), source + (at - offset), size_t(next - at));
    MEMOPT_RETURN_IF_ERROR(writeBlocks(begin, buffer.get(), blocks));
    at = next;
  }
  return Status::ok();
}
