//===- ArenaExact.cpp - depth-first search over canonical layouts ------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// After MiniMalloc (Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated
// Machine Learning", ASPLOS 2023). Items are placed by non-decreasing offset, ties by rank: every
// layout can be pushed down into one that such an order makes. Along the way
//   - no item goes above where an unplaced one could end beneath it (that gap could be filled
//   first);
//   - each section of time keeps a floor, below which nothing unplaced there can lie, and the bytes
//   still
//     to place; floor + bytes above the capacity ends the branch;
//   - an item that nothing unplaced overlaps needs no second try;
//   - where no unplaced item crosses a time any more, both sides are searched apart.
// When the search ends without a layout, none exists within the capacity: that raises the lower
// bound.
//
//===----------------------------------------------------------------------===//

#include "ArenaSearch.h"

#include <algorithm>
#include <array>

using namespace memopt::planning;
using namespace memopt::planning::arena;

namespace {

enum class Status { Found, None, Stopped };

/// What items are ranked by, in decreasing order of each key.
enum class Key { Width, Area, Total, Size };
using Ranking = std::array<Key, 3>;

/// Steps that sorting takes for each entry.
constexpr int64_t kSortedEntry = 16;

class ExactLayoutSearch {
public:
  ExactLayoutSearch(const Model &model, int64_t capacity);
  /// `work` grows by what placing items takes. All runs together stop at `effortLimit` steps of any
  /// kind: candidates that do not fit, and parts that fall asunder, may take most of them.
  Status run(const Ranking &keys, int64_t nodeLimit, int64_t effortLimit, int64_t &work);
  bool isExhausted() const { return effort > effortLimit; }
  Layout solution;

private:
  /// Items in order of rank and the sections they span.
  struct Part {
    std::vector<int32_t> ranked;
    int32_t lower, upper;
  };
  struct Change {
    int32_t index;
    int64_t old;
  };
  Status solve(Part part);
  Status descend(const Part &part, const std::vector<int32_t> &open, int64_t minOffset,
                 int32_t minRank);
  Status splitAndDescend(const Part &part, const std::vector<int32_t> &open, int64_t offset,
                         int32_t rank, int32_t item);
  bool place(int32_t item, int64_t offset, bool &hatless);
  void unplace(int32_t item, size_t offsetMark, size_t floorMark);
  bool fits(const Part &part, int64_t offset) const;
  int64_t totalOver(int32_t item) const;

  const Model &model;
  int64_t capacity, nodesLeft = 0, effortLimit = 0;
  mutable int64_t effort = 0;
  int64_t *work = nullptr;
  Ranking keys{};
  std::vector<std::vector<int32_t>> overlaps, sectionItems;
  std::vector<int64_t> offsets, minOffsets, floors, totals;
  std::vector<int32_t> cuts; ///< unplaced items over the border behind each section
  std::vector<Change> offsetTrail, floorTrail;
  std::vector<int32_t> stamp;
  int32_t stamps = 0;
};

} // namespace

ExactLayoutSearch::ExactLayoutSearch(const Model &model, int64_t capacity)
    : model(model), capacity(capacity) {
  size_t count = model.items.size();
  overlaps.resize(count);
  sectionItems.resize(model.sections);
  floors.assign(model.sections, 0);
  totals.assign(model.sections, 0);
  cuts.assign(model.sections, 0);
  stamp.assign(model.sections, 0);
  Layout fixed = placeFixed(model);
  offsets = fixed.offsets;
  solution = fixed;
  minOffsets.assign(count, 0);
  for (const Piece &piece : model.pieces) {
    int32_t item = piece.item;
    if (offsets[item] != unplaced)
      continue;
    // Only pinned items are here already, and they lie below everything.
    minOffsets[item] = model.align(fixed.height, item);
    model.forEachOverlap(piece, [&](int32_t other) {
      if (offsets[model.pieces[other].item] == unplaced)
        overlaps[item].push_back(model.pieces[other].item);
    });
    for (int32_t at = piece.lower; at < piece.upper; ++at) {
      sectionItems[at].push_back(item);
      totals[at] += piece.size;
      floors[at] = fixed.height;
      if (at + 1 < piece.upper)
        ++cuts[at];
    }
  }
}

int64_t ExactLayoutSearch::totalOver(int32_t item) const {
  const Item &range = model.items[item];
  return *std::max_element(totals.begin() + range.lower, totals.begin() + range.upper);
}

