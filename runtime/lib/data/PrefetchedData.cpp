//===- PrefetchedData.cpp - batches that are read ahead ----------------- ===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/data/DataSources.h"
#include "memopt-runtime/threads/TaskThread.h"
#include <cstring>
#include <system_error>

using namespace memopt;

namespace {
class PrefetchedData : public DataSource {
public:
  PrefetchedData(std::unique_ptr<DataSource> ahead, const std::vector<InputSpec> &inputs)
      : source(std::move(ahead)), thread(1, [this](int64_t position) { read(position); }) {
    for (const InputSpec &input : inputs) {
      buffers.emplace_back(size_t(input.bytes));
      addresses.push_back(buffers.back().data());
    }
  }

  DataUses getUses() const override { return source->getUses(); }
  int64_t getBatchesPerEpoch() const override { return source->getBatchesPerEpoch(); }
  int64_t getBatchSize() const override { return source->getBatchSize(); }
  int64_t getSampleCount(int64_t position) const override {
    return source->getSampleCount(position);
  }

  /// The thread is at rest when the source is asked here. What it failed to read is read again,
  /// and fails where somebody hears of it.
  Status fill(int64_t position, const std::vector<char *> &targets) override {
    thread.synchronize();
    if (position != held)
      return source->fill(position, targets);
    for (size_t i = 0; i < targets.size(); ++i)
      if (!buffers[i].empty())
        std::memcpy(targets[i], buffers[i].data(), buffers[i].size());
    return Status::ok();
  }

  void expect(int64_t position) override {
    thread.synchronize();
    if (position != held)
      thread.push(position);
  }

private:
  void read(int64_t position) {
    held = -1;
    if (source->fill(position, addresses).isOk())
      held = position;
  }

  std::unique_ptr<DataSource> source;
  std::vector<std::vector<char>> buffers;
  std::vector<char *> addresses;
  int64_t held = -1;          ///< the batch in the buffers; the thread's until it is at rest
  TaskThread<int64_t> thread; ///< last: it uses the others
};
} // namespace

StatusOr<std::unique_ptr<DataSource>> memopt::prefetchData(std::unique_ptr<DataSource> source,
                                                           const std::vector<InputSpec> &inputs) {
  try {
    return std::unique_ptr<DataSource>(std::make_unique<PrefetchedData>(std::move(source), inputs));
  } catch (const std::system_error &error) {
    return environmentError(std::string("a thread that reads data cannot be started: ") +
                            error.what());
  }
}
