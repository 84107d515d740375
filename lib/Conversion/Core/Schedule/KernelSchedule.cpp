//===- KernelSchedule.cpp - the loops of a kernel -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Schedule/KernelSchedule.h"

#include "memopt/Conversion/Core/Schedule/KernelCost.h"
#include "memopt/Conversion/Core/Schedule/SumOrder.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {

/// A result, or one piece of a result that is a concatenation: pieces need no test per element.
struct Root {
  Value value;
  unsigned result;
  SmallVector<int64_t> from;        ///< where the piece begins in `value`
  SmallVector<int64_t> shape;       ///< of the piece
  SmallVector<int64_t> to;          ///< where it begins in the result
  SmallVector<int64_t> resultShape; ///< of the whole

  /// What lies in `size` places along `dim` of `value` from `begin` on; nothing where no element
  /// does.
  std::optional<Root> cut(unsigned dim, int64_t begin, int64_t size) const {
    int64_t first = std::max(begin, from[dim]);
    int64_t last = std::min(begin + size, from[dim] + shape[dim]);
    if (first >= last)
      return std::nullopt;
    Root piece = *this;
    piece.to[dim] += first - from[dim];
    piece.from[dim] = first;
    piece.shape[dim] = last - first;
    return piece;
  }
};

class Scheduler {
public:
  Scheduler(ElementGraph &graph, Operation *terminator, const ScheduleRules &rules,
            llvm::function_ref<bool(KernelSchedule &)> accept)
      : graph(graph), table(graph.getTable()), terminator(terminator), rules(rules),
        accept(accept) {}

  FailureOr<KernelSchedule> run();

private:
  void collectRoots();
  void addPieces(Root root, bool isPiece);
  SmallVector<int64_t> collectRowCounts(ArrayRef<Root> roots);
  FailureOr<KernelStage> findStage(ArrayRef<Root> roots);
  FailureOr<KernelStage> buildStage(ArrayRef<Root> roots, int64_t rows);
  FailureOr<KernelNest> findNest(ArrayRef<Root> roots, ArrayRef<int64_t> sizes,
                                 std::optional<AtomId> row, int64_t rows, StageCost &cost,
                                 double &price);
  FailureOr<KernelNest> buildNest(ArrayRef<Root> roots, std::optional<AtomId> row, int64_t rows,
                                  ArrayRef<SmallVector<int64_t>> factors,
                                  ArrayRef<SmallVector<int64_t>> groups);
  SmallVector<int64_t> findFactors(const KernelNest &nest, AtomId loop);
  std::optional<KernelNest> tryTiles(const KernelNest &nest, AtomId along);
  void chooseLoopOrder(KernelNest &nest, StageCost &cost, double &price);
  void chooseDistribution(KernelStage &stage, double sharedPrice, double rowPrice);
  double getRereads(const KernelSchedule &schedule) const;
  AtomId getVariable(int64_t size, unsigned ordinal);

  ElementGraph &graph;
  IndexTable &table;
  Operation *terminator;
  const ScheduleRules &rules;
  llvm::function_ref<bool(KernelSchedule &)> accept;
  std::vector<Root> roots;
  /// By size and ordinal; ordinal 0 is for rows. Candidates share them, and so their nodes.
  std::map<std::pair<int64_t, unsigned>, AtomId> variables;
};
} // namespace

//===----------------------------------------------------------------------===//
// Roots and rows
//===----------------------------------------------------------------------===//

void Scheduler::collectRoots() {
  for (auto [result, yielded] : llvm::enumerate(terminator->getOperands())) {
    // Loops run over the booleans; how they are stored is for the emission to say.
    auto pack = yielded.getDefiningOp<PackBitsOp>();
    Value value = pack ? pack.getInput() : yielded;
    ArrayRef<int64_t> shape = cast<RankedTensorType>(value.getType()).getShape();
    SmallVector<int64_t> whole(shape), begin(shape.size(), 0);
    addPieces({value, unsigned(result), begin, whole, begin, whole}, /*isPiece=*/false);
  }
}

