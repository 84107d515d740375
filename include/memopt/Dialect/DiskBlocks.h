//===- DiskBlocks.h - what a disk reads and writes at once ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Transfers that go around the system's cache need offsets, addresses and lengths in whole blocks.
// So buffers of the disk, and those of the host that transfers to and from the disk touch, begin at
// a block and end with one.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_DIALECT_DISKBLOCKS_H
#define MEMOPT_DIALECT_DISKBLOCKS_H

#include <cstdint>

namespace mlir::memopt {

/// Bytes; the runtime has the same (PackageFormat.h).
inline constexpr int64_t kDiskBlock = 4096;

/// `bytes` in whole blocks; of less than 2^62.
inline constexpr int64_t roundUpToDiskBlocks(int64_t bytes) {
  return (bytes + kDiskBlock - 1) / kDiskBlock * kDiskBlock;
}

} // namespace mlir::memopt

#endif // MEMOPT_DIALECT_DISKBLOCKS_H
