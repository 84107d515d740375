//===- ArenaGreedy.cpp - one pass over the buffers in a good order -----------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ten orders, as in TFLite (decreasing size), XLA (size, then duration), TVM and MiniMalloc's
// survey, and by contention, after TelaMalloc (Maas et al., ASPLOS 2022). Placing an item costs a
// look at each placed piece that shares time with it and a sort of those: for training traces, where
// most buffers are short, far from quadratic.
//
//===----------------------------------------------------------------------===//

#include "ArenaModel.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <map>

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

namespace {

/// What has been placed, by offset, in blocks. A walk up from the bottom, for first fit to the
/// first hole: where nearly everything lives at once, that beats sorting each item's neighbours.
class OffsetList {
public:
  /// `layout`: what has been placed before.
  OffsetList(const Model &model, const Layout &layout);

  /// findOffset; but an item of several pieces is looked at as one of the largest size throughout.
  int64_t findOffset(int32_t item, Fit fit, int64_t &work) const {
    const Item &data = model.items[item];
    int64_t candidate = model.align(floor, item), best = -1, bestSlack = unlimited;
    for (const Block &block : blocks) {
      if (block.lower >= data.upper || block.upper <= data.lower)
        continue;
      work += int64_t(block.entries.size()) / 4;
      for (const Entry &entry : block.entries) {
        bool alive = (entry.lower < data.upper) & (data.lower < entry.upper);
        int64_t slack = entry.offset - data.size - candidate;
        if (alive & (slack >= 0)) {
          if (fit == Fit::First)
            return candidate;
          if (slack < bestSlack) {
            bestSlack = slack;
            best = candidate;
          }
        }
        int64_t behind = alive ? entry.end : 0;
        if (behind > candidate)
          candidate = model.align(behind, item);
      }
    }
    return best >= 0 ? best : candidate;
  }
  void add(int32_t item, int64_t offset) {
    for (const Piece &piece : model.piecesOf(item))
      add(Entry{offset, offset + piece.size, piece.lower, piece.upper});
  }

private:
  static constexpr size_t blockSize = 256;
  struct Entry {
    int64_t offset, end;
    int32_t lower, upper;
  };
  void add(const Entry &entry) {
    auto lessThan = [](const Entry &a, const Entry &b) { return a.offset < b.offset; };
    if (blocks.empty())
      blocks.emplace_back();
    size_t at = 0;
    while (at + 1 < blocks.size() && blocks[at + 1].entries.front().offset <= entry.offset)
      ++at;
    Block &block = blocks[at];
    block.entries.insert(
        std::upper_bound(block.entries.begin(), block.entries.end(), entry, lessThan), entry);
    block.lower = std::min(block.lower, entry.lower);
    block.upper = std::max(block.upper, entry.upper);
    if (block.entries.size() < blockSize)
      return;
    Block upperHalf;
    upperHalf.entries.assign(block.entries.begin() + blockSize / 2, block.entries.end());
    block.entries.resize(blockSize / 2);
    block.measure();
    upperHalf.measure();
    blocks.insert(blocks.begin() + at + 1, std::move(upperHalf));
  }

  struct Block {
    std::vector<Entry> entries;
    int32_t lower = std::numeric_limits<int32_t>::max(), upper = 0; ///< hull in time
    void measure() {
      lower = std::numeric_limits<int32_t>::max();
      upper = 0;
      for (const Entry &entry : entries) {
        lower = std::min(lower, entry.lower);
        upper = std::max(upper, entry.upper);
      }
    }
  };
  const Model &model;
  int64_t floor = 0; ///< below it nothing is free at any time
  std::vector<Block> blocks;
};

} // namespace

/// Weights and other state live throughout, thousands side by side at the bottom: no walk begins
/// with them.
OffsetList::OffsetList(const Model &model, const Layout &layout) : model(model) {
  Entry always{0, 0, std::numeric_limits<int32_t>::max(), 0};
  int64_t finest = unlimited, smallest = unlimited;
  std::vector<int32_t> placed;
  for (int32_t i = 0, n = model.items.size(); i < n; ++i) {
    const Item &item = model.items[i];
    always.lower = std::min(always.lower, item.lower);
    always.upper = std::max(always.upper, item.upper);
    if (layout.offsets[i] != unplaced) {
      placed.push_back(i);
      continue;
    }
    finest = std::min(finest, item.alignment);
    smallest = std::min(smallest, item.size);
  }
  llvm::sort(placed, [&](int32_t a, int32_t b) {
    return std::make_pair(layout.offsets[a], a) < std::make_pair(layout.offsets[b], b);
  });
  bool rises = true;
  for (int32_t i : placed) {
    const Item &item = model.items[i];
    int64_t offset = layout.offsets[i];
    auto next = static_cast<int64_t>(llvm::alignTo(floor, finest)) + smallest;
    rises = rises && item.pieceCount == 1 && item.lower == always.lower &&
            item.upper == always.upper && next > offset;
    if (rises)
      floor = std::max(floor, offset + item.size);
    else
      add(i, offset);
  }
}

