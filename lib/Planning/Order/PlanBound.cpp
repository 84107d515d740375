//===- PlanBound.cpp - proven lower bounds on the peak ----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Before an op runs, all its operands are alive. Of a set S of values that are alive together, one
// was computed last, by an op x: while x ran, S without x's results, x's operands and x's results
// were alive, and just before, S without x's results together with x's operands. So
//
//   need(S) = min over x of max(bytes(S + operands(x) + results(x)) + workspace(x),
//                               need(S - results(x) + operands(x)))
//
// is a lower bound on the peak of any order, clones allowed; x's results count once with operands
// of x that they may take over and that S does not hold. It is a bottleneck shortest path over
// sets, searched best first; cut short after some sets, the least key still open is a bound as
// well. A value that may be fetched need not have been there before: it counts where an op uses it
// and is left out of the sets from then on.
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Simulation/PlanGraph.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <array>
#include <queue>
#include <set>

using namespace memopt::planning;
using namespace memopt::planning::search;

namespace {

class PeakBound {
public:
  explicit PeakBound(const Graph &graph) : graph(graph) {}
  int64_t run(int64_t sets);

private:
  using Set = std::vector<int32_t>; ///< values, ascending
  int64_t bytesOf(const Set &set) const {
    int64_t sum = graph.resident;
    for (int32_t value : set)
      sum += graph.bytes[value];
    return sum;
  }
  Set operandsOf(int32_t op) const {
    llvm::ArrayRef<int32_t> inputs = graph.inputs[op];
    return Set(inputs.begin(), inputs.end());
  }
  bool mayBeFetched(int32_t value) const {
    return value < graph.numResults && !graph.waysTo[value].empty();
  }
  int64_t runningBytes(int32_t op, const Set &alive, const Set &kept) const;
  int64_t need(int32_t op, int64_t enough, int64_t &sets) const;

  const Graph &graph;
};

} // namespace

/// Bytes while `op` runs and `alive`, which holds its operands, is alive too; `kept` is alive
/// afterwards, so nothing takes its place.
int64_t PeakBound::runningBytes(int32_t op, const Set &alive, const Set &kept) const {
  int64_t bytes =
      bytesOf(alive) + graph.workspaces[0][op] - graph.bytesTakenOver(op, 0, [&](int32_t operand) {
        return !std::binary_search(kept.begin(), kept.end(), operand);
      });
  for (int32_t value : graph.makes[op])
    if (!std::binary_search(alive.begin(), alive.end(), value))
      bytes += graph.bytes[value];
  return bytes;
}

/// A bound on what it takes to run `op`; stops early once it cannot exceed `enough`.
int64_t PeakBound::need(int32_t op, int64_t enough, int64_t &sets) const {
  struct Open {
    int64_t key;
    int64_t step; ///< ties: the newest first, which dives
    Set set;
    bool operator<(const Open &other) const {
      return std::make_pair(key, -step) > std::make_pair(other.key, -other.step);
    }
  };
  std::priority_queue<Open> open;
  std::set<Set> seen;
  int64_t start = runningBytes(op, operandsOf(op), {});
  Set first = operandsOf(op);
  llvm::erase_if(first, [&](int32_t value) { return mayBeFetched(value); });
  open.push({start, 0, std::move(first)});
  int64_t budget = 200;
  while (!open.empty()) {
    Open top = open.top();
    if (top.key > enough ? (budget <= 0 || sets <= 0) : budget <= -400)
      return top.key;
    open.pop();
    if (top.set.empty())
      return top.key;
    if (!seen.insert(top.set).second)
      continue;
    --budget;
    --sets;
    std::vector<int32_t> makers;
    for (int32_t value : top.set)
      makers.push_back(graph.opOf[value]);
    makers.erase(std::unique(makers.begin(), makers.end()), makers.end());
    for (int32_t maker : makers) {
      Set before;
      for (int32_t value : top.set)
        if (graph.opOf[value] != maker)
          before.push_back(value);
      for (int32_t value : graph.inputs[maker])
        before.push_back(value);
      llvm::sort(before);
      before.erase(std::unique(before.begin(), before.end()), before.end());
      int64_t key = std::max(top.key, runningBytes(maker, before, top.set));
      // While `maker` ran, the rest of the set was alive, and `before` holds it.
      llvm::erase_if(before, [&](int32_t value) { return mayBeFetched(value); });
      open.push({key, -sets, std::move(before)});
    }
  }
  return start;
}

