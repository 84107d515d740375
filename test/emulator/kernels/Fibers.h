//===- Fibers.h - the threads of a block ------------------------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A fiber is a stack and a place to go on. All of them run on the thread that resumes them, one at
// a time, and may be left behind where they are.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_EMULATOR_FIBERS_H
#define MEMOPT_EMULATOR_FIBERS_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace memopt::emulator {

class Fibers {
public:
  Fibers() = default;
  ~Fibers();
  Fibers(const Fibers &) = delete;
  Fibers &operator=(const Fibers &) = delete;

  /// Makes `count` fresh fibers, each to call `body`, which never returns.
  void start(int count, void (*body)());
  /// Goes on with a fiber until it yields.
  void resume(int fiber);
  /// Called by a fiber: back to who resumed it.
  void yield();

  int getCurrent() const { return current; }
  /// Whether an address lies on the stack of any.
  bool isOnStack(uintptr_t address) const {
    return address - reinterpret_cast<uintptr_t>(stacks) < bytes;
  }

private:
  char *stacks = nullptr;
  size_t bytes = 0;
  std::vector<void *> tops; ///< stack pointers of those that do not run
  void *resumer = nullptr;
  int current = 0;
};

} // namespace memopt::emulator

#endif // MEMOPT_EMULATOR_FIBERS_H