/// placeInOrder for many items that are alive together.
static Layout placeDense(const Model &model, Layout layout, llvm::ArrayRef<int32_t> order, Fit fit,
                         int64_t limit, int64_t &work) {
  OffsetList placed(model, layout);
  std::vector<std::pair<int64_t, int64_t>> taken;
  for (int32_t item : order) {
    if (layout.offsets[item] != unplaced)
      continue;
    // First fit stops early for an item of several pieces too, at the price of the room above the
    // smaller ones.
    layout.offsets[item] = fit == Fit::First || model.items[item].pieceCount == 1
                               ? placed.findOffset(item, fit, work)
                               : findOffset(model, layout.offsets, item, fit, taken, work);
    layout.height = std::max(layout.height, model.top(layout.offsets[item], item));
    if (layout.height >= limit) {
      layout.height = unlimited;
      return layout;
    }
    placed.add(item, layout.offsets[item]);
  }
  return layout;
}

/// Places the items in this order after those of `layout`. Gives up, with an unlimited height, once
/// an item ends above `limit`.
static Layout placeInOrder(const Model &model, Layout layout, llvm::ArrayRef<int32_t> order,
                           Fit fit, int64_t limit, int64_t &work) {
  int64_t count = model.items.size();
  if (model.overlaps() > count * count / 200)
    return placeDense(model, std::move(layout), order, fit, limit, work);
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

/// Grows the layout from the bottom: of the items that may lie lowest, each on top of what is
/// placed, the first in `order` comes next. It leaves few holes where many items of like length
/// live together.
static Layout placeUpwards(const Model &model, Layout layout, llvm::ArrayRef<int32_t> order,
                           int64_t &work) {
  std::vector<int64_t> lowest(model.items.size(), layout.height);
  std::vector<int32_t> rank(model.items.size());
  // By the lowest offset that was known when they came, with their ranks. Offsets only grow, so a
  // list that is begun gets no more.
  std::map<int64_t, std::vector<std::pair<int32_t, int32_t>>> waiting;
  for (int32_t i = 0, n = order.size(); i < n; ++i) {
    int32_t item = order[i];
    rank[item] = i;
    lowest[item] = model.align(lowest[item], item);
    if (layout.offsets[item] == unplaced)
      waiting[lowest[item]].emplace_back(i, item);
  }
  while (!waiting.empty()) {
    auto first = waiting.extract(waiting.begin());
    int64_t offset = first.key();
    llvm::sort(first.mapped());
    for (auto [_, item] : first.mapped()) {
      if (lowest[item] != offset) {
        waiting[lowest[item]].emplace_back(rank[item], item); // pushed up since
        continue;
      }
      layout.offsets[item] = offset;
      layout.height = std::max(layout.height, model.top(offset, item));
      for (const Piece &piece : model.piecesOf(item))
        model.forEachOverlap(piece, [&](int32_t other) {
          ++work;
          int32_t above = model.pieces[other].item;
          int64_t end = offset + piece.size;
          if (layout.offsets[above] == unplaced && lowest[above] < end)
            lowest[above] = model.align(end, above);
        });
    }
  }
  return layout;
}

/// By item, the most bytes that are alive at once during its life: where they are many, little else
/// may lie where it does.
static std::vector<double> findCrowds(const Model &model) {
  // Level k has the most of the 2^k sections from each section on.
  std::vector<std::vector<int64_t>> most{model.loads()};
  for (size_t half = 1; 2 * half <= most[0].size(); half *= 2) {
    std::vector<int64_t> &below = most.back(), level(most[0].size() - 2 * half + 1);
    for (size_t i = 0; i < level.size(); ++i)
      level[i] = std::max(below[i], below[i + half]);
    most.push_back(std::move(level));
  }
  std::vector<double> crowds(model.items.size());
  for (const Piece &piece : model.pieces) {
    auto level = llvm::Log2_32(piece.upper - piece.lower);
    int64_t crowd = std::max(most[level][piece.lower], most[level][piece.upper - (1 << level)]);
    crowds[piece.item] = std::max(crowds[piece.item], static_cast<double>(crowd));
  }
  return crowds;
}

Layout memopt::planning::arena::solveGreedy(const Model &model, int64_t target, int64_t &work) {
  int32_t count = model.items.size();
  enum Key { Size, Area, Lifetime, Start, Crowd };
  std::vector<double> crowds;
  auto orderBy = [&](Key key) {
    if (key == Crowd && crowds.empty())
      crowds = findCrowds(model);
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
      case Crowd:
        return std::make_tuple(-crowds[i], double(item.lower - item.upper), i);
      }
      return std::make_tuple(0.0, 0.0, i);
    };
    llvm::sort(order, [&](int32_t a, int32_t b) { return rank(a) < rank(b); });
    return order;
  };
  constexpr int64_t workLimit = 150000000;
  const Layout fixed = placeFixed(model);
  Layout best;
  for (Fit fit : {Fit::First, Fit::Best})
    for (Key key : {Size, Lifetime, Area, Start, Crowd}) {
      Layout layout = placeInOrder(model, fixed, orderBy(key), fit, best.height, work);
      if (layout.height < best.height)
        best = std::move(layout);
      // Ten orders cost more than they bring where one costs seconds.
      if (best.height <= target || work > workLimit)
        return best;
    }
  if (model.overlaps() > workLimit / 10)
    return best;
  for (Key key : {Lifetime, Area, Size}) {
    Layout layout = placeUpwards(model, fixed, orderBy(key), work);
    if (layout.height < best.height)
      best = std::move(layout);
    if (best.height <= target)
      return best;
  }
  return best;
}
