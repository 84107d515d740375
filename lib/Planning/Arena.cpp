//===- Arena.cpp - the stages of the arena solver ----------------------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ArenaModel.h"

#include <algorithm>

using namespace memopt::planning;
using namespace memopt::planning::arena;

static ArenaSolution solveModel(const Model &model, const ArenaOptions &options) {
  int64_t work = 0;
  int64_t target = std::max(model.lowerBound, options.capacity);
  Layout best = solveGreedy(model, target, work);
  ArenaSolution solution;
  solution.method = "greedy";
  solution.offsets = model.offsetsOfBuffers(best);
  solution.height = best.height;
  solution.lowerBound = model.lowerBound;
  return solution;
}

llvm::Expected<ArenaSolution> memopt::planning::solveArena(const ArenaProblem &problem,
                                                           const ArenaOptions &options) {
  if (llvm::Error error = checkArena(problem))
    return std::move(error);
  ArenaSolution best = solveModel(Model(problem, /*inPlace=*/true), options);
  bool mayShare = llvm::any_of(problem.buffers,
                               [](const ArenaBuffer &buffer) { return buffer.inPlaceOf >= 0; });
  if (best.gap() && mayShare) {
    // Sharing ties two buffers to one offset, which now and then costs more than it saves.
    ArenaSolution apart = solveModel(Model(problem, /*inPlace=*/false), options);
    if (apart.height < best.height) {
      apart.lowerBound = best.lowerBound;
      best = std::move(apart);
    }
  }
  return best;
}

int64_t memopt::planning::arenaLoad(const ArenaProblem &problem) {
  Model model(problem, /*inPlace=*/true);
  std::vector<int64_t> change(model.sections + 1, 0);
  for (const Piece &piece : model.pieces) {
    change[piece.lower] += piece.size;
    change[piece.upper] -= piece.size;
  }
  int64_t load = 0, most = 0;
  for (int64_t delta : change)
    most = std::max(most, load += delta);
  return most;
}

std::vector<int32_t> memopt::planning::arenaBindingBuffers(const ArenaProblem &problem) {
  Model model(problem, /*inPlace=*/true);
  std::vector<int64_t> change(model.sections + 1, 0);
  for (const Piece &piece : model.pieces) {
    change[piece.lower] += piece.size;
    change[piece.upper] -= piece.size;
  }
  int64_t load = 0, most = 0;
  int32_t at = 0;
  for (int32_t i = 0; i <= model.sections; ++i)
    if ((load += change[i]) > most) {
      most = load;
      at = i;
    }
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
