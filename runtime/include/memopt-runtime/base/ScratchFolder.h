//===- ScratchFolder.h - a folder that ends with its process ----*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_BASE_SCRATCHFOLDER_H
#define MEMOPT_RUNTIME_BASE_SCRATCHFOLDER_H

#include "memopt-runtime/base/Files.h"

namespace memopt {

/// A folder of this process's own, which is removed with all that is in it when this object ends. A
/// process that is killed cannot do so; the next one that makes a folder of the same prefix does
/// it. It knows by a lock on the folder (flock), which the system takes from a process that ends; a
/// process that this one has forked holds it, too. Move-only.
class ScratchFolder {
public:
  /// Makes a folder for this user alone, whose name begins with `prefix`.
  static StatusOr<ScratchFolder> create(const std::string &prefix);

  ScratchFolder() = default;
  ScratchFolder(ScratchFolder &&other) noexcept { *this = std::move(other); }
  ScratchFolder &operator=(ScratchFolder &&other) noexcept {
    std::swap(path, other.path);
    std::swap(held, other.held);
    return *this;
  }
  ~ScratchFolder();

  /// Empty: there is none.
  const std::string &getPath() const { return path; }

private:
  std::string path;
  OpenFolder held;
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_BASE_SCRATCHFOLDER_H
