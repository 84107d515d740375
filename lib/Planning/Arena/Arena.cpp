//===- Arena.cpp - the stages of the arena solver ----------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ArenaSearch.h"
#include "memopt/Planning/Utils/SolutionCache.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <numeric>
#include <tuple>

using namespace memopt::planning;
using namespace memopt::planning::arena;

namespace memopt::planning {
template <typename Fields> void passFields(Fields &fields, ArenaBuffer &buffer) {
  fields(buffer.size, buffer.lower, buffer.upper, buffer.alignment, buffer.fixedOffset,
         buffer.pinnedAtBottom, buffer.inPlaceOf);
}
template <typename Fields> void passFields(Fields &fields, ArenaLoop &loop) {
  fields(loop.lower, loop.upper);
}
template <typename Fields> void passFields(Fields &fields, ArenaSolution &solution) {
  fields(solution.offsets, solution.height, solution.lowerBound, solution.method);
}
} // namespace memopt::planning

/// Items beyond which the exact search is not tried: it needs a look at every section for each
/// node.
static constexpr size_t exactItems = 600;
/// Its work, in multiples of the option.
static constexpr int64_t exactShare = 8;
/// A search of many items is worth a longer one if it closed this share of the gap.
static constexpr double worthMore = 0.1;

static bool isSmall(const Model &model) { return model.items.size() <= exactItems; }

namespace {

/// The stages, one model at a time.
class Stages {
public:
  Stages(const Model &model, const ArenaOptions &options)
      : model(model), options(options), bound(model.lowerBound) {}

  ArenaSolution run() {
    int64_t work = 0;
    keep(solveGreedy(model, target(), work), "greedy order");
    if (options.iterations <= 0)
      return report();
    bool small = isSmall(model);
    // Most layouts of training steps fall to a short search; for a part in a thousand it is enough.
    eject(options.iterations / 8, options.seed);
    int64_t gap = best.height - target();
    if (!small && gap > bound / 1000)
      eject(options.iterations * 7 / 8, options.seed);
    if (small && gap > closeEnough())
      searchExact();
    // A hard one is worth more time, unless nothing comes of it.
    int64_t left = best.height - target();
    bool pays = small || static_cast<double>(gap - left) > worthMore * static_cast<double>(gap);
    if (left > bound / 100 && pays)
      eject(4 * options.iterations, options.seed + 1);
    return report();
  }

private:
  int64_t target() const { return std::max(bound, options.capacity); }
  /// Bytes for which search by the second does not pay; none when a capacity asks for them.
  int64_t closeEnough() const { return options.capacity >= 0 ? 0 : bound / 512; }
  void keep(Layout layout, const char *name) {
    if (layout.height >= best.height)
      return;
    best = std::move(layout);
    method = name;
  }
  void eject(int64_t budget, uint64_t seed) {
    Layout layout = best;
    if (best.height > target() && searchByEjection(model, target(), seed, budget, layout))
      keep(std::move(layout), "ejection search");
  }
  /// Goes for the target, and where that fails halves the way between what is known to fail and the
  /// best.
  void searchExact() {
    int64_t failed = target() - 1, budget = exactShare * options.iterations;
    int64_t wanted = target();
    while (best.height > target() && budget > options.iterations / 8) {
      Layout layout;
      int64_t part = budget / 5 * 3;
      ExactResult result = searchExactly(model, wanted, part, layout);
      budget -= part;
      if (result == ExactResult::Found) {
        keep(std::move(layout), "exact search");
      } else {
        failed = wanted;
        if (result == ExactResult::Impossible && model.plain && !model.tied)
          bound = std::max(bound, wanted + 1);
      }
      if (best.height - failed <= std::max<int64_t>(1, closeEnough()))
        return;
      wanted = failed + (best.height - failed) / 2;
    }
  }
  ArenaSolution report() const {
    ArenaSolution solution;
    solution.method = method;
    solution.offsets = model.offsetsOfBuffers(best);
    solution.height = best.height;
    solution.lowerBound = bound;
    return solution;
  }

  const Model &model;
  const ArenaOptions &options;
  int64_t bound;
  Layout best;
  const char *method = "";
};

} // namespace

static ArenaSolution solveModel(const Model &model, const ArenaOptions &options) {
  if (model.items.empty()) {
    ArenaSolution empty;
    empty.offsets.assign(model.itemOf.size(), 0);
    empty.method = "nothing to place";
    return empty;
  }
  return Stages(model, options).run();
}

/// The least common multiple of all alignments.
static int64_t commonUnit(const ArenaProblem &problem) {
  int64_t unit = 1;
  for (const ArenaBuffer &buffer : problem.buffers)
    unit = unit / std::__gcd(unit, buffer.alignment) * buffer.alignment;
  return unit;
}

/// Empties the pinned buffers that fill whole units, and stacks them from offset 0 in `offsets`.
/// They are alive throughout, so every layout is one of the others on top of this floor; searched
/// along, they would be neighbours of everything. Returns the floor's height.
static int64_t takeOutFloor(ArenaProblem &problem, std::vector<int64_t> &offsets) {
  int64_t floor = 0, unit = commonUnit(problem);
  offsets.assign(problem.buffers.size(), unplaced);
  if (llvm::any_of(problem.buffers, [](const ArenaBuffer &b) { return b.fixedOffset >= 0; }))
    return 0;
  for (auto [buffer, offset] : llvm::zip_equal(problem.buffers, offsets))
    if (buffer.pinnedAtBottom && buffer.lower < buffer.upper && buffer.size &&
        buffer.size % unit == 0) {
      offset = floor;
      floor += buffer.size;
      buffer.size = 0;
    }
  return floor;
}

