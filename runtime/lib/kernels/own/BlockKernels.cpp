//===- BlockKernels.cpp - the choice of the inner loops ----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/kernels/own/BlockKernels.h"
#include "GroupKernels.h"
#include "RowKernels.h"
#include "WinogradKernels.h"
#include <cstdlib>
#include <string_view>

using namespace memopt;
using namespace memopt::libraries;

#define MEMOPT_DECLARE_KERNELS(isa)                                                                \
  namespace memopt::libraries::isa {                                                               \
  template <typename S, typename T> const BlockKernels<S, T> &getBlockKernels();                   \
  template <typename S, typename T> const GroupKernels<S, T> &getGroupKernels();                   \
  template <typename T> const RowKernels<T> &getRowKernels();                                      \
  const WinogradKernels &getWinogradKernels();                                                     \
  }
MEMOPT_DECLARE_KERNELS(baseline)
#ifdef __x86_64__
MEMOPT_DECLARE_KERNELS(avx2)
MEMOPT_DECLARE_KERNELS(avx512)
#endif

static std::string_view instructionLimit() {
  static const char *const text = std::getenv("MEMOPT_MAX_ISA");
  return text ? text : "";
}

bool libraries::isHeldToAvx2() { return instructionLimit() == "avx2"; }
bool libraries::isInstructionLimitKnown() { return instructionLimit().empty() || isHeldToAvx2(); }

InstructionSet libraries::instructionSet() {
#ifdef __x86_64__
  static const bool mayUseAvx512 = !isHeldToAvx2();
  // The features of the x86-64-v4 and x86-64-v3 levels that compilers use in such loops.
  if (mayUseAvx512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
    return InstructionSet::Avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2"))
    return InstructionSet::Avx2;
#endif
  return InstructionSet::Baseline;
}

/// What a function of the namespace of the instruction set gives.
#ifdef __x86_64__
#define MEMOPT_KERNELS_OF(set, ...)                                                                \
  ((set) == InstructionSet::Avx512 ? avx512::__VA_ARGS__()                                         \
   : (set) == InstructionSet::Avx2 ? avx2::__VA_ARGS__()                                           \
                                   : baseline::__VA_ARGS__())
#else
#define MEMOPT_KERNELS_OF(set, ...) baseline::__VA_ARGS__()
#endif

template <typename Stored, typename Computed>
const BlockKernels<Stored, Computed> &libraries::blockKernels(InstructionSet set) {
  return MEMOPT_KERNELS_OF(set, getBlockKernels<Stored, Computed>);
}

template <typename Stored, typename Computed>
const GroupKernels<Stored, Computed> &libraries::groupKernels(InstructionSet set) {
  return MEMOPT_KERNELS_OF(set, getGroupKernels<Stored, Computed>);
}

template <typename T> const RowKernels<T> &libraries::rowKernels(InstructionSet set) {
  return MEMOPT_KERNELS_OF(set, getRowKernels<T>);
}

const WinogradKernels &libraries::winogradKernels(InstructionSet set) {
  return MEMOPT_KERNELS_OF(set, getWinogradKernels);
}

#undef MEMOPT_KERNELS_OF

template const BlockKernels<float, float> &libraries::blockKernels(InstructionSet);
template const BlockKernels<double, double> &libraries::blockKernels(InstructionSet);
template const BlockKernels<float, double> &libraries::blockKernels(InstructionSet);
template const BlockKernels<BFloat16, float> &libraries::blockKernels(InstructionSet);
template const BlockKernels<BFloat16, double> &libraries::blockKernels(InstructionSet);
template const BlockKernels<Float16, float> &libraries::blockKernels(InstructionSet);
template const BlockKernels<Float16, double> &libraries::blockKernels(InstructionSet);
template const GroupKernels<float, float> &libraries::groupKernels(InstructionSet);
template const GroupKernels<double, double> &libraries::groupKernels(InstructionSet);
template const GroupKernels<BFloat16, float> &libraries::groupKernels(InstructionSet);
template const GroupKernels<Float16, float> &libraries::groupKernels(InstructionSet);
template const RowKernels<float> &libraries::rowKernels(InstructionSet);
template const RowKernels<double> &libraries::rowKernels(InstructionSet);
