//===- ArenaModel.cpp - arena problems in the form solvers use ---------------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ArenaModel.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <numeric>

using namespace memopt::planning;
using namespace memopt::planning::arena;

std::vector<std::pair<int64_t, int64_t>>
memopt::planning::arena::effectiveRanges(const ArenaProblem &problem) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  int64_t begin = unlimited, end = -unlimited;
  for (const ArenaBuffer &buffer : problem.buffers) {
    ranges.emplace_back(buffer.lower, buffer.upper);
    if (buffer.lower < buffer.upper) {
      begin = std::min(begin, buffer.lower);
      end = std::max(end, buffer.upper);
    }
  }
  // A range stretched to the end of an inner loop may then reach into an outer one: innermost
  // first, which for nested loops is the order of their ends, the later start first.
  std::vector<ArenaLoop> loops = problem.loops;
  llvm::sort(loops, [](const ArenaLoop &a, const ArenaLoop &b) {
    return std::make_pair(a.upper, -a.lower) < std::make_pair(b.upper, -b.lower);
  });
  for (size_t i = 0; i < ranges.size(); ++i) {
    auto &[lower, upper] = ranges[i];
    if (lower >= upper)
      continue;
    if (problem.buffers[i].pinnedAtBottom) {
      ranges[i] = {begin, end};
      continue;
    }
    for (const ArenaLoop &loop : loops)
      if (lower < loop.lower && loop.lower < upper && upper < loop.upper)
        upper = loop.upper;
    // The loop may have reached past every other buffer.
    end = std::max(end, upper);
  }
  for (size_t i = 0; i < ranges.size(); ++i)
    if (problem.buffers[i].pinnedAtBottom && ranges[i].first < ranges[i].second)
      ranges[i].second = end;
  return ranges;
}

Model::Model(const ArenaProblem &problem, bool inPlace) {
  addItems(problem, inPlace);
  buildIndex();
  lowerBound = boundOf();
  numOverlaps = countOverlaps();
}

/// Puts each buffer's successor in place into `next`; -1 where there is none.
static std::vector<int32_t> chainsOf(const ArenaProblem &problem,
                                     llvm::ArrayRef<std::pair<int64_t, int64_t>> ranges) {
  auto free = [&](int32_t i) {
    const ArenaBuffer &buffer = problem.buffers[i];
    return buffer.size && ranges[i].first < ranges[i].second && buffer.fixedOffset < 0 &&
           !buffer.pinnedAtBottom;
  };
  std::vector<int32_t> next(ranges.size(), -1);
  for (int32_t i = 0, n = ranges.size(); i < n; ++i) {
    int32_t from = problem.buffers[i].inPlaceOf;
    if (from >= 0 && free(i) && free(from) && ranges[from].second - 1 == ranges[i].first &&
        ranges[from].first < ranges[i].first)
      next[from] = i;
  }
  return next;
}

void Model::addItems(const ArenaProblem &problem, bool inPlace) {
  auto ranges = effectiveRanges(problem);
  int32_t count = problem.buffers.size();
  std::vector<int64_t> times;
  for (auto [lower, upper] : ranges) {
    times.push_back(lower);
    times.push_back(upper);
    if (lower < upper)
      times.push_back(upper - 1); // where a buffer in place may begin
  }
  llvm::sort(times);
  times.erase(std::unique(times.begin(), times.end()), times.end());
  auto section = [&](int64_t time) {
    return int32_t(std::lower_bound(times.begin(), times.end(), time) - times.begin());
  };
  sections = times.empty() ? 0 : times.size() - 1;

  std::vector<int32_t> next(count, -1);
  if (inPlace)
    next = chainsOf(problem, ranges);
  std::vector<bool> isSuccessor(count, false);
  for (int32_t to : next)
    if (to >= 0)
      isSuccessor[to] = true;

  itemOf.assign(count, -1);
  for (int32_t i = 0; i < count; ++i) {
    const ArenaBuffer &first = problem.buffers[i];
    if (isSuccessor[i] || !first.size || ranges[i].first >= ranges[i].second)
      continue;
    Item item{int32_t(pieces.size()), 0, section(ranges[i].first), 0, 0, 1, first.fixedOffset,
              first.pinnedAtBottom,   0};
    int32_t index = items.size();
    for (int32_t at = i; at >= 0; at = next[at]) {
      const ArenaBuffer &buffer = problem.buffers[at];
      itemOf[at] = index;
      commonAlignment =
          commonAlignment == 0 || commonAlignment == buffer.alignment ? buffer.alignment : 1;
      tied |= at != i;
      // A common multiple; checkArena keeps alignments small enough.
      item.alignment =
          item.alignment / std::__gcd(item.alignment, buffer.alignment) * buffer.alignment;
      item.size = std::max(item.size, buffer.size);
      item.area += double(buffer.size) * (ranges[at].second - ranges[at].first);
      item.upper = section(ranges[at].second);
      Piece piece{section(ranges[at].first), item.upper, buffer.size, index};
      if (at != i) {
        // The shared time belongs to the larger of the two.
        Piece &last = pieces.back();
        if (last.size == piece.size) {
          last.upper = piece.upper;
          continue;
        }
        if (last.size > piece.size)
          piece.lower = last.upper;
        else
          last.upper = piece.lower;
        if (piece.lower == piece.upper)
          continue;
        if (last.lower == last.upper)
          pieces.pop_back();
      }
      pieces.push_back(piece);
    }
    item.pieceCount = pieces.size() - item.firstPiece;
    items.push_back(item);
    plain &= item.pieceCount == 1 && item.alignment == 1 && item.fixedOffset < 0 && !item.pinned;
  }
}

