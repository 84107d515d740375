//===- BatchModel.cpp - where the samples of a batch are --------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Analysis/BatchModel.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::memopt;

namespace {
/// A slice of `whole`, or what zeros are put around to make `whole`.
struct Part {
  Value whole, part;
  SmallVector<int64_t> dims, offsets; ///< by dimension of the part: that of the whole, and where
};
} // namespace

namespace mlir::memopt {
/// One attempt to follow the samples from some arguments. Facts spread through an op in both
/// directions until nothing changes; each value's dimension is set at most once.
class BatchInference {
public:
  explicit BatchInference(const StepModel &step) : step(step) {
    fromInputs.insert_range(step.getBody().getArguments());
    for (Operation &op : step.getBody())
      if (llvm::any_of(op.getOperands(), [&](Value value) { return fromInputs.contains(value); }))
        fromInputs.insert_range(op.getResults());
  }

  /// Fails, with `culprit` and `reason`, when samples are mixed.
  LogicalResult run(ArrayRef<std::pair<Value, int64_t>> seeds);

  BatchModel model;
  Operation *culprit = nullptr;
  std::string reason;

private:
  LogicalResult fail(Operation *op, const Twine &message) {
    culprit = op;
    reason = message.str();
    return failure();
  }
  LogicalResult set(Operation *op, Value value, BatchDimension dimension);
  bool takesSums(Operation *op) const;
  LogicalResult spread(Operation *op);
  LogicalResult spreadReshape(Operation *op);
  LogicalResult spreadConcat(tensor::ConcatOp op, int64_t inner);
  LogicalResult spreadPart(Operation *op, const Part &part, unsigned dim, int64_t inner);
  FailureOr<SmallVector<BatchDimension>> findSampleLoops(Operation *op,
                                                         const IterationSpace &space);
  LogicalResult spreadLoops(Operation *op, const IterationSpace &space);
  LogicalResult classify(Operation *op);
  FailureOr<Reach> getReachOfResult(Operation *op, Value result);

  const StepModel &step;
  SmallVector<Operation *> open;
  /// What follows from the step's inputs. One sample looks like any dimension of size 1, so that
  /// with it nothing else can be taken for samples.
  DenseSet<Value> fromInputs;
};
} // namespace mlir::memopt

static RankedTensorType typeOf(Value value) { return dyn_cast<RankedTensorType>(value.getType()); }

static SmallVector<Value> getValues(Operation *op) {
  SmallVector<Value> values(op->getOperands());
  llvm::append_range(values, op->getResults());
  return values;
}

LogicalResult BatchInference::set(Operation *op, Value value, BatchDimension dimension) {
  if (model.size == 1 && !fromInputs.contains(value))
    return success();
  dimension.outer = typeOf(value).getDimSize(dimension.dim) / (model.size * dimension.inner);
  auto [entry, isNew] = model.dimensions.try_emplace(value, dimension);
  if (!isNew)
    return entry->second == dimension ? success() : fail(op, "pairs samples with other samples");
  if (Operation *maker = value.getDefiningOp())
    open.push_back(maker);
  llvm::append_range(open, value.getUsers());
  return success();
}

