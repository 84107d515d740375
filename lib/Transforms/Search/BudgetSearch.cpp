//===- BudgetSearch.cpp - the cheapest order within a number of bytes -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Search/BudgetSearch.h"
#include "memopt/Planning/Order/PlanSolver.h"

#include "ActivationWays.h"
#include "CallChoices.h"
#include "memopt/Transforms/Kernels/InlineIntoReaders.h"
#include "memopt/Transforms/Memory/OrderProblem.h"

#include "memopt/Transforms/Passes.h"

#include <numeric>
#include <queue>

using namespace mlir;
using namespace mlir::memopt;
namespace planning = ::memopt::planning;

static OrderProblem createProblem(const StepModel &step, const CostModel &costs,
                                  const BudgetOptions &options, bool swaps) {
  HostRoom room{options.hostBudget, swaps};
  if (!options.loop)
    return OrderProblem(step, costs, room);
  return OrderProblem(step, KernelGraph(step.getFunction()),
                      *OrderProblem::getLoopBodies(step)[*options.loop], costs, room);
}

namespace {
/// The kernel graph in one form, and its orders.
struct Form {
  Form(const StepModel &step, int64_t inlined, const BudgetOptions &options, bool swaps)
      : step(step), inlined(inlined), cache(options.cache), costs(step.getModule()),
        problem(createProblem(step, costs, options, swaps)),
        choices(problem.getInstructions(), problem.getProblem()),
        searchProblem(choices.getSearchProblem(problem.getProblem())) {}

  /// The plan of an order with all calls as they are preferred,
  FailureOr<BudgetPlan> measure(const std::vector<int32_t> &order) const {
    return measure(problem.getProblem(), order, choices.getPreferred());
  }
  /// or with the fastest that fit within the budget; where none do, with the leanest.
  FailureOr<BudgetPlan> measureWithin(const std::vector<int32_t> &order, int64_t budget) const;
  FailureOr<BudgetPlan> relax(BudgetPlan leanest, int64_t budget) const;
  FailureOr<BudgetPlan> measure(const planning::PlanProblem &chosen,
                                const std::vector<int32_t> &order,
                                CallChoices::Choice choice) const;
  FailureOr<int64_t> measureHeight(const planning::PlanProblem &chosen, ArrayRef<int32_t> order,
                                   Space space) const;
  void apply(const BudgetPlan &plan) const { choices.apply(plan.implementations); }

  StepModel step;
  int64_t inlined; ///< values that their readers compute
  ::memopt::Cache *cache;
  CostModel costs;
  OrderProblem problem;
  CallChoices choices;
  planning::PlanProblem searchProblem;
};

/// A point of a form's frontier.
struct Candidate {
  const Form *form;
  planning::PlanFrontier::Point point;
  std::optional<BudgetPlan> placed; ///< where no call has a choice, which a budget would decide
};
} // namespace

static LogicalResult fail(const StepModel &step, llvm::Error error) {
  return step.getModule().emitError()
         << "rematerialization failed: " << llvm::toString(std::move(error));
}

struct BudgetSearch::State {
  State(const StepModel &step, BudgetOptions options)
      : options(options), standing(step, /*inlined=*/0, options, /*swaps=*/false) {
    if (options.swaps)
      swapping.emplace(step, /*inlined=*/0, options, /*swaps=*/true);
  }

  LogicalResult solve();
  FailureOr<BudgetPlan> place(Candidate &candidate, int64_t budget);
  LogicalResult solve(const Form &form, std::vector<std::vector<int32_t>> known = {});
  FailureOr<planning::PlanFrontier> solve(const Form &form, const planning::PlanProblem &problem,
                                          std::vector<std::vector<int32_t>> known);
  std::vector<std::vector<int32_t>> getOrders() const;
  void dropDominated();
  /// Bytes above the host's budget.
  int64_t getExcess(int64_t hostBytes) const {
    return options.hostBudget < 0 ? 0 : std::max<int64_t>(0, hostBytes - options.hostBudget);
  }
  int64_t getExcess(const planning::PlanFrontier::Point &point) const {
    return getExcess(point.otherPeaks.empty() ? 0 : point.otherPeaks.front());
  }

  BudgetOptions options;
  Form standing;
  std::optional<Form> swapping;
  InlinedForm copy; ///< owns the module of `inlining`
  std::optional<Form> inlining;
  std::optional<BudgetPlan> given;
  std::vector<std::vector<int32_t>> standingOrders; ///< of the first form, swaps included
  std::vector<Candidate> candidates; ///< cheapest first; no point has one below in bytes and time
  int64_t lowerBound = std::numeric_limits<int64_t>::max();
};

