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
// to it. Where the left operand or the result lie as the inner loops would have them, they are read
// and written in place.
//
// The result is cut into blocks; one thread makes a block with all its depth, in a fixed order, so
// bits do not depend on threads. Where blocks are few and depth is large the depth is cut too, by a
// rule on shapes, and the partial sums are added in order. A thread makes a few blocks of the same
// columns together, if there are tasks enough, and packs the right operand for all of them once.
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

/// What of a product lies in memory as it is computed.
struct ProductPlaces {
  bool rows = false;   ///< the left operand
  bool result = false; ///< rows of the result
  bool adds = false;   ///< to a result in place, which `begin` fills; the depth is one block
};

/// A block that lies in memory.
template <typename Pointer> struct PlacedBlock {
  Pointer first;
  int64_t row, column; ///< elements from one to the next
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

  /// Of products with such places: where rows begin at a depth; row or column is 1.
  virtual PlacedBlock<const Computed *> findRows(int64_t, int64_t, int64_t) const { return {}; }
  /// Where a row of the result begins at a column; column is 1.
  virtual PlacedBlock<Computed *> findResult(int64_t, int64_t, int64_t) const { return {}; }
  /// What `store` would do besides, to a block of the result in place: before the product, and what
  /// is added to each row behind it, from a column on; null: nothing.
  virtual void begin(int64_t, int64_t, int64_t, int64_t, int64_t) const {}
  virtual const Computed *findBias(int64_t) const { return nullptr; }
};

/// Limits of a block; packing functions may keep tables of this many pointers on the stack.
constexpr int64_t maxBlockRows = 96;
constexpr int64_t maxBlockColumns = 256;
constexpr int64_t maxBlockDepth = 384;
/// Of a block of columns beside rows in place, which share the second cache with it.
constexpr int64_t maxElementsBesideRows = 192 * maxBlockDepth;
/// Blocks that a thread makes together, as long as each thread has so many tasks. More of them if
/// rows and result lie in memory: then a group needs no room for their sums.
constexpr int64_t maxGroupBlocks = 4;
constexpr int64_t maxPlacedGroupBlocks = 8;
constexpr int64_t leastTasksOfThread = 3;
/// Multiply-adds that take as long as packing an element.
constexpr int64_t packingWork = 16;
/// Of a product of fewer blocks the depth is cut, into parts of at least so many steps.
constexpr int64_t leastTasks = 16, leastDepthOfCut = 1024;
/// Where a thread would have fewer tasks the blocks are narrower, of at least so many panels.
constexpr int64_t leastTasksOfFewRows = 4;
constexpr int64_t leastColumnPanels = 2;

/// Whether an operand whose lanes lie side by side may be read as it lies, with steps of the depth so
/// many elements apart: further apart the steps of a block meet in a few sets of the caches.
template <typename Stored> bool areNearSteps(int64_t elements) {
  constexpr int64_t mostBytes = 1024;
  return elements * static_cast<int64_t>(sizeof(Stored)) <= mostBytes;
}

