//===- ArenaEject.cpp - push what stands too high down, eject what it hits ---===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Guided ejection search (Nagata and Braeysy, "A powerful route minimization heuristic", 2009),
// carried over to offsets. Under a wanted height everything that ends above it is taken out. Then,
// one by one, an item that is out goes where it hits the least: each item it hits is ejected in
// turn. Items that were hard to place weigh more each time, so that the search does not eject them
// again and again. It ends when nothing is out, and the height is reached, or when its work is
// spent.
//
//===----------------------------------------------------------------------===//

#include "ArenaSearch.h"
#include "SearchRandom.h"

#include <algorithm>
#include <cmath>

using namespace memopt::planning;
using namespace memopt::planning::arena;

namespace {

class EjectionSearch {
public:
  EjectionSearch(const Model &model, uint64_t seed);
  /// Tries to bring `layout` to `height`; leaves it alone when that fails.
  bool run(Layout &layout, int64_t height, int64_t workLimit, int64_t &work);

private:
  struct Edge {
    int64_t offset;
    double weight; ///< added from here on
    bool operator<(const Edge &other) const { return offset < other.offset; }
  };
  int64_t cheapestOffset(int32_t item, int64_t height, double &cost);
  void takeOut(int32_t item) {
    offsets[item] = unplaced;
    out.push_back(item);
  }
  int32_t pickOut();

  const Model &model;
  SearchRandom random;
  std::vector<int64_t> offsets;
  std::vector<double> weight; ///< what ejecting an item costs
  std::vector<int32_t> out;
  std::vector<Edge> edges;
  std::vector<int32_t> neighbours;
};

} // namespace

EjectionSearch::EjectionSearch(const Model &model, uint64_t seed) : model(model), random(seed) {}

/// The offset at which `item` hits the least weight; the lowest of the cheapest.
int64_t EjectionSearch::cheapestOffset(int32_t item, int64_t height, double &cost) {
  edges.clear();
  neighbours.clear();
  for (const Piece &piece : model.piecesOf(item))
    model.forEachOverlap(piece, [&](int32_t index) {
      const Piece &other = model.pieces[index];
      int64_t offset = offsets[other.item];
      if (offset == unplaced)
        return;
      neighbours.push_back(other.item);
      // Offsets from offset - ours + 1 to offset + theirs - 1 hit it.
      edges.push_back({offset - piece.size + 1, weight[other.item]});
      edges.push_back({offset + other.size, -weight[other.item]});
    });
  std::sort(edges.begin(), edges.end());
  // Offsets worth trying: 0, just behind a neighbour, just before one, and the highest allowed.
  int64_t highest = height - model.items[item].size, best = unplaced;
  highest -= highest % model.items[item].alignment;
  cost = 1e300;
  double hit = 0;
  int64_t from = 0; // since here, `hit` is what an offset costs
  size_t at = 0;
  int ties = 0;
  auto consider = [&](int64_t offset, int64_t end) {
    offset = model.align(offset, item);
    if (offset >= end || offset > highest)
      return;
    double c = hit < 1e-9 ? 0 : hit;
    if (c < cost * (1 - 1e-12)) {
      cost = c;
      best = offset;
      ties = 1;
    } else if (c <= cost * (1 + 1e-12) && c > 0 && random.below(++ties) == 0) {
      best = offset; // any of the cheapest, evenly
    }
  };
  for (; at < edges.size() && edges[at].offset <= 0; ++at)
    hit += edges[at].weight;
  while (true) {
    int64_t end = at < edges.size() ? edges[at].offset : unlimited;
    consider(from, end);
    if (at == edges.size() || end > highest)
      break;
    from = end;
    for (; at < edges.size() && edges[at].offset == from; ++at)
      hit += edges[at].weight;
  }
  return best;
}

/// The hardest one mostly, now and then any.
int32_t EjectionSearch::pickOut() {
  size_t chosen = random.below(out.size());
  if (random.below(8) != 0)
    for (size_t i = 0; i < out.size(); ++i) {
      const Item &a = model.items[out[i]], &b = model.items[out[chosen]];
      if (a.area > b.area)
        chosen = i;
    }
  std::swap(out[chosen], out.back());
  int32_t item = out.back();
  out.pop_back();
  return item;
}

bool EjectionSearch::run(Layout &layout, int64_t height, int64_t workLimit, int64_t &work) {
  offsets = layout.offsets;
  weight.assign(model.items.size(), 1);
  double mean = 0;
  for (const Item &item : model.items)
    mean += std::sqrt(item.area) / double(model.items.size());
  for (size_t i = 0; i < weight.size(); ++i)
    weight[i] = model.items[i].fixedOffset >= 0 || model.items[i].pinned
                    ? 1e100
                    : 0.1 + std::sqrt(model.items[i].area) / mean;
  std::vector<double> base = weight;
  out.clear();
  for (int32_t i = 0, n = model.items.size(); i < n; ++i)
    if (model.top(offsets[i], i) > height) {
      if (weight[i] >= 1e100)
        return false;
      takeOut(i);
    }
  int64_t limit = work + workLimit;
  while (!out.empty() && work < limit) {
    int32_t item = pickOut();
    double cost = 0;
    int64_t offset = cheapestOffset(item, height, cost);
    work += 4 + int64_t(edges.size()) * 3 + int64_t(out.size());
    if (offset == unplaced || cost >= 1e99)
      return false;
    if (cost > 0)
      weight[item] += 0.3 * base[item];
    offsets[item] = offset;
    if (cost == 0)
      continue;
    for (int32_t other : neighbours) {
      if (offsets[other] == unplaced)
        continue;
      bool hits = false;
      for (const Piece &mine : model.piecesOf(item))
        for (const Piece &theirs : model.piecesOf(other))
          hits |= mine.lower < theirs.upper && theirs.lower < mine.upper &&
                  offset < offsets[other] + theirs.size && offsets[other] < offset + mine.size;
      if (hits)
        takeOut(other);
    }
  }
  if (!out.empty())
    return false;
  layout.offsets = offsets;
  model.measure(layout);
  return true;
}

bool memopt::planning::arena::searchByEjection(const Model &model, int64_t target, uint64_t seed,
                                               int64_t budget, Layout &layout) {
  EjectionSearch search(model, seed);
  int64_t work = 0;
  bool improved = false;
  // How far to go down at once: all the way first, then by halves.
  double share = 1;
  while (layout.height > target && work < budget) {
    int64_t step = std::max<int64_t>(1, int64_t(double(layout.height - target) * share));
    int64_t part = std::max<int64_t>((budget - work) / 6, 100000);
    if (search.run(layout, layout.height - step, part, work)) {
      improved = true;
      share = std::min(1.0, share * 2);
    } else {
      share /= 2;
      if (share < 1e-3)
        break;
    }
  }
  return improved;
}
