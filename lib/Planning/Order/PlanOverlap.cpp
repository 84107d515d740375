//===- PlanOverlap.cpp - transfers beside what computes ----------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An order for the lowest peak waits for a transfer as soon as it has started it. Two walks over
// the order put compute between the two: forwards each wait is put off until its transfer has
// ended, and with it what only waits for that (an update of state elsewhere); backwards, by the
// same rule with both ends exchanged, each start, and what makes its operand of variables. What is
// put off holds bytes, so it comes when they are wanted, or when something else needs it. O(edges)
// a walk and space.
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Order/PlanSolver.h"
#include "memopt/Planning/Order/PlanStarts.h"
#include "memopt/Planning/Simulation/PlanSequence.h"

#include <map>

using namespace memopt::planning;
using namespace memopt::planning::search;

namespace {

/// What stands directly before each action and directly behind it; in the order's direction.
struct Neighbours {
  explicit Neighbours(const Graph &graph);
  Rows before, behind;
};

/// One walk. Walking backwards a wait is where a transfer takes off and its start where it lands.
class Walk {
public:
  Walk(const Graph &graph, const Neighbours &neighbours, bool forward)
      : graph(graph), neighbours(neighbours), forward(forward), held(graph.numSpaces, 0),
        groupOf(graph.numOps, -1), arrival(graph.numOps, 0), last(graph.numResults, -1),
        queue(graph.numResources, 0), loads(graph.numSpaces) {}

  /// `order` with the landings put off, in the direction of the order. `limits`: by space, of its
  /// bytes, as far as what is put off decides.
  std::vector<int32_t> run(llvm::ArrayRef<int32_t> order, llvm::ArrayRef<int64_t> limits);

private:
  using BySpace = llvm::SmallVector<int64_t, 3>;
  /// Actions that are put off together, the first of which is a landing.
  struct Group {
    std::vector<int32_t> actions;
    int64_t ready = 0; ///< when the transfer has ended
    BySpace held;      ///< bytes that would be free
  };
  bool isLanding(int32_t action) const {
    return graph.kind[action] == (forward ? ActionKind::Wait : ActionKind::Start);
  }
  bool isTakeoff(int32_t action) const {
    return graph.kind[action] == (forward ? ActionKind::Start : ActionKind::Wait);
  }
  int32_t startOf(int32_t action) const {
    return graph.kind[action] == ActionKind::Wait ? graph.partner[action] : action;
  }
  void measureLoads(llvm::ArrayRef<int32_t> order);
  void visit(int32_t action, size_t position, llvm::ArrayRef<int64_t> limits);
  bool isCrowded(size_t position, llvm::ArrayRef<int64_t> limits) const;
  bool mayJoin(int32_t action, int64_t number) const;
  BySpace getHeld(int32_t landing) const;
  BySpace getHeldBehind(int32_t action, int64_t number) const;
  void putOff(int32_t action, int64_t number);
  void openGroup(llvm::ArrayRef<int32_t> actions);
  int64_t findBlocker(int32_t action) const;
  void flush(int64_t number, bool isForced);
  bool isAwaited(llvm::ArrayRef<int32_t> actions) const;
  void emit(int32_t action);

  const Graph &graph;
  const Neighbours &neighbours;
  bool forward;
  std::map<int64_t, Group> groups;         ///< by number, as they were opened
  int64_t opened = 0;                      ///< groups so far
  BySpace held;                            ///< bytes of all
  std::vector<int64_t> groupOf;            ///< by action: the number of its group, or -1
  std::vector<int64_t> arrival;            ///< by start
  std::vector<int32_t> last;               ///< by value: the last action that reads it
  std::vector<int64_t> queue;              ///< by resource
  std::vector<std::vector<int64_t>> loads; ///< by space and position
  int64_t now = 0;
  std::vector<int32_t> made;
};

} // namespace

Neighbours::Neighbours(const Graph &graph) {
  std::vector<Rows::Row> front(graph.numOps), back(graph.numOps);
  for (int32_t op = 0; op < graph.numOps; ++op) {
    for (int32_t value : graph.inputs[op]) {
      int32_t maker = graph.opOf[value];
      bool isOwn = maker == graph.partner[op];
      front[op].push_back(graph.kind[maker] == ActionKind::Start && !isOwn ? graph.partner[maker]
                                                                           : maker);
    }
    if (graph.kind[op] == ActionKind::Wait)
      front[op].push_back(graph.partner[op]);
    for (int32_t earlier : graph.before[op])
      if (!graph.isOptional(earlier))
        front[op].push_back(earlier);
    for (int32_t earlier : front[op])
      back[earlier].push_back(op);
  }
  before = Rows::from(front);
  behind = Rows::from(back);
}