LogicalResult BatchInference::run(ArrayRef<std::pair<Value, int64_t>> seeds) {
  for (auto [value, dim] : seeds) {
    int64_t size = typeOf(value).getDimSize(dim);
    if (size < 1)
      return fail(step.getFunction(), "has an input without samples");
    if (model.size && model.size != size)
      return fail(step.getFunction(),
                  "has inputs of " + Twine(model.size) + " and of " + Twine(size) + " samples");
    model.size = size;
    if (failed(set(step.getFunction(), value, {dim, 1})))
      return failure();
  }
  while (!open.empty())
    if (failed(spread(open.pop_back_val())))
      return failure();
  for (Operation &op : step.getBody())
    if (failed(classify(&op)))
      return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// Dimensions
//===----------------------------------------------------------------------===//

/// The gradient of a batch of one sample may have the shape of one for each sample, and is a sum.
bool BatchInference::takesSums(Operation *op) const {
  return model.size == 1 && (isa<GradientOp>(op) || getPhase(op) == Phase::Optimizer);
}

/// Where tensors are joined along the dimension that counts their samples: the inner count.
static std::optional<int64_t> findJoinedSamples(tensor::ConcatOp op, const BatchModel &model) {
  for (Value value : getValues(op))
    if (std::optional<BatchDimension> known = model.getDimension(value))
      if (known->dim == int64_t(op.getDim()))
        return known->inner;
  return std::nullopt;
}

static std::optional<Part> getPart(Operation *op) {
  if (auto pad = dyn_cast<PadOp>(op)) {
    return Part{pad.getResult(), pad.getInput(),
                llvm::to_vector(llvm::seq<int64_t>(0, pad.getLow().size())),
                SmallVector<int64_t>(pad.getLow())};
  }
  auto slice = dyn_cast<tensor::ExtractSliceOp>(op);
  if (!slice || !slice.hasUnitStride() || ShapedType::isDynamicShape(slice.getStaticOffsets()))
    return std::nullopt;
  Part part{slice.getSource(), slice.getResult(), {}, {}};
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  for (auto [dim, offset] : llvm::enumerate(slice.getStaticOffsets()))
    if (!dropped.test(dim)) {
      part.dims.push_back(dim);
      part.offsets.push_back(offset);
    }
  return part;
}

/// Where `dim` is cut and counts samples: the inner count.
static std::optional<int64_t> findCutSamples(const Part &part, unsigned dim,
                                             const BatchModel &model) {
  int64_t wholeDim = part.dims[dim];
  if (typeOf(part.part).getDimSize(dim) == typeOf(part.whole).getDimSize(wholeDim))
    return std::nullopt;
  for (auto [value, at] : {std::pair(part.whole, wholeDim), std::pair(part.part, int64_t(dim))})
    if (std::optional<BatchDimension> known = model.getDimension(value); known && known->dim == at)
      return known->inner;
  return std::nullopt;
}

LogicalResult BatchInference::spread(Operation *op) {
  if (takesSums(op))
    return success();
  if (isReshape(op))
    return spreadReshape(op);
  if (auto concat = dyn_cast<tensor::ConcatOp>(op))
    if (std::optional<int64_t> inner = findJoinedSamples(concat, model))
      return spreadConcat(concat, *inner);
  if (std::optional<Part> part = getPart(op))
    for (unsigned dim = 0; dim < part->dims.size(); ++dim)
      if (std::optional<int64_t> inner = findCutSamples(*part, dim, model))
        return spreadPart(op, *part, dim, *inner);
  if (auto iteration = dyn_cast<IterationOpInterface>(op))
    return spreadLoops(op, iteration.getIterationSpace());
  if (isa<ReadOp, GradientOp, WriteOp>(op))
    return fail(op, "keeps something for each sample");
  if (op->hasTrait<OpTrait::IsTerminator>())
    return success();
  return fail(op, "does not say how it treats the samples of a batch");
}

/// The dimension of `dims` that an index along their product counts samples in, `inner` behind it.
/// One sample may be any dimension of size 1 at that place; it is the first.
static std::optional<BatchDimension> findFactor(ArrayRef<int64_t> dims, ArrayRef<int64_t> shape,
                                                int64_t inner, int64_t size) {
  std::optional<BatchDimension> found;
  int64_t behind = 1;
  for (int64_t dim : llvm::reverse(dims)) {
    int64_t whole = behind * shape[dim];
    bool holdsAll = inner % behind == 0 && whole % (inner * size) == 0;
    bool isBetter = !found || shape[dim] == 1 || shape[found->dim] != 1;
    if (holdsAll && isBetter)
      found = {dim, inner / behind};
    behind = whole;
  }
  return found;
}

/// Both sides count the same samples at the same place.
LogicalResult BatchInference::spreadReshape(Operation *op) {
  bool expands = isa<tensor::ExpandShapeOp>(op);
  Value fine = expands ? op->getResult(0) : op->getOperand(0);
  Value coarse = expands ? op->getOperand(0) : op->getResult(0);
  auto groups = expands ? cast<tensor::ExpandShapeOp>(op).getReassociationIndices()
                        : cast<tensor::CollapseShapeOp>(op).getReassociationIndices();
  ArrayRef<int64_t> shape = typeOf(fine).getShape();
  for (auto [number, group] : llvm::enumerate(groups)) {
    std::optional<BatchDimension> inFine = model.getDimension(fine);
    if (inFine && !llvm::is_contained(group, inFine->dim))
      inFine = std::nullopt;
    if (inFine) {
      int64_t inner = inFine->inner;
      for (int64_t dim : group)
        inner *= dim > inFine->dim ? shape[dim] : 1;
      if (failed(set(op, coarse, {static_cast<int64_t>(number), inner})))
        return failure();
      continue;
    }
    std::optional<BatchDimension> inCoarse = model.getDimension(coarse);
    if (!inCoarse || inCoarse->dim != static_cast<int64_t>(number))
      continue;
    std::optional<BatchDimension> factor = findFactor(group, shape, inCoarse->inner, model.size);
    if (!factor)
      return fail(op, "takes apart what belongs to one sample");
    if (failed(set(op, fine, *factor)))
      return failure();
  }
  return success();
}

/// Every part has all samples, some number of times; so has the whole.
LogicalResult BatchInference::spreadConcat(tensor::ConcatOp op, int64_t inner) {
  auto dim = int64_t(op.getDim());
  for (Value value : getValues(op)) {
    if (typeOf(value).getDimSize(dim) % (model.size * inner))
      return fail(op, "mixes samples");
    if (failed(set(op, value, {dim, inner})))
      return failure();
  }
  return success();
}

/// A part that cuts the dimension which counts samples: between two times all of them, as a
/// recurrent layer cuts [time * batch, features] into steps.
LogicalResult BatchInference::spreadPart(Operation *op, const Part &part, unsigned dim,
                                         int64_t inner) {
  int64_t group = model.size * inner, wholeDim = part.dims[dim];
  for (int64_t rows : {part.offsets[dim], typeOf(part.part).getDimSize(dim),
                       typeOf(part.whole).getDimSize(wholeDim)})
    if (rows % group)
      return fail(op, "mixes samples");
  if (failed(set(op, part.whole, {wholeDim, inner})))
    return failure();
  return set(op, part.part, {dim, inner});
}

/// Whether an op says only how gradients flow.
static bool isGradientMark(Operation *op) {
  auto rule = dyn_cast<DifferentiableOpInterface>(op);
  return rule && rule.isGradientMark();
}

/// Whether two loops of an op, as of a scan, have nothing to do with each other.
static bool areApart(const IterationSpace &space, int64_t a, int64_t b) {
  return space.kinds[a] == LoopKind::Parallel && space.kinds[b] == LoopKind::Parallel &&
         llvm::none_of(space.maps, [&](const AffineMap &map) {
           return map && map.isFunctionOfDim(a) && map.isFunctionOfDim(b);
         });
}

/// Finds the loops that count samples, and how many of their iterations belong to one. There is one
/// at most, but where an op holds values beside others: each then has loops of its own.
FailureOr<SmallVector<BatchDimension>>
BatchInference::findSampleLoops(Operation *op, const IterationSpace &space) {
  SmallVector<BatchDimension> loops;
  SmallVector<Value> values = getValues(op);
  for (auto [value, map] : llvm::zip_equal(values, space.maps)) {
    std::optional<BatchDimension> known = model.getDimension(value);
    if (!known || !map)
      continue;
    if (op->hasTrait<OpTrait::ReadsShapeOnly>() &&
        isa<AffineConstantExpr>(map.getResult(known->dim)))
      continue;
    auto plain = dyn_cast<AffineDimExpr>(map.getResult(known->dim));
    if (!plain)
      return fail(op, "mixes samples");
    BatchDimension found{static_cast<int64_t>(plain.getPosition()), known->inner};
    if (llvm::is_contained(loops, found))
      continue;
    bool isApart = llvm::all_of(
        loops, [&](BatchDimension other) { return areApart(space, found.dim, other.dim); });
    if (!isApart && !isGradientMark(op))
      return fail(op, "pairs samples with other samples");
    loops.push_back(found);
  }
  return loops;
}

LogicalResult BatchInference::spreadLoops(Operation *op, const IterationSpace &space) {
  FailureOr<SmallVector<BatchDimension>> loops = findSampleLoops(op, space);
  if (failed(loops))
    return failure();
  SmallVector<Value> values = getValues(op);
  for (BatchDimension loop : *loops) {
    if (space.kinds[loop.dim] == LoopKind::Mix)
      return fail(op, "mixes samples");
    for (auto [value, map] : llvm::zip_equal(values, space.maps)) {
      if (!map)
        continue;
      for (auto [dim, expr] : llvm::enumerate(map.getResults())) {
        if (!expr.isFunctionOfDim(loop.dim))
          continue;
        if (!isa<AffineDimExpr>(expr))
          return fail(op, "mixes samples");
        if (failed(set(op, value, {static_cast<int64_t>(dim), loop.inner})))
          return failure();
      }
    }
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Reach
//===----------------------------------------------------------------------===//

static Reach getStronger(Reach a, Reach b) { return std::max(a, b); }

/// Of a result without a dimension for samples: what it is made of, and what the op does to them.
FailureOr<Reach> BatchInference::getReachOfResult(Operation *op, Value result) {
  if (isGradientMark(op)) // its results are its first operands
    return model.getReach(op->getOperand(cast<OpResult>(result).getResultNumber()));
  Reach reach = Reach::Shared;
  bool readsSamples = false, readsElements = !op->hasTrait<OpTrait::ReadsShapeOnly>();
  for (Value operand : op->getOperands()) {
    Reach of = model.getReach(operand);
    readsSamples |= of == Reach::Sample;
    reach = getStronger(reach, of == Reach::Sample || !readsElements ? Reach::Shared : of);
  }
  if (!readsSamples)
    return reach;
  if (takesSums(op))
    return getStronger(reach, Reach::Sum);
  auto iteration = dyn_cast<IterationOpInterface>(op);
  if (!iteration)
    return fail(op, "does not say how it treats the samples of a batch");
  IterationSpace space = iteration.getIterationSpace();
  for (auto [value, map] : llvm::zip(op->getOperands(), space.maps))
    if (std::optional<BatchDimension> known = model.getDimension(value)) {
      auto plain = dyn_cast<AffineDimExpr>(map.getResult(known->dim));
      if (!plain)
        continue; // only a shape is read
      unsigned loop = plain.getPosition();
      if (space.kinds[loop] == LoopKind::Parallel)
        return fail(op, "mixes samples");
      // A sum of terms that use statistics is a sum all the same.
      return space.kinds[loop] == LoopKind::Sum ? Reach::Sum : Reach::Statistic;
    }
  return reach;
}

LogicalResult BatchInference::classify(Operation *op) {
  for (Value result : op->getResults()) {
    if (model.getDimension(result)) {
      model.reaches[result] = Reach::Sample;
      continue;
    }
    FailureOr<Reach> reach = getReachOfResult(op, result);
    if (failed(reach))
      return failure();
    model.reaches[result] = *reach;
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Model
//===----------------------------------------------------------------------===//

std::optional<BatchDimension> BatchModel::getDimension(Value value) const {
  auto found = dimensions.find(value);
  return found == dimensions.end() ? std::nullopt : std::optional(found->second);
}

bool BatchModel::touchesSamples(Operation *op) const {
  auto hasSamples = [&](Value value) { return dimensions.contains(value); };
  return llvm::any_of(op->getOperands(), hasSamples) || llvm::any_of(op->getResults(), hasSamples);
}

Type BatchModel::getResized(Value value, int64_t newSize) const {
  std::optional<BatchDimension> dimension = getDimension(value);
  if (!dimension)
    return value.getType();
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape[dimension->dim] = newSize * dimension->inner * dimension->outer;
  return type.clone(shape);
}

using Seeds = SmallVector<std::pair<Value, int64_t>>;

/// What arguments say of themselves.
static Seeds getNamedSeeds(const StepModel &step) {
  Seeds seeds;
  func::FuncOp function = step.getFunction();
  for (BlockArgument argument : function.getArguments())
    if (auto dim = function.getArgAttrOfType<IntegerAttr>(argument.getArgNumber(),
                                                          MemoptDialect::kBatchDimAttr))
      seeds.push_back({argument, dim.getInt()});
  return seeds;
}

/// All marks; then each alone, for that all inputs begin with the same size was a guess. Without
/// marks the first dimension of each input, then the second of those with at least three. The last
/// dimension of a matrix holds features; taking it for samples would be a wrong answer rather than
/// none.
static SmallVector<Seeds> getAttempts(const StepModel &step) {
  SmallVector<Seeds> attempts;
  if (Seeds named = getNamedSeeds(step); !named.empty()) {
    attempts.push_back(named);
    for (auto seed : named)
      attempts.push_back({seed});
    return attempts;
  }
  for (int64_t dim : {0, 1})
    for (BlockArgument argument : step.getFunction().getArguments())
      if (typeOf(argument).getRank() > 2 * dim)
        attempts.push_back({{argument, dim}});
  return attempts;
}

FailureOr<BatchModel> BatchModel::create(const StepModel &step) {
  SmallVector<Seeds> attempts = getAttempts(step);
  Operation *culprit = step.getFunction();
  std::string reason = "has no input with samples";
  Value loss = step.getLoss();
  for (auto [number, seeds] : llvm::enumerate(attempts)) {
    BatchInference inference(step);
    bool isConsistent = succeeded(inference.run(seeds));
    if (isConsistent && (!loss || inference.model.getReach(loss) != Reach::Shared))
      return std::move(inference.model);
    if (number == 0 && !isConsistent) {
      culprit = inference.culprit;
      reason = inference.reason;
    }
  }
  std::string nodes = describeNodes(culprit);
  return culprit->emitError() << "'" << culprit->getName() << "'"
                              << (nodes.empty() ? "" : " (" + nodes + ")")
                              << describeModule(culprit) << " " << reason
                              << ": the samples of a batch cannot be told apart";
}
