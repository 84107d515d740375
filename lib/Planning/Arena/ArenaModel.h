//===- ArenaModel.h - arena problems as solvers see them -------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Times become ranks ("sections"), loops are folded into the live ranges, and buffers that share an
// offset in place become one item of several pieces. An item has one offset; its pieces are
// disjoint in time and may differ in size. Nearly all items have one piece.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_LIB_PLANNING_ARENA_ARENAMODEL_H
#define MEMOPT_LIB_PLANNING_ARENA_ARENAMODEL_H

#include "memopt/Planning/Arena/Arena.h"

#include <limits>

namespace memopt::planning::arena {

constexpr int64_t unplaced = -1;
constexpr int64_t unlimited = std::numeric_limits<int64_t>::max() / 4;

struct Piece {
  int32_t lower, upper; ///< sections, half-open
  int64_t size;
  int32_t item;
};

struct Item {
  int32_t firstPiece, pieceCount;
  int32_t lower, upper; ///< hull of the pieces
  int64_t size;         ///< largest piece
  int64_t alignment;
  int64_t fixedOffset;
  bool pinned;
  double area; ///< bytes times time, in the caller's units
};

/// An offset for each item.
struct Layout {
  std::vector<int64_t> offsets;
  int64_t height = unlimited;
};

class Model {
public:
  /// Requires a checked problem. Without `inPlace` the permissions are ignored.
  Model(const ArenaProblem &problem, bool inPlace);

  std::vector<Item> items;
  std::vector<Piece> pieces; ///< those of one item stand together, in order of time
  int32_t sections = 0;
  int64_t lowerBound = 0;
  bool tied = false;           ///< buffers share an offset, which they need not
  bool plain = true;           ///< one piece and alignment 1 everywhere, nothing fixed
  std::vector<int32_t> itemOf; ///< by buffer; -1 when the buffer is empty

  llvm::ArrayRef<Piece> piecesOf(int32_t item) const {
    return llvm::ArrayRef(pieces).slice(items[item].firstPiece, items[item].pieceCount);
  }
  int64_t align(int64_t offset, int32_t item) const {
    int64_t unit = items[item].alignment;
    return unit == 1 ? offset : (offset + unit - 1) / unit * unit;
  }
  /// The end of an item at an offset: what it adds to the height.
  int64_t top(int64_t offset, int32_t item) const { return offset + items[item].size; }

  /// Bytes alive at once, by section; each piece takes whole units.
  std::vector<int64_t> loads(int64_t unit = 1) const;

  /// Pairs of pieces that share time.
  int64_t overlaps() const { return numOverlaps; }

  /// Calls visit(piece index) for every piece of another item that is alive during `piece`.
  template <typename Visit> void forEachOverlap(const Piece &piece, Visit visit) const {
    // Alive at the first section: one list for each node between that section's leaf and the root.
    for (int64_t node = piece.lower + leaves; node; node /= 2)
      for (int32_t at = nodeStart[node], end = nodeStart[node + 1]; at != end; ++at)
        if (pieces[nodePieces[at]].item != piece.item)
          visit(nodePieces[at]);
    // Born later, before our end.
    for (int32_t at = bornStart[piece.lower + 1], end = bornStart[piece.upper]; at < end; ++at)
      if (pieces[born[at]].item != piece.item)
        visit(born[at]);
  }

  std::vector<int64_t> offsetsOfBuffers(const Layout &layout) const;
  void measure(Layout &layout) const;

private:
  void addItems(const ArenaProblem &problem, bool inPlace);
  void buildIndex();
  int64_t boundOf() const;
  int64_t countOverlaps() const;

  int64_t leaves = 1, numOverlaps = 0;
  int64_t commonAlignment = 0;                ///< of all buffers; 1 if they differ
  std::vector<int32_t> nodeStart, nodePieces; ///< segment tree over sections, as compressed rows
  std::vector<int32_t> bornStart, born;       ///< pieces by first section
};

/// Every buffer's live range after loops are folded in.
std::vector<std::pair<int64_t, int64_t>> effectiveRanges(const ArenaProblem &problem);

enum class Fit { First, Best };

/// The lowest free offset of `item` (or the one in the tightest hole) among what `offsets` has
/// placed. `holes` is scratch. Adds the number of pieces looked at to `work`.
int64_t findOffset(const Model &model, llvm::ArrayRef<int64_t> offsets, int32_t item, Fit fit,
                   std::vector<std::pair<int64_t, int64_t>> &taken, int64_t &work);

/// Places pinned and fixed items; the start of every layout.
Layout placeFixed(const Model &model);

/// The best of the greedy orders.
Layout solveGreedy(const Model &model, int64_t target, int64_t &work);

} // namespace memopt::planning::arena

#endif // MEMOPT_LIB_PLANNING_ARENA_ARENAMODEL_H