Status ExactLayoutSearch::run(const Ranking &newKeys, int64_t nodeLimit, int64_t limit,
                              int64_t &workDone) {
  keys = newKeys;
  nodesLeft = nodeLimit;
  effortLimit = limit;
  work = &workDone;
  Part part{{}, 0, 0};
  Status status = Status::Found;
  for (int32_t section = 0; section < model.sections; ++section) {
    for (int32_t item : sectionItems[section])
      if (model.items[item].lower == section)
        part.ranked.push_back(item);
    if (cuts[section])
      continue;
    part.upper = section + 1;
    if (!part.ranked.empty() && (status = solve(std::move(part))) != Status::Found)
      return status;
    part = {{}, section + 1, 0};
  }
  model.measure(solution);
  return status;
}

Status ExactLayoutSearch::solve(Part part) {
  struct Rank {
    std::array<double, 3> by;
    int32_t item;
  };
  std::vector<Rank> ranks;
  for (int32_t item : part.ranked) {
    const Item &data = model.items[item];
    Rank rank{{}, item};
    for (size_t i = 0; i < keys.size(); ++i)
      rank.by[i] = keys[i] == Key::Width   ? data.area / double(data.size)
                   : keys[i] == Key::Area  ? data.area
                   : keys[i] == Key::Total ? double(totalOver(item))
                                           : double(data.size);
    ranks.push_back(rank);
    effort += model.items[item].upper - model.items[item].lower + kSortedEntry;
  }
  llvm::sort(ranks, [](const Rank &a, const Rank &b) {
    return a.by != b.by ? a.by > b.by : a.item < b.item;
  });
  for (size_t i = 0; i < ranks.size(); ++i)
    part.ranked[i] = ranks[i].item;
  std::vector<int32_t> open(part.ranked.size());
  for (size_t i = 0; i < open.size(); ++i)
    open[i] = i;
  return descend(part, open, 0, 0);
}

/// Places an item; says whether its neighbours' floors still leave room is up to `fits`.
bool ExactLayoutSearch::place(int32_t item, int64_t offset, bool &hatless) {
  const Item &data = model.items[item];
  int64_t end = offset + data.size;
  offsets[item] = offset;
  int32_t low = data.lower, high = data.lower;
  ++stamps;
  hatless = true;
  *work += int64_t(overlaps[item].size());
  effort += int64_t(overlaps[item].size()) + data.upper - data.lower;
  for (int32_t other : overlaps[item]) {
    if (offsets[other] != unplaced)
      continue;
    hatless = false;
    if (minOffsets[other] >= end)
      continue;
    offsetTrail.push_back({other, minOffsets[other]});
    minOffsets[other] = model.align(end, other);
    const Item &range = model.items[other];
    low = std::min(low, range.lower);
    high = std::max(high, range.upper);
    for (int32_t at = range.lower; at < range.upper; ++at)
      stamp[at] = stamps;
  }
  for (int32_t at = data.lower; at < data.upper; ++at) {
    floorTrail.push_back({at, floors[at]});
    floors[at] = end;
    totals[at] -= data.size;
  }
  effort += high - low;
  // No section's floor is below the lowest place left there.
  for (int32_t at = low; at < high; ++at) {
    if (stamp[at] != stamps)
      continue;
    int64_t lowest = unlimited;
    *work += int64_t(sectionItems[at].size());
    effort += int64_t(sectionItems[at].size());
    for (int32_t other : sectionItems[at])
      if (offsets[other] == unplaced)
        lowest = std::min(lowest, minOffsets[other]);
    if (lowest != unlimited && floors[at] < lowest) {
      floorTrail.push_back({at, floors[at]});
      floors[at] = lowest;
    }
    if (floors[at] + totals[at] > capacity)
      return false;
  }
  return true;
}

void ExactLayoutSearch::unplace(int32_t item, size_t offsetMark, size_t floorMark) {
  for (; floorTrail.size() > floorMark; floorTrail.pop_back())
    floors[floorTrail.back().index] = floorTrail.back().old;
  for (; offsetTrail.size() > offsetMark; offsetTrail.pop_back())
    minOffsets[offsetTrail.back().index] = offsetTrail.back().old;
  const Item &data = model.items[item];
  effort += data.upper - data.lower;
  for (int32_t at = data.lower; at < data.upper; ++at)
    totals[at] += data.size;
  offsets[item] = unplaced;
}

/// Everything still to come lies at `offset` or above.
bool ExactLayoutSearch::fits(const Part &part, int64_t offset) const {
  *work += (part.upper - part.lower) / 4;
  effort += part.upper - part.lower;
  for (int32_t at = part.lower; at < part.upper; ++at)
    if (std::max(floors[at], offset) + totals[at] > capacity &&
        (totals[at] || floors[at] > capacity))
      return false;
  return true;
}

