//===- ArenaGreedy.cpp - one pass over the buffers in a good order -----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Eight orders, as in TFLite (decreasing size), XLA (size, then duration), TVM and MiniMalloc's
// survey. Placing an item costs a look at each placed piece that shares time with it and a sort of
// those: for training traces, where most buffers are short, far from quadratic.
//
//===----------------------------------------------------------------------===//

#include "ArenaModel.h"

#include <algorithm>

using namespace memopt::planning;
using namespace memopt::planning::arena;

int64_t memopt::planning::arena::findOffset(const Model &model, llvm::ArrayRef<int64_t> offsets,
                                            int32_t item, Fit fit,
                                            std::vector<std::pair<int64_t, int64_t>> &taken,
                                            int64_t &work) {
  // An offset x collides with a piece of size s at o when o - ours < x < o + s.
  taken.clear();
  for (const Piece &piece : model.piecesOf(item))
    model.forEachOverlap(piece, [&](int32_t other) {
      ++work;
      const Piece &placed = model.pieces[other];
      int64_t offset = offsets[placed.item];
      if (offset != unplaced)
        taken.emplace_back(offset - piece.size, offset + placed.size);
    });
  std::sort(taken.begin(), taken.end());
  work += taken.size();
  int64_t candidate = 0, best = -1, bestSlack = unlimited;
  for (auto [from, to] : taken) {
    if (candidate <= from) {
      if (fit == Fit::First)
        return candidate;
      if (from - candidate < bestSlack) {
        bestSlack = from - candidate;
        best = candidate;
      }
    }
    if (to > candidate)
      candidate = model.align(to, item);
  }
  return best >= 0 ? best : candidate;
}

Layout memopt::planning::arena::placeFixed(const Model &model) {
  Layout layout;
  layout.offsets.assign(model.items.size(), unplaced);
  layout.height = 0;
  if (model.plain)
    return layout;
  std::vector<int32_t> pinned;
  for (int32_t i = 0, n = model.items.size(); i < n; ++i) {
    if (model.items[i].fixedOffset >= 0) {
      layout.offsets[i] = model.items[i].fixedOffset;
      layout.height = std::max(layout.height, model.top(layout.offsets[i], i));
    } else if (model.items[i].pinned) {
      pinned.push_back(i);
    }
  }
  // Coarse alignment first wastes no byte between powers of two.
  llvm::sort(pinned, [&](int32_t a, int32_t b) {
    return std::make_pair(-model.items[a].alignment, a) <
           std::make_pair(-model.items[b].alignment, b);
  });
  std::vector<std::pair<int64_t, int64_t>> taken;
  int64_t work = 0;
  for (int32_t item : pinned) {
    layout.offsets[item] = findOffset(model, layout.offsets, item, Fit::First, taken, work);
    layout.height = std::max(layout.height, model.top(layout.offsets[item], item));
  }
  return layout;
}

Layout memopt::planning::arena::placeInOrder(const Model &model, llvm::ArrayRef<int32_t> order,
                                             Fit fit, int64_t limit, int64_t &work) {
  Layout layout = placeFixed(model);
  std::vector<std::pair<int64_t, int64_t>> taken;
  for (int32_t item : order) {
    if (layout.offsets[item] != unplaced)
      continue;
    int64_t offset = findOffset(model, layout.offsets, item, fit, taken, work);
    layout.offsets[item] = offset;
    layout.height = std::max(layout.height, model.top(offset, item));
    if (layout.height >= limit) {
      layout.height = unlimited;
      return layout;
    }
  }
  return layout;
}

Layout memopt::planning::arena::solveGreedy(const Model &model, int64_t target, int64_t &work) {
  int32_t count = model.items.size();
  enum Key { Size, Area, Lifetime, Start };
  auto orderBy = [&](Key key) {
    std::vector<int32_t> order(count);
    for (int32_t i = 0; i < count; ++i)
      order[i] = i;
    auto rank = [&](int32_t i) {
      const Item &item = model.items[i];
      switch (key) {
      case Size:
        return std::make_tuple(-double(item.size), -item.area, i);
      case Area:
        return std::make_tuple(-item.area, -double(item.size), i);
      case Lifetime:
        return std::make_tuple(double(item.lower - item.upper), -double(item.size), i);
      case Start:
        return std::make_tuple(double(item.lower), -double(item.size), i);
      }
      return std::make_tuple(0.0, 0.0, i);
    };
    llvm::sort(order, [&](int32_t a, int32_t b) { return rank(a) < rank(b); });
    return order;
  };
  Layout best;
  for (Fit fit : {Fit::First, Fit::Best})
    for (Key key : {Size, Lifetime, Area, Start}) {
      Layout layout = placeInOrder(model, orderBy(key), fit, best.height, work);
      if (layout.height < best.height)
        best = std::move(layout);
      if (best.height <= target)
        return best;
    }
  return best;
}