void Walk::measureLoads(llvm::ArrayRef<int32_t> order) {
  Sequence sequence(graph);
  sequence.assign(order);
  for (int32_t space = 0; space < graph.numSpaces; ++space)
    sequence.forEachLoad([&](int32_t, int64_t alive) { loads[space].push_back(alive); }, space);
  for (int32_t action : order)
    for (int32_t value : graph.inputs[action])
      if (value < graph.numResults)
        last[value] = action;
}

std::vector<int32_t> Walk::run(llvm::ArrayRef<int32_t> order, llvm::ArrayRef<int64_t> limits) {
  measureLoads(order);
  std::vector<int32_t> walked(order);
  if (!forward) {
    std::reverse(walked.begin(), walked.end());
    for (std::vector<int64_t> &alive : loads)
      std::reverse(alive.begin(), alive.end());
  }
  for (auto [position, action] : llvm::enumerate(walked))
    visit(action, position, limits);
  while (!groups.empty())
    flush(groups.begin()->first, /*isForced=*/true);
  if (!forward)
    std::reverse(made.begin(), made.end());
  return std::move(made);
}

/// Whether what is held has no room beside what the order has alive.
bool Walk::isCrowded(size_t position, llvm::ArrayRef<int64_t> limits) const {
  for (int32_t space = 0; space < graph.numSpaces; ++space)
    if (held[space] && held[space] > limits[space] - loads[space][position])
      return true;
  return false;
}

/// The last group that an action has to come behind; -1: none.
int64_t Walk::findBlocker(int32_t action) const {
  int64_t number = -1;
  for (int32_t earlier : forward ? neighbours.before[action] : neighbours.behind[action])
    number = std::max(number, groupOf[earlier]);
  return number;
}

void Walk::visit(int32_t action, size_t position, llvm::ArrayRef<int64_t> limits) {
  while (!groups.empty() && (groups.begin()->second.ready <= now || isCrowded(position, limits)))
    flush(groups.begin()->first, /*isForced=*/isCrowded(position, limits));
  if (int64_t number = findBlocker(action); number >= 0 && mayJoin(action, number))
    return putOff(action, number);
  // Only what it has to come behind: a sum that needs a gradient does not keep a gather from
  // starting in front of it.
  for (int64_t number; (number = findBlocker(action)) >= 0;)
    flush(number, /*isForced=*/true);
  if (!isLanding(action) || arrival[startOf(action)] <= now)
    return emit(action);
  openGroup(action);
}

/// Forwards, what reads nothing large of space 0 but what the group makes or has in flight: next to
/// nothing there is held for it. Backwards, what is made of variables alone, such as a shard that is
/// cast before it is gathered: it reads no value, and stands behind nothing but the step's inputs.
bool Walk::mayJoin(int32_t action, int64_t number) const {
  if (!forward)
    return graph.kind[action] == ActionKind::Plain && graph.inputs[action].empty() &&
           !neighbours.before[action].empty() &&
           llvm::all_of(neighbours.before[action],
                        [&](int32_t maker) { return neighbours.before[maker].empty(); });
  constexpr int64_t kSmall = 4096; // a rate, a factor that all updates read, a bias
  llvm::ArrayRef<int32_t> flight = graph.inputs[groups.at(number).actions.front()];
  return llvm::all_of(graph.inputs[action], [&](int32_t value) {
    return graph.bytes[value] <= kSmall || groupOf[graph.opOf[value]] == number ||
           llvm::is_contained(flight, value);
  });
}

/// Bytes that live longer when a landing is put off: what ends at a wait, or backwards what begins
/// at a start.
Walk::BySpace Walk::getHeld(int32_t landing) const {
  BySpace bytes(graph.numSpaces, 0);
  for (int32_t value : forward ? graph.inputs[landing] : graph.makes[landing])
    if (!forward || value >= graph.numResults || last[value] == landing)
      bytes[graph.space[value]] += graph.size[value];
  return bytes;
}

/// The same of an action that joins a group, beside what the group itself makes.
Walk::BySpace Walk::getHeldBehind(int32_t action, int64_t number) const {
  BySpace bytes(graph.numSpaces, 0);
  if (!forward)
    for (int32_t value : graph.makes[action])
      bytes[graph.space[value]] += graph.size[value];
  else
    for (int32_t value : graph.inputs[action])
      if (value < graph.numResults && last[value] == action && groupOf[graph.opOf[value]] != number)
        bytes[graph.space[value]] += graph.size[value];
  return bytes;
}

