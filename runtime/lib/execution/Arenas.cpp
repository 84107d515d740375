//===- Arenas.cpp - the memory of a session -------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/execution/Arenas.h"
#include "memopt-runtime/device/DiskArena.h"
#include "memopt-runtime/memory/ArenaPattern.h"
#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

using namespace memopt;

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Windows of the disk begin at blocks of a checked arena too, whose end touches a page.
static int64_t getBytesToAllocate(const BytesBySpace &arenaBytes, int space) {
  int64_t bytes = arenaBytes[size_t(space)];
  bool hasWindows = space == MEMOPT_SPACE_HOST && arenaBytes[diskSpace];
  return hasWindows ? roundUp(bytes, diskBlockBytes) : bytes;
}

StatusOr<Arenas> Arenas::allocate(Device &device, const Manifest &manifest,
                                  const BytesBySpace &least, bool isChecked,
                                  const std::string &diskFolder) {
  Arenas result;
  BytesBySpace wanted = manifest.arenaBytes;
  for (size_t space = 0; space < wanted.size(); ++space)
    wanted[space] = std::max(wanted[space], least[space]);
  for (int space = 0; space < countedSpaces; ++space) {
    int64_t bytes = getBytesToAllocate(wanted, space);
    auto arena = space == diskSpace ? DiskArena::allocate(diskFolder, bytes)
                                    : device.allocate(space, bytes, isChecked);
    if (!arena.isOk())
      return arena.takeStatus().withContext(std::string(getSpaceName(space)) + " memory");
    result.arenas[size_t(space)] = *std::move(arena);
  }
  if (!result[MEMOPT_SPACE_DEVICE].isHostAccessible())
    MEMOPT_RETURN_IF_ERROR(result.createMirror(manifest));
  return result;
}

StatusOr<Arenas> Arenas::share(const Manifest &manifest) const {
  Arenas result;
  result.arenas = arenas;
  for (int space = 0; space < countedSpaces; ++space)
    if (manifest.arenaBytes[size_t(space)] > (*this)[space].size())
      return badInput("the arena of the " + std::string(getSpaceName(space)) + " has " +
                      std::to_string((*this)[space].size()) + " bytes, the program needs " +
                      std::to_string(manifest.arenaBytes[size_t(space)]));
  if (!result[MEMOPT_SPACE_DEVICE].isHostAccessible())
    MEMOPT_RETURN_IF_ERROR(result.createMirror(manifest));
  return result;
}

/// Whether the host exchanges a variable with every step.
static bool isExchanged(const VariableSpec &variable) {
  return (variable.role == "hyperparameter" && !variable.isExchange()) || variable.isLeftForHost();
}

/// The variable of that name, which must have room for what is exchanged; null where nothing is.
static StatusOr<const VariableSpec *> findExchange(const Manifest &manifest, const char *name,
                                                   int64_t bytes) {
  const VariableSpec *variable = manifest.findVariable(name);
  int64_t planned = variable ? variable->bytes : 0;
  if (planned == bytes)
    return variable;
  return badInput("variable " + quote(name) + " has " + std::to_string(planned) + " bytes, " +
                  std::to_string(bytes) + " are exchanged with the host; compile the model again");
}

Status Arenas::createMirror(const Manifest &manifest) {
  hasMirror = true;
  int64_t total = 0;
  auto add = [&](const PlacedTensor &tensor) {
    int64_t place = placeInExchange(total, tensor.bytes);
    mirrored.push_back({tensor.space, tensor.offset, tensor.bytes, place, -1});
  };
  for (const InputSpec &input : manifest.inputs)
    add(input);
  for (const OutputSpec &output : manifest.outputs)
    add(output);
  for (const VariableSpec &variable : manifest.variables)
    if (isExchanged(variable))
      add(variable);
  std::sort(mirrored.begin(), mirrored.end(), [](const Mirrored &a, const Mirrored &b) {
    return std::tie(a.space, a.offset, a.bytes) < std::tie(b.space, b.offset, b.bytes);
  });
  MEMOPT_ASSIGN_OR_RETURN(const VariableSpec *exchange,
                          findExchange(manifest, exchangeName, total));
  for (Mirrored &entry : mirrored)
    entry.place += exchange->offset;
  return placeSamples(manifest);
}

Status Arenas::placeSamples(const Manifest &manifest) {
  int64_t total = 0;
  auto add = [&](const PlacedTensor &tensor) {
    find(tensor)->staged = placeInExchange(total, tensor.bytes);
  };
  for (const InputSpec &input : manifest.inputs)
    add(input);
  if (const VariableSpec *offset = manifest.findHyperparameter("sample_offset"))
    add(*offset);
  MEMOPT_ASSIGN_OR_RETURN(const VariableSpec *samples,
                          findExchange(manifest, nextSamplesName, total));
  for (Mirrored &entry : mirrored)
    if (entry.staged >= 0)
      entry.staged += samples->offset;
  return Status::ok();
}

const Arenas::Mirrored *Arenas::find(const PlacedTensor &tensor) const {
  auto key = std::tie(tensor.space, tensor.offset, tensor.bytes);
  auto found = std::lower_bound(mirrored.begin(), mirrored.end(), key,
                                [](const Mirrored &entry, const auto &wanted) {
                                  return std::tie(entry.space, entry.offset, entry.bytes) < wanted;
                                });
  bool isThere =
      found != mirrored.end() && std::tie(found->space, found->offset, found->bytes) == key;
  return isThere ? &*found : nullptr;
}

