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

#ifndef MEMOPT_RUNTIME_INTERFACE_PACKAGEFORMAT_H
#define MEMOPT_RUNTIME_INTERFACE_PACKAGEFORMAT_H

#include "memopt-runtime/interface/ProgramInterface.h"
#include <cstddef>
#include <string>

namespace memopt {

/// The version of manifests that is written and read, that of packages of several programs, and
/// that of such packages in which each program has code of its own.
constexpr int64_t manifestVersion = 2, severalProgramsVersion = 4, separateCodeVersion = 3;

/// Files of a package; beside them lie the target's image and its PTX.
constexpr const char *manifestFile = "manifest.json", *programFile = "program.so",
                     *weightsFile = "weights.safetensors";

/// Of several programs the first has the files above. The others have manifests with a number in
/// front, 2.manifest.json, and their code is in the first's files.
inline std::string getProgramFile(size_t number, const std::string &name) {
  return number ? std::to_string(number + 1) + "." + name : name;
}

/// What stands behind the name of the function that runs a program's steps.
inline std::string getStepSuffix(size_t number) {
  return number ? "_" + std::to_string(number + 1) : "";
}

/// The most programs of a package.
constexpr size_t mostPrograms = 1024;

/// Letters of a package's digest, a hexadecimal number.
constexpr int digestLetters = 40;

/// The most ranks that a program is compiled for.
constexpr int64_t mostRanks = 4096;

/// The spaces whose bytes are counted: those with an arena (MEMOPT_SPACE_*), then the disk.
constexpr int diskSpace = MEMOPT_SPACE_COUNT;
constexpr int countedSpaces = MEMOPT_SPACE_COUNT + 1;

constexpr const char *spaceNames[countedSpaces] = {"device", "host", "disk"};

/// What a disk reads and writes at once: offsets and bytes of its transfers are multiples of it.
constexpr int64_t diskBlockBytes = 4096;

/// Variables of a program whose kernels are a device's (role hyperparameter, i8). In the first, on
/// the host, lie inputs, outputs and what else is copied with each step: variables of
/// role hyperparameter but these two, index_fault and loss_scale, and the norm of all gradients. In
/// the second, on the device, lie inputs, and sample_offset behind them. All in the manifest's
/// order, each at the next multiple of exchangeAlignment.
constexpr const char *exchangeName = "exchange", *nextSamplesName = "next_samples";
constexpr int64_t exchangeAlignment = 64;

/// Adds a tensor to such a variable: gives its place, and moves `end` behind it.
constexpr int64_t placeInExchange(int64_t &end, int64_t bytes) {
  int64_t place = (end + exchangeAlignment - 1) / exchangeAlignment * exchangeAlignment;
  end = place + bytes;
  return place;
}

} // namespace memopt

#endif // MEMOPT_RUNTIME_INTERFACE_PACKAGEFORMAT_H
