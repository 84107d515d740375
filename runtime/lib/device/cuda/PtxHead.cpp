//===- PtxHead.cpp - what PTX needs of a driver and a chip ----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// PTX begins with ".version 7.8" and ".target sm_90".
//
//===----------------------------------------------------------------------===//

#include "PtxHead.h"
#include "memopt-runtime/base/Json.h"
#include "memopt-runtime/device/cuda/CudaDevice.h"
#include <algorithm>
#include <cstdlib>

using namespace memopt;
using namespace memopt::cuda;

/// The word behind `directive`; empty where there is none.
static std::string findWord(const std::string &text, const std::string &directive) {
  size_t begin = text.find(directive + " ");
  if (begin == std::string::npos)
    return "";
  begin += directive.size() + 1;
  size_t end = text.find_first_of(" ,\r\n", begin);
  return text.substr(begin, end == std::string::npos ? end : end - begin);
}

/// The first CUDA whose driver knows the version (PTX ISA, "Release Notes").
static std::string nameCudaOfPtx(const std::string &version) {
  int major = std::atoi(version.c_str());
  size_t point = version.find('.');
  int minor = point == std::string::npos ? 0 : std::atoi(version.c_str() + point + 1);
  bool hasGap = major == 8 && minor > 5; // 12.6 has that of 12.5
  return std::to_string(major + 4) + "." + std::to_string(minor + (hasGap ? 1 : 0));
}

Status memopt::explainRefusal(const CudaContext &context, const InputFile &source,
                              CUresult result) {
  std::string head(size_t(std::min<uint64_t>(source.size(), 4096)), ' ');
  MEMOPT_RETURN_IF_ERROR(source.read(0, head.data(), head.size()));
  std::string version = findWord(head, ".version"), chip = findWord(head, ".target");
  MEMOPT_ASSIGN_OR_RETURN(std::string here, getCudaChip(context));
  Status reason = context.explain(result, "cuModuleLoad");
  return environmentError("the package has no code for " + here + " and a driver for CUDA " +
                          context.getDriverVersion() + ", and the driver makes none of " +
                          quote(source.getPath()) + ", which needs a chip " + chip +
                          " or newer and a driver for CUDA " + nameCudaOfPtx(version) +
                          " or newer (" + reason.getMessage() + "); compile the model here");
}