/// The pieces of a concatenation, those of its pieces, and in them what a pad surrounds and what
/// surrounds it: all are boxes.
void Scheduler::addPieces(Root root, bool isPiece) {
  if (auto concat = root.value.getDefiningOp<tensor::ConcatOp>()) {
    int64_t begin = 0;
    unsigned dim = concat.getDim();
    for (Value input : concat.getInputs()) {
      int64_t size = cast<RankedTensorType>(input.getType()).getDimSize(dim);
      if (std::optional<Root> piece = root.cut(dim, begin, size)) {
        piece->value = input;
        piece->from[dim] -= begin;
        addPieces(*std::move(piece), /*isPiece=*/true);
      }
      begin += size;
    }
    return;
  }
  auto pad = root.value.getDefiningOp<PadOp>();
  if (!pad || !isPiece)
    return roots.push_back(std::move(root));
  ArrayRef<int64_t> sizes = cast<RankedTensorType>(pad.getInput().getType()).getShape();
  for (auto [dim, low, high, size] : llvm::enumerate(pad.getLow(), pad.getHigh(), sizes)) {
    for (std::optional<Root> zeros : {root.cut(dim, 0, low), root.cut(dim, low + size, high)})
      if (zeros)
        roots.push_back(*std::move(zeros));
    std::optional<Root> rest = root.cut(dim, low, size);
    if (!rest)
      return;
    root = *std::move(rest);
  }
  for (auto [begin, low] : llvm::zip_equal(root.from, pad.getLow()))
    begin -= low;
  root.value = pad.getInput();
  addPieces(std::move(root), /*isPiece=*/true);
}

/// The fewest leading dimensions whose elements `rows` equal parts cut evenly.
static std::optional<unsigned> findRowPrefix(ArrayRef<int64_t> shape, int64_t rows) {
  int64_t product = 1;
  for (unsigned prefix = 0; prefix <= shape.size(); ++prefix) {
    if (product % rows == 0)
      return prefix;
    if (prefix < shape.size())
      product *= shape[prefix];
  }
  return std::nullopt;
}

/// Sizes of what is left of a root in one row: a part of the cut dimensions, then the others.
static SmallVector<int64_t> getRowShape(ArrayRef<int64_t> shape, int64_t rows) {
  unsigned prefix = *findRowPrefix(shape, rows);
  int64_t part = 1;
  for (int64_t size : shape.take_front(prefix))
    part *= size;
  SmallVector<int64_t> sizes;
  if (part != rows)
    sizes.push_back(part / rows);
  for (int64_t size : shape.drop_front(prefix))
    if (size != 1)
      sizes.push_back(size);
  return sizes;
}

/// Row counts worth trying: products of leading dimensions of results and of reductions' results.
SmallVector<int64_t> Scheduler::collectRowCounts(ArrayRef<Root> roots) {
  llvm::SmallSetVector<int64_t, 8> counts;
  counts.insert(1);
  auto addProducts = [&](ArrayRef<int64_t> shape) {
    int64_t product = 1;
    for (int64_t size : shape)
      counts.insert(product *= size);
  };
  for (const Root &root : roots)
    addProducts(root.shape);
  for (Operation &op : graph.getBody())
    if (auto structured = dyn_cast<linalg::LinalgOp>(op);
        structured && structured.getNumReductionLoops())
      for (Type type : op.getResultTypes())
        addProducts(cast<RankedTensorType>(type).getShape());
  SmallVector<int64_t> usable;
  for (int64_t count : counts)
    if (llvm::all_of(roots, [&](const Root &root) { return findRowPrefix(root.shape, count); }))
      usable.push_back(count);
  llvm::sort(usable);
  return usable;
}

