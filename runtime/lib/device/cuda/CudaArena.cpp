//===- CudaArena.cpp - memory of a GPU, and the host's for it -------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudaArena.h"
#include "memopt-runtime/memory/ArenaPattern.h"
#include <algorithm>
#include <vector>

using namespace memopt;
using namespace memopt::cuda;

//===----------------------------------------------------------------------===//
// Mapping
//===----------------------------------------------------------------------===//

static CUmemAllocationProp getAllocationProperties(const CudaContext &context, unsigned handles) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = handles;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, context.getDevice()};
  return properties;
}

StatusOr<std::unique_ptr<Arena>> CudaArena::allocate(const CudaContext &context,
                                                     CudaStaging &staging, int64_t bytes,
                                                     bool isChecked) {
  if (bytes < 0)
    return badInput("an arena cannot have " + std::to_string(bytes) + " bytes");
  std::unique_ptr<CudaArena> arena(new CudaArena(context, staging));
  if (bytes == 0)
    return std::unique_ptr<Arena>(std::move(arena));
  size_t free = 0, total = 0;
  MEMOPT_RETURN_IF_ERROR(context.memGetInfo(&free, &total));
  if (uint64_t(bytes) > free)
    return environmentError("the arena takes " + std::to_string(bytes) + " bytes, the device has " +
                            std::to_string(free) + " of its " + std::to_string(total) + " free");
  arena->bytes = bytes;
  arena->isChecked = isChecked;
  if (Status status = arena->map(); !status.isOk())
    return status.withContext("an arena of " + std::to_string(bytes) + " bytes");
  return std::unique_ptr<Arena>(std::move(arena));
}

/// Some drivers (WSL2's) do not give memory that other processes could map, or map none at all.
Status CudaArena::map() {
  Status refusal;
  for (unsigned handles : {unsigned(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), // for other ranks
                           unsigned(CU_MEM_HANDLE_TYPE_NONE)}) {
    refusal = mapRange(handles);
    if (refusal.isOk())
      return open();
    release();
    if (isFull)
      return refusal;
  }
  MEMOPT_RETURN_IF_ERROR(allocatePlainly());
  context.note(
      "the device's arena has no guards, and device code that leaves it may go unnoticed: " +
      refusal.getMessage());
  return open();
}

/// Maps memory in the middle of a range, for handles of that kind.
Status CudaArena::mapRange(unsigned handles) {
  MEMOPT_ASSIGN_OR_RETURN(
      int hasMapping,
      context.getAttribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED));
  if (!hasMapping)
    return environmentError("the device cannot map memory at chosen addresses");
  CUmemAllocationProp properties = getAllocationProperties(context, handles);
  size_t unit = 0;
  MEMOPT_RETURN_IF_ERROR(context.memGetAllocationGranularity(
      &unit, &properties, unsigned(CU_MEM_ALLOC_GRANULARITY_MINIMUM)));
  guardBytes = int64_t(unit);
  mappedBytes = roundUp(bytes, guardBytes);
  MEMOPT_RETURN_IF_ERROR(context.memAddressReserve(&range, size_t(mappedBytes + 2 * guardBytes),
                                                   size_t(0), CUdeviceptr(0), 0ull));
  CUmemHandle memory = 0;
  CUresult made = context.getDriver().memCreate(&memory, size_t(mappedBytes), &properties, 0ull);
  isFull = made == CUDA_ERROR_OUT_OF_MEMORY;
  MEMOPT_RETURN_IF_ERROR(context.explain(made, "cuMemCreate"));
  mapped = range + CUdeviceptr(guardBytes);
  Status status = context.memMap(mapped, size_t(mappedBytes), size_t(0), memory, 0ull);
  isMapped = status.isOk();
  (void)context.memRelease(memory); // the mapping holds it
  MEMOPT_RETURN_IF_ERROR(std::move(status));
  CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return context.memSetAccess(mapped, size_t(mappedBytes), &access, size_t(1));
}

Status CudaArena::allocatePlainly() {
  guardBytes = 0;
  mappedBytes = roundUp(bytes, workspaceAlignment);
  MEMOPT_RETURN_IF_ERROR(context.memAlloc(&mapped, size_t(mappedBytes)));
  isMapped = isPlain = true;
  return Status::ok();
}

/// The arena in the memory that there is now.
Status CudaArena::open() {
  start = reinterpret_cast<char *>(mapped);
  if (isChecked)
    start += mappedBytes - roundUp(bytes, workspaceAlignment);
  if (auto nameBytes = context.getDriver().emulatedName)
    MEMOPT_RETURN_IF_ERROR(context.explain(
        nameBytes(toAddress(start), size_t(bytes), "the device arena"), "memoptEmulatedName"));
  return reset();
}