void Walk::putOff(int32_t action, int64_t number) {
  Group &group = groups[number];
  bool isFirst = group.actions.empty();
  BySpace more = isFirst ? getHeld(action) : getHeldBehind(action, number);
  for (auto [all, own, bytes] : llvm::zip_equal(held, group.held, more)) {
    all += bytes;
    own += bytes;
  }
  group.actions.push_back(action);
  groupOf[action] = number;
}

/// Lets a group go, and before it those that it has to come behind. Unless forced, another transfer
/// in it begins a group of its own.
void Walk::flush(int64_t number, bool isForced) {
  auto found = groups.find(number);
  Group group = std::move(found->second);
  groups.erase(found);
  for (auto [sum, less] : llvm::zip_equal(held, group.held))
    sum -= less;
  for (size_t place = 0; place < group.actions.size(); ++place) {
    int32_t action = group.actions[place];
    llvm::ArrayRef<int32_t> rest = llvm::ArrayRef(group.actions).drop_front(place);
    if (!isForced && isLanding(action) && arrival[startOf(action)] > now && !isAwaited(rest))
      return openGroup(rest);
    groupOf[action] = -1;
    for (int64_t other; (other = findBlocker(action)) >= 0;)
      flush(other, /*isForced=*/true);
    emit(action);
  }
}

/// Whether another group has been put off that needs one of them.
bool Walk::isAwaited(llvm::ArrayRef<int32_t> actions) const {
  return llvm::any_of(actions, [&](int32_t action) {
    return llvm::any_of(neighbours.behind[action],
                        [&](int32_t next) { return groupOf[next] >= 0; });
  });
}

/// Puts actions off, the first of which is a landing.
void Walk::openGroup(llvm::ArrayRef<int32_t> actions) {
  int64_t number = opened++;
  groups[number] = {{}, arrival[startOf(actions.front())], BySpace(graph.numSpaces, 0)};
  for (int32_t action : actions)
    putOff(action, number);
}

/// The clock of the walk: as PlanTimeline.h has it, with both ends of transfers exchanged
/// backwards.
void Walk::emit(int32_t action) {
  made.push_back(action);
  int32_t start = startOf(action);
  int64_t &busy = queue[graph.resource[start]];
  if (isTakeoff(action)) {
    arrival[start] = busy = std::max(now, busy) + graph.cost[start];
  } else if (isLanding(action)) {
    now = std::max(now, arrival[start]);
  } else {
    now = busy = std::max(now, busy) + graph.cost[action];
  }
}

/// The order of one walk, or the given one where that is no worse. The bytes that are held are
/// reckoned with the lives of the given order; where they turn out to be more, less is put off.
static Plan takeWalk(const Graph &graph, const Neighbours &neighbours, const Plan &given,
                     bool forward, int64_t room) {
  constexpr int kAttempts = 4;
  int64_t most = std::max(given.peak, room);
  std::vector<int64_t> limits = graph.budgets;
  limits[0] = room ? room : given.peak;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Plan walked = planOf(graph, Walk(graph, neighbours, forward).run(given.order, limits));
    assert(isValid(graph, walked.order) && "a walk breaks no dependence");
    if (walked.peak <= most && walked.excess <= given.excess)
      return walked.cost < given.cost ? walked : given;
    limits[0] -= std::max<int64_t>(0, walked.peak - most);
    for (int64_t &limit : llvm::MutableArrayRef<int64_t>(limits).drop_front())
      limit -= std::max<int64_t>(0, walked.excess - given.excess);
  }
  return given;
}