AtomId Scheduler::getVariable(int64_t size, unsigned ordinal) {
  auto [entry, isNew] = variables.try_emplace({size, ordinal}, 0);
  if (isNew)
    entry->second = table.addVariable(size);
  return entry->second;
}

//===----------------------------------------------------------------------===//
// Nests
//===----------------------------------------------------------------------===//

/// Builds the stores of `roots`, which share their row shape. Each dimension of that shape is a
/// product of factors; each group of neighbouring factors becomes one loop.
FailureOr<KernelNest> Scheduler::buildNest(ArrayRef<Root> roots, std::optional<AtomId> row,
                                           int64_t rows, ArrayRef<SmallVector<int64_t>> factors,
                                           ArrayRef<SmallVector<int64_t>> groups) {
  KernelNest nest;
  SmallVector<IndexExpr> parts, inner;
  for (auto [ordinal, group] : llvm::enumerate(groups)) {
    nest.loops.push_back(getVariable(llvm::product_of(group), ordinal + 1));
    parts.append(table.delinearize(table.get(nest.loops.back()), group));
  }
  ArrayRef<IndexExpr> rest = parts;
  for (ArrayRef<int64_t> sizes : factors) {
    inner.push_back(IndexTable::linearize(rest.take_front(sizes.size()), sizes));
    rest = rest.drop_front(sizes.size());
  }
  for (const Root &root : roots) {
    unsigned prefix = *findRowPrefix(root.shape, rows);
    int64_t part = 1;
    for (int64_t size : ArrayRef(root.shape).take_front(prefix))
      part *= size;
    part /= rows;
    const IndexExpr *next = inner.begin();
    IndexExpr position = row ? table.get(*row) : IndexExpr();
    position = IndexTable::scale(position, part);
    if (part != 1)
      position = IndexTable::add(position, *next++);
    SmallVector<IndexExpr> indices =
        table.delinearize(position, ArrayRef(root.shape).take_front(prefix));
    for (int64_t size : ArrayRef(root.shape).drop_front(prefix))
      indices.push_back(size == 1 ? IndexExpr() : *next++);
    auto moveBy = [&](ArrayRef<int64_t> begins) {
      SmallVector<IndexExpr> moved;
      for (auto [index, begin] : llvm::zip_equal(indices, begins))
        moved.push_back(IndexTable::add(index, IndexExpr(begin)));
      return moved;
    };
    FailureOr<NodeId> value = graph.build(root.value, moveBy(root.from));
    if (failed(value))
      return failure();
    indices = moveBy(root.to);
    nest.stores.push_back({root.result, IndexTable::linearize(indices, root.resultShape), *value});
  }
  return nest;
}

/// `nest` with loop `along` next to the lanes and in tiles, if loads want that.
std::optional<KernelNest> Scheduler::tryTiles(const KernelNest &nest, AtomId along) {
  AtomId last = nest.loops.back();
  KernelNest tiled = nest;
  llvm::SmallSetVector<NodeId, 32> found;
  for (const KernelStore &store : nest.stores)
    found.insert(store.value);
  for (size_t i = 0; i < found.size(); ++i) {
    const ElementNode &node = graph.getNode(found[i]);
    if (node.kind == ElementNode::Reduce)
      continue;
    for (NodeId child : graph.getChildren(found[i]))
      found.insert(child);
    if (node.kind != ElementNode::Load || node.guard != kNoNode)
      continue;
    std::optional<int64_t> stride = table.getStride(node.address, last);
    unsigned bits = node.type.getIntOrFloatBitWidth();
    if (stride == 0 || stride == 1 || table.getStride(node.address, along) != 1 ||
        (bits != 32 && bits != 64))
      continue;
    tiled.tile = std::max<int64_t>(tiled.tile, bits == 32 ? 16 : 8);
    tiled.staged.push_back(found[i]);
  }
  if (!rules.fitTiles(graph, tiled, table.getSize(along), table.getSize(last)))
    return std::nullopt;
  llvm::erase_if(tiled.staged, [&](NodeId id) {
    return !table.getOffsets(graph.getNode(id).address, {last, tiled.lanes, tiled.lanes});
  });
  if (tiled.staged.empty())
    return std::nullopt;
  llvm::erase(tiled.loops, along);
  tiled.loops.insert(tiled.loops.end() - 1, along);
  tiled.tileLoop = tiled.loops.size() - 2;
  return tiled;
}

