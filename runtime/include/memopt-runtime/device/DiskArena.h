//===- DiskArena.h - the arena of a disk, and its stream --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a program keeps on disk lies in one file of the planned size. It has no address: programs
// transfer whole blocks between it and the host's arena, and the host reads and writes any bytes
// through a buffer of its own, between steps.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_DEVICE_DISKARENA_H
#define MEMOPT_RUNTIME_DEVICE_DISKARENA_H

#include "memopt-runtime/device/Device.h"
#include "memopt-runtime/interface/PackageFormat.h"
#include "memopt-runtime/memory/DiskFile.h"

namespace memopt {

class DiskArena final : public Arena {
public:
  /// In a new file of the folder; no bytes need no file.
  static StatusOr<std::unique_ptr<Arena>> allocate(const std::string &folder, int64_t bytes,
                                                   DiskFileLimits limits = {});

  bool isHostAccessible() const override { return false; }
  int64_t residentBytes() const override { return 0; }
  Status read(int64_t offset, void *to, int64_t size) const override;
  Status write(int64_t offset, const void *from, int64_t size) override;
  /// Values stay: every one is written before it is read.
  using Arena::reset;
  Status reset(const PieceRunner &runPieces) override;
  Status forgetAbove(int64_t offset) override;
  Status updateMark() override { return Status::ok(); }
  Status checkSlack() const override { return Status::ok(); }
  bool isGuard(const void *) const override { return false; }

  /// Blocks to and from memory of the host that begins at a block's multiple. What is written
  /// counts as used.
  Status readBlocks(int64_t offset, char *to, int64_t size);
  Status writeBlocks(int64_t offset, const char *from, int64_t size);

  DiskFile *getFile() const { return file.get(); }

private:
  /// Frees what aligned_alloc gave.
  struct Free {
    void operator()(char *memory) const;
  };
  DiskArena() = default;

  std::unique_ptr<DiskFile> file;
  std::unique_ptr<char[], Free> buffer; ///< for bytes that are no blocks
};

/// A thread that does what goes in, in order, and records events of the host. Copies are between
/// the host's arena and the disk's; after one that failed all fail, and say why the first did.
StatusOr<std::unique_ptr<Stream>> createDiskStream(DiskArena &disk, int64_t capacity);

} // namespace memopt

#endif // MEMOPT_RUNTIME_DEVICE_DISKARENA_H
