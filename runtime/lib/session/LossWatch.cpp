//===- LossWatch.cpp - a loss that is not finite --------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LossWatch.h"
#include <cmath>

using namespace memopt;

bool LossWatch::isFinite() const {
  int loss = manifest.getLossIndex();
  return loss < 0 || std::isfinite(arenas.readElement(manifest.outputs[size_t(loss)], 0));
}

std::string LossWatch::describeLoss() const {
  const OutputSpec &loss = manifest.outputs[size_t(manifest.getLossIndex())];
  return "the loss is " + std::to_string(arenas.readElement(loss, 0));
}

std::string LossWatch::describeCause() const {
  std::string message;
  // As the step has read them: a device's mirror may hold the next ones already.
  std::vector<char> storage;
  for (const InputSpec &input : manifest.inputs) {
    StatusOr<const char *> data = arenas.view(input, storage);
    if (!data.isOk())
      continue; // the device is lost, which the next call says
    if (int64_t at = findNonFinite(input.dtype, *data, getElementCount(input.shape)); at >= 0)
      message += "; input " + quote(input.name) + " holds " +
                 std::to_string(readElement(input.dtype, *data, at)) + " at index " +
                 toIndexText(input.shape, at);
  }
  if (auto variable = findNonFiniteState(manifest, arenas, rank); variable.isOk() && *variable)
    message += "; " + (*variable)->role + " " + quote((*variable)->name) + " is no longer finite";
  return message;
}

StatusOr<bool> LossWatch::inspect(int64_t instruction) {
  if (firstNan >= 0)
    return false;
  std::vector<char> storage;
  for (const PlacedTensor &output : manifest.instructions[size_t(instruction)].outputs) {
    int64_t count = output.bytes / getByteSize(output.dtype);
    MEMOPT_ASSIGN_OR_RETURN(const void *data, arenas.view(output, storage));
    if (findNonFinite(output.dtype, data, count) < 0)
      continue;
    if (firstNan < 0 && findNonFinite(output.dtype, data, count, /*onlyNan=*/true) >= 0)
      firstNan = instruction;
    if (firstInfinite < 0)
      firstInfinite = instruction;
  }
  return firstNan < 0;
}

std::string LossWatch::describeOrigin() const {
  std::string message;
  if (int64_t first = firstNan >= 0 ? firstNan : firstInfinite; first >= 0)
    message = "; the first output that is " +
              std::string(firstNan >= 0 ? "not a number" : "infinite") + " comes from " +
              manifest.describeInstruction(first);
  if (firstNan >= 0 && firstInfinite >= 0 && firstInfinite != firstNan)
    message += ", after an infinite one from " + manifest.describeInstruction(firstInfinite);
  return message;
}

StatusOr<const VariableSpec *> memopt::findNonFiniteState(const Manifest &manifest,
                                                          const Arenas &arenas, int64_t rank) {
  std::vector<char> storage;
  for (const VariableSpec &variable : manifest.variables) {
    if (!variable.isState() || variable.encoding) // no step changes codes
      continue;
    MEMOPT_ASSIGN_OR_RETURN(const char *data, arenas.view(variable, storage));
    auto own = variable.getOwnElements(rank);
    data += own.at * getByteSize(variable.dtype);
    if (findNonFinite(variable.dtype, data, own.count) >= 0)
      return &variable;
  }
  return static_cast<const VariableSpec *>(nullptr);
}
