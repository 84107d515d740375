//===- BatchFeed.cpp - the samples of a step ------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BatchFeed.h"
#include "memopt-runtime/base/Clock.h"
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

using namespace memopt;

BatchFeed::BatchFeed(const Manifest &manifest, const Arenas &arenas, int64_t rank)
    : manifest(manifest), arenas(arenas), rank(rank),
      sampleOffset(manifest.findHyperparameter("sample_offset")) {
  int64_t largest = 0;
  for (const InputSpec &input : manifest.inputs) {
    largest = std::max(largest, input.bytes);
    if (input.batchDim)
      samplesPerBatch = input.shape[size_t(*input.batchDim)];
  }
  if (manifest.findBatchRegion())
    spare.resize(size_t(largest));
  once = makeGroup(/*isRepeated=*/false);
  repeated = makeGroup(/*isRepeated=*/true);
}

BatchFeed::Group BatchFeed::makeGroup(bool isRepeated) {
  Group group;
  const RegionSpec *region = manifest.findBatchRegion();
  for (size_t i = 0; i < manifest.inputs.size(); ++i) {
    bool isInRegion = region && std::find(region->inputs.begin(), region->inputs.end(), i) !=
                                    region->inputs.end();
    bool isMember = isInRegion == isRepeated;
    if (isMember) {
      group.inputs.push_back(i);
      group.tensors.push_back(&manifest.inputs[i]);
    }
    group.targets.push_back(isMember ? arenas.getAddress(manifest.inputs[i]) : spare.data());
  }
  if (sampleOffset)
    group.tensors.push_back(sampleOffset);
  return group;
}

void BatchFeed::setFiller(BatchFiller newFiller, bool isAhead) {
  filler = std::move(newFiller);
  isFilledAhead = isAhead;
  forgetAhead();
}

Status BatchFeed::beginStep() {
  nanoseconds = 0;
  ready = std::exchange(ahead, nullptr);
  return once.inputs.empty() ? Status::ok() : fill(once, 0);
}

Status BatchFeed::beginIteration(int64_t iteration) {
  int64_t count = manifest.getFillsPerStep();
  if (repeated.inputs.empty() || iteration < 0 || iteration >= count)
    return badInput("the program asks for the samples of iteration " + std::to_string(iteration) +
                    ", its manifest knows " + std::to_string(repeated.inputs.empty() ? 0 : count));
  Status status = fill(repeated, iteration);
  return status.isOk() || count == 1
             ? std::move(status)
             : std::move(status).withContext("batch " + std::to_string(iteration + 1) + " of " +
                                             std::to_string(count));
}

void BatchFeed::fillAhead() {
  const Group &first = once.inputs.empty() ? repeated : once;
  // A failure is one of the next step, which fills again.
  if (device && filler && isFilledAhead && !first.inputs.empty() &&
      prepare(first, manifest.getPart(rank, 0), manifest.getPartsPerStep()).isOk())
    ahead = &first;
}

Status BatchFeed::fill(const Group &group, int64_t iteration) {
  int64_t begin = getTime();
  forgetAhead();
  Status status;
  if (std::exchange(ready, nullptr) != &group)
    status = prepare(group, manifest.getPart(rank, iteration), 0);
  if (!status.isOk() && isReplaced)
    MEMOPT_RETURN_IF_ERROR(replace(group));
  else if (!status.isOk())
    return status;
  if (device)
    MEMOPT_RETURN_IF_ERROR(device->takeSamples(group.tensors));
  nanoseconds += getTime() - begin;
  return status;
}

/// Kernels rely on what was checked, so a batch that has failed is not left as it is.
Status BatchFeed::replace(const Group &group) const {
  for (size_t number : group.inputs) {
    const InputSpec &input = manifest.inputs[number];
    char *data = arenas.getAddress(input);
    std::memset(data, 0, size_t(input.bytes));
    if (!input.validRange)
      continue;
    int64_t size = getByteSize(input.dtype), value = input.validRange->min;
    for (int64_t i = 0; i < getElementCount(input.shape); ++i)
      std::memcpy(data + i * size, &value, size_t(size)); // little endian
  }
  return device ? device->sendSamples(group.tensors) : Status::ok();
}

/// Fills the inputs of a group, and sends them where they have to be sent. `stepParts` are those of
/// the steps between this one and the one that the part belongs to.
Status BatchFeed::prepare(const Group &group, int64_t part, int64_t stepParts) {
  if (device)
    MEMOPT_RETURN_IF_ERROR(device->beginFill());
  if (sampleOffset) {
    int64_t first = part * samplesPerBatch;
    std::memcpy(arenas.getAddress(*sampleOffset), &first, sizeof first);
  }
  MEMOPT_RETURN_IF_ERROR(takeFromFiller(group, stepParts + part));
  for (size_t input : group.inputs)
    MEMOPT_RETURN_IF_ERROR(checkRange(manifest.inputs[input]));
  return device ? device->sendSamples(group.tensors) : Status::ok();
}

/// What is thrown does not go through the program that has asked.
Status BatchFeed::takeFromFiller(const Group &group, int64_t part) const {
  try {
    return filler ? filler(part, group.targets) : Status::ok();
  } catch (const std::bad_alloc &) {
    return environmentError("this machine is out of memory");
  }
}

Status BatchFeed::checkRange(const InputSpec &input) const {
  if (!input.validRange)
    return Status::ok();
  const ValidRange &valid = *input.validRange;
  const char *data = arenas.getAddress(input);
  int64_t count = getElementCount(input.shape);
  for (int64_t i = 0; i < count; ++i) {
    int64_t value;
    if (input.dtype == DType::I64)
      std::memcpy(&value, data + i * 8, 8);
    else
      value = int64_t(readElement(input.dtype, data, i)); // narrower integers are exact as numbers
    if ((value >= valid.min && value <= valid.max) || value == valid.ignore)
      continue;
    return badInput("input " + quote(input.name) + " holds " + std::to_string(value) +
                    " at index " + toIndexText(input.shape, i) + ", expected " +
                    std::to_string(valid.min) + " to " + std::to_string(valid.max) +
                    (valid.ignore ? " or " + std::to_string(*valid.ignore) : "") +
                    (valid.reason.empty() ? "" : " (" + valid.reason + ")"));
  }
  return Status::ok();
}
