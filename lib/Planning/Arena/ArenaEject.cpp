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
#include "memopt/Planning/Utils/SearchRandom.h"

#include <algorithm>
#include <cmath>

using namespace memopt::planning;
using namespace memopt::planning::arena;

namespace {

class EjectionSearch {
public:
  EjectionSearch(const Model &model, Layout &layout, uint64_t seed);
  /// Tries to bring the layout to `height`, one stretch of time after the other. A stretch where
  /// that fails stays as it was. Says whether the whole layout got there.
  bool run(int64_t height, int64_t workLimit, int64_t &work);

private:
  struct Edge {
    int64_t offset;
    double weight; ///< added from here on
    int32_t free;  ///< items that may be ejected, added from here on
    int32_t stuck; ///< items that may not
    bool operator<(const Edge &other) const { return offset < other.offset; }
  };
  bool lower(llvm::ArrayRef<int32_t> high, int64_t height, int64_t limit, int64_t &work);
  bool placeAll(int64_t height, int64_t limit, int64_t &work);
  void ejectHit(int32_t item);
  int64_t cheapestOffset(int32_t item, int64_t height, double &cost);
  int32_t pickOut();
  bool immovable(int32_t item) const {
    return model.items[item].fixedOffset >= 0 || model.items[item].pinned;
  }
  void move(int32_t item, int64_t offset) {
    if (!touched[item]) {
      touched[item] = true;
      saved.emplace_back(item, offsets[item]);
    }
    offsets[item] = offset;
    if (offset == unplaced)
      out.push_back(item);
  }

  const Model &model;
  std::vector<int64_t> &offsets;
  SearchRandom random;
  std::vector<double> base, weight; ///< what ejecting an item costs: at first, and now
  std::vector<int32_t> out;
  std::vector<Edge> edges;
  std::vector<int32_t> neighbours;
  std::vector<bool> touched;
  std::vector<std::pair<int32_t, int64_t>> saved; ///< items touched, with the offsets they had
};

} // namespace

