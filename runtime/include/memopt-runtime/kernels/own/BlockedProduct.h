//===- BlockedProduct.h - matrix products of anything that packs --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Our own matrix product. What it multiplies is known only through three functions: pack a block of
// the left operand, pack a block of the right one, store a block of the result. A strided matrix,
// or the patches of an image that a convolution reads (never written out as a matrix), are the same
// to it.
//
// The result is cut into blocks; one thread makes a block with all its depth, in a fixed order, so
// bits do not depend on threads. Where blocks are few and depth is large the depth is cut too, by a
// rule on shapes, and the partial sums are added in order. Where they are many a thread makes a few
// blocks of the same columns together, and packs the right operand for all of them once.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_RUNTIME_KERNELS_OWN_BLOCKEDPRODUCT_H
#define MEMOPT_RUNTIME_KERNELS_OWN_BLOCKEDPRODUCT_H

#include "memopt-runtime/kernels/own/BlockKernels.h"
#include "memopt-runtime/kernels/own/SlotTasks.h"
#include <algorithm>
#include <limits>
#include <vector>

namespace memopt::libraries {

inline int64_t ceilDivide(int64_t value, int64_t by) { return (value + by - 1) / by; }
inline int64_t roundUp(int64_t value, int64_t by) { return ceilDivide(value, by) * by; }
/// The size of as many blocks as their limit asks for, all of about one size: a small one at the end
/// would cost as much packing as the others. `most` is a multiple of `panel`.
inline int64_t cutEvenly(int64_t extent, int64_t most, int64_t panel) {
  return roundUp(ceilDivide(extent, std::max<int64_t>(1, ceilDivide(extent, most))), panel);
}
/// Every part of a workspace begins on a cache line.
inline int64_t alignBytes(int64_t bytes) { return roundUp(bytes, 64); }

/// Extents of one product of a call, in elements.
struct ProductShape {
  int64_t rows, columns, depth;
};

/// How far the products of a run go.
struct ProductLimits {
  int64_t rows = std::numeric_limits<int64_t>::max(), depth = rows;
};

/// The operands and the result of the products of a call; `product` counts them (batch entries,
/// groups). Ranges given to pack and store lie inside shape(product) and inside one block.
template <typename Stored, typename Computed> class ProductOperands {
public:
  virtual ~ProductOperands() = default;
  virtual void packRows(Panels<Computed> panels, int64_t product, int64_t rowBegin, int64_t rows,
                        int64_t depthBegin, int64_t depth) const = 0;
  virtual void packColumns(Panels<Computed> panels, int64_t product, int64_t columnBegin,
                           int64_t columns, int64_t depthBegin, int64_t depth) const = 0;
  /// `block` has rows of `stride` elements.
  virtual void store(int64_t product, int64_t rowBegin, int64_t rows, int64_t columnBegin,
                     int64_t columns, const Computed *block, int64_t stride) const = 0;
};

/// Limits of a block; packing functions may keep tables of this many pointers on the stack.
constexpr int64_t maxBlockRows = 96;
constexpr int64_t maxBlockColumns = 256;
constexpr int64_t maxBlockDepth = 256;
/// Blocks that a thread makes together, as long as each thread has so many tasks.
constexpr int64_t maxGroupBlocks = 4;
constexpr int64_t leastTasksOfThread = 8;

template <typename Stored, typename Computed> class BlockedProduct {
public:
  BlockedProduct(std::vector<ProductShape> shapes, int threads)
      : kernels(blockKernels<Stored, Computed>()), shapes(std::move(shapes)), slots(threads) {
    for (const ProductShape &shape : this->shapes) {
      blockRows = std::max(blockRows, cutEvenly(shape.rows, maxBlockRows, kernels.rowsPerPanel));
      blockColumns = std::max(blockColumns,
                              cutEvenly(shape.columns, maxBlockColumns, kernels.columnsPerPanel));
      blockDepth = std::max(blockDepth, std::min(maxBlockDepth, shape.depth));
    }
    for (const ProductShape &shape : this->shapes) {
      firstBlock.push_back(blocks);
      blocks += rowBlocks(shape) * columnBlocks(shape);
    }
    chooseDepthCuts();
    chooseGroups(threads);
    slots = static_cast<int>(std::min<int64_t>(slots, groups * depthCuts));
  }

  int64_t workspaceBytes() const {
    return slots * slotBytes() + (depthCuts > 1 ? blocks * depthCuts * partialBytes() : 0);
  }

  const char *name() const { return kernels.name; }

  /// Of each product its first rows, and of its sums their first terms, up to a limit.
  void run(const ProductOperands<Stored, Computed> &operands, void *workspace, ThreadPool &pool,
           const ProductLimits &limits = {}) const {
    char *partials = static_cast<char *>(workspace) + slots * slotBytes();
    runTasks(pool, groups * depthCuts, slots, slotBytes(), workspace,
             [&](int64_t task, char *slot) { runTask(operands, task, slot, partials, limits); });
    if (depthCuts > 1)
      pool.parallelFor(blocks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block)
          addPartials(operands, block, partials, limits);
      });
  }

