//===- PlanVerify.cpp - judges plans from what they mean ---------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A second opinion that shares nothing with the simulator and the solvers but the numbers of
// actions. The plan is run as a trace in which every region runs twice: what the second run reads
// again is alive through the first. Each copy of a value is an object with a birth and a last use
// in that trace; starts are objects that hold copies until their wait.
//
//===----------------------------------------------------------------------===//

#include "memopt/Planning/Problem/PlanSolution.h"

#include "memopt/Planning/Utils/Failure.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"

#include <map>
#include <set>

using namespace memopt::planning;
using llvm::Twine;

namespace {

class Judge {
public:
  Judge(const PlanProblem &problem, llvm::ArrayRef<int32_t> order)
      : problem(problem), order(order) {}

  llvm::Expected<PlanMeasure> run();

private:
  /// One copy of a value or a workspace in one place.
  struct Copy {
    PlanBuffer buffer;
    int64_t born, last; ///< times in the trace
  };
  /// Results of ops are names 0, 1, ...; then come the copies of ways.
  using Name = int32_t;
  using Scope = std::vector<int32_t>; ///< by name: the copy that serves, or -1
  struct Flight {
    std::vector<int32_t> held;                   ///< copies
    std::vector<std::pair<Name, int32_t>> names; ///< of those that it reads and makes
    int64_t iteration = 0;                       ///< of the region it is in
  };
  struct Instance {
    int64_t time;
    std::vector<std::pair<int32_t, int64_t>> iterations; ///< region and run, outermost first
  };

  llvm::Error runBody(int64_t &position, Scope scope);
  llvm::Error runRegion(int64_t &position, int32_t region, const Scope &scope);
  llvm::Error runOp(int64_t position, int32_t index, Scope &scope);
  llvm::Error runTransfer(int64_t position, PlanAction action, Scope &scope);
  llvm::Error start(int64_t position, int32_t number, const std::vector<Name> &reads,
                    const std::vector<std::pair<Name, PlanBuffer>> &makes,
                    const std::vector<PlanBuffer> &workspaces, Scope &scope);
  llvm::Error wait(int64_t position, int32_t startNumber, const Scope &scope);
  llvm::Error touch(int64_t position, Name name, const Scope &scope, int32_t &copy);
  int32_t create(Name name, const PlanBuffer &buffer, Scope &scope);
  llvm::Error note(int64_t position, int32_t number, int32_t home);
  llvm::Error checkOrder() const;
  llvm::Error checkPair(int32_t early, int32_t late, bool mustRun) const;
  llvm::Error simulate(int64_t &cost) const;
  void number();
  Name nameOf(PlanValue value) const { return firstName[value.op] + value.result; }
  int32_t regionOfNumber(int32_t number) const;
  bool contains(int32_t outer, int32_t inner) const {
    return outer < 0 ||
           (inner >= 0 && problem.regions[outer].begin <= problem.regions[inner].begin &&
            problem.regions[inner].end <= problem.regions[outer].end && outer <= inner);
  }
  int64_t iteration() const { return inside.empty() ? -1 : inside.back().second; }
  int32_t where() const { return inside.empty() ? -1 : inside.back().first; }
  int64_t peakOf(int32_t space, int64_t &position) const;

  const PlanProblem &problem;
  llvm::ArrayRef<int32_t> order;
  std::vector<int64_t> trace; ///< position by time
  std::vector<Copy> copies;
  std::vector<std::vector<int32_t>> waitsOf;       ///< by op: the ops that wait for it
  std::vector<Name> firstName;                     ///< by op, the copies of ways at the back
  std::vector<int32_t> regionOf;                   ///< by op, -1 for none
  std::map<int32_t, Flight> flights;               ///< by number of the start
  std::set<int32_t> unready;                       ///< copies that are being made
  std::vector<std::vector<Instance>> instances;    ///< by number
  std::vector<std::pair<int32_t, int64_t>> inside; ///< region and run
  std::set<int32_t> entered;
  int64_t iterations = 0;
  struct Takeover {
    int64_t time;
    int32_t result, operand; ///< copies
  };
  std::vector<Takeover> permitted; ///< in the order of preference
};

} // namespace

