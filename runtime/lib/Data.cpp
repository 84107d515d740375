//===- Data.cpp - data sources, and batches from safetensors --------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/Data.h"
#include "DataSources.h"
#include "memopt-runtime/Random.h"
#include "memopt-runtime/Safetensors.h"
#include "memopt-runtime/Text.h"
#include <cstring>
#include <limits>
#include <numeric>

using namespace memopt;

//===----------------------------------------------------------------------===//
// Shared by the sources
//===----------------------------------------------------------------------===//

SampleOrder::SampleOrder(int64_t count, bool isShuffled, int64_t seed)
    : isShuffled(isShuffled), seed(seed), order(size_t(count)) {
  std::iota(order.begin(), order.end(), int64_t(0));
}

int64_t SampleOrder::get(int64_t newEpoch, int64_t index) {
  if (isShuffled && epoch != newEpoch) {
    // From the identity each time, so that an epoch's order does not depend on the ones before.
    std::iota(order.begin(), order.end(), int64_t(0));
    static const uint64_t stream = hashName("sample order");
    for (size_t i = order.size(); i-- > 1;)
      std::swap(order[i], order[drawBelow(i + 1, uint64_t(seed) ^ stream, i, uint64_t(newEpoch))]);
    epoch = newEpoch;
  }
  return order[size_t(index)];
}

bool memopt::tryStoreInteger(DType type, char *target, int64_t value) {
  return convertElements(DType::I64, &value, type, target, 1).isOk();
}

//===----------------------------------------------------------------------===//
// Batches from safetensors
//===----------------------------------------------------------------------===//

namespace {
class SafetensorsData : public DataSource {
public:
  SafetensorsData(SafetensorsFile file, const std::vector<InputSpec> &inputs)
      : file(std::move(file)), inputs(inputs) {}

  Status index();
  int64_t getBatchesPerEpoch() const override { return int64_t(batches.size()); }
  int64_t getBatchSize() const override {
    for (const InputSpec &input : inputs)
      if (input.batchDim)
        return input.shape[size_t(*input.batchDim)];
    return 1;
  }
  Status fill(int64_t position, const std::vector<char *> &targets) override;

private:
  SafetensorsFile file;
  std::vector<InputSpec> inputs;
  std::vector<std::vector<const SafetensorsEntry *>> batches; ///< [step][input]
};
} // namespace

static std::string getTensorName(size_t step, const InputSpec &input) {
  return "step" + std::to_string(step) + "." + input.name;
}

/// Whether values of `from` may be given for `to`: a wider floating-point type, or any integer
/// type, which then must hold the values.
static bool mayConvert(DType from, DType to) {
  if (isFloat(from) != isFloat(to))
    return false;
  return from == to || !isFloat(from) || getByteSize(from) < getByteSize(to);
}

static Status checkTensor(const SafetensorsEntry &entry, const std::string &name,
                          const InputSpec &input) {
  if (entry.shape == input.shape && mayConvert(entry.dtype, input.dtype))
    return Status::ok();
  return badInput(quote(name) + " is " + toString(entry.dtype, entry.shape) +
                  ", the model's input is " + toString(input.dtype, input.shape));
}

/// Finds and checks the tensors of all steps, up to the first step that the file knows nothing of.
Status SafetensorsData::index() {
  size_t steps = 0;
  for (const auto &[name, entry] : file.entries()) {
    size_t step;
    int used = 0;
    if (std::sscanf(name.c_str(), "step%9zu.%n", &step, &used) == 1 && used > 0)
      steps = std::max(steps, step + 1);
  }
  if (steps == 0)
    return badInput("there is no batch: a tensor " +
                    quote(getTensorName(0, inputs.empty() ? InputSpec() : inputs[0])) +
                    " was expected");
  for (size_t step = 0; step < steps; ++step) {
    std::vector<const SafetensorsEntry *> batch;
    for (const InputSpec &input : inputs) {
      std::string name = getTensorName(step, input);
      const SafetensorsEntry *entry = file.find(name);
      if (!entry)
        return badInput("lacks " + quote(name) + ", the model's input is " +
                        toString(input.dtype, input.shape));
      MEMOPT_RETURN_IF_ERROR(checkTensor(*entry, name, input));
      batch.push_back(entry);
    }
    batches.push_back(std::move(batch));
  }
  return Status::ok();
}

Status SafetensorsData::fill(int64_t position, const std::vector<char *> &targets) {
  size_t step = size_t(position) % batches.size();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const SafetensorsEntry &entry = *batches[step][i];
    Status status = convertElements(entry.dtype, entry.data, inputs[i].dtype, targets[i],
                                    getElementCount(entry.shape));
    if (!status.isOk())
      return status.withContext(quote(file.getPath()) + ": " +
                                quote(getTensorName(step, inputs[i])));
  }
  return Status::ok();
}

StatusOr<std::unique_ptr<DataSource>>
memopt::openSafetensorsData(const std::string &path, const std::vector<InputSpec> &inputs) {
  MEMOPT_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(path));
  auto data = std::make_unique<SafetensorsData>(std::move(file), inputs);
  if (Status status = data->index(); !status.isOk())
    return status.withContext(quote(path));
  return std::unique_ptr<DataSource>(std::move(data));
}

//===----------------------------------------------------------------------===//
// Any source
//===----------------------------------------------------------------------===//

static StatusOr<std::unique_ptr<DataSource>> openWhole(const std::string &source,
                                                       const std::vector<InputSpec> &inputs,
                                                       const DataOptions &options,
                                                       std::vector<std::string> &notices) {
  if (startsWith(source, "bytes:"))
    return openByteData(source.substr(6), inputs, options, notices);
  if (startsWith(source, "idx:")) {
    size_t comma = source.find(',');
    if (comma == std::string::npos)
      return badInput("--data=" + source + " lacks the labels; it is written idx:IMAGES,LABELS");
    return openIdxData(source.substr(4, comma - 4), source.substr(comma + 1), inputs, options,
                       notices);
  }
  return openSafetensorsData(source, inputs);
}

StatusOr<std::unique_ptr<DataSource>> DataSource::open(const std::string &source,
                                                       const std::vector<InputSpec> &inputs,
                                                       const DataOptions &options,
                                                       std::vector<std::string> &notices) {
  if (options.microBatches == 1)
    return openWhole(source, inputs, options, notices);
  for (const InputSpec &input : inputs)
    if (input.bytes > std::numeric_limits<int64_t>::max() / options.microBatches)
      return badInput("a batch of input " + quote(input.name) + " has too many bytes");
  std::vector<InputSpec> whole = getWholeInputs(inputs, options.microBatches);
  MEMOPT_ASSIGN_OR_RETURN(std::unique_ptr<DataSource> batches,
                          openWhole(source, whole, options, notices));
  return splitData(std::move(batches), std::move(whole), options.microBatches);
}