int64_t PeakBound::run(int64_t sets) {
  int64_t bound = graph.resident;
  // The largest direct needs first: they raise the bound, and most others then stop at once.
  std::vector<std::pair<int64_t, int32_t>> direct;
  for (int32_t op = 0; op < graph.numOps; ++op) {
    int64_t bytes = runningBytes(op, operandsOf(op), {});
    direct.emplace_back(-bytes, op);
    bound = std::max(bound, bytes);
  }
  llvm::sort(direct);
  for (auto [bytes, op] : direct) {
    if (sets <= 0)
      break;
    bound = std::max(bound, need(op, bound, sets));
  }
  return bound;
}

/// What single ops need beside the residents of a space.
static int64_t boundOfSpace(const Graph &graph, int32_t space) {
  int64_t most = 0;
  for (int32_t op = 0; op < graph.numOps; ++op) {
    int64_t bytes =
        graph.workspaces[space][op] - graph.bytesTakenOver(op, space, [](int32_t) { return true; });
    for (llvm::ArrayRef<int32_t> values : {graph.inputs[op], graph.makes[op]})
      for (int32_t value : values)
        bytes += graph.space[value] == space ? graph.size[value] : 0;
    most = std::max(most, bytes);
  }
  return graph.residents[space] + most;
}

//===----------------------------------------------------------------------===//
// Plans that run every op once
//===----------------------------------------------------------------------===//

namespace {

/// Bytes that are alive while an op runs in any order without repeats: of a value that comes from
/// an ancestor and is read by a descendant. Ancestors and descendants are sets of bits, for a
/// stretch of ops at a time.
class OrderBound {
public:
  explicit OrderBound(const Graph &graph) : graph(graph) {}
  int64_t run();

private:
  static constexpr int32_t kWords = 16, kStretch = 64 * kWords;
  using Bits = std::array<uint64_t, kWords>;
  static void unite(Bits &into, const Bits &other) {
    for (int32_t word = 0; word < kWords; ++word)
      into[word] |= other[word];
  }
  void relate(int32_t first);
  void addValue(int32_t value, int32_t first);

  const Graph &graph;
  // By op: which ones of the stretch come later or earlier, itself included.
  std::vector<Bits> behind, upTo;
  std::vector<int64_t> alive; ///< by op of the stretch
};

} // namespace

/// The given order is valid: what an op needs stands before it.
void OrderBound::relate(int32_t first) {
  behind.assign(graph.numOps, Bits());
  upTo.assign(graph.numOps, Bits());
  for (int32_t op = first; op < std::min(graph.numOps, first + kStretch); ++op)
    for (std::vector<Bits> *sets : {&behind, &upTo})
      (*sets)[op][(op - first) / 64] |= uint64_t(1) << ((op - first) % 64);
  auto forEachEarlier = [&](int32_t op, auto visit) {
    for (int32_t value : graph.inputs[op])
      if (graph.opOf[value] < graph.numOps)
        visit(graph.opOf[value]);
    for (int32_t earlier : graph.before[op])
      if (earlier < graph.numOps)
        visit(earlier);
  };
  for (int32_t op = 0; op < graph.numOps; ++op)
    forEachEarlier(op, [&](int32_t earlier) { unite(upTo[op], upTo[earlier]); });
  for (int32_t op = graph.numOps; op-- > 0;)
    forEachEarlier(op, [&](int32_t earlier) { unite(behind[earlier], behind[op]); });
}

void OrderBound::addValue(int32_t value, int32_t first) {
  int32_t maker = graph.opOf[value];
  Bits during = upTo[maker];
  for (int32_t user : graph.users[value])
    unite(during, upTo[user]);
  for (int32_t word = 0; word < kWords; ++word)
    for (uint64_t bits = during[word] & behind[maker][word]; bits; bits &= bits - 1)
      alive[word * 64 + __builtin_ctzll(bits)] += graph.bytes[value];
}

int64_t OrderBound::run() {
  int64_t most = 0;
  for (int32_t first = 0; first < graph.numOps; first += kStretch) {
    relate(first);
    alive.assign(kStretch, 0);
    for (int32_t value = 0; value < graph.numResults; ++value)
      if (graph.bytes[value])
        addValue(value, first);
    for (int32_t op = first; op < std::min(graph.numOps, first + kStretch); ++op)
      most = std::max(most, alive[op - first] + graph.workspaces[0][op] -
                                graph.bytesTakenOver(op, 0, [](int32_t) { return true; }));
  }
  return graph.resident + most;
}

//===----------------------------------------------------------------------===//
// Bounds of problems
//===----------------------------------------------------------------------===//

int64_t memopt::planning::planPeakLowerBound(const PlanProblem &problem, int32_t space) {
  Graph graph(problem);
  return space ? boundOfSpace(graph, space) : PeakBound(graph).run(200000);
}

int64_t memopt::planning::orderPeakLowerBound(const PlanProblem &problem) {
  return OrderBound(Graph(problem)).run();
}
