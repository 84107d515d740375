//===- DiskFile.h - room on a disk ------------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A file of fixed size for what does not fit into memory. Its blocks are taken before anything is
// written, so that a full disk is known before the first step. It has no name: however the process
// ends, nothing stays behind.
//
// Bytes go around the system's cache (O_DIRECT) and through io_uring, several pieces at a time.
// Where the file system refuses the one or the kernel the other (containers often do), the file is
// read and written without; getNotices() says so.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_MEMORY_DISKFILE_H
#define MEMOPT_RUNTIME_MEMORY_DISKFILE_H

#include "memopt-runtime/base/Status.h"
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace memopt {

/// What it may not use, for tests of the ways around it.
struct DiskFileLimits {
  bool hasDirect = true, hasRing = true, hasFallocate = true;
};

class DiskFile {
public:
  /// A file of `bytes` zeros, whole blocks, in a folder that exists. What the machine lacks (the
  /// folder, room) is an Environment error that names the folder.
  static StatusOr<std::unique_ptr<DiskFile>> create(const std::string &folder, int64_t bytes,
                                                    DiskFileLimits limits = {});
  ~DiskFile();
  DiskFile(const DiskFile &) = delete;
  DiskFile &operator=(const DiskFile &) = delete;

  /// Whole blocks from `offset` on, to and from memory that begins at a block's multiple. They
  /// return when all is done; one thread at a time. An error of the disk, or a transfer that ends
  /// early, is an Environment error that names folder and place.
  Status read(int64_t offset, char *to, int64_t bytes);
  Status write(int64_t offset, const char *from, int64_t bytes);

  /// What this machine refused, a sentence each.
  const std::vector<std::string> &getNotices() const { return notices; }
  int getDescriptor() const { return descriptor; }

private:
  /// Bytes still to be moved.
  struct Piece {
    char *memory;
    int64_t offset, bytes;
  };
  class Ring;

  explicit DiskFile(std::string folder);
  Status open(bool isDirect);
  Status takeRoom(int64_t bytes, bool hasFallocate);
  int writeZeros(int64_t bytes);
  Status move(bool isWrite, Piece whole);
  Status moveInOrder(bool isWrite, Piece piece);
  Status describeFailure(bool isWrite, const Piece &piece, int64_t result) const;

  std::string folder;
  int descriptor = -1;
  std::unique_ptr<Ring> ring; ///< null without io_uring
  std::vector<std::string> notices;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_MEMORY_DISKFILE_H