static ArenaSolution solveAboveFloor(const ArenaProblem &problem, const ArenaOptions &options) {
  ArenaSolution best = solveModel(Model(problem, /*inPlace=*/true), options);
  bool mayShare = llvm::any_of(problem.buffers,
                               [](const ArenaBuffer &buffer) { return buffer.inPlaceOf >= 0; });
  if (best.gap() && mayShare) {
    // Sharing ties two buffers to one offset, which now and then costs more than it saves.
    Model loose(problem, /*inPlace=*/false);
    ArenaOptions shorter = options;
    if (!isSmall(loose))
      shorter.iterations /= 4;
    ArenaSolution apart = solveModel(loose, shorter);
    if (apart.height < best.height) {
      apart.lowerBound = best.lowerBound;
      best = std::move(apart);
    }
  }
  return best;
}

static ArenaSolution solveChecked(const ArenaProblem &problem, const ArenaOptions &options) {
  ArenaProblem above = problem;
  std::vector<int64_t> offsets;
  int64_t floor = takeOutFloor(above, offsets);
  ArenaOptions rest = options;
  if (rest.capacity >= 0)
    rest.capacity = std::max<int64_t>(0, rest.capacity - floor);
  ArenaSolution best = solveAboveFloor(above, rest);
  for (size_t i = 0; i < offsets.size(); ++i)
    if (offsets[i] != unplaced)
      best.offsets[i] = offsets[i];
    else if (problem.buffers[i].size && problem.buffers[i].lower < problem.buffers[i].upper)
      best.offsets[i] += floor;
  best.height += floor;
  best.lowerBound += floor;
  return best;
}

/// The buffers in an order that follows from their times and sizes, so that a layout does not depend
/// on the order in which somebody lists them. Those at the bottom keep theirs, which several problems
/// with the same ones share. Buffers that are alike in all that is compared may stand in either order.
static std::vector<int32_t> getCanonicalOrder(const ArenaProblem &problem) {
  std::vector<int32_t> order(problem.buffers.size());
  std::iota(order.begin(), order.end(), 0);
  auto isBelow = [&](int32_t number) { return problem.buffers[number].pinnedAtBottom; };
  auto free = std::stable_partition(order.begin(), order.end(), isBelow);
  auto getKey = [&](int32_t number) {
    const ArenaBuffer &buffer = problem.buffers[number];
    int64_t taken = buffer.inPlaceOf < 0 ? -1 : problem.buffers[buffer.inPlaceOf].lower;
    return std::tuple(buffer.lower, buffer.upper, buffer.size, buffer.alignment, buffer.fixedOffset,
                      taken);
  };
  std::stable_sort(free, order.end(), [&](int32_t a, int32_t b) { return getKey(a) < getKey(b); });
  return order;
}

static ArenaSolution solveInCanonicalOrder(const ArenaProblem &problem,
                                           const ArenaOptions &options) {
  std::vector<int32_t> order = getCanonicalOrder(problem);
  std::vector<int32_t> places(order.size());
  for (auto [place, number] : llvm::enumerate(order))
    places[number] = static_cast<int32_t>(place);
  ArenaProblem sorted{{}, problem.loops};
  for (int32_t number : order) {
    ArenaBuffer &buffer = sorted.buffers.emplace_back(problem.buffers[number]);
    if (buffer.inPlaceOf >= 0)
      buffer.inPlaceOf = places[buffer.inPlaceOf];
  }
  ArenaSolution solution = solveChecked(sorted, options);
  std::vector<int64_t> offsets;
  for (int32_t place : places)
    offsets.push_back(solution.offsets[place]);
  solution.offsets = std::move(offsets);
  return solution;
}

llvm::Expected<ArenaSolution> memopt::planning::solveArena(const ArenaProblem &problem,
                                                           const ArenaOptions &options) {
  if (llvm::Error error = checkArena(problem))
    return std::move(error);
  return findOrSolve<ArenaSolution>(
      options.cache, "arena",
      [&](FieldWriter &question) {
        question(problem.buffers, problem.loops, options.capacity, options.iterations,
                 static_cast<int64_t>(options.seed));
      },
      [&](const ArenaSolution &found) { return verifyArena(problem, found); },
      [&]() -> llvm::Expected<ArenaSolution> { return solveInCanonicalOrder(problem, options); });
}

int64_t memopt::planning::arenaLoad(const ArenaProblem &problem) {
  int64_t most = 0;
  for (int64_t load : Model(problem, /*inPlace=*/true).loads())
    most = std::max(most, load);
  return most;
}

std::vector<int32_t> memopt::planning::arenaBindingBuffers(const ArenaProblem &problem) {
  Model model(problem, /*inPlace=*/true);
  std::vector<int64_t> loads = model.loads();
  auto at = static_cast<int32_t>(std::max_element(loads.begin(), loads.end()) - loads.begin());
  std::vector<bool> alive(model.items.size(), false);
  for (const Piece &piece : model.pieces)
    if (piece.lower <= at && at < piece.upper)
      alive[piece.item] = true;
  // Of buffers in place the whole chain is named: they hold the same bytes.
  std::vector<int32_t> binding;
  for (int32_t i = 0, n = model.itemOf.size(); i < n; ++i)
    if (model.itemOf[i] >= 0 && alive[model.itemOf[i]])
      binding.push_back(i);
  llvm::sort(binding, [&](int32_t a, int32_t b) {
    return std::make_pair(-problem.buffers[a].size, a) <
           std::make_pair(-problem.buffers[b].size, b);
  });
  return binding;
}