void CudaArena::release() {
  if (isPlain)
    (void)context.memFree(mapped);
  else if (isMapped)
    (void)context.memUnmap(mapped, size_t(mappedBytes));
  if (range)
    (void)context.memAddressFree(range, size_t(mappedBytes + 2 * guardBytes));
  isMapped = isPlain = false;
  range = 0;
}

CudaArena::~CudaArena() { release(); }

bool CudaArena::isGuard(const void *address) const {
  auto offset = int64_t(toAddress(address) - mapped);
  bool isBefore = offset >= -guardBytes && offset < 0,
       isBehind = offset >= mappedBytes && offset < mappedBytes + guardBytes;
  return range && (isBefore || isBehind);
}

//===----------------------------------------------------------------------===//
// Contents
//===----------------------------------------------------------------------===//

Status CudaArena::read(int64_t offset, void *to, int64_t size) const {
  return staging.read(toAddress(start + offset), to, size);
}

Status CudaArena::write(int64_t offset, const void *from, int64_t size) {
  return staging.write(toAddress(start + offset), from, size);
}

Status CudaArena::reset(const PieceRunner &) {
  mark = 0;
  return isChecked ? fillWithPattern() : staging.fill(mapped, 0, mappedBytes);
}

/// How far the memory goes before the arena.
static int64_t measure(const char *start, CUdeviceptr mapped) {
  return int64_t(toAddress(start) - mapped);
}

Status CudaArena::fillWithPattern() {
  int64_t first = -measure(start, mapped);
  std::vector<char> piece(size_t(std::min(mappedBytes, CudaStaging::pieceBytes)));
  for (int64_t begin = 0; begin < mappedBytes; begin += int64_t(piece.size())) {
    int64_t size = std::min(int64_t(piece.size()), mappedBytes - begin);
    for (int64_t i = 0; i < size; ++i)
      piece[size_t(i)] = char(getPattern(first + begin + i));
    MEMOPT_RETURN_IF_ERROR(staging.write(mapped + CUdeviceptr(begin), piece.data(), size));
  }
  return Status::ok();
}

/// The last byte of [begin, end) that differs from the pattern, or begin - 1. From the end on, for
/// most of the arena is seldom looked at.
StatusOr<int64_t> CudaArena::findWritten(int64_t begin, int64_t end) const {
  while (end > begin) {
    int64_t size = std::min(CudaStaging::pieceBytes, end - begin), first = end - size, last = -1;
    auto look = [&](const char *piece) {
      for (int64_t i = 0; i < size; ++i)
        if (static_cast<unsigned char>(piece[i]) != getPattern(first + i))
          last = i;
    };
    MEMOPT_RETURN_IF_ERROR(staging.inspect(toAddress(start) + CUdeviceptr(first), size, look));
    if (last >= 0)
      return first + last;
    end = first;
  }
  return begin - 1;
}

Status CudaArena::updateMark() {
  if (!isMapped || mark >= bytes)
    return Status::ok();
  MEMOPT_ASSIGN_OR_RETURN(int64_t last, findWritten(mark, bytes));
  mark = std::max(mark, last + 1);
  return Status::ok();
}

Status CudaArena::checkSlack() const {
  if (!isChecked || !isMapped)
    return Status::ok();
  int64_t before = measure(start, mapped), behind = mappedBytes - before;
  MEMOPT_ASSIGN_OR_RETURN(int64_t late, findWritten(bytes, behind));
  if (late >= bytes)
    return describeSlack("behind", bytes, late);
  MEMOPT_ASSIGN_OR_RETURN(int64_t early, findWritten(-before, 0));
  return early >= -before ? describeSlack("before", bytes, early) : Status::ok();
}

//===----------------------------------------------------------------------===//
// Pinned memory
//===----------------------------------------------------------------------===//

StatusOr<std::unique_ptr<Arena>> memopt::allocatePinned(const CudaContext &context, int64_t bytes,
                                                        bool isChecked) {
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<Arena> arena, HostArena::allocate(bytes, isChecked));
  if (bytes == 0)
    return arena;
  auto &host = static_cast<HostArena &>(*arena);
  char *begin = host.getMapped();
  if (Status status =
          context.memHostRegister(static_cast<void *>(begin), size_t(host.residentBytes()),
                                  unsigned(CU_MEMHOSTREGISTER_PORTABLE));
      !status.isOk())
    return status.withContext("pinning " + std::to_string(bytes) + " bytes");
  host.setRelease(
      [&context, begin] { (void)context.memHostUnregister(static_cast<void *>(begin)); });
  return arena;
}
