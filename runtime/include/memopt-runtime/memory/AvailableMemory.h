//===- AvailableMemory.h - what an arena may take ---------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_MEMORY_AVAILABLEMEMORY_H
#define MEMOPT_RUNTIME_MEMORY_AVAILABLEMEMORY_H

#include <cstdint>
#include <string>

namespace memopt {

/// Bytes that this process can still have without pushing the machine into swap, nor any control
/// group that it is in (versions 1 and 2, with all groups above) beyond its limit: what a group
/// uses already counts, but for the page cache, which goes when memory is asked for. The proc and
/// sys file systems lie below `root`.
int64_t getAvailableMemory(const std::string &root = "");

} // namespace memopt

#endif // MEMOPT_RUNTIME_MEMORY_AVAILABLEMEMORY_H
