//===- Timeline.h - queued work, done in a drawn order ----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a program puts into streams is an operation here, with the operations that it has to wait
// for. Nothing runs until the host waits; then operations run in an order drawn from the seed among
// all that their dependencies allow. A real device would do what it can at once: here a copy may be
// as late, and a kernel as early, as the program permits.
//
// An operation's ancestors are all that must have happened before it: what it depends on, and what
// the host had waited for when it was put in. Two operations neither of which is the other's
// ancestor have no order, whichever ran first.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_EMULATOR_TIMELINE_H
#define MEMOPT_EMULATOR_TIMELINE_H

#include "emulator/base/Settings.h"
#include <deque>
#include <functional>
#include <random>

namespace memopt::emulator {

/// Counts operations from 1, over the whole run.
using OperationId = uint64_t;

struct Operation;

/// What an operation does when its turn comes.
using Work = std::function<CUresult(Operation &)>;

/// Numbers of operations of the current window; those before it are in every set.
class AncestorSet {
public:
  void insert(size_t position);
  void join(const AncestorSet &other);
  size_t count() const;
  bool has(size_t position) const {
    return position / 64 < words.size() && words[position / 64] >> position % 64 & 1;
  }

private:
  std::vector<uint64_t> words;
};

struct Operation {
  OperationId id;
  std::string name;
  Work work;
  AncestorSet before;
  std::vector<OperationId> next; ///< that wait for it
  int waitsFor = 0;              ///< operations that are not done
  bool isDone = false;
};

class Timeline {
public:
  explicit Timeline(uint64_t seed) : random(seed) {}

  /// Puts an operation in, to run behind others.
  OperationId submit(std::string name, Work work, const std::vector<OperationId> &dependencies);

  /// The host waits for operations. The first failure of any operation ends all that is left, and
  /// is the answer.
  CUresult finish(const std::vector<OperationId> &goals);

  /// Runs one drawn operation, if one may run: what a host that asks again and again relies on.
  CUresult advance();

  bool isDone(OperationId id) const { return id < first || operations[id - first].isDone; }
  /// All that is put in.
  std::vector<OperationId> getPending() const;

  /// Whether `earlier` is known to be done when `operation` runs.
  bool isOrdered(OperationId earlier, const Operation &operation) const {
    return earlier < first || earlier == operation.id || operation.before.has(earlier - first);
  }

  std::mt19937_64 &getRandom() { return random; }

  /// Called when all that happened is known to all that may come: nobody can race with it.
  std::function<void()> onSettled = [] {};

private:
  Operation &get(OperationId id) { return operations[id - first]; }
  CUresult runReady(size_t index);
  size_t drawReady(uint64_t salt, const std::vector<char> *needed) const;
  std::vector<char> findNeeded(const std::vector<OperationId> &goals);
  void drop();
  void settle();

  std::mt19937_64 random;
  OperationId first = 1;            ///< of the window
  std::deque<Operation> operations; ///< of the window
  std::vector<OperationId> ready;
  AncestorSet hostKnows; ///< operations that it has waited for
};

} // namespace memopt::emulator

#endif // MEMOPT_EMULATOR_TIMELINE_H
