//===- TaskThread.h - tasks in order, in a thread of their own --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What streams on the host are made of. The thread sleeps while there is nothing to do; nothing is
// allocated once it runs.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_THREADS_TASKTHREAD_H
#define MEMOPT_RUNTIME_THREADS_TASKTHREAD_H

#include "memopt-runtime/threads/SignalMask.h"
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace memopt {

/// One thread pushes and synchronizes at a time.
template <typename Task> class TaskThread {
public:
  /// Has room for `capacity` tasks; who pushes another one waits for it. Throws std::system_error
  /// where no thread can be started.
  TaskThread(int64_t capacity, std::function<void(const Task &)> run)
      : run(std::move(run)), ring(size_t(capacity)),
        thread(startWithoutSignals(&TaskThread::work, this)) {}

  /// Does what was pushed first.
  ~TaskThread() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      isEnding = true;
      changed.notify_all();
    }
    thread.join();
  }

  void push(const Task &task) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return pushed - done < ring.size(); });
    ring[pushed++ % ring.size()] = task;
    changed.notify_all();
  }

  /// Returns when all that was pushed is done, and what the tasks wrote can be read.
  void synchronize() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return done == pushed; });
  }

private:
  void work() {
    for (std::unique_lock<std::mutex> lock(mutex);;) {
      changed.wait(lock, [&] { return done < pushed || isEnding; });
      if (done == pushed)
        return;
      Task task = ring[done % ring.size()];
      lock.unlock();
      run(task);
      lock.lock();
      ++done;
      changed.notify_all();
    }
  }

  const std::function<void(const Task &)> run;
  std::vector<Task> ring;
  uint64_t pushed = 0, done = 0; ///< tasks, counted from the begin
  bool isEnding = false;
  std::mutex mutex;
  std::condition_variable changed;
  std::thread thread; ///< last: it uses the others
};

} // namespace memopt

#endif // MEMOPT_RUNTIME_THREADS_TASKTHREAD_H