BudgetSearch::BudgetSearch(const StepModel &step, BudgetOptions options)
    : state(std::make_unique<State>(step, options)) {}
BudgetSearch::~BudgetSearch() = default;

void BudgetSearch::apply(const BudgetPlan &plan) {
  Form &standing = state->standing;
  Form &form = plan.swapped ? *state->swapping : plan.inlined ? *state->inlining : standing;
  form.apply(plan);
  if (!plan.inlined)
    return form.problem.apply(plan.order);
  func::FuncOp inlining = state->inlining->step.getFunction();
  standing.step.getFunction().getBody().takeBody(inlining.getBody());
  createProblem(*StepModel::create(standing.step.getModule()), standing.costs, state->options,
                /*swaps=*/false)
      .apply(plan.order);
}

int64_t BudgetSearch::getLowerBound() const { return state->lowerBound; }

FailureOr<BudgetPlan> BudgetSearch::getGivenPlan() {
  if (!state->given) {
    std::vector<int32_t> order(state->standing.problem.getProblem().ops.size());
    std::iota(order.begin(), order.end(), 0);
    FailureOr<BudgetPlan> plan = state->standing.measure(order);
    if (failed(plan))
      return failure();
    state->given = std::move(*plan);
  }
  return *state->given;
}

namespace {
/// The bytes alive by position of an order, while calls come to take less.
class PeakQueue {
public:
  explicit PeakQueue(std::vector<int64_t> byPosition) : loads(std::move(byPosition)) {
    for (auto [position, load] : llvm::enumerate(loads))
      queue.push({load, -static_cast<int64_t>(position)});
  }

  /// Bytes and the first position where they are alive.
  std::pair<int64_t, int64_t> getPeak() {
    while (loads[-queue.top().second] != queue.top().first)
      queue.pop();
    return {queue.top().first, -queue.top().second};
  }

  void lower(int64_t position, int64_t bytes) {
    loads[position] -= bytes;
    queue.push({loads[position], -position});
  }

private:
  std::vector<int64_t> loads;
  std::priority_queue<std::pair<int64_t, int64_t>> queue; ///< loads of before among them
};
} // namespace

/// From the preferred implementations on, the call that runs at the peak takes less workspace until
/// the plan fits. The course does not depend on the budget, only its end: but for what gaps of a
/// layout take, a larger one never gives a slower plan.
FailureOr<BudgetPlan> Form::measureWithin(const std::vector<int32_t> &order, int64_t budget) const {
  if (choices.empty() || order.empty())
    return measure(order);
  CallChoices::Choice choice = choices.getPreferred();
  planning::PlanProblem preferred = choices.getProblem(problem.getProblem(), choice);
  llvm::Expected<std::vector<int64_t>> loads = planning::measureLoads(preferred, order);
  if (!loads)
    return fail(step, loads.takeError());
  DenseMap<int32_t, SmallVector<int64_t, 1>> positions; // by op
  for (auto [position, number] : llvm::enumerate(order))
    if (planning::PlanAction action = planning::getAction(preferred, number);
        action.kind == planning::PlanAction::Run)
      positions[action.index].push_back(static_cast<int64_t>(position));
  PeakQueue peaks(std::move(*loads));
  while (true) {
    auto [peak, position] = peaks.getPeak();
    bool isLeanest = choice == choices.getLeanest();
    if (peak <= budget || isLeanest) {
      planning::PlanProblem chosen = choices.getProblem(problem.getProblem(), choice);
      FailureOr<BudgetPlan> plan = measure(chosen, order, choice);
      if (failed(plan) || (isLeanest && plan->bytes > budget))
        return plan;
      if (plan->bytes <= budget)
        return isLeanest ? relax(std::move(*plan), budget) : plan;
    }
    planning::PlanAction action = planning::getAction(preferred, order[position]);
    std::optional<int64_t> spared;
    if (action.kind == planning::PlanAction::Run)
      spared = choices.lower(choice, action.index);
    if (!spared)
      choice = choices.getLeanest();
    else
      for (int64_t each : positions[action.index])
        peaks.lower(each, *spared);
  }
}

/// Where a layout with gaps wanted the leanest calls, few of them are in its way: as many as fit
/// take the preferred implementation again, those beside the fewest bytes first.
FailureOr<BudgetPlan> Form::relax(BudgetPlan leanest, int64_t budget) const {
  llvm::Expected<SmallVector<int32_t>> calls =
      choices.orderByLoad(problem.getProblem(), leanest.order);
  if (!calls)
    return fail(step, calls.takeError());
  BudgetPlan best = std::move(leanest);
  for (size_t least = 0, most = calls->size(); least < most;) {
    size_t count = (least + most + 1) / 2;
    CallChoices::Choice choice = choices.getLeanest();
    for (int32_t call : ArrayRef(*calls).take_front(count))
      choice[call] = 0;
    FailureOr<BudgetPlan> plan =
        measure(choices.getProblem(problem.getProblem(), choice), best.order, choice);
    if (failed(plan))
      return failure();
    bool isWithin = plan->bytes <= budget;
    (isWithin ? least : most) = isWithin ? count : count - 1;
    if (isWithin)
      best = std::move(*plan);
  }
  return best;
}