static llvm::Error at(int64_t position, const Twine &message) {
  return failure("position " + Twine(position) + ": " + message);
}

/// Names, waits and regions.
void Judge::number() {
  waitsOf.resize(problem.ops.size());
  instances.resize(getNumActions(problem));
  Name names = 0;
  for (int32_t op = 0, count = problem.ops.size(); op < count; ++op) {
    firstName.push_back(names);
    names += problem.ops[op].results.size();
    if (problem.ops[op].waitsFor >= 0)
      waitsOf[problem.ops[op].waitsFor].push_back(op);
    regionOf.push_back(-1);
    for (int32_t i = 0, end = problem.regions.size(); i < end; ++i)
      if (problem.regions[i].begin <= op && op < problem.regions[i].end)
        regionOf.back() = i; // outer ones come first
  }
  firstName.push_back(names);
}

int32_t Judge::regionOfNumber(int32_t number) const {
  PlanAction action = getAction(problem, number);
  return regionOf[action.kind == PlanAction::Run ? action.index
                                                 : problem.ways[action.index].value.op];
}

/// The copy that serves `name` now; it lives until here at least.
llvm::Error Judge::touch(int64_t position, Name name, const Scope &scope, int32_t &copy) {
  copy = scope[name];
  if (copy < 0 || unready.count(copy))
    return at(position, "action " + Twine(order[position]) + " uses what is " +
                            (copy < 0 ? "not there" : "in flight"));
  copies[copy].last = trace.size() - 1;
  return llvm::Error::success();
}

int32_t Judge::create(Name name, const PlanBuffer &buffer, Scope &scope) {
  int64_t now = trace.size() - 1;
  copies.push_back({buffer, now, now});
  return scope[name] = copies.size() - 1;
}

/// Remembers that the action ran, once if it may not run more often.
llvm::Error Judge::note(int64_t position, int32_t number, int32_t home) {
  trace.push_back(position);
  if (!contains(home, where()))
    return at(position, "action " + Twine(number) + " stands outside region " + Twine(home));
  instances[number].push_back({static_cast<int64_t>(trace.size()) - 1, inside});
  return llvm::Error::success();
}

llvm::Error Judge::start(int64_t position, int32_t number, const std::vector<Name> &reads,
                         const std::vector<std::pair<Name, PlanBuffer>> &makes,
                         const std::vector<PlanBuffer> &workspaces, Scope &scope) {
  if (flights.count(number))
    return at(position, "action " + Twine(number) + " starts again while it is in flight");
  Flight flight;
  flight.iteration = iteration();
  for (Name name : reads) {
    int32_t copy = 0;
    if (llvm::Error error = touch(position, name, scope, copy))
      return error;
    flight.held.push_back(copy);
    flight.names.push_back({name, copy});
  }
  for (const auto &[name, buffer] : makes) {
    int32_t copy = create(name, buffer, scope);
    unready.insert(copy);
    flight.held.push_back(copy);
    flight.names.push_back({name, copy});
  }
  for (const PlanBuffer &workspace : workspaces) {
    int64_t now = trace.size() - 1;
    copies.push_back({workspace, now, now});
    flight.held.push_back(copies.size() - 1);
  }
  flights[number] = std::move(flight);
  return llvm::Error::success();
}

llvm::Error Judge::wait(int64_t position, int32_t startNumber, const Scope &scope) {
  auto found = flights.find(startNumber);
  if (found == flights.end() || found->second.iteration != iteration())
    return at(position, "action " + Twine(startNumber) + " is not in flight in this region");
  for (auto [name, copy] : found->second.names)
    if (scope[name] != copy)
      return at(position, "what action " + Twine(startNumber) + " holds was made again");
  for (int32_t copy : found->second.held) {
    copies[copy].last = trace.size() - 1;
    unready.erase(copy);
  }
  flights.erase(found);
  return llvm::Error::success();
}