/// Lanes run along the last loop, where stores are contiguous, unless it is short and loads are
/// contiguous along another. The last loop may also go outermost, which takes a reduction that
/// depends on the lanes out of the other loops.
void Scheduler::chooseLoopOrder(KernelNest &nest, StageCost &cost, double &price) {
  price = cost.price(nest, /*keep=*/false);
  if (nest.loops.empty() || rules.isScalar())
    return;
  SmallVector<NodeId> values;
  int64_t together = 1;
  for (const KernelStore &store : nest.stores) {
    values.push_back(store.value);
    together = std::max(together, graph.getResultStorage(store.result).elements);
  }
  KernelNest vectorized = nest;
  AtomId last = nest.loops.back();
  vectorized.vectorLoop = nest.loops.size() - 1;
  vectorized.lanes = chooseLanes(graph, values, last, table.getSize(last), rules, together);
  llvm::SmallDenseSet<AtomId> barred = collectLoopsWithoutLanes(graph, values, rules);
  auto consider = [&](KernelNest &candidate) {
    if (barred.contains(candidate.loops[*candidate.vectorLoop]) ||
        (candidate.tileLoop && rules.getNumbers().tilesHaveLanesTwice &&
         barred.contains(candidate.loops[*candidate.tileLoop])))
      return;
    double candidatePrice = cost.price(candidate, /*keep=*/false);
    if (candidatePrice >= price)
      return;
    price = candidatePrice;
    nest = candidate;
  };
  consider(vectorized);
  if (vectorized.loops.size() < 2)
    return;
  for (AtomId other : ArrayRef(vectorized.loops).drop_back()) {
    if (std::optional<KernelNest> tiled = tryTiles(vectorized, other))
      consider(*tiled);
    if (vectorized.lanes >= rules.getNumbers().enoughLanes)
      continue;
    KernelNest scattered = vectorized;
    llvm::erase(scattered.loops, other);
    scattered.loops.push_back(other);
    scattered.lanes = chooseLanes(graph, values, other, table.getSize(other), rules, together);
    consider(scattered);
  }
  vectorized.loops.pop_back();
  vectorized.loops.insert(vectorized.loops.begin(), last);
  vectorized.vectorLoop = 0;
  consider(vectorized);
}

/// Sizes into which quotients of `loop` alone cut it, outermost first; just its size when none do.
SmallVector<int64_t> Scheduler::findFactors(const KernelNest &nest, AtomId loop) {
  llvm::SmallSetVector<NodeId, 32> found;
  SmallVector<AtomId> atoms;
  auto addAtoms = [&](const IndexExpr &expr) {
    for (auto [atom, coefficient] : expr.terms)
      atoms.push_back(atom);
  };
  for (const KernelStore &store : nest.stores)
    found.insert(store.value);
  for (size_t i = 0; i < found.size(); ++i) {
    addAtoms(graph.getNode(found[i]).address);
    for (NodeId child : graph.getChildren(found[i]))
      found.insert(child);
  }
  int64_t size = table.getSize(loop);
  llvm::SmallSetVector<int64_t, 4> divisors;
  llvm::DenseSet<AtomId> seen;
  while (!atoms.empty()) {
    AtomId id = atoms.pop_back_val();
    const IndexAtom &atom = table.getAtom(id);
    if (!seen.insert(id).second || atom.kind != IndexAtom::Quotient)
      continue;
    addAtoms(atom.dividend);
    if (atom.dividend == table.get(loop) && size % atom.divisor == 0)
      divisors.insert(atom.divisor);
  }
  SmallVector<int64_t> sorted = divisors.takeVector(), factors;
  llvm::sort(sorted);
  int64_t inner = 1;
  for (int64_t divisor : sorted) {
    if (divisor % inner)
      continue;
    factors.insert(factors.begin(), divisor / inner);
    inner = divisor;
  }
  factors.insert(factors.begin(), size / inner);
  return factors;
}

