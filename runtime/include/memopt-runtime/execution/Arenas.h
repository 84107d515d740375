//===- Arenas.h - the memory of a session -----------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_EXECUTION_ARENAS_H
#define MEMOPT_RUNTIME_EXECUTION_ARENAS_H

#include "memopt-runtime/device/Device.h"
#include "memopt-runtime/package/Manifest.h"
#include "memopt-runtime/threads/ThreadPool.h"

namespace memopt {

/// One arena for each space. Programs address those in memory themselves; the host gets at tensors
/// by getAddress, read and write, wherever they lie.
///
/// Of memory beyond the host's reach the host has a mirror of what it exchanges with every step:
/// inputs, outputs, hyperparameters and the like. It writes and reads there, and streams copy. The
/// mirror is a variable of the program, and so is the place on the device where samples wait until
/// their inputs are free (PackageFormat.h).
class Arenas {
public:
  /// Takes memory for a program, at least `least` bytes, and room for it in a folder where it uses
  /// the disk; a failure names the space.
  static StatusOr<Arenas> allocate(Device &device, const Manifest &manifest,
                                   const BytesBySpace &least, bool isChecked,
                                   const std::string &diskFolder);
  /// The same memory for another program, for which there has to be enough.
  StatusOr<Arenas> share(const Manifest &manifest) const;

  Arena &operator[](int space) const { return *arenas[size_t(space)]; }

  /// Where the host reads and writes a tensor that has an address for it: all do in memory within
  /// its reach, those of the mirror elsewhere. Null without one.
  char *getAddress(const PlacedTensor &tensor) const {
    if (tensor.space == diskSpace)
      return nullptr;
    return hasMirror ? findInMirror(tensor) : (*this)[tensor.space].base() + tensor.offset;
  }
  double readElement(const PlacedTensor &tensor, int64_t index) const {
    return memopt::readElement(tensor.dtype, getAddress(tensor), index);
  }

  /// The bytes of any tensor, once nothing else touches them: in place, or copied into `storage`.
  StatusOr<const char *> view(const PlacedTensor &tensor, std::vector<char> &storage) const;
  Status read(const PlacedTensor &tensor, void *to) const;
  /// Writes `size` bytes of a tensor from its byte `begin` on.
  Status write(const PlacedTensor &tensor, int64_t begin, const void *from, int64_t size) const;
  /// Fills the bytes of a tensor from its byte `begin` on with zeros.
  Status clear(const PlacedTensor &tensor, int64_t begin) const;

  /// Copies a tensor out of the mirror, or into it, in a stream. Both do nothing for a tensor that
  /// lies within the host's reach.
  Status upload(Stream &stream, const PlacedTensor &tensor) const;
  Status download(Stream &stream, const PlacedTensor &tensor) const;
  /// The two halves of an upload of samples: to where they wait, and from there to their place.
  Status stage(Stream &stream, const PlacedTensor &tensor) const;
  Status unstage(Stream &stream, const PlacedTensor &tensor) const;

  /// Fills all as they were when they were allocated, each thread of the pool a part: pages lie
  /// near the thread that touches them first.
  Status reset(ThreadPool &pool);

  /// Fills what lies above the state of a program of several, as it was when it was allocated.
  Status forgetAbove(const BytesBySpace &ends);
  BytesBySpace getBytes() const;

  /// See Arena, whose functions these are for all spaces.
  void noteHandedOut(const void *address, int64_t size);
  Status observe();
  bool isGuard(const void *address) const;
  BytesBySpace getUsedPeakBytes() const;
  /// Of the host's memory.
  int64_t getResidentBytes() const;
  /// What the disk's file system or the kernel refused, a sentence each.
  std::vector<std::string> getNotices() const;

private:
  /// A tensor's place in the mirror, and on the device where it waits; -1: it does not.
  struct Mirrored {
    int space;
    int64_t offset, bytes, place, staged;
  };

  Status createMirror(const Manifest &manifest);
  Status placeSamples(const Manifest &manifest);
  const Mirrored *find(const PlacedTensor &tensor) const;
  Mirrored *find(const PlacedTensor &tensor);
  char *findInMirror(const PlacedTensor &tensor) const;

  bool hasMirror = false;         ///< whether the host does not reach all
  std::vector<Mirrored> mirrored; ///< in the order of their places in the arenas
  std::array<std::shared_ptr<Arena>, countedSpaces> arenas;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_EXECUTION_ARENAS_H