FailureOr<BudgetPlan> Form::measure(const planning::PlanProblem &chosen,
                                    const std::vector<int32_t> &order,
                                    CallChoices::Choice choice) const {
  llvm::Expected<planning::PlanMeasure> cost = planning::measurePlan(chosen, order);
  if (!cost)
    return fail(step, cost.takeError());
  FailureOr<int64_t> device = measureHeight(chosen, order, Space::Device);
  FailureOr<int64_t> host = measureHeight(chosen, order, Space::Host);
  if (failed(device) || failed(host))
    return failure();
  BudgetPlan plan;
  for (int32_t number : order) {
    planning::PlanAction action = planning::getAction(chosen, number);
    plan.clones += action.kind == planning::PlanAction::Run;
    plan.swapped += action.kind == planning::PlanAction::StoreStart;
  }
  plan.clones -= static_cast<int64_t>(chosen.ops.size());
  plan.inlined = inlined;
  plan.leanCalls = CallChoices::countChosen(choice);
  plan.implementations = std::move(choice);
  plan.order = order;
  plan.bytes = *device;
  plan.hostBytes = *host;
  plan.nanoseconds = cost->cost;
  return plan;
}

/// Of the arena of a space, 0 where the problem does not know it.
FailureOr<int64_t> Form::measureHeight(const planning::PlanProblem &chosen, ArrayRef<int32_t> order,
                                       Space space) const {
  auto number = static_cast<int32_t>(space);
  if (number >= static_cast<int32_t>(chosen.spaces.size()))
    return 0;
  llvm::Expected<planning::ArenaProblem> arena = problem.getArena().build(chosen, order, space);
  if (!arena)
    return fail(step, arena.takeError());
  planning::ArenaOptions options;
  options.iterations = kArenaIterations;
  options.cache = cache;
  llvm::Expected<planning::ArenaSolution> layout = planning::solveArena(*arena, options);
  if (!layout)
    return fail(step, layout.takeError());
  return layout->height;
}

/// The candidates follow from the graph alone and not from any budget: that keeps the promise that
/// a larger budget never gives a slower plan, from one compilation to the next too.
LogicalResult BudgetSearch::State::solve() {
  if (!candidates.empty())
    return success();
  if (failed(solve(standing)))
    return failure();
  // The same ops by the same numbers, and ways besides.
  if (swapping && failed(solve(*swapping, getOrders())))
    return failure();
  standingOrders = getOrders();
  // The other form lowers what single instructions need; no use where more than that binds.
  constexpr double kBinding = 1.25;
  if (static_cast<double>(candidates.front().point.peak) <=
      kBinding * static_cast<double>(lowerBound))
    copy = inlineIntoReaders(standing.step.getModule());
  if (copy.module) {
    inlining.emplace(*StepModel::create(*copy.module), copy.values, options, /*swaps=*/false);
    if (failed(solve(*inlining)))
      return failure();
  }
  dropDominated();
  return success();
}

void BudgetSearch::State::dropDominated() {
  auto isAbove = [&](const Candidate &candidate) { return getExcess(candidate.point) > 0; };
  if (!llvm::all_of(candidates, isAbove))
    llvm::erase_if(candidates, isAbove);
  llvm::sort(candidates, [](const Candidate &a, const Candidate &b) {
    return std::tie(a.point.cost, a.point.peak, a.form->inlined) <
           std::tie(b.point.cost, b.point.peak, b.form->inlined);
  });
  int64_t peak = std::numeric_limits<int64_t>::max();
  llvm::erase_if(candidates, [&](const Candidate &candidate) {
    bool isDominated = candidate.point.peak >= peak;
    peak = std::min(peak, candidate.point.peak);
    return isDominated;
  });
}

std::vector<std::vector<int32_t>> BudgetSearch::State::getOrders() const {
  std::vector<std::vector<int32_t>> orders;
  for (const Candidate &candidate : candidates)
    orders.push_back(candidate.point.order);
  return orders;
}