void Model::buildIndex() {
  while (leaves < sections)
    leaves *= 2;
  auto forEachNode = [&](const Piece &piece, auto visit) {
    for (int64_t l = piece.lower + leaves, r = piece.upper + leaves; l < r; l /= 2, r /= 2) {
      if (l & 1)
        visit(l++);
      if (r & 1)
        visit(--r);
    }
  };
  nodeStart.assign(2 * leaves + 1, 0);
  bornStart.assign(sections + 2, 0);
  for (const Piece &piece : pieces) {
    forEachNode(piece, [&](int64_t node) { ++nodeStart[node + 1]; });
    ++bornStart[piece.lower + 1];
  }
  for (size_t i = 1; i < nodeStart.size(); ++i)
    nodeStart[i] += nodeStart[i - 1];
  for (size_t i = 1; i < bornStart.size(); ++i)
    bornStart[i] += bornStart[i - 1];
  nodePieces.resize(nodeStart.back());
  born.resize(pieces.size());
  std::vector<int32_t> nodeFill(nodeStart.begin(), nodeStart.end() - 1);
  std::vector<int32_t> bornFill(bornStart.begin(), bornStart.end() - 1);
  for (int32_t i = 0, n = pieces.size(); i < n; ++i) {
    forEachNode(pieces[i], [&](int64_t node) { nodePieces[nodeFill[node]++] = i; });
    born[bornFill[pieces[i].lower]++] = i;
  }
}

/// Every pair meets where its later piece is born.
int64_t Model::countOverlaps() const {
  std::vector<int32_t> births(sections + 1, 0), deaths(sections + 1, 0);
  for (const Piece &piece : pieces) {
    ++births[piece.lower];
    ++deaths[piece.upper];
  }
  int64_t alive = 0, pairs = 0;
  for (int32_t at = 0; at < sections; ++at) {
    alive -= deaths[at];
    pairs += alive * births[at] + int64_t(births[at]) * (births[at] - 1) / 2;
    alive += births[at];
  }
  return pairs;
}

static int64_t roundUp(int64_t size, int64_t unit) { return (size + unit - 1) / unit * unit; }

std::vector<int64_t> Model::loads(int64_t unit) const {
  std::vector<int64_t> loads(sections + 1, 0); // first what changes at the begin of each
  for (const Piece &piece : pieces) {
    loads[piece.lower] += roundUp(piece.size, unit);
    loads[piece.upper] -= roundUp(piece.size, unit);
  }
  std::partial_sum(loads.begin(), loads.end(), loads.begin());
  loads.pop_back();
  return loads;
}

/// The load; with one alignment A everywhere every buffer but the highest takes a multiple of A.
int64_t Model::boundOf() const {
  int64_t unit = std::max<int64_t>(commonAlignment, 1), slack = 0;
  // The highest item may end anywhere in its last unit, and a smaller piece leaves its item's rest.
  for (const Piece &piece : pieces)
    slack = std::max(slack, roundUp(piece.size, unit) - piece.size);
  int64_t bound = 0;
  for (auto [load, padded] : llvm::zip_equal(loads(), loads(unit)))
    bound = std::max({bound, load, padded - slack});
  for (const Item &item : items)
    if (item.fixedOffset >= 0)
      bound = std::max(bound, item.fixedOffset + item.size);
  return bound;
}

std::vector<int64_t> Model::offsetsOfBuffers(const Layout &layout) const {
  std::vector<int64_t> offsets(itemOf.size(), 0);
  for (size_t i = 0; i < itemOf.size(); ++i)
    if (itemOf[i] >= 0)
      offsets[i] = layout.offsets[itemOf[i]];
  return offsets;
}

void Model::measure(Layout &layout) const {
  layout.height = 0;
  for (int32_t i = 0, n = items.size(); i < n; ++i)
    layout.height = std::max(layout.height, top(layout.offsets[i], i));
}