/// What may come as early as its operands are there: an op whose results are sent, and read by others
/// behind that alone, such as a gradient; the starts and waits of their transfers; and those readers,
/// such as updates. One behind the other, by op.
static std::vector<int32_t> findSenders(const Graph &graph, const Neighbours &neighbours,
                                        llvm::ArrayRef<int32_t> order) {
  auto isPlain = [&](int32_t action) { return graph.kind[action] == ActionKind::Plain; };
  std::vector<int32_t> senders;
  for (int32_t maker : order) {
    llvm::SmallVector<int32_t> sent{maker};
    for (int32_t next : neighbours.behind[maker])
      if (graph.kind[next] == ActionKind::Start)
        sent.append({next, graph.partner[next]});
    auto isBehind = [&](int32_t next) {
      return !isPlain(next) || llvm::any_of(neighbours.before[next], [&](int32_t earlier) {
        return graph.kind[earlier] == ActionKind::Wait && llvm::is_contained(sent, earlier);
      });
    };
    bool isSentAlone = llvm::all_of(neighbours.behind[maker], isBehind);
    if (!isPlain(maker) || graph.inputs[maker].empty() || sent.size() == 1 || !isSentAlone)
      continue;
    for (size_t i = 0, count = sent.size(); i < count; ++i)
      if (graph.kind[sent[i]] == ActionKind::Wait)
        llvm::copy_if(neighbours.behind[sent[i]], std::back_inserter(sent), isPlain);
    senders.insert(senders.end(), sent.begin(), sent.end());
  }
  return senders;
}

/// `order` with some actions as early as what stands before them allows.
static std::vector<int32_t> moveToFront(const Neighbours &neighbours, llvm::ArrayRef<int32_t> order,
                                        llvm::ArrayRef<int32_t> moved) {
  constexpr int64_t kStays = -1;
  std::vector<int64_t> missing(order.size(), kStays);
  for (int32_t action : moved)
    missing[action] = static_cast<int64_t>(neighbours.before[action].size());
  std::vector<int32_t> made;
  std::vector<bool> isMade(order.size());
  llvm::SmallVector<int32_t> ready;
  for (int32_t next : order) {
    if (!isMade[next])
      ready.push_back(next);
    while (!ready.empty()) {
      int32_t action = ready.pop_back_val();
      if (isMade[action])
        continue;
      isMade[action] = true;
      made.push_back(action);
      for (int32_t behind : neighbours.behind[action])
        if (missing[behind] != kStays && --missing[behind] == 0)
          ready.push_back(behind);
    }
  }
  return made;
}

/// `given` with gradients and the starts of their sums as early as the bytes allow: a plan for few bytes
/// has computed them late, where they are larger than what they free, and nothing is left to compute
/// beside the sending. Those that do not fit together are tried by halves. `share`: of the gradients, those
/// that come last in the order.
static Plan sendEarly(const Graph &graph, const Neighbours &neighbours, const Plan &given,
                      int64_t room, double share) {
  int64_t most = std::max(given.peak, room);
  Plan best = given;
  constexpr int kAttempts = 64;
  std::vector<int32_t> senders = findSenders(graph, neighbours, given.order);
  auto kept = static_cast<size_t>(share * static_cast<double>(senders.size()));
  senders.erase(senders.begin(), senders.end() - static_cast<ptrdiff_t>(kept));
  std::vector<std::vector<int32_t>> parts = {std::move(senders)};
  for (int attempt = 0; attempt < kAttempts && !parts.empty(); ++attempt) {
    std::vector<int32_t> part = std::move(parts.back());
    parts.pop_back();
    Plan plan = planOf(graph, moveToFront(neighbours, best.order, part));
    if (plan.peak <= most && plan.excess <= given.excess) {
      best = std::move(plan);
    } else if (part.size() > 2) {
      auto middle = part.begin() + static_cast<ptrdiff_t>(part.size() / 2);
      parts.emplace_back(part.begin(), middle);
      parts.emplace_back(middle, part.end());
    }
  }
  return best;
}

/// Both walks.
static Plan takeWalks(const Graph &graph, const Neighbours &neighbours, Plan plan, int64_t room) {
  for (bool forward : {false, true})
    plan = takeWalk(graph, neighbours, plan, forward, room);
  return plan;
}

llvm::Expected<std::vector<int32_t>> memopt::planning::overlapTransfers(const PlanProblem &problem,
                                                                        std::vector<int32_t> order,
                                                                        int64_t room,
                                                                        double early) {
  llvm::Expected<PlanMeasure> measure = measurePlan(problem, order);
  if (!measure)
    return measure.takeError();
  Graph graph(problem);
  Plan plan = planOf(graph, std::move(order));
  if (!graph.hasStarts || graph.numRegions || !runsOnce(graph, plan))
    return std::move(plan.order);
  Neighbours neighbours(graph);
  Plan walked = takeWalks(graph, neighbours, plan, room);
  if (early == 0)
    return std::move(walked.order);
  Plan sent = takeWalks(graph, neighbours, sendEarly(graph, neighbours, plan, room, early), room);
  return std::move((sent.cost < walked.cost ? sent : walked).order);
}