FailureOr<planning::PlanFrontier>
BudgetSearch::State::solve(const Form &form, const planning::PlanProblem &problem,
                           std::vector<std::vector<int32_t>> known) {
  planning::PlanFrontierOptions search;
  search.known = std::move(known);
  // What memopt-schedule has moved may hide the segments that the program is made of.
  if (auto order =
          options.loop ? std::nullopt : form.problem.getProgramOrder(form.step.getModule()))
    search.orders.push_back(std::move(*order));
  search.iterations = options.iterations;
  search.threads = options.threads;
  search.cache = options.cache;
  llvm::Expected<planning::PlanFrontier> frontier = planning::solvePlanFrontier(problem, search);
  if (!frontier)
    return fail(form.step, frontier.takeError());
  if (llvm::Error wrong = planning::verifyPlanFrontier(problem, *frontier))
    return fail(form.step, std::move(wrong));
  return std::move(*frontier);
}

LogicalResult BudgetSearch::State::solve(const Form &form,
                                         std::vector<std::vector<int32_t>> known) {
  FailureOr<planning::PlanFrontier> frontier = solve(form, form.searchProblem, std::move(known));
  if (failed(frontier))
    return failure();
  lowerBound = std::min(lowerBound, frontier->peakLowerBound);
  for (planning::PlanFrontier::Point &point : frontier->points)
    candidates.push_back({&form, std::move(point), {}});
  return success();
}

FailureOr<BudgetPlan> BudgetSearch::State::place(Candidate &candidate, int64_t budget) {
  if (candidate.placed)
    return *candidate.placed;
  FailureOr<BudgetPlan> plan = candidate.form->measureWithin(candidate.point.order, budget);
  if (succeeded(plan) && candidate.form->choices.empty())
    candidate.placed = *plan;
  return plan;
}

bool BudgetSearch::fits(const BudgetPlan &plan, int64_t budget) const {
  return plan.bytes <= budget && state->getExcess(plan.hostBytes) == 0;
}

/// Only points whose bytes alive are within the budget are placed, the cheapest first; a layout
/// with gaps sends the search on to the next, and so does one whose calls take less workspace and
/// more time than another one may. Where no layout fits, the lowest of all points is the answer:
/// that is the budget which a refusal names.
FailureOr<BudgetPlan> BudgetSearch::findPlan(int64_t budget) {
  FailureOr<BudgetPlan> best = getGivenPlan();
  if (failed(best) || fits(*best, budget))
    return best;
  if (failed(state->solve()))
    return failure();
  auto getKey = [&](const BudgetPlan &plan) {
    bool isWithin = fits(plan, budget);
    return std::tuple(!isWithin, isWithin ? 0 : state->getExcess(plan.hostBytes),
                      isWithin ? plan.nanoseconds : plan.bytes);
  };
  auto consider = [&](Candidate &candidate) -> LogicalResult {
    FailureOr<BudgetPlan> plan = state->place(candidate, budget);
    if (succeeded(plan) && getKey(*plan) < getKey(*best))
      best = std::move(*plan);
    return plan;
  };
  for (Candidate &candidate : state->candidates) {
    if (fits(*best, budget) && candidate.point.cost >= best->nanoseconds)
      break;
    if (candidate.point.peak <= budget && failed(consider(candidate)))
      return failure();
  }
  if (fits(*best, budget))
    return best;
  for (Candidate &candidate : llvm::reverse(state->candidates)) { // fewest bytes alive first
    if (candidate.point.peak >= best->bytes && state->getExcess(best->hostBytes) == 0)
      break;
    if (candidate.point.peak > budget && failed(consider(candidate)))
      return failure();
  }
  return best;
}

/// Gaps of a layout are not known here: whoever narrows these activations searches the graph that
/// comes of it as any other.
FailureOr<SmallVector<int64_t>> BudgetSearch::findActivations(int64_t budget) {
  if (!state->options.activations)
    return SmallVector<int64_t>();
  if (failed(state->solve()))
    return failure();
  const Form &form = state->swapping ? *state->swapping : state->standing;
  ActivationWays ways(form.searchProblem, form.problem.getInstructions(), form.costs,
                      *state->options.activations);
  FailureOr<planning::PlanFrontier> frontier =
      state->solve(form, ways.getProblem(), state->standingOrders);
  if (failed(frontier))
    return failure();
  auto getKey = [&](const planning::PlanFrontier::Point &point) {
    bool isWithin = point.peak <= budget && state->getExcess(point) == 0;
    return std::tuple(!isWithin, isWithin ? 0 : state->getExcess(point),
                      isWithin ? point.cost : point.peak);
  };
  const auto *best = &frontier->points.front();
  for (const planning::PlanFrontier::Point &point : frontier->points)
    if (getKey(point) < getKey(*best))
      best = &point;
  return ways.getNarrowed(best->order);
}
