//===- DiskStream.cpp - what is done with a disk, in order ----------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt-runtime/device/DiskArena.h"
#include "memopt-runtime/device/HostEvent.h"
#include "memopt-runtime/threads/TaskThread.h"
#include <system_error>

using namespace memopt;

namespace {

class DiskStream final : public Stream {
public:
  DiskStream(DiskArena &disk, int64_t capacity)
      : disk(disk), tasks(capacity, [this](const Task &task) { run(task); }) {}

  Status copy(Arena &to, int64_t toOffset, const Arena &from, int64_t fromOffset,
              int64_t bytes) override {
    MEMOPT_RETURN_IF_ERROR(checkCopy(to, toOffset, from, fromOffset, bytes));
    bool isWrite = &to == &disk;
    const Arena &other = isWrite ? from : to;
    if (isWrite == (&from == &disk) || !other.isHostAccessible())
      return badInput("a stream of the disk copies between it and memory of the host");
    char *memory = other.base() + (isWrite ? fromOffset : toOffset);
    int64_t offset = isWrite ? toOffset : fromOffset;
    if (offset % diskBlockBytes || bytes % diskBlockBytes ||
        reinterpret_cast<uintptr_t>(memory) % diskBlockBytes)
      return badInput("a copy of " + std::to_string(bytes) + " bytes between offset " +
                      std::to_string(offset) + " of the disk and offset " +
                      std::to_string(isWrite ? fromOffset : toOffset) +
                      " of the host is not one of whole blocks of " +
                      std::to_string(diskBlockBytes) + " bytes");
    tasks.push({isWrite ? Task::Kind::Write : Task::Kind::Read, memory, offset, bytes, nullptr, 0});
    return Status::ok();
  }

  Status record(Event &event) override {
    auto &own = static_cast<HostEvent &>(event);
    tasks.push({Task::Kind::Record, nullptr, 0, 0, &own, own.record()});
    return Status::ok();
  }

  /// Of any device: the thread waits, as the host would.
  Status waitFor(Event &event) override {
    tasks.push({Task::Kind::Wait, nullptr, 0, 0, &event, 0});
    return Status::ok();
  }

  Status synchronize() override {
    tasks.synchronize();
    return HostEvent::copyOf(failure);
  }

private:
  struct Task {
    enum class Kind { Read, Write, Record, Wait } kind;
    char *memory;
    int64_t offset, bytes;
    Event *event;
    uint64_t number; ///< of the event's record
  };

  void run(const Task &task) {
    if (task.kind == Task::Kind::Record)
      static_cast<HostEvent *>(task.event)->reach(task.number, failure);
    else if (failure.isOk())
      failure = work(task);
  }
  Status work(const Task &task) {
    if (task.kind == Task::Kind::Wait)
      return task.event->synchronize();
    return task.kind == Task::Kind::Read ? disk.readBlocks(task.offset, task.memory, task.bytes)
                                         : disk.writeBlocks(task.offset, task.memory, task.bytes);
  }

  DiskArena &disk;
  Status failure; ///< the first, written by the thread alone
  TaskThread<Task> tasks;
};

} // namespace

StatusOr<std::unique_ptr<Stream>> memopt::createDiskStream(DiskArena &disk, int64_t capacity) {
  try {
    return std::unique_ptr<Stream>(std::make_unique<DiskStream>(disk, capacity));
  } catch (const std::system_error &error) {
    return environmentError(std::string("a thread for the disk cannot be started: ") +
                            error.what());
  }
}