FailureOr<KernelNest> Scheduler::findNest(ArrayRef<Root> roots, ArrayRef<int64_t> sizes,
                                          std::optional<AtomId> row, int64_t rows, StageCost &cost,
                                          double &price) {
  SmallVector<SmallVector<int64_t>> factors, groups;
  for (int64_t size : sizes)
    groups.push_back({size});
  FailureOr<KernelNest> best = buildNest(roots, row, rows, groups, groups);
  if (failed(best))
    return failure();
  // Loops that addresses take apart again, such as one over all heads' columns, are cut first.
  groups.clear();
  for (AtomId loop : best->loops) {
    factors.push_back(findFactors(*best, loop));
    for (int64_t factor : factors.back())
      groups.push_back({factor});
  }
  best = buildNest(roots, row, rows, factors, groups);
  if (failed(best))
    return failure();
  chooseLoopOrder(*best, cost, price);
  // Merge neighbouring loops, the innermost first, as long as it does not cost.
  for (size_t i = groups.size(); i-- > 1;) {
    SmallVector<SmallVector<int64_t>> merged(groups);
    merged[i - 1].append(merged[i]);
    merged.erase(merged.begin() + i);
    FailureOr<KernelNest> nest = buildNest(roots, row, rows, factors, merged);
    if (failed(nest))
      return failure();
    double mergedPrice;
    chooseLoopOrder(*nest, cost, mergedPrice);
    if (mergedPrice > price)
      continue;
    price = mergedPrice;
    best = std::move(nest);
    groups = std::move(merged);
  }
  return best;
}

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

/// Distributing the nest repeats what a row computes once, in every piece: sums never, scalars where
/// the machine would be idle for longer.
void Scheduler::chooseDistribution(KernelStage &stage, double sharedPrice, double rowPrice) {
  bool isShort = !stage.row || table.getSize(*stage.row) < rules.getNumbers().enoughRows;
  double allowed = stage.row ? 0 : 0.1 * stage.cost;
  if (stage.nests.size() != 1 || !isShort || sharedPrice > allowed ||
      countBlocks(table, stage) <= 1)
    return;
  KernelStage distributed = stage;
  distributed.distributesNest = true;
  double repeated = rowPrice * double(countBlocks(table, stage)) / rules.getNumbers().lanes;
  distributed.cost += repeated;
  distributed.nests.front().cost += repeated;
  if (rowPrice == 0 || rules.addOverheads(graph, distributed) < rules.addOverheads(graph, stage))
    stage = std::move(distributed);
}

FailureOr<KernelStage> Scheduler::buildStage(ArrayRef<Root> roots, int64_t rows) {
  KernelStage stage;
  if (rows > 1)
    stage.row = getVariable(rows, 0);
  std::map<std::vector<int64_t>, std::vector<Root>> byShape;
  for (const Root &root : roots) {
    SmallVector<int64_t> shape = getRowShape(root.shape, rows);
    byShape[std::vector<int64_t>(shape.begin(), shape.end())].push_back(root);
  }
  StageCost cost(graph, stage.row, rules);
  double sharedPrice = 0, rowPrice = 0;
  for (auto &[shape, group] : byShape) {
    double price;
    FailureOr<KernelNest> nest = findNest(group, shape, stage.row, rows, cost, price);
    if (failed(nest))
      return failure();
    nest->cost = cost.price(*nest, /*keep=*/true);
    stage.cost += nest->cost;
    sharedPrice += cost.getSharedPrice();
    rowPrice += cost.getRowPrice();
    stage.nests.push_back(std::move(*nest));
  }
  chooseDistribution(stage, sharedPrice, rowPrice);
  stage.cost = rules.addOverheads(graph, stage);
  return stage;
}

