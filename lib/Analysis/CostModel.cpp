//===- CostModel.cpp - seconds of an instruction on a machine -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Analysis/CostModel.h"

#include <cmath>

using namespace mlir;
using namespace mlir::memopt;

namespace {
struct ProfileField {
  llvm::StringLiteral key;
  double MachineProfile::*field;
};
} // namespace

/// The keys of a profile file.
static constexpr ProfileField kFields[] = {
    {"matmul_flops_per_second", &MachineProfile::matmulFlops},
    {"convolution_flops_per_second", &MachineProfile::convolutionFlops},
    {"attention_flops_per_second", &MachineProfile::attentionFlops},
    {"kernel_flops_per_second", &MachineProfile::kernelFlops},
    {"bytes_per_second", &MachineProfile::bytes},
    {"launch_seconds", &MachineProfile::launchSeconds},
};

llvm::json::Object MachineProfile::toJson() const {
  llvm::json::Object object{{"format", "memopt-machine-profile"}, {"version", 1}};
  for (const ProfileField &field : kFields)
    object[field.key] = this->*field.field;
  return object;
}

llvm::Expected<MachineProfile> MachineProfile::fromJson(const llvm::json::Value &value) {
  auto fail = [](const llvm::Twine &message) {
    return llvm::createStringError(llvm::inconvertibleErrorCode(), "machine profile: " + message);
  };
  const llvm::json::Object *object = value.getAsObject();
  if (!object || object->getString("format") != "memopt-machine-profile" ||
      object->getInteger("version") != 1)
    return fail("expects an object with format 'memopt-machine-profile', version 1");
  MachineProfile profile;
  for (const ProfileField &field : kFields) {
    std::optional<double> number = object->getNumber(field.key);
    if (!number || !std::isfinite(*number) || *number <= 0)
      return fail("'" + field.key + "' must be a positive number");
    profile.*field.field = *number;
  }
  return profile;
}

double CostModel::getSeconds(Operation *instruction) const {
  auto cost = dyn_cast<CostOpInterface>(instruction);
  if (!cost)
    return profile.launchSeconds;
  double rate = profile.kernelFlops;
  if (auto call = dyn_cast<LibraryCallOp>(instruction)) {
    StringRef kind = call.getDescriptor().getAs<StringAttr>("kind").getValue();
    rate = kind.starts_with("convolution") ? profile.convolutionFlops
           : kind.starts_with("attention") ? profile.attentionFlops
                                           : profile.matmulFlops;
  }
  double arithmetic = static_cast<double>(cost.getFlops()) / rate;
  double traffic = static_cast<double>(cost.getBytesMoved()) / profile.bytes;
  return profile.launchSeconds + std::max(arithmetic, traffic);
}

int64_t CostModel::getNanoseconds(Operation *instruction) const {
  return std::max<int64_t>(1, std::llround(getSeconds(instruction) * 1e9));
}