template <typename Stored, typename Computed> class BlockedProduct {
public:
  BlockedProduct(std::vector<ProductShape> shapes, int threads, ProductPlaces places = {})
      : kernels(blockKernels<Stored, Computed>()), shapes(std::move(shapes)), places(places),
        slots(threads) {
    int64_t mostColumns = maxBlockColumns;
    if (places.rows)
      mostColumns = std::min(mostColumns, maxElementsBesideRows / kernels.mostSteps);
    for (const ProductShape &shape : this->shapes) {
      blockRows = std::max(blockRows, cutEvenly(shape.rows, maxBlockRows, kernels.rowsPerPanel));
      blockColumns =
          std::max(blockColumns, cutEvenly(shape.columns, mostColumns, kernels.columnsPerPanel));
    }
    countBlocks();
    chooseDepthCuts();
    for (const ProductShape &shape : this->shapes) {
      int64_t part = ceilDivide(shape.depth, depthCuts);
      blockDepth = std::max(blockDepth, std::min(part, cutEvenly(part, kernels.mostSteps, 16)));
    }
    narrowBlocks(threads);
    chooseGroups(threads);
    slots = static_cast<int>(std::min<int64_t>(slots, groups * depthCuts));
  }

  int64_t workspaceBytes() const {
    return slots * slotBytes() + (depthCuts > 1 ? blocks * depthCuts * partialBytes() : 0);
  }

  const char *name() const { return kernels.name; }

  /// Bytes of all that packColumns packs for the one product that there is.
  int64_t packedColumnBytes() const {
    return columnBlocks(shapes.front()) * depthCuts * depthBlocks() * columnPanelBytes();
  }

  /// Packs the right operand of the one product that there is to `packed`, for runs that are given it.
  void packColumns(const ProductOperands<Stored, Computed> &operands, void *packed,
                   ThreadPool &pool) const {
    const ProductShape &shape = shapes.front();
    pool.parallelFor(columnBlocks(shape) * depthCuts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t index = begin; index < end; ++index) {
        int64_t first = index / depthCuts * blockColumns, cut = index % depthCuts;
        int64_t columns = std::min(blockColumns, shape.columns - first);
        forEachDepth(cut, shape.depth, [&](int64_t depthBegin, int64_t steps) {
          Computed *to = packedColumns(packed, first, cut, depthBegin, shape.depth);
          operands.packColumns({to, kernels.columnsPerPanel, steps}, 0, first, columns, depthBegin,
                               steps);
        });
      }
    });
  }

  /// Of each product its first rows, and of its sums their first terms, up to a limit. With `packed`
  /// the right operand is what packColumns has made.
  void run(const ProductOperands<Stored, Computed> &operands, void *workspace, ThreadPool &pool,
           const ProductLimits &limits = {}, void *packed = nullptr) const {
    char *partials = static_cast<char *>(workspace) + slots * slotBytes();
    runTasks(
        pool, groups * depthCuts, slots, slotBytes(), workspace,
        [&](int64_t task, char *slot) { runTask(operands, task, slot, partials, limits, packed); });
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
  /// Groups of so many blocks, one below the other.
  int64_t countGroups(const ProductShape &shape, int64_t size) const {
    return ceilDivide(rowBlocks(shape), size) * columnBlocks(shape);
  }
  /// Of the left operand in place the last rows are packed, which fill no panel.
  int64_t rowPanelBytes() const {
    int64_t rows = places.rows ? kernels.rowsPerPanel : blockRows;
    return alignBytes(rows * blockDepth * sizeof(Computed));
  }
  /// Blocks that a cut of the depth has at most.
  int64_t depthBlocks() const {
    return ceilDivide(ceilDivide(shapes.front().depth, depthCuts), blockDepth);
  }
  /// Calls body(depthBegin, steps) for each block of a cut of the depth.
  template <typename Body> void forEachDepth(int64_t cut, int64_t depth, Body &&body) const {
    int64_t end = (cut + 1) * depth / depthCuts;
    for (int64_t d = cut * depth / depthCuts; d < end; d += blockDepth)
      body(d, std::min(blockDepth, end - d));
  }
  /// Where packColumns puts the block that begins at this column and depth.
  Computed *packedColumns(void *packed, int64_t column, int64_t cut, int64_t depthBegin,
                          int64_t depth) const {
    int64_t within = (depthBegin - cut * depth / depthCuts) / blockDepth;
    int64_t block = (column / blockColumns * depthCuts + cut) * depthBlocks() + within;
    return reinterpret_cast<Computed *>(static_cast<char *>(packed) + block * columnPanelBytes());
  }
  int64_t columnPanelBytes() const {
    return alignBytes(blockColumns * blockDepth * sizeof(Computed));
  }
  int64_t partialBytes() const { return alignBytes(blockRows * blockColumns * sizeof(Computed)); }
  bool writesInPlace() const { return places.result && depthCuts == 1; }
  /// Of a task's sums, unless they are partial; of a result in place those of panels that reach
  /// beyond it.
  int64_t sumBytes() const {
    if (depthCuts > 1)
      return 0;
    int64_t edge =
        std::max(blockRows * kernels.columnsPerPanel, kernels.rowsPerPanel * blockColumns);
    return writesInPlace() ? alignBytes(edge * sizeof(Computed)) : groupBlocks * partialBytes();
  }
  int64_t slotBytes() const { return rowPanelBytes() + columnPanelBytes() + sumBytes(); }

  void countBlocks() {
    firstBlock.clear();
    blocks = 0;
    for (const ProductShape &shape : shapes) {
      firstBlock.push_back(blocks);
      blocks += rowBlocks(shape) * columnBlocks(shape);
    }
  }

  /// Enough tasks for a few dozen threads, each with a depth worth its cost, though each makes all
  /// the blocks of its columns that a thread may make together: so a large depth is read once.
  void chooseDepthCuts() {
    if (blocks == 0 || blocks >= leastTasks)
      return;
    int64_t tasks = 0;
    for (const ProductShape &shape : shapes)
      tasks += ceilDivide(rowBlocks(shape), maxGroupBlocks) * columnBlocks(shape);
    int64_t cuts = shapes.front().depth / leastDepthOfCut;
    depthCuts = std::max<int64_t>(1, std::min(leastTasks / tasks, cuts));
  }

  /// A product of few rows, as a turn of a recurrent layer has it, is cut by its columns where its
  /// depth is not large. More tasks read the rows in place then, and nothing is packed twice. Widths
  /// of blocks have no part in bits, so they may follow the number of threads.
  void narrowBlocks(int threads) {
    int64_t tasks = blocks * depthCuts, wanted = leastTasksOfFewRows * threads;
    if (!places.rows || threads == 1 || tasks == 0 || tasks >= wanted)
      return;
    int64_t width = kernels.columnsPerPanel;
    int64_t narrow = roundUp(ceilDivide(blockColumns * tasks, wanted), width);
    blockColumns = std::min(blockColumns, std::max(narrow, leastColumnPanels * width));
    countBlocks();
  }

  /// The larger a group, the fewer are packings of the right operand, and the longer do threads wait
  /// for the last task.
  void chooseGroups(int threads) {
    int64_t most = places.rows && writesInPlace() ? maxPlacedGroupBlocks : maxGroupBlocks;
    int64_t ofBlock = blockRows * (blockColumns + (places.rows ? 0 : packingWork));
    int64_t ofTask = blockColumns * packingWork;
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int64_t size = 1; size <= most; ++size) {
      int64_t tasks = 0;
      for (const ProductShape &shape : shapes)
        tasks += countGroups(shape, size) * depthCuts;
      if (size > 1 && tasks < leastTasksOfThread * threads)
        break;
      int64_t idle = roundUp(tasks, threads) - tasks;
      int64_t work = (blocks * depthCuts + idle * size) * ofBlock + (tasks + idle) * ofTask;
      if (work < least) {
        least = work;
        groupBlocks = size;
      }
    }
    for (const ProductShape &shape : shapes) {
      firstGroup.push_back(groups);
      groups += countGroups(shape, groupBlocks);
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

  /// Where the blocks of a group sum: one behind the other in a slot, or as partial sums.
  struct Sums {
    char *first;
    int64_t step; ///< bytes from a block's to those of the block below it
  };

  Computed *partialSums(char *partials, int64_t block, int64_t cut) const {
    return reinterpret_cast<Computed *>(partials + (block * depthCuts + cut) * partialBytes());
  }

  Sums sumsOf(const Block &group, int64_t cut, char *slot, char *partials) const {
    if (depthCuts == 1)
      return {slot, writesInPlace() ? 0 : partialBytes()};
    int64_t columnsOfRow = columnBlocks(shapes[group.product]);
    int64_t block = firstBlock[group.product] + group.rowBegin / blockRows * columnsOfRow +
                    group.columnBegin / blockColumns;
    return {reinterpret_cast<char *>(partialSums(partials, block, cut)),
            columnsOfRow * depthCuts * partialBytes()};
  }

  /// Calls body(block, sums) for each block of a group.
  template <typename Body> void forEachBlock(const Block &group, Sums sums, Body &&body) const {
    for (int64_t row = 0; row < group.rows; row += blockRows) {
      Block block = group;
      block.rowBegin += row;
      block.rows = std::min(blockRows, group.rows - row);
      body(block, reinterpret_cast<Computed *>(sums.first));
      sums.first += sums.step;
    }
  }

  using Operands = ProductOperands<Stored, Computed>;

  /// Panels of the two operands of a block at some steps of depth.
  struct Factors {
    Computed *packedRows;
    const Computed *columns;
    int64_t depthBegin, depth;
    const Computed *bias = nullptr; ///< of all columns, behind the last steps to a result in place
  };

  /// A part of the product of a block: so many panels of columns from one on, to `target`. Rows in
  /// place that fill no panel are packed.
  void multiply(const Operands &operands, const Block &block, const Factors &factors,
                int64_t firstPanel, int64_t columnPanels, Computed *target, int64_t stride,
                bool accumulate) const {
    int64_t width = kernels.rowsPerPanel, depth = factors.depth;
    int64_t panelStride = kernels.columnsPerPanel * depth;
    const Computed *columns = factors.columns + firstPanel * panelStride;
    const Computed *bias =
        factors.bias ? factors.bias + firstPanel * kernels.columnsPerPanel : nullptr;
    auto run = [&](int64_t panels, const PlacedBlock<const Computed *> &rows, int64_t panel,
                   Computed *to) {
      kernels.multiply(panels, columnPanels, depth, rows.first, panel, rows.row, rows.column,
                       columns, panelStride, kernels.columnsPerPanel, to, stride, accumulate, bias);
    };
    int64_t inPlace = places.rows ? block.rows / width : 0;
    if (inPlace) {
      PlacedBlock<const Computed *> rows =
          operands.findRows(block.product, block.rowBegin, factors.depthBegin);
      run(inPlace, rows, width * rows.row, target);
    }
    // Packed panels have their rows side by side.
    if (int64_t packed = ceilDivide(block.rows, width) - inPlace)
      run(packed, {factors.packedRows, 1, width}, width * depth, target + inPlace * width * stride);
  }

  /// The product of a block to where the result lies. Panels that reach beyond it go by `edge`.
  void multiplyInPlace(const Operands &operands, const Block &block, const Factors &factors,
                       Computed *edge, bool accumulate) const {
    PlacedBlock<Computed *> result =
        operands.findResult(block.product, block.rowBegin, block.columnBegin);
    int64_t width = kernels.columnsPerPanel, panels = block.columns / width;
    Block whole = block;
    whole.rows -= block.rows % kernels.rowsPerPanel;
    if (panels && whole.rows)
      multiply(operands, whole, factors, 0, panels, result.first, result.row, accumulate);
    auto addEdge = [&](const Block &part, Factors of, int64_t firstPanel, int64_t columns) {
      int64_t stride = roundUp(columns, width);
      const Computed *bias = of.bias ? of.bias + firstPanel * width : nullptr;
      of.bias = nullptr;
      multiply(operands, part, of, firstPanel, stride / width, edge, stride, false);
      Computed *to =
          result.first + (part.rowBegin - block.rowBegin) * result.row + firstPanel * width;
      for (int64_t i = 0; i < part.rows; ++i)
        for (int64_t j = 0; j < columns; ++j) {
          Computed sum = edge[i * stride + j];
          sum = accumulate ? to[i * result.row + j] + sum : sum;
          to[i * result.row + j] = bias ? sum + bias[j] : sum;
        }
    };
    if (panels * width < block.columns)
      addEdge(block, factors, panels, block.columns - panels * width);
    if (panels && whole.rows < block.rows) {
      Block last = block;
      last.rowBegin += whole.rows;
      last.rows -= whole.rows;
      Factors ofLast = factors;
      if (!places.rows) // else these rows alone are packed
        ofLast.packedRows += whole.rows * factors.depth;
      addEdge(last, ofLast, 0, panels * width);
    }
  }

  void packRows(const Operands &operands, const Block &block, const Factors &factors) const {
    int64_t whole = places.rows ? block.rows / kernels.rowsPerPanel * kernels.rowsPerPanel : 0;
    if (whole < block.rows)
      operands.packRows({factors.packedRows, kernels.rowsPerPanel, factors.depth}, block.product,
                        block.rowBegin + whole, block.rows - whole, factors.depthBegin,
                        factors.depth);
  }

  void runTask(const Operands &operands, int64_t task, char *slot, char *partials,
               const ProductLimits &limits, void *packed) const {
    Block group = locate(task / depthCuts, firstGroup, groupBlocks * blockRows, limits);
    if (group.rows == 0)
      return;
    int64_t cut = task % depthCuts, depth = std::min(shapes[group.product].depth, limits.depth);
    auto *columns = reinterpret_cast<Computed *>(slot + rowPanelBytes());
    Sums sums = sumsOf(group, cut, slot + rowPanelBytes() + columnPanelBytes(), partials);
    int64_t begin = cut * depth / depthCuts, end = (cut + 1) * depth / depthCuts;
    forEachDepth(cut, depth, [&](int64_t d, int64_t steps) {
      Factors factors{reinterpret_cast<Computed *>(slot), columns, d, steps};
      if (writesInPlace() && d + steps == end)
        factors.bias = operands.findBias(group.columnBegin);
      if (packed)
        factors.columns = packedColumns(packed, group.columnBegin, cut, d, depth);
      else
        operands.packColumns({columns, kernels.columnsPerPanel, steps}, group.product,
                             group.columnBegin, group.columns, d, steps);
      forEachBlock(group, sums, [&](const Block &block, Computed *target) {
        packRows(operands, block, factors);
        if (writesInPlace() && places.adds)
          operands.begin(block.product, block.rowBegin, block.rows, block.columnBegin,
                         block.columns);
        if (writesInPlace())
          multiplyInPlace(operands, block, factors, target, places.adds || d != begin);
        else
          multiply(operands, block, factors, 0, ceilDivide(block.columns, kernels.columnsPerPanel),
                   target, blockColumns, d != begin);
      });
    });
    if (depthCuts == 1)
      storeGroup(operands, group, sums, begin == end);
    else if (begin == end)
      forEachBlock(group, sums, [&](const Block &, Computed *target) { fillWithZeros(target); });
  }

  /// What the sums of a group become. A product of no depth (taps of a strided convolution that meet
  /// no output) is zero.
  void storeGroup(const Operands &operands, const Block &group, Sums sums, bool isZero) const {
    forEachBlock(group, sums, [&](const Block &block, Computed *target) {
      if (writesInPlace()) {
        if (isZero)
          storeZeros(operands, block, target);
        return;
      }
      if (isZero)
        fillWithZeros(target);
      operands.store(block.product, block.rowBegin, block.rows, block.columnBegin, block.columns,
                     target, blockColumns);
    });
  }

  void fillWithZeros(Computed *sums) const {
    std::fill(sums, sums + blockRows * blockColumns, Computed(0));
  }

  /// Row by row, for there is no room for a whole block.
  void storeZeros(const Operands &operands, const Block &block, Computed *line) const {
    std::fill(line, line + blockColumns, Computed(0));
    for (int64_t i = 0; i < block.rows; ++i)
      operands.store(block.product, block.rowBegin + i, 1, block.columnBegin, block.columns, line,
                     blockColumns);
  }

  void addPartials(const ProductOperands<Stored, Computed> &operands, int64_t index, char *partials,
                   const ProductLimits &limits) const {
    Block block = locate(index, firstBlock, blockRows, limits);
    if (block.rows == 0)
      return;
    Computed *sums = partialSums(partials, index, 0);
    for (int64_t cut = 1; cut < depthCuts; ++cut) {
      const Computed *more = partialSums(partials, index, cut);
      for (int64_t i = 0; i < blockRows * blockColumns; ++i)
        sums[i] += more[i];
    }
    operands.store(block.product, block.rowBegin, block.rows, block.columnBegin, block.columns,
                   sums, blockColumns);
  }

  const BlockKernels<Stored, Computed> &kernels;
  std::vector<ProductShape> shapes;
  ProductPlaces places;
  std::vector<int64_t> firstBlock, firstGroup; ///< of each product
  int64_t blockRows = 0, blockColumns = 0, blockDepth = 0;
  int64_t blocks = 0, depthCuts = 1, groupBlocks = 1, groups = 0;
  int slots;
};

} // namespace memopt::libraries

#endif // MEMOPT_RUNTIME_KERNELS_OWN_BLOCKEDPRODUCT_H