EjectionSearch::EjectionSearch(const Model &model, Layout &layout, uint64_t seed)
    : model(model), offsets(layout.offsets), random(seed) {
  double mean = 0;
  for (const Item &item : model.items)
    mean += std::sqrt(item.area) / double(model.items.size());
  for (int32_t i = 0, n = model.items.size(); i < n; ++i)
    base.push_back(0.1 + std::sqrt(model.items[i].area) / mean);
  weight = base;
  touched.assign(model.items.size(), false);
}

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
      // Offsets from offset - ours + 1 to offset + theirs - 1 hit it. Hits are counted besides
      // their weight: sums of doubles do not come back to zero.
      bool stuck = immovable(other.item);
      double w = stuck ? 0 : weight[other.item];
      edges.push_back({offset - piece.size + 1, w, !stuck, stuck});
      edges.push_back({offset + other.size, -w, -int32_t(!stuck), -int32_t(stuck)});
    });
  std::sort(edges.begin(), edges.end());
  // Offsets worth trying: 0, just behind a neighbour, just before one, and the highest allowed.
  int64_t highest = height - model.items[item].size, best = unplaced;
  highest -= highest % model.items[item].alignment;
  cost = 1e300;
  double hit = 0;
  int32_t free = 0, stuck = 0;
  int64_t from = 0; // since here, `hit` is what an offset costs
  size_t at = 0;
  int ties = 0;
  auto consider = [&](int64_t offset, int64_t end) {
    offset = model.align(offset, item);
    if (offset >= end || offset > highest || stuck)
      return;
    double c = free ? std::max(hit, 1e-6) : 0;
    if (c < cost * (1 - 1e-12)) {
      cost = c;
      best = offset;
      ties = 1;
    } else if (c <= cost * (1 + 1e-12) && c > 0 && random.below(++ties) == 0) {
      best = offset; // any of the cheapest, evenly
    }
  };
  auto cross = [&](const Edge &edge) {
    hit += edge.weight;
    free += edge.free;
    stuck += edge.stuck;
  };
  for (; at < edges.size() && edges[at].offset <= 0; ++at)
    cross(edges[at]);
  while (true) {
    int64_t end = at < edges.size() ? edges[at].offset : unlimited;
    consider(from, end);
    if (at == edges.size() || end > highest)
      break;
    from = end;
    for (; at < edges.size() && edges[at].offset == from; ++at)
      cross(edges[at]);
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

void EjectionSearch::ejectHit(int32_t item) {
  for (int32_t other : neighbours) {
    if (offsets[other] == unplaced)
      continue;
    bool hits = false;
    for (const Piece &mine : model.piecesOf(item))
      for (const Piece &theirs : model.piecesOf(other))
        hits |= mine.lower < theirs.upper && theirs.lower < mine.upper &&
                offsets[item] < offsets[other] + theirs.size &&
                offsets[other] < offsets[item] + mine.size;
    if (hits)
      move(other, unplaced);
  }
}

bool EjectionSearch::placeAll(int64_t height, int64_t limit, int64_t &work) {
  while (!out.empty()) {
    if (work >= limit)
      return false;
    int32_t item = pickOut();
    double cost = 0;
    int64_t offset = cheapestOffset(item, height, cost);
    work += 4 + int64_t(edges.size()) * 3 + int64_t(out.size());
    if (offset == unplaced)
      return false;
    offsets[item] = offset;
    if (cost == 0)
      continue;
    weight[item] += 0.3 * base[item];
    ejectHit(item);
  }
  return true;
}

/// Brings these items, and what they push, below `height`, or changes nothing.
bool EjectionSearch::lower(llvm::ArrayRef<int32_t> high, int64_t height, int64_t limit,
                           int64_t &work) {
  out.clear();
  saved.clear();
  bool done = llvm::none_of(high, [&](int32_t item) { return immovable(item); });
  if (done) {
    for (int32_t item : high)
      move(item, unplaced);
    done = placeAll(height, limit, work);
  }
  for (auto [item, offset] : saved) {
    touched[item] = false;
    weight[item] = base[item];
    if (!done)
      offsets[item] = offset;
  }
  return done;
}

bool EjectionSearch::run(int64_t height, int64_t workLimit, int64_t &work) {
  std::vector<int32_t> high;
  for (int32_t i = 0, n = model.items.size(); i < n; ++i)
    if (model.top(offsets[i], i) > height)
      high.push_back(i);
  llvm::sort(high, [&](int32_t a, int32_t b) {
    return std::make_pair(model.items[a].lower, a) < std::make_pair(model.items[b].lower, b);
  });
  // Items that are too high at once belong together.
  std::vector<size_t> starts;
  int32_t reach = -1;
  for (size_t i = 0; i < high.size(); ++i) {
    if (model.items[high[i]].lower >= reach)
      starts.push_back(i);
    reach = std::max(reach, model.items[high[i]].upper);
  }
  bool all = true;
  int64_t end = work + workLimit;
  for (size_t i = 0; i < starts.size() && work < end; ++i) {
    size_t next = i + 1 < starts.size() ? starts[i + 1] : high.size();
    int64_t share = (end - work) / int64_t(starts.size() - i) * (starts.size() == i + 1 ? 1 : 2);
    all &= lower(llvm::ArrayRef(high).slice(starts[i], next - starts[i]), height,
                 std::min(end, work + share), work);
  }
  return all && work < end;
}

bool memopt::planning::arena::searchByEjection(const Model &model, int64_t target, uint64_t seed,
                                               int64_t budget, Layout &layout) {
  EjectionSearch search(model, layout, seed);
  int64_t work = 0, before = layout.height;
  // How far to go down at once: all the way first, then by halves; a few rounds of that in vain end
  // it.
  double share = 1;
  int64_t roundStart = layout.height;
  for (int vain = 0; layout.height > target && work < budget && vain < 3;) {
    int64_t step = std::max<int64_t>(1, int64_t(double(layout.height - target) * share));
    int64_t part = std::max<int64_t>((budget - work) / 6, 100000);
    bool reached = search.run(layout.height - step, part, work);
    model.measure(layout);
    share = reached ? std::min(1.0, share * 2) : share / 2;
    if (share > 1e-2 && step > 1)
      continue;
    vain = layout.height < roundStart ? 0 : vain + 1;
    roundStart = layout.height;
    share = 0.5;
  }
  return layout.height < before;
}