private:
  /// A block of the result, or several, one below the other.
  struct Block {
    int64_t product, rowBegin, rows, columnBegin, columns;
  };

  int64_t rowBlocks(const ProductShape &shape) const { return ceilDivide(shape.rows, blockRows); }
  int64_t columnBlocks(const ProductShape &shape) const {
    return ceilDivide(shape.columns, blockColumns);
  }
  int64_t rowGroups(const ProductShape &shape) const {
    return ceilDivide(rowBlocks(shape), groupBlocks);
  }
  int64_t rowPanelBytes() const { return alignBytes(blockRows * blockDepth * sizeof(Computed)); }
  int64_t columnPanelBytes() const {
    return alignBytes(blockColumns * blockDepth * sizeof(Computed));
  }
  int64_t partialBytes() const { return alignBytes(blockRows * blockColumns * sizeof(Computed)); }
  int64_t slotBytes() const {
    return rowPanelBytes() + columnPanelBytes() + groupBlocks * partialBytes();
  }

  /// Enough tasks for a few dozen threads, each with a depth worth its cost.
  void chooseDepthCuts() {
    int64_t depth = shapes.empty() ? 0 : shapes.front().depth;
    if (blocks > 0 && blocks < 16)
      depthCuts = std::max<int64_t>(1, std::min(16 / blocks, depth / (4 * maxBlockDepth)));
  }

  /// Of blocks that are not cut: those have tasks enough for few threads only.
  void chooseGroups(int threads) {
    if (depthCuts == 1)
      groupBlocks = std::clamp<int64_t>(blocks / (leastTasksOfThread * threads), 1, maxGroupBlocks);
    for (const ProductShape &shape : shapes) {
      firstGroup.push_back(groups);
      groups += rowGroups(shape) * columnBlocks(shape);
    }
  }

  /// `first` counts what products have of blocks of `height` rows. Behind the limit there are none.
  Block locate(int64_t index, const std::vector<int64_t> &first, int64_t height,
               const ProductLimits &limits) const {
    int64_t product = std::upper_bound(first.begin(), first.end(), index) - first.begin() - 1;
    const ProductShape &shape = shapes[product];
    int64_t within = index - first[product];
    int64_t rowBegin = within / columnBlocks(shape) * height;
    int64_t columnBegin = within % columnBlocks(shape) * blockColumns;
    int64_t rows = std::min(shape.rows, limits.rows) - rowBegin;
    return {product, rowBegin, std::clamp<int64_t>(rows, 0, height), columnBegin,
            std::min(blockColumns, shape.columns - columnBegin)};
  }

  /// Calls body(block, sums) for each block of a group; sums of a block lie behind the last one's.
  template <typename Body>
  void forEachBlock(const Block &group, Computed *sums, Body &&body) const {
    for (int64_t row = 0; row < group.rows; row += blockRows) {
      Block block = group;
      block.rowBegin += row;
      block.rows = std::min(blockRows, group.rows - row);
      body(block, sums);
      sums = reinterpret_cast<Computed *>(reinterpret_cast<char *>(sums) + partialBytes());
    }
  }

  void runTask(const ProductOperands<Stored, Computed> &operands, int64_t task, char *slot,
               char *partials, const ProductLimits &limits) const {
    Block group = locate(task / depthCuts, firstGroup, groupBlocks * blockRows, limits);
    if (group.rows == 0)
      return;
    int64_t cut = task % depthCuts, depth = std::min(shapes[group.product].depth, limits.depth);
    auto *rows = reinterpret_cast<Computed *>(slot);
    auto *columns = reinterpret_cast<Computed *>(slot + rowPanelBytes());
    char *result = depthCuts > 1 ? partials + task * partialBytes()
                                 : slot + rowPanelBytes() + columnPanelBytes();
    auto *sums = reinterpret_cast<Computed *>(result);
    int64_t begin = cut * depth / depthCuts, end = (cut + 1) * depth / depthCuts;
    for (int64_t d = begin; d < end; d += blockDepth) {
      int64_t steps = std::min(blockDepth, end - d);
      operands.packColumns({columns, kernels.columnsPerPanel, steps}, group.product,
                           group.columnBegin, group.columns, d, steps);
      forEachBlock(group, sums, [&](const Block &block, Computed *target) {
        operands.packRows({rows, kernels.rowsPerPanel, steps}, block.product, block.rowBegin,
                          block.rows, d, steps);
        kernels.multiply(ceilDivide(block.rows, kernels.rowsPerPanel),
                         ceilDivide(block.columns, kernels.columnsPerPanel), steps, rows,
                         kernels.rowsPerPanel * steps, 1, kernels.rowsPerPanel, columns,
                         kernels.columnsPerPanel * steps, kernels.columnsPerPanel, target,
                         blockColumns, d != begin);
      });
    }
    forEachBlock(group, sums, [&](const Block &block, Computed *target) {
      // A product of no depth (taps of a strided convolution that meet no output) is zero.
      if (begin == end)
        std::fill(target, target + blockRows * blockColumns, Computed(0));
      if (depthCuts == 1)
        operands.store(block.product, block.rowBegin, block.rows, block.columnBegin, block.columns,
                       target, blockColumns);
    });
  }

  void addPartials(const ProductOperands<Stored, Computed> &operands, int64_t index, char *partials,
                   const ProductLimits &limits) const {
    Block block = locate(index, firstBlock, blockRows, limits);
    if (block.rows == 0)
      return;
    char *first = partials + index * depthCuts * partialBytes();
    auto *sums = reinterpret_cast<Computed *>(first);
    for (int64_t cut = 1; cut < depthCuts; ++cut) {
      auto *more = reinterpret_cast<const Computed *>(first + cut * partialBytes());
      for (int64_t i = 0; i < blockRows * blockColumns; ++i)
        sums[i] += more[i];
    }
    operands.store(block.product, block.rowBegin, block.rows, block.columnBegin, block.columns,
                   sums, blockColumns);
  }

  const BlockKernels<Stored, Computed> &kernels;
  std::vector<ProductShape> shapes;
  std::vector<int64_t> firstBlock, firstGroup; ///< of each product
  int64_t blockRows = 0, blockColumns = 0, blockDepth = 0;
  int64_t blocks = 0, depthCuts = 1, groupBlocks = 1, groups = 0;
  int slots;
};

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_KERNELS_OWN_BLOCKEDPRODUCT_H
