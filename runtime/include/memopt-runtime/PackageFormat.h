//===- PackageFormat.h - what writers and readers of packages share -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The words of docs/Package.md that the compiler writes and the runtime reads. Plain constants: the
// compiler includes nothing else of the runtime's manifest.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_PACKAGEFORMAT_H
#define MEMOPT_RUNTIME_PACKAGEFORMAT_H

#include "memopt-runtime/ProgramInterface.h"

namespace memopt {

/// The one version of manifests that is written and read.
constexpr int64_t manifestVersion = 2;

/// The most ranks that a program is compiled for.
constexpr int64_t mostRanks = 4096;

/// The spaces whose bytes are counted: those with an arena (MEMOPT_SPACE_*), then the disk.
constexpr int diskSpace = MEMOPT_SPACE_COUNT;
constexpr int countedSpaces = MEMOPT_SPACE_COUNT + 1;

constexpr const char *spaceNames[countedSpaces] = {"device", "host", "disk"};

/// What a disk reads and writes at once: offsets and bytes of its transfers are multiples of it.
constexpr int64_t diskBlockBytes = 4096;

} // namespace memopt

#endif // MEMOPT_RUNTIME_PACKAGEFORMAT_H