llvm::Error Judge::runOp(int64_t position, int32_t index, Scope &scope) {
  const PlanOp &op = problem.ops[index];
  if (llvm::Error error = note(position, index, regionOf[index]))
    return error;
  if (op.waitsFor >= 0)
    return wait(position, op.waitsFor, scope);
  std::vector<Name> reads;
  for (PlanValue input : op.inputs)
    reads.push_back(nameOf(input));
  std::vector<std::pair<Name, PlanBuffer>> makes;
  for (const PlanBuffer &result : op.results)
    makes.push_back({firstName[index] + static_cast<Name>(makes.size()), result});
  if (!waitsOf[index].empty())
    return start(position, index, reads, makes, op.workspaces, scope);
  for (Name name : reads) {
    int32_t copy = 0;
    if (llvm::Error error = touch(position, name, scope, copy))
      return error;
  }
  int64_t now = trace.size() - 1;
  auto firstResult = static_cast<int32_t>(copies.size());
  for (const PlanInPlace &pair : op.inPlace)
    permitted.push_back({now, firstResult + pair.result, scope[nameOf(pair.operand)]});
  for (const auto &[name, buffer] : makes)
    create(name, buffer, scope);
  for (const PlanBuffer &workspace : op.workspaces)
    copies.push_back({workspace, now, now});
  return llvm::Error::success();
}

llvm::Error Judge::runTransfer(int64_t position, PlanAction action, Scope &scope) {
  const PlanWay &way = problem.ways[action.index];
  int32_t number = getNumber(problem, action);
  if (llvm::Error error = note(position, number, regionOf[way.value.op]))
    return error;
  Name value = nameOf(way.value), stored = firstName.back() + action.index;
  std::vector<Name> fetched;
  if (way.store)
    fetched.push_back(stored);
  if (way.behind)
    fetched.push_back(nameOf(*way.behind));
  switch (action.kind) {
  case PlanAction::StoreStart:
    if (!way.store)
      return at(position, "way " + Twine(action.index) + " has a home and nothing to store");
    return start(position, number, {value}, {{stored, way.copy}}, way.store->workspaces, scope);
  case PlanAction::FetchStart:
    if (instances[way.value.op].empty())
      return at(position, "way " + Twine(action.index) + " is taken before op " +
                              Twine(way.value.op) + " has run");
    return start(position, number, fetched,
                 {{value, problem.ops[way.value.op].results[way.value.result]}},
                 way.fetch.workspaces, scope);
  default:
    return wait(position, number - 1, scope);
  }
}

/// Twice, each time from what there was in front of it. Ends at the position of its Leave.
llvm::Error Judge::runRegion(int64_t &position, int32_t region, const Scope &scope) {
  int64_t begin = position;
  for (int run = 0; run < 2; ++run) {
    position = begin + 1;
    inside.push_back({region, ++iterations});
    std::set<int32_t> enteredBefore = entered;
    if (llvm::Error error = runBody(position, scope))
      return error;
    if (position >= static_cast<int64_t>(order.size()))
      return failure("region " + Twine(region) + " is never left");
    for (const auto &[number, flight] : flights)
      if (flight.iteration == iteration())
        return at(position, "action " + Twine(number) + " is in flight beyond its region");
    inside.pop_back();
    if (run == 0)
      entered = enteredBefore; // inner regions are entered again
  }
  return llvm::Error::success();
}

/// Up to the Leave of the region around, or the end.
llvm::Error Judge::runBody(int64_t &position, Scope scope) {
  for (; position < static_cast<int64_t>(order.size()); ++position) {
    if (order[position] < 0 || order[position] >= getNumActions(problem))
      return at(position, "there is no action " + Twine(order[position]));
    PlanAction action = getAction(problem, order[position]);
    llvm::Error error = llvm::Error::success();
    if (action.kind == PlanAction::Run) {
      error = runOp(position, action.index, scope);
    } else if (action.kind == PlanAction::Enter) {
      int32_t around = -1;
      for (int32_t outer = 0; outer < action.index; ++outer)
        if (contains(outer, action.index))
          around = outer;
      if (around != where() || !entered.insert(action.index).second)
        return at(position, "region " + Twine(action.index) + " is entered elsewhere or again");
      trace.push_back(position);
      error = runRegion(position, action.index, scope);
      trace.push_back(position);
    } else if (action.kind == PlanAction::Leave) {
      if (action.index == where())
        return error;
      return at(position, "region " + Twine(action.index) + " is left from outside");
    } else {
      error = runTransfer(position, action, scope);
    }
    if (error)
      return error;
  }
  return llvm::Error::success();
}

