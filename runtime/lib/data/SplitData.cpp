//===- SplitData.cpp - batches in parts -----------------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A program with micro-batches takes the samples of one batch in several fills. The batch is kept
// outside of the arena until its last part was given.
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/data/DataSources.h"
#include <cstring>

using namespace memopt;

namespace {
/// Where the parts of an input lie in its batch: in each of `count` blocks one behind the other.
struct Cut {
  int64_t count, partBytes;
};

class SplitData : public DataSource {
public:
  SplitData(std::unique_ptr<DataSource> source, std::vector<InputSpec> whole, int64_t parts)
      : source(std::move(source)), whole(std::move(whole)), parts(parts) {
    for (const InputSpec &input : this->whole) {
      buffers.emplace_back(size_t(input.bytes));
      addresses.push_back(buffers.back().data());
      cuts.push_back(getCut(input));
    }
  }

  DataUses getUses() const override { return source->getUses(); }
  int64_t getBatchesPerEpoch() const override { return source->getBatchesPerEpoch() * parts; }
  int64_t getBatchSize() const override { return source->getBatchSize() / parts; }

  Status fill(int64_t position, const std::vector<char *> &targets) override {
    int64_t batch = position / parts, part = position % parts;
    if (batch != held) {
      held = -1; // what a failed fill leaves is nothing
      MEMOPT_RETURN_IF_ERROR(source->fill(batch, addresses));
      held = batch;
    }
    for (size_t i = 0; i < targets.size(); ++i)
      copy(i, part, targets[i]);
    return Status::ok();
  }

private:
  Cut getCut(const InputSpec &input) const {
    if (!input.batchDim)
      return {1, input.bytes};
    int64_t count = 1;
    for (int64_t dim = 0; dim < *input.batchDim; ++dim)
      count *= input.shape[size_t(dim)];
    return {count, input.bytes / count / parts};
  }

  void copy(size_t input, int64_t part, char *target) const {
    auto [count, bytes] = cuts[input];
    bool isWhole = !whole[input].batchDim;
    int64_t stride = isWhole ? bytes : bytes * parts;
    const char *from = buffers[input].data() + (isWhole ? 0 : part * bytes);
    for (int64_t block = 0; block < count; ++block)
      std::memcpy(target + block * bytes, from + block * stride, size_t(bytes));
  }

  std::unique_ptr<DataSource> source;
  std::vector<InputSpec> whole;
  int64_t parts, held = -1;
  std::vector<std::vector<char>> buffers;
  std::vector<char *> addresses;
  std::vector<Cut> cuts;
};
} // namespace

std::vector<InputSpec> memopt::getWholeInputs(std::vector<InputSpec> inputs, int64_t microBatches) {
  for (InputSpec &input : inputs)
    if (input.batchDim) {
      input.shape[size_t(*input.batchDim)] *= microBatches;
      input.bytes *= microBatches;
    }
  return inputs;
}

std::unique_ptr<DataSource> memopt::splitData(std::unique_ptr<DataSource> source,
                                              std::vector<InputSpec> whole, int64_t microBatches) {
  return std::make_unique<SplitData>(std::move(source), std::move(whole), microBatches);
}