Status ExactLayoutSearch::descend(const Part &part, const std::vector<int32_t> &open,
                                  int64_t minOffset, int32_t minRank) {
  if (nodesLeft-- <= 0)
    return Status::Stopped;
  std::vector<int32_t> left;
  left.reserve(open.size());
  effort += int64_t(open.size());
  int64_t minHeight = unlimited;
  for (int32_t rank : open) {
    int32_t item = part.ranked[rank];
    if (offsets[item] != unplaced)
      continue;
    left.push_back(rank);
    minHeight = std::min(minHeight, minOffsets[item] + model.items[item].size);
  }
  if (left.empty()) {
    for (int32_t item : part.ranked)
      solution.offsets[item] = offsets[item];
    return Status::Found;
  }
  *work += int64_t(left.size());
  std::vector<std::pair<int64_t, int32_t>> candidates;
  for (int32_t rank : left) {
    int64_t offset = minOffsets[part.ranked[rank]];
    if (offset < minHeight && (offset > minOffset || (offset == minOffset && rank >= minRank)))
      candidates.emplace_back(offset, rank);
  }
  llvm::sort(candidates);
  effort += kSortedEntry * int64_t(candidates.size());
  for (auto [offset, rank] : candidates) {
    if (effort > effortLimit)
      return Status::Stopped;
    int32_t item = part.ranked[rank];
    size_t offsetMark = offsetTrail.size(), floorMark = floorTrail.size();
    bool hatless = false;
    Status status = Status::None;
    if (place(item, offset, hatless) && fits(part, offset))
      status = splitAndDescend(part, left, offset, rank, item);
    unplace(item, offsetMark, floorMark);
    if (status != Status::None)
      return status;
    if (hatless)
      break;
  }
  return Status::None;
}

Status ExactLayoutSearch::splitAndDescend(const Part &part, const std::vector<int32_t> &open,
                                          int64_t offset, int32_t rank, int32_t item) {
  solution.offsets[item] = offset;
  const Item &data = model.items[item];
  std::vector<int32_t> borders{part.lower};
  for (int32_t at = data.lower; at + 1 < data.upper; ++at)
    if (--cuts[at] == 0)
      borders.push_back(at + 1);
  Status status = Status::Found;
  if (borders.size() == 1) {
    status = descend(part, open, offset, rank);
    if (status == Status::Found)
      for (int32_t other : part.ranked)
        if (offsets[other] != unplaced)
          solution.offsets[other] = offsets[other];
  } else {
    borders.push_back(part.upper);
    for (size_t i = 1; i < borders.size() && status == Status::Found; ++i) {
      Part side{{}, borders[i - 1], borders[i]};
      effort += int64_t(open.size());
      for (int32_t other : open) {
        const Item &range = model.items[part.ranked[other]];
        if (offsets[part.ranked[other]] == unplaced && range.lower < side.upper &&
            side.lower < range.upper)
          side.ranked.push_back(part.ranked[other]);
      }
      if (!side.ranked.empty())
        status = solve(std::move(side));
    }
  }
  for (int32_t at = data.lower; at + 1 < data.upper; ++at)
    ++cuts[at];
  return status;
}

ExactResult memopt::planning::arena::searchExactly(const Model &model, int64_t capacity,
                                                   int64_t budget, Layout &layout) {
  for (const Item &item : model.items)
    if (item.pieceCount != 1 || item.fixedOffset >= 0)
      return ExactResult::Unknown;
  ExactLayoutSearch search(model, capacity);
  // Rankings in turn, each for a while, then for longer: one of them often goes through at once.
  static constexpr Ranking rankings[] = {{Key::Width, Key::Area, Key::Total},
                                         {Key::Total, Key::Area, Key::Width},
                                         {Key::Total, Key::Width, Key::Area}};
  constexpr int64_t workPerUnit = 8; // its inner loops are that much shorter
  constexpr int64_t kEffort = 2;     // of what placing takes, the rest as much again
  int64_t work = 0;
  for (int64_t nodes = 2 * int64_t(model.items.size());; nodes *= 2)
    for (const Ranking &ranking : rankings) {
      Status status = search.run(ranking, nodes, kEffort * workPerUnit * budget, work);
      if (status == Status::Found) {
        layout = search.solution;
        return ExactResult::Found;
      }
      if (status == Status::None)
        return ExactResult::Impossible;
      if (work / workPerUnit > budget || search.isExhausted())
        return ExactResult::Unknown;
    }
}
