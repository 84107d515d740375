//===- IrregularStages.cpp - scatters, orders and scans -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Schedules of ops that fill a kernel (FillsKernel): what they compute is no loop nest over
// elements of the result. Each has one form, so nothing is searched.
//
//===----------------------------------------------------------------------===//

#include "memopt/Conversion/Core/Schedule/SumOrder.h"

#include "memopt/Dialect/Memopt.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::memopt;

const KernelPoints &KernelStage::getPoints() const {
  if (auto *scatter = std::get_if<KernelScatter>(&irregular))
    return scatter->points;
  if (auto *order = std::get_if<KernelOrder>(&irregular))
    return order->points;
  return std::get<KernelScan>(irregular).points;
}

static ArrayRef<int64_t> getShape(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

/// A loop variable for each dimension.
static SmallVector<AtomId> addVariables(IndexTable &table, ArrayRef<int64_t> sizes) {
  return llvm::map_to_vector(sizes, [&](int64_t size) { return table.addVariable(size); });
}

static SmallVector<IndexExpr> getIndices(const IndexTable &table, ArrayRef<AtomId> variables) {
  return llvm::map_to_vector(variables, [&](AtomId variable) { return table.get(variable); });
}

/// `dims` as points; the last dimension runs over lanes when it is among them.
static KernelPoints getPoints(ElementGraph &graph, ArrayRef<AtomId> variables,
                              ArrayRef<int64_t> dims, std::optional<unsigned> column,
                              ArrayRef<NodeId> values, const ScheduleRules &rules) {
  KernelPoints points;
  llvm::SmallDenseSet<AtomId> barred = collectLoopsWithoutLanes(graph, values, rules);
  for (int64_t dim : dims) {
    AtomId variable = variables[dim];
    if (column == dim && !rules.isScalar() && graph.getTable().getSize(variable) != 1 &&
        !barred.contains(variable)) {
      points.column = variable;
      points.lanes =
          chooseLanes(graph, values, variable, graph.getTable().getSize(variable), rules);
    } else if (graph.getTable().getSize(variable) != 1) {
      points.outer.push_back(variable);
    }
  }
  return points;
}

static double countPoints(const IndexTable &table, const KernelPoints &points) {
  double count = points.column ? double(table.getSize(*points.column)) / points.lanes : 1;
  for (AtomId variable : points.outer)
    count *= double(table.getSize(variable));
  return count;
}

//===----------------------------------------------------------------------===//
// Scatters
//===----------------------------------------------------------------------===//

/// Every element of result 0 from `value`, or zero when it is null, as one long row.
static FailureOr<KernelStage> fill(ElementGraph &graph, RankedTensorType type, Value value,
                                   const ScheduleRules &rules) {
  IndexTable &table = graph.getTable();
  AtomId element = table.addVariable(type.getNumElements());
  NodeId node = graph.getZero(getScalarType(type.getElementType()));
  if (value) {
    FailureOr<NodeId> built =
        graph.build(value, table.delinearize(table.get(element), type.getShape()));
    if (failed(built))
      return failure();
    node = *built;
  }
  KernelNest nest;
  nest.loops.push_back(element);
  if (!rules.isScalar() && !collectLoopsWithoutLanes(graph, node, rules).contains(element)) {
    nest.vectorLoop = 0;
    nest.lanes = chooseLanes(graph, node, element, type.getNumElements(), rules);
  }
  nest.stores.push_back({0, table.get(element), node});
  KernelStage stage;
  stage.nests.push_back(std::move(nest));
  stage.distributesNest = true;
  stage.cost = double(type.getNumElements()) / 8;
  return stage;
}

static std::optional<OperationName> getCombiner(ScatterKind kind, Type element) {
  bool isFloat = isa<FloatType>(element);
  auto name = [&](StringRef ofFloats, StringRef ofIntegers) {
    return OperationName(isFloat ? ofFloats : ofIntegers, element.getContext());
  };
  switch (kind) {
  case ScatterKind::Set:
    return std::nullopt;
  case ScatterKind::Add:
    return name(arith::AddFOp::getOperationName(), arith::AddIOp::getOperationName());
  case ScatterKind::Mul:
    return name(arith::MulFOp::getOperationName(), arith::MulIOp::getOperationName());
  case ScatterKind::Max:
    return name(arith::MaximumFOp::getOperationName(), arith::MaxSIOp::getOperationName());
  case ScatterKind::Min:
    return name(arith::MinimumFOp::getOperationName(), arith::MinSIOp::getOperationName());
  }
  llvm_unreachable("all kinds are listed");
}

namespace {
/// A scatter as its ops say it.
struct ScatterParts {
  RankedTensorType type;
  Value input; ///< null: zeros
  Value updates;
  SmallVector<Value> indices;
  SmallVector<int64_t> indexed, positions;
  ScatterKind kind = ScatterKind::Add;
  std::optional<int64_t> padding;
};
} // namespace

static ScatterParts getParts(ScatterOp op) {
  return {cast<RankedTensorType>(op.getType()),
          op.getInput(),
          op.getUpdates(),
          llvm::to_vector(op.getIndices()),
          llvm::to_vector(op.getIndexed()),
          llvm::to_vector(op.getPositions()),
          op.getKind(),
          std::nullopt};
}

/// Tokens are the dimensions of the updates but for the last, which is the table's.
static ScatterParts getParts(EmbeddingBackwardOp op) {
  ScatterParts parts{cast<RankedTensorType>(op.getType()),
                     nullptr,
                     op.getGradient(),
                     {op.getIndices()},
                     {0},
                     {},
                     ScatterKind::Add,
                     std::nullopt};
  parts.positions.push_back(getShape(op.getGradient()).size() - 1);
  if (op.getPaddingIndex())
    parts.padding = *op.getPaddingIndex();
  return parts;
}

static FailureOr<KernelSchedule> scheduleScatter(ElementGraph &graph, const ScatterParts &parts,
                                                 const ScheduleRules &rules) {
  IndexTable &table = graph.getTable();
  ArrayRef<int64_t> shape = parts.type.getShape(), sizes = getShape(parts.updates);
  SmallVector<AtomId> variables = addVariables(table, sizes);
  SmallVector<IndexExpr> at = getIndices(table, variables);
  KernelScatter scatter;
  scatter.result = 0;
  scatter.combiner = getCombiner(parts.kind, parts.type.getElementType());
  scatter.padding = parts.padding;
  FailureOr<NodeId> value = graph.build(parts.updates, at);
  if (failed(value))
    return failure();
  scatter.value = *value;

  SmallVector<NodeId> values{*value};
  SmallVector<int64_t> strides = computeStrides(shape);
  auto position = parts.positions.begin();
  for (int64_t dim = 0, next = 0; dim < parts.type.getRank(); ++dim) {
    if (!llvm::is_contained(parts.indexed, dim)) {
      scatter.address = IndexTable::add(scatter.address, at[*position++], strides[dim]);
      continue;
    }
    // An index tensor of size 1 along a dimension is read at 0 there; an embedding's has no
    // columns.
    Value tensor = parts.indices[next++];
    SmallVector<IndexExpr> read;
    for (auto [place, size] : llvm::enumerate(getShape(tensor)))
      read.push_back(size == 1 ? IndexExpr() : at[place]);
    FailureOr<NodeId> index = graph.build(tensor, read);
    if (failed(index))
      return failure();
    scatter.indices.push_back({*index, shape[dim], strides[dim]});
    values.push_back(*index);
  }
  std::optional<unsigned> column;
  if (!parts.positions.empty() && !llvm::is_contained(parts.indexed, parts.type.getRank() - 1))
    column = parts.positions.back();
  scatter.points = getPoints(graph, variables, parts.positions, column, values, rules);
  for (auto [dim, variable] : llvm::enumerate(variables))
    if (!llvm::is_contained(parts.positions, static_cast<int64_t>(dim)) && sizes[dim] != 1)
      scatter.tokens.push_back(variable);
  scatter.isByTokens = rules.goesByTokens(graph, scatter);

  KernelSchedule schedule;
  FailureOr<KernelStage> filled = fill(graph, parts.type, parts.input, rules);
  if (failed(filled))
    return failure();
  schedule.stages.push_back(std::move(*filled));
  KernelStage &stage = schedule.stages.emplace_back();
  stage.cost =
      3 * countPoints(table, scatter.points) * std::max(scatter.points.lanes / 8, int64_t(1));
  for (AtomId token : scatter.tokens)
    stage.cost *= double(table.getSize(token));
  stage.irregular = std::move(scatter);
  return schedule;
}

//===----------------------------------------------------------------------===//
// Orders and scans
//===----------------------------------------------------------------------===//

static SmallVector<int64_t> getOtherDims(int64_t rank, int64_t axis) {
  auto dims = llvm::to_vector(llvm::seq<int64_t>(0, rank));
  dims.erase(dims.begin() + axis);
  return dims;
}

static FailureOr<KernelSchedule> scheduleOrder(ElementGraph &graph, ArgsortOp op,
                                               const ScheduleRules &rules) {
  IndexTable &table = graph.getTable();
  ArrayRef<int64_t> sizes = getShape(op.getInput()), wanted = getShape(op.getResult());
  int64_t axis = op.getAxis(), rank = sizes.size();
  SmallVector<AtomId> variables = addVariables(table, sizes);
  SmallVector<IndexExpr> at = getIndices(table, variables);
  FailureOr<NodeId> value = graph.build(op.getInput(), at);
  if (failed(value))
    return failure();
  KernelOrder order;
  order.points = getPoints(graph, variables, getOtherDims(rank, axis), std::nullopt, *value, rules);
  order.result = 0;
  order.along = variables[axis];
  order.place = table.addVariable(wanted[axis]);
  order.value = *value;
  at[axis] = table.get(order.place);
  order.address = IndexTable::linearize(at, wanted);
  order.isDescending = op.getDescending();
  KernelSchedule schedule;
  KernelStage &stage = schedule.stages.emplace_back();
  stage.cost = 8.0 * countPoints(table, order.points) * double(sizes[axis]) *
               llvm::Log2_64_Ceil(wanted[axis] + 1);
  stage.irregular = std::move(order);
  return schedule;
}

static FailureOr<KernelSchedule> scheduleScan(ElementGraph &graph, Operation *op, int64_t axis,
                                              bool isReversed, const ScheduleRules &rules) {
  IndexTable &table = graph.getTable();
  ArrayRef<int64_t> sizes = getShape(op->getResult(0));
  int64_t rank = sizes.size();
  SmallVector<AtomId> variables = addVariables(table, sizes);
  SmallVector<IndexExpr> at = getIndices(table, variables);
  KernelScan scan;
  scan.op = op;
  scan.result = 0;
  scan.along = variables[axis];
  scan.isReversed = isReversed;
  scan.address = IndexTable::linearize(at, sizes);
  for (Value operand : op->getOperands()) {
    FailureOr<NodeId> value = graph.build(operand, at);
    if (failed(value))
      return failure();
    scan.values.push_back(*value);
  }
  std::optional<unsigned> column;
  if (axis != rank - 1)
    column = rank - 1;
  // What is carried takes eight bytes a lane.
  std::unique_ptr<ScheduleRules> wide = rules.getRulesOfWideLanes();
  scan.points = getPoints(graph, variables, getOtherDims(rank, axis), column, scan.values, *wide);
  KernelSchedule schedule;
  KernelStage &stage = schedule.stages.emplace_back();
  stage.cost = 4.0 * countPoints(table, scan.points) * double(sizes[axis]);
  stage.irregular = std::move(scan);
  return schedule;
}

static FailureOr<KernelSchedule> scheduleByKind(ElementGraph &graph, Operation *op,
                                                const ScheduleRules &rules) {
  using Scheduled = FailureOr<KernelSchedule>;
  return llvm::TypeSwitch<Operation *, Scheduled>(op)
      .Case<ScatterOp, EmbeddingBackwardOp>(
          [&](auto scatter) { return scheduleScatter(graph, getParts(scatter), rules); })
      .Case([&](ArgsortOp order) { return scheduleOrder(graph, order, rules); })
      .Case<LinearScanOp, LogSumExpScanOp>([&](auto scan) {
        return scheduleScan(graph, scan, scan.getAxis(), scan.getReverse(), rules);
      })
      .Case([&](ArgextremeScanOp scan) {
        return scheduleScan(graph, scan, scan.getAxis(), /*isReversed=*/false, rules);
      })
      .Default([](Operation *other) -> Scheduled {
        return other->emitOpError("fills a kernel in a way that no schedule knows");
      });
}

FailureOr<KernelSchedule> mlir::memopt::scheduleIrregular(ElementGraph &graph, Operation *op,
                                                          const ScheduleRules &rules) {
  return scheduleByKind(graph, op, rules);
}
