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
  BatchData(SafetensorsFile file, std::vector<std::vector<InputSpec>> programs)
      : file(std::move(file)), programs(std::move(programs)), batches(this->programs.size()) {}

  Status index();
  DataUses getUses() const override { return {}; }
  int64_t getBatchesPerEpoch() const override { return steps; }
  int64_t getBatchSize() const override {
    for (const InputSpec &input : programs[chosen])
      if (input.batchDim)
        return input.shape[size_t(*input.batchDim)];
    return 1;
  }
  StatusOr<size_t> findProgram(int64_t position) override;
  void chooseProgram(size_t program) override { chosen = program; }
  Status fill(int64_t position, const std::vector<char *> &targets) override;

private:
  using Batch = std::vector<const SafetensorsEntry *>; ///< by input

  StatusOr<Batch> findBatch(size_t step, const std::vector<InputSpec> &inputs) const;
  std::string describeBatch(size_t step) const;
  std::string describePrograms() const;

  SafetensorsFile file;
  std::vector<std::vector<InputSpec>> programs;
  std::vector<std::vector<Batch>> batches; ///< [program][step]; empty where it is not its own
  int64_t steps = 0;
  size_t chosen = 0;
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
StatusOr<BatchData::Batch> BatchData::findBatch(size_t step,
                                                const std::vector<InputSpec> &inputs) const {
  Batch batch;
  for (const InputSpec &input : inputs) {
    std::string name = getTensorName(step, input);
    const SafetensorsEntry *entry = file.find(name);
    if (!entry)
      return badInput("lacks " + quote(name) + ", the model's input is " +
                      toString(input.dtype, input.shape));
    MEMOPT_RETURN_IF_ERROR(checkTensor(*entry, name, input));
    batch.push_back(entry);
  }
  return batch;
}

/// Tensors of a batch, or of a program's inputs, with their shapes.
std::string BatchData::describeBatch(size_t step) const {
  std::string text, front = "step" + std::to_string(step) + ".";
  for (const auto &[name, entry] : file.entries())
    if (name.compare(0, front.size(), front) == 0)
      text += (text.empty() ? "" : ", ") + quote(name) + " " + toString(entry.dtype, entry.shape);
  return text;
}

std::string BatchData::describePrograms() const {
  std::string text;
  for (const std::vector<InputSpec> &inputs : programs) {
    text += text.empty() ? "" : "; ";
    for (const InputSpec &input : inputs)
      text += (&input == &inputs.front() ? "" : ", ") + quote(input.name) + " " +
              toString(input.dtype, input.shape);
  }
  return text;
}

Status BatchData::index() {
  for (const auto &[name, entry] : file.entries())
    if (std::optional<size_t> step = getStep(name))
      steps = std::max(steps, int64_t(*step) + 1);
  for (size_t step = 0; step < size_t(steps); ++step) {
    Status refusal;
    bool isTaken = false;
    for (size_t program = 0; program < programs.size(); ++program) {
      StatusOr<Batch> batch = findBatch(step, programs[program]);
      isTaken |= batch.isOk();
      if (!batch.isOk())
        refusal = batch.takeStatus();
      batches[program].push_back(batch.isOk() ? *std::move(batch) : Batch());
    }
    if (isTaken)
      continue;
    if (programs.size() == 1)
      return refusal;
    return badInput("batch " + std::to_string(step) + " has " + describeBatch(step) +
                    ", which are the inputs of none of the programs: " + describePrograms());
  }
  return Status::ok();
}

StatusOr<size_t> BatchData::findProgram(int64_t position) {
  size_t step = size_t(position % steps), best = 0;
  for (size_t program = 1; program < programs.size(); ++program)
    if (batches[program][step].size() > batches[best][step].size())
      best = program;
  return best;
}

Status BatchData::fill(int64_t position, const std::vector<char *> &targets) {
  size_t step = size_t(position % steps);
  const std::vector<InputSpec> &inputs = programs[chosen];
  const Batch &batch = batches[chosen][step];
  if (batch.size() != inputs.size())
    return findBatch(step, inputs).takeStatus().withContext(quote(file.getPath()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const SafetensorsEntry &entry = *batch[i];
    Status status = convertElements(entry.dtype, file.getData(entry), inputs[i].dtype, targets[i],
                                    getElementCount(entry.shape));
    if (!status.isOk())
      return status.withContext(quote(file.getPath()) + ": " +
                                quote(getTensorName(step, inputs[i])));
  }
  return Status::ok();
}

StatusOr<std::unique_ptr<DataSource>>
memopt::openBatches(SafetensorsFile file, std::vector<std::vector<InputSpec>> programs) {
  std::string path = file.getPath();
  auto data = std::make_unique<BatchData>(std::move(file), std::move(programs));
  if (Status status = data->index(); !status.isOk())
    return status.withContext(quote(path));
  return std::unique_ptr<DataSource>(std::move(data));
}

StatusOr<std::unique_ptr<DataSource>> memopt::openBatches(SafetensorsFile file,
                                                          const std::vector<InputSpec> &inputs) {
  return openBatches(std::move(file), std::vector<std::vector<InputSpec>>{inputs});
}
