//===- CpuDevice.cpp - this machine as a device ---------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/CpuDevice.h"
#include "memopt-runtime/device/HostEvent.h"
#include "memopt-runtime/threads/TaskThread.h"
#include <cstring>
#include <system_error>

using namespace memopt;

namespace {

class CpuStream final : public Stream {
public:
  explicit CpuStream(int64_t capacity) : tasks(capacity, run) {}

  Status copy(Arena &to, int64_t toOffset, const Arena &from, int64_t fromOffset,
              int64_t bytes) override {
    MEMOPT_RETURN_IF_ERROR(checkCopy(to, toOffset, from, fromOffset, bytes));
    if (bytes > 0)
      tasks.push(
          {Task::Kind::Copy, to.base() + toOffset, from.base() + fromOffset, bytes, nullptr, 0});
    return Status::ok();
  }

  Status record(Event &event) override {
    auto &own = static_cast<HostEvent &>(event);
    tasks.push({Task::Kind::Record, nullptr, nullptr, 0, &own, own.record()});
    return Status::ok();
  }

  Status waitFor(Event &event) override {
    auto &own = static_cast<HostEvent &>(event);
    tasks.push({Task::Kind::Wait, nullptr, nullptr, 0, &own, own.getRecorded()});
    return Status::ok();
  }

  Status synchronize() override {
    tasks.synchronize();
    return Status::ok();
  }

private:
  struct Task {
    enum class Kind { Copy, Record, Wait } kind;
    char *to;
    const char *from;
    int64_t bytes;
    HostEvent *event;
    uint64_t number; ///< of the event's record
  };

  static void run(const Task &task) {
    if (task.kind == Task::Kind::Copy)
      std::memcpy(task.to, task.from, size_t(task.bytes));
    else if (task.kind == Task::Kind::Record)
      task.event->reach(task.number);
    else
      task.event->waitFor(task.number);
  }

  TaskThread<Task> tasks;
};

class CpuDevice final : public Device {
public:
  std::string getName() const override { return "cpu"; }

  StatusOr<std::unique_ptr<Arena>> allocate(int space, int64_t bytes, bool isChecked) override {
    return HostArena::allocate(bytes, isChecked);
  }

  StatusOr<std::unique_ptr<Stream>> createStream(int64_t capacity) override {
    if (capacity < 1)
      return badInput("a stream needs room for at least one task");
    try {
      return std::unique_ptr<Stream>(std::make_unique<CpuStream>(capacity));
    } catch (const std::system_error &error) {
      return environmentError(std::string("a thread for copies cannot be started: ") +
                              error.what());
    }
  }

  StatusOr<std::unique_ptr<Event>> createEvent() override {
    return std::unique_ptr<Event>(std::make_unique<HostEvent>());
  }
};

} // namespace

std::unique_ptr<Device> memopt::createCpuDevice() { return std::make_unique<CpuDevice>(); }