/// Every instance of `early` comes before every one of `late`, in each run of the innermost region
/// that holds both ops.
llvm::Error Judge::checkPair(int32_t early, int32_t late, bool mustRun) const {
  int32_t homes[] = {regionOfNumber(early), regionOfNumber(late)};
  auto runOf = [&](const Instance &instance) {
    int64_t run = -1;
    for (auto [region, number] : instance.iterations)
      if (contains(region, homes[0]) && contains(region, homes[1]))
        run = number;
    return run;
  };
  for (const Instance &instance : instances[late]) {
    bool seen = !mustRun;
    for (const Instance &other : instances[early]) {
      if (runOf(other) == runOf(instance) && other.time > instance.time)
        return at(trace[other.time], "action " + Twine(early) + " runs behind op " + Twine(late) +
                                         ", which must come after it");
      seen |= other.time < instance.time;
    }
    if (!seen)
      return at(trace[instance.time], "op " + Twine(late) + " runs before op " + Twine(early));
  }
  return llvm::Error::success();
}

llvm::Error Judge::checkOrder() const {
  for (int32_t op = 0, count = problem.ops.size(); op < count; ++op) {
    if (instances[op].empty())
      return failure("op " + Twine(op) + " never runs");
    int32_t waited = problem.ops[op].waitsFor;
    bool pinned = waited >= 0 ? problem.ops[waited].pinned : problem.ops[op].pinned;
    int64_t expected = 1; // the trace runs every region twice
    for (int32_t region = 0, end = problem.regions.size(); region < end; ++region)
      if (regionOf[op] >= 0 && contains(region, regionOf[op]))
        expected *= 2;
    if (pinned && static_cast<int64_t>(instances[op].size()) != expected)
      return failure("pinned op " + Twine(op) + " runs more than once or in a region not its own");
    for (int32_t earlier : problem.ops[op].after) {
      std::vector<std::pair<int32_t, bool>> early{{earlier, true}};
      for (int32_t wait : waitsOf[earlier])
        if (wait != op)
          early.push_back({wait, true});
      for (int32_t way = 0, end = problem.ways.size(); way < end; ++way)
        if (problem.ways[way].value.op == earlier)
          for (PlanAction::Kind kind : {PlanAction::FetchStart, PlanAction::FetchWait})
            early.push_back({getNumber(problem, {kind, way}), false});
      for (auto [number, mustRun] : early)
        if (llvm::Error error = checkPair(number, op, mustRun))
          return error;
    }
  }
  return llvm::Error::success();
}

/// One queue for each resource; the plan stands still for everything but starts.
llvm::Error Judge::simulate(int64_t &cost) const {
  std::vector<int64_t> queues(problem.resources.size(), 0);
  std::map<int32_t, int64_t> arrival;
  int64_t clock = 0, runs = 1;
  for (size_t position = 0; position < order.size(); ++position) {
    PlanAction action = getAction(problem, order[position]);
    int64_t work = 0;
    int32_t resource = 0, waited = -1;
    bool isStart = action.kind == PlanAction::StoreStart || action.kind == PlanAction::FetchStart;
    if (action.kind == PlanAction::Run) {
      const PlanOp &op = problem.ops[action.index];
      work = op.cost;
      resource = op.resource;
      waited = op.waitsFor;
      isStart = !waitsOf[action.index].empty();
    } else if (action.kind == PlanAction::Enter) {
      runs *= problem.regions[action.index].count;
      continue;
    } else if (action.kind == PlanAction::Leave) {
      runs /= problem.regions[action.index].count;
      continue;
    } else if (isStart) {
      const PlanWay &way = problem.ways[action.index];
      const PlanTransfer &transfer = action.kind == PlanAction::StoreStart ? *way.store : way.fetch;
      work = transfer.cost;
      resource = transfer.resource;
    } else {
      waited = order[position] - 1;
    }
    if (waited >= 0) {
      clock = std::max(clock, arrival[waited]);
      if (work == 0)
        continue;
    }
    if (__builtin_mul_overflow(work, runs, &work) ||
        work >= INT64_MAX - std::max(clock, queues[resource]))
      return at(position, "time does not fit 63 bits");
    queues[resource] = std::max(clock, queues[resource]) + work;
    if (isStart)
      arrival[order[position]] = queues[resource];
    else
      clock = queues[resource];
  }
  cost = clock;
  return llvm::Error::success();
}

