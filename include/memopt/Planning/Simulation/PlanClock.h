//===- PlanClock.h - the makespan of a changing plan -----------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_PLANNING_SIMULATION_PLANCLOCK_H
#define MEMOPT_PLANNING_SIMULATION_PLANCLOCK_H

#include "memopt/Planning/Simulation/PlanGraph.h"

namespace memopt::planning::search {

/// The simulation of PlanTimeline.h in words of 64 slots. What matters of the past at the begin of
/// a word is how long each queue is still busy and when what is in flight arrives, both counted
/// from there; behind a change the simulation ends where these come out as they were.
class Clock {
public:
  explicit Clock(const Graph &graph) : graph(graph) {}

  void reset(int32_t slots);
  /// An instance came to `slot` or went.
  void touch(int32_t slot) {
    int32_t word = slot / 64;
    if (isDirty[word])
      return;
    isDirty[word] = true;
    dirty.push_back(word);
  }
  /// The makespan; Graph::tooLong where it does not fit 62 bits. `countAt(slot)` is how often what
  /// stands there runs.
  template <typename Count>
  int64_t getTime(const std::vector<uint64_t> &taken, const std::vector<int32_t> &actions,
                  Count countAt) {
    llvm::sort(dirty);
    size_t next = 0;
    for (int32_t word = 0; next < dirty.size();) {
      word = dirty[next];
      // On from here while the words behind begin otherwise than before.
      do {
        if (next < dirty.size() && dirty[next] == word)
          isDirty[dirty[next++]] = false;
        enter(word);
        for (uint64_t bits = taken[word]; bits; bits &= bits - 1) {
          int32_t slot = word * 64 + __builtin_ctzll(bits);
          step(actions[slot], countAt(slot));
        }
      } while (leave(word++) && word < static_cast<int32_t>(taken.size()));
    }
    dirty.clear();
    return total < Graph::unlimited ? static_cast<int64_t>(total) : Graph::tooLong;
  }
  void keepChanges() { changes.clear(); }
  void takeChangesBack();

private:
  using Time = __int128;
  struct State {
    llvm::SmallVector<int64_t, 4> busy;                       ///< by resource
    llvm::SmallVector<std::pair<int32_t, int64_t>, 4> flying; ///< starts, ascending
    bool operator==(const State &other) const {
      return busy == other.busy && flying == other.flying;
    }
  };
  struct Word {
    State begin;
    Time elapsed = 0;
  };
  struct Change {
    int32_t word;
    Time elapsed; ///< of the word, before
    State next;   ///< at the begin of the next one, before
  };
  static int64_t since(Time time, Time now) {
    return static_cast<int64_t>(std::clamp<Time>(time - now, 0, Graph::unlimited));
  }
  void enter(int32_t word);
  void step(int32_t action, int64_t count);
  bool leave(int32_t word);

  const Graph &graph;
  std::vector<Word> words; ///< one more than there are
  std::vector<uint8_t> isDirty;
  std::vector<int32_t> dirty;
  std::vector<Change> changes;
  Time total = 0;
  // Of the word that is simulated, counted from its begin.
  Time now = 0;
  llvm::SmallVector<Time, 4> queues;
  llvm::SmallVector<std::pair<int32_t, Time>, 8> flying;
};

} // namespace memopt::planning::search

#endif // MEMOPT_PLANNING_SIMULATION_PLANCLOCK_H