FailureOr<KernelStage> Scheduler::findStage(ArrayRef<Root> roots) {
  std::optional<KernelStage> best;
  bool isBestAccepted = false;
  for (int64_t rows : collectRowCounts(roots)) {
    FailureOr<KernelStage> stage = buildStage(roots, rows);
    if (failed(stage))
      return failure();
    if (best && isBestAccepted && stage->cost >= best->cost)
      continue;
    KernelSchedule alone;
    alone.stages.push_back(*stage);
    bool isAccepted = accept(alone);
    if (best && isBestAccepted == isAccepted ? stage->cost >= best->cost : best && isBestAccepted)
      continue;
    best = std::move(*stage);
    isBestAccepted = isAccepted;
  }
  return *best;
}

/// Elements that a second stage brings in from memory once more; a row of one stage would find them
/// in a cache.
double Scheduler::getRereads(const KernelSchedule &schedule) const {
  llvm::SmallDenseMap<unsigned, unsigned> readers;
  for (const KernelStage &stage : schedule.stages) {
    llvm::SmallSetVector<NodeId, 32> found;
    llvm::SmallDenseSet<unsigned> buffers;
    for (const KernelNest &nest : stage.nests)
      for (const KernelStore &store : nest.stores)
        found.insert(store.value);
    for (size_t i = 0; i < found.size(); ++i) {
      const ElementNode &node = graph.getNode(found[i]);
      if (node.kind == ElementNode::Load && node.number < graph.getNumArguments() &&
          buffers.insert(node.number).second)
        ++readers[node.number];
      for (NodeId child : graph.getChildren(found[i]))
        found.insert(child);
    }
  }
  double elements = 0;
  for (auto [buffer, count] : readers)
    elements += double(count - 1) *
                cast<ShapedType>(graph.getBody().getArgument(buffer).getType()).getNumElements();
  return elements * rules.getNumbers().reread;
}

FailureOr<KernelSchedule> Scheduler::run() {
  collectRoots();
  for (const Root &root : roots)
    if (llvm::is_contained(root.shape, 0))
      return emitError(root.value.getLoc(), "a kernel's result has no elements");
  KernelSchedule together;
  if (roots.empty())
    return together;
  FailureOr<KernelStage> stage = findStage(roots);
  if (failed(stage))
    return failure();
  together.stages.push_back(std::move(*stage));

  // Results of unlike shapes may have no rows in common.
  std::map<std::vector<int64_t>, std::vector<Root>> byShape;
  for (const Root &root : roots)
    byShape[std::vector<int64_t>(root.shape.begin(), root.shape.end())].push_back(root);
  if (byShape.size() == 1)
    return together;
  KernelSchedule apart;
  double cost = 0;
  for (auto &[shape, group] : byShape) {
    FailureOr<KernelStage> own = findStage(group);
    if (failed(own))
      return failure();
    cost += own->cost;
    apart.stages.push_back(std::move(*own));
  }
  bool isApartAccepted = accept(apart), isTogetherAccepted = accept(together);
  if (isApartAccepted != isTogetherAccepted)
    return isApartAccepted ? apart : together;
  return cost + getRereads(apart) < together.stages.front().cost ? apart : together;
}

FailureOr<KernelSchedule>
mlir::memopt::scheduleKernel(ElementGraph &graph, Operation *terminator, const ScheduleRules &rules,
                             llvm::function_ref<bool(KernelSchedule &)> accept) {
  return Scheduler(graph, terminator, rules, accept).run();
}