int64_t Judge::peakOf(int32_t space, int64_t &position) const {
  std::vector<int64_t> alive(trace.size() + 1, 0);
  for (const PlanBuffer &resident : problem.residents)
    if (resident.space == space)
      alive[0] += resident.bytes;
  int64_t peak = alive[0];
  for (const Copy &copy : copies)
    if (copy.buffer.space == space) {
      alive[copy.born] += copy.buffer.bytes;
      alive[copy.last + 1] -= copy.buffer.bytes;
    }
  std::set<int32_t> placed;
  for (const Takeover &pair : permitted) {
    const PlanBuffer &result = copies[pair.result].buffer;
    if (result.space != space || copies[pair.operand].last != pair.time ||
        placed.count(pair.result) || placed.count(-pair.operand - 1))
      continue;
    placed.insert({pair.result, -pair.operand - 1});
    alive[pair.time] -= result.bytes;
    alive[pair.time + 1] += result.bytes;
  }
  int64_t now = 0;
  position = 0;
  for (size_t time = 0; time < trace.size(); ++time)
    if ((now += alive[time]) > peak) {
      peak = now;
      position = trace[time];
    }
  return peak;
}

llvm::Expected<PlanMeasure> Judge::run() {
  number();
  int64_t position = 0;
  Scope nothing(firstName.back() + problem.ways.size(), -1);
  if (llvm::Error error = runBody(position, std::move(nothing)))
    return std::move(error);
  if (position < static_cast<int64_t>(order.size()))
    return at(position, "a region is left that was not entered");
  if (entered.size() != problem.regions.size())
    return failure("not every region is entered");
  if (!flights.empty())
    return failure("action " + Twine(flights.begin()->first) + " is never waited for");
  if (llvm::Error error = checkOrder())
    return std::move(error);
  PlanMeasure measure;
  if (llvm::Error error = simulate(measure.cost))
    return std::move(error);
  measure.peak = peakOf(0, measure.position);
  int64_t ignored = 0;
  for (int32_t space = 1, count = problem.spaces.size(); space < count; ++space)
    measure.otherPeaks.push_back(peakOf(space, ignored));
  return measure;
}

llvm::Expected<PlanMeasure> memopt::planning::judgePlan(const PlanProblem &problem,
                                                        llvm::ArrayRef<int32_t> order) {
  return Judge(problem, order).run();
}

//===----------------------------------------------------------------------===//
// Answers of solvers
//===----------------------------------------------------------------------===//

/// A plan has the figures that are said of it.
static llvm::Error checkFigures(const PlanProblem &problem, llvm::ArrayRef<int32_t> order,
                                int64_t peak, int64_t cost,
                                const std::vector<int64_t> &otherPeaks) {
  llvm::Expected<PlanMeasure> measure = judgePlan(problem, order);
  if (!measure)
    return measure.takeError();
  if (measure->peak != peak)
    return failure("peak is " + Twine(measure->peak) + ", the plan says " + Twine(peak));
  if (measure->cost != cost)
    return failure("cost is " + Twine(measure->cost) + ", the plan says " + Twine(cost));
  if (measure->otherPeaks != otherPeaks)
    return failure("the peak of another space than the first is not what the plan says");
  return llvm::Error::success();
}