Arenas::Mirrored *Arenas::find(const PlacedTensor &tensor) {
  return const_cast<Mirrored *>(std::as_const(*this).find(tensor));
}

char *Arenas::findInMirror(const PlacedTensor &tensor) const {
  if (const Mirrored *entry = find(tensor))
    return (*this)[MEMOPT_SPACE_HOST].base() + entry->place;
  Arena &arena = (*this)[tensor.space];
  return arena.isHostAccessible() ? arena.base() + tensor.offset : nullptr;
}

Status Arenas::reset(ThreadPool &pool) {
  auto runPieces = [&](int64_t count, const PieceWork &work) {
    pool.parallelFor(count, /*grain=*/1, work);
  };
  for (const auto &arena : arenas)
    MEMOPT_RETURN_IF_ERROR(arena->reset(runPieces));
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

StatusOr<const char *> Arenas::view(const PlacedTensor &tensor, std::vector<char> &storage) const {
  Arena &arena = (*this)[tensor.space];
  if (arena.isHostAccessible())
    return static_cast<const char *>(arena.base() + tensor.offset);
  storage.resize(size_t(tensor.bytes));
  MEMOPT_RETURN_IF_ERROR(arena.read(tensor.offset, storage.data(), tensor.bytes));
  return static_cast<const char *>(storage.data());
}

Status Arenas::read(const PlacedTensor &tensor, void *to) const {
  return (*this)[tensor.space].read(tensor.offset, to, tensor.bytes);
}

Status Arenas::write(const PlacedTensor &tensor, int64_t begin, const void *from,
                     int64_t size) const {
  if (hasMirror && find(tensor) && size)
    std::memcpy(findInMirror(tensor) + begin, from, size_t(size));
  return (*this)[tensor.space].write(tensor.offset + begin, from, size);
}

Status Arenas::clear(const PlacedTensor &tensor, int64_t begin) const {
  if (Arena &arena = (*this)[tensor.space]; arena.isHostAccessible()) {
    if (begin < tensor.bytes)
      std::memset(arena.base() + tensor.offset + begin, 0, size_t(tensor.bytes - begin));
    return Status::ok();
  }
  constexpr int64_t most = 1 << 20;
  std::vector<char> zeros(size_t(std::clamp<int64_t>(tensor.bytes - begin, 0, most)));
  for (; begin < tensor.bytes; begin += int64_t(zeros.size()))
    MEMOPT_RETURN_IF_ERROR(
        write(tensor, begin, zeros.data(), std::min(int64_t(zeros.size()), tensor.bytes - begin)));
  return Status::ok();
}

Status Arenas::upload(Stream &stream, const PlacedTensor &tensor) const {
  const Mirrored *entry = find(tensor);
  return entry ? stream.copy((*this)[tensor.space], tensor.offset, (*this)[MEMOPT_SPACE_HOST],
                             entry->place, tensor.bytes)
               : Status::ok();
}

Status Arenas::download(Stream &stream, const PlacedTensor &tensor) const {
  const Mirrored *entry = find(tensor);
  return entry ? stream.copy((*this)[MEMOPT_SPACE_HOST], entry->place, (*this)[tensor.space],
                             tensor.offset, tensor.bytes)
               : Status::ok();
}

Status Arenas::stage(Stream &stream, const PlacedTensor &tensor) const {
  const Mirrored *entry = find(tensor);
  return entry ? stream.copy((*this)[MEMOPT_SPACE_DEVICE], entry->staged,
                             (*this)[MEMOPT_SPACE_HOST], entry->place, tensor.bytes)
               : Status::ok();
}

Status Arenas::unstage(Stream &stream, const PlacedTensor &tensor) const {
  const Mirrored *entry = find(tensor);
  return entry ? stream.copy((*this)[tensor.space], tensor.offset, (*this)[MEMOPT_SPACE_DEVICE],
                             entry->staged, tensor.bytes)
               : Status::ok();
}

//===----------------------------------------------------------------------===//
// What is used
//===----------------------------------------------------------------------===//

void Arenas::noteHandedOut(const void *address, int64_t size) {
  for (const auto &arena : arenas)
    arena->noteHandedOut(address, size);
}

Status Arenas::forgetAbove(const BytesBySpace &ends) {
  for (size_t space = 0; space < arenas.size(); ++space)
    MEMOPT_RETURN_IF_ERROR(arenas[space]->forgetAbove(ends[space]));
  return Status::ok();
}

BytesBySpace Arenas::getBytes() const {
  BytesBySpace bytes{};
  for (int space = 0; space < countedSpaces; ++space)
    bytes[size_t(space)] = (*this)[space].size();
  return bytes;
}

Status Arenas::observe() {
  for (const auto &arena : arenas) {
    MEMOPT_RETURN_IF_ERROR(arena->updateMark());
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
  for (int space = 0; space < countedSpaces; ++space)
    bytes[size_t(space)] = (*this)[space].usedPeakBytes();
  return bytes;
}

int64_t Arenas::getResidentBytes() const {
  int64_t bytes = 0;
  for (const auto &arena : arenas)
    bytes += arena->isHostAccessible() ? arena->residentBytes() : 0;
  return bytes;
}

std::vector<std::string> Arenas::getNotices() const {
  const DiskFile *file = static_cast<const DiskArena &>((*this)[diskSpace]).getFile();
  return file ? file->getNotices() : std::vector<std::string>();
}
