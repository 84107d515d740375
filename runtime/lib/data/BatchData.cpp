//===- BatchData.cpp - batches as somebody made them ----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/data/DataSources.h"
#include <algorithm>
#include <cstdio>

using namespace memopt;

namespace {
class BatchData : public DataSource {
public:
  BatchData(SafetensorsFile file, const std::vector<InputSpec> &inputs)
      : file(std::move(file)), inputs(inputs) {}

  Status index();
  DataUses getUses() const override { return {}; }
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

static Status checkTensor(const SafetensorsEntry &entry, const std::string &name,
                          const InputSpec &input) {
  if (entry.shape == input.shape && mayConvert(entry.dtype, input.dtype))
    return Status::ok();
  return badInput(quote(name) + " is " + toString(entry.dtype, entry.shape) +
                  ", the model's input is " + toString(input.dtype, input.shape));
}

/// The step whose batch a tensor belongs to, by its name.
static std::optional<size_t> getStep(const std::string &name) {
  size_t step;
  int used = 0;
  if (std::sscanf(name.c_str(), "step%9zu.%n", &step, &used) != 1 || used == 0)
    return std::nullopt;
  return step;
}

bool memopt::hasBatches(const SafetensorsFile &file) {
  const auto &entries = file.entries();
  return std::any_of(entries.begin(), entries.end(),
                     [](const auto &entry) { return getStep(entry.first).has_value(); });
}

/// Finds and checks the tensors of all steps, up to the last one that the file knows of.
Status BatchData::index() {
  size_t steps = 0;
  for (const auto &[name, entry] : file.entries())
    if (std::optional<size_t> step = getStep(name))
      steps = std::max(steps, *step + 1);
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

Status BatchData::fill(int64_t position, const std::vector<char *> &targets) {
  size_t step = size_t(position) % batches.size();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const SafetensorsEntry &entry = *batches[step][i];
    Status status = convertElements(entry.dtype, file.getData(entry), inputs[i].dtype, targets[i],
                                    getElementCount(entry.shape));
    if (!status.isOk())
      return status.withContext(quote(file.getPath()) + ": " +
                                quote(getTensorName(step, inputs[i])));
  }
  return Status::ok();
}

StatusOr<std::unique_ptr<DataSource>> memopt::openBatches(SafetensorsFile file,
                                                          const std::vector<InputSpec> &inputs) {
  std::string path = file.getPath();
  auto data = std::make_unique<BatchData>(std::move(file), inputs);
  if (Status status = data->index(); !status.isOk())
    return status.withContext(quote(path));
  return std::unique_ptr<DataSource>(std::move(data));
}