static bool isWithinOtherBudgets(const PlanProblem &problem, const std::vector<int64_t> &peaks) {
  for (size_t i = 0; i < peaks.size(); ++i)
    if (problem.spaces[i + 1].budget >= 0 && peaks[i] > problem.spaces[i + 1].budget)
      return false;
  return true;
}

llvm::Error memopt::planning::verifyPlan(const PlanProblem &problem, const PlanOptions &options,
                                         const PlanSolution &solution) {
  if (llvm::Error error =
          checkFigures(problem, solution.order, solution.peak, solution.cost, solution.otherPeaks))
    return error;
  bool fits = solution.peak <= options.budget && isWithinOtherBudgets(problem, solution.otherPeaks);
  if (solution.feasible != fits)
    return failure("peak " + Twine(solution.peak) + " against budget " + Twine(options.budget) +
                   ", the plan says it " + (solution.feasible ? "fits" : "does not fit"));
  if (solution.peakLowerBound > solution.peak)
    return failure("peak " + Twine(solution.peak) + " is below its lower bound " +
                   Twine(solution.peakLowerBound));
  if (solution.feasible && solution.costLowerBound > solution.cost)
    return failure("cost " + Twine(solution.cost) + " is below its lower bound " +
                   Twine(solution.costLowerBound));
  auto isOp = [&](int32_t op) { return 0 <= op && op < static_cast<int32_t>(problem.ops.size()); };
  auto isValue = [&](PlanValue value) {
    return isOp(value.op) && 0 <= value.result &&
           value.result < static_cast<int32_t>(problem.ops[value.op].results.size());
  };
  if (!llvm::all_of(solution.binding, isValue) ||
      (solution.bindingOp != -1 && !isOp(solution.bindingOp)))
    return failure("what is said to bind is no value or no op of the problem");
  std::vector<int32_t> runs;
  llvm::copy_if(solution.order, std::back_inserter(runs),
                [&](int32_t number) { return getAction(problem, number).kind == PlanAction::Run; });
  if (!options.recompute && runs.size() != problem.ops.size())
    return failure(Twine(runs.size()) + " instances of " + Twine(problem.ops.size()) +
                   " ops, and none may run again");
  if (options.keepOrder) {
    int32_t next = 0;
    for (int32_t op : runs) {
      if (op > next)
        return failure("op " + Twine(op) + " runs before op " + Twine(next) +
                       ", and the order must be kept");
      next = std::max(next, op + 1);
    }
  }
  return llvm::Error::success();
}

/// Whether a point is as good as another one in every figure.
static bool dominates(const PlanFrontier::Point &a, const PlanFrontier::Point &b) {
  if (a.peak > b.peak || a.cost > b.cost)
    return false;
  for (auto [mine, other] : llvm::zip(a.otherPeaks, b.otherPeaks))
    if (mine > other)
      return false;
  return true;
}

llvm::Error memopt::planning::verifyPlanFrontier(const PlanProblem &problem,
                                                 const PlanFrontier &frontier) {
  for (size_t i = 0; i < frontier.points.size(); ++i) {
    const PlanFrontier::Point &point = frontier.points[i];
    if (llvm::Error error =
            checkFigures(problem, point.order, point.peak, point.cost, point.otherPeaks))
      return error;
    if (i && (frontier.points[i - 1].peak > point.peak))
      return failure("the frontier's points of peaks " + Twine(frontier.points[i - 1].peak) +
                     " and " + Twine(point.peak) + " are expected to ascend");
    for (size_t k = 0; k < i; ++k)
      if (dominates(frontier.points[k], point) || dominates(point, frontier.points[k]))
        return failure("the frontier's points of peaks " + Twine(frontier.points[k].peak) +
                       " and " + Twine(point.peak) + " have costs " +
                       Twine(frontier.points[k].cost) + " and " + Twine(point.cost) +
                       ", and one is as good as the other in everything");
  }
  if (frontier.points.empty() || frontier.points.front().peak < frontier.peakLowerBound)
    return failure("the frontier is empty or goes below its bound");
  return llvm::Error::success();
}
