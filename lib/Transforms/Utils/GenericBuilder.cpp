//===- GenericBuilder.cpp - short ways to write linalg.generic --*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Transforms/Utils/GenericBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Scalars
//===----------------------------------------------------------------------===//

Value mlir::memopt::combine(ImplicitLocOpBuilder &b, ReduceKind kind, Value lhs, Value rhs) {
  bool isFloat = isa<FloatType>(lhs.getType());
  switch (kind) {
  case ReduceKind::Add:
    return isFloat ? Value(arith::AddFOp::create(b, lhs, rhs))
                   : Value(arith::AddIOp::create(b, lhs, rhs));
  case ReduceKind::Mul:
    return isFloat ? Value(arith::MulFOp::create(b, lhs, rhs))
                   : Value(arith::MulIOp::create(b, lhs, rhs));
  case ReduceKind::Max:
    if (lhs.getType().isInteger(1))
      return arith::OrIOp::create(b, lhs, rhs);
    return isFloat ? Value(arith::MaximumFOp::create(b, lhs, rhs))
                   : Value(arith::MaxSIOp::create(b, lhs, rhs));
  case ReduceKind::Min:
    if (lhs.getType().isInteger(1))
      return arith::AndIOp::create(b, lhs, rhs);
    return isFloat ? Value(arith::MinimumFOp::create(b, lhs, rhs))
                   : Value(arith::MinSIOp::create(b, lhs, rhs));
  }
  llvm_unreachable("all kinds are listed");
}

TypedAttr mlir::memopt::getNeutralElement(OpBuilder &b, ReduceKind kind, Type type) {
  if (auto floatType = dyn_cast<FloatType>(type)) {
    const llvm::fltSemantics &semantics = floatType.getFloatSemantics();
    switch (kind) {
    case ReduceKind::Add:
      return b.getFloatAttr(type, 0.0);
    case ReduceKind::Mul:
      return b.getFloatAttr(type, 1.0);
    case ReduceKind::Max:
      return b.getFloatAttr(type, llvm::APFloat::getInf(semantics, /*Negative=*/true));
    case ReduceKind::Min:
      return b.getFloatAttr(type, llvm::APFloat::getInf(semantics));
    }
  }
  unsigned width = type.getIntOrFloatBitWidth();
  switch (kind) {
  case ReduceKind::Add:
    return b.getIntegerAttr(type, 0);
  case ReduceKind::Mul:
    return b.getIntegerAttr(type, 1);
  case ReduceKind::Max:
    return b.getIntegerAttr(type,
                            width == 1 ? llvm::APInt(1, 0) : llvm::APInt::getSignedMinValue(width));
  case ReduceKind::Min:
    return b.getIntegerAttr(type,
                            width == 1 ? llvm::APInt(1, 1) : llvm::APInt::getSignedMaxValue(width));
  }
  llvm_unreachable("all kinds are listed");
}

//===----------------------------------------------------------------------===//
// Views of operands
//===----------------------------------------------------------------------===//

/// One step outward: the read of the view's source, or nothing where that is not indexed by loops
/// and zeros alone, each loop as long as the dimension that it indexes.
static std::optional<Read> resolveOneView(Read read) {
  auto view = read.value.getDefiningOp<ViewOpInterface>();
  if (!view || view.getViewKind() == ViewKind::Assembled || !view.showsWhole(0))
    return std::nullopt;
  ViewPart part = view.getViewParts().front();
  bool isProjection = llvm::all_of(part.map.getResults(), [](AffineExpr expr) {
    return isa<AffineDimExpr>(expr) || expr == getAffineConstantExpr(0, expr.getContext());
  });
  if (!isProjection)
    return std::nullopt;
  return Read{view->getOperand(0), part.map.compose(read.map)};
}

Read mlir::memopt::resolveViews(Read read, llvm::function_ref<bool(Value)> isEnd) {
  while (!isEnd || !isEnd(read.value)) {
    std::optional<Read> outer = resolveOneView(read);
    if (!outer)
      break;
    read = *outer;
  }
  return read;
}

TypedAttr mlir::memopt::getSplatConstant(Value value) {
  while (auto view = value.getDefiningOp<ViewOpInterface>()) {
    if (view.getViewKind() == ViewKind::Assembled)
      break;
    value = view->getOperand(0);
  }
  DenseElementsAttr elements;
  if (!matchPattern(value, m_Constant(&elements)) || !elements.isSplat())
    return {};
  return elements.getSplatValue<TypedAttr>();
}

AffineMap mlir::memopt::selectDims(MLIRContext *context, unsigned rank, ArrayRef<int64_t> dims) {
  SmallVector<AffineExpr> exprs;
  for (int64_t dim : dims)
    exprs.push_back(getAffineDimExpr(dim, context));
  return AffineMap::get(rank, 0, exprs, context);
}

//===----------------------------------------------------------------------===//
// Generics
//===----------------------------------------------------------------------===//

/// Sizes of the tensor that `map` writes.
static SmallVector<int64_t> getShape(ArrayRef<int64_t> domain, AffineMap map) {
  SmallVector<int64_t> shape;
  for (AffineExpr expr : map.getResults())
    shape.push_back(domain[cast<AffineDimExpr>(expr).getPosition()]);
  return shape;
}

/// One scalar per read: the constants, and the block arguments for all others.
static SmallVector<Value> getScalars(ImplicitLocOpBuilder &b, ArrayRef<TypedAttr> splats,
                                     ValueRange args) {
  SmallVector<Value> scalars;
  size_t next = 0;
  for (TypedAttr splat : splats)
    scalars.push_back(splat ? Value(arith::ConstantOp::create(b, splat)) : args[next++]);
  return scalars;
}

SmallVector<Value> mlir::memopt::createPointwise(ImplicitLocOpBuilder &b, ArrayRef<int64_t> domain,
                                                 ArrayRef<Read> reads, ArrayRef<Result> results,
                                                 ScalarBody body) {
  SmallVector<Value> inputs, inits;
  SmallVector<AffineMap> maps;
  SmallVector<TypedAttr> splats;
  for (Read read : reads) {
    splats.push_back(getSplatConstant(read.value));
    if (splats.back())
      continue;
    Read resolved = resolveViews(read);
    inputs.push_back(resolved.value);
    maps.push_back(resolved.map);
  }
  SmallVector<Type> types;
  for (const Result &result : results) {
    SmallVector<int64_t> shape = getShape(domain, result.map);
    inits.push_back(tensor::EmptyOp::create(b, shape, result.elementType));
    types.push_back(inits.back().getType());
    maps.push_back(result.map);
  }
  SmallVector<utils::IteratorType> iterators(domain.size(), utils::IteratorType::parallel);
  auto generic = linalg::GenericOp::create(
      b, types, inputs, inits, maps, iterators,
      [&](OpBuilder &builder, Location loc, ValueRange args) {
        ImplicitLocOpBuilder inner(loc, builder);
        linalg::YieldOp::create(inner, body(inner, getScalars(inner, splats, args)));
      });
  return llvm::to_vector_of<Value>(generic.getResults());
}

SmallVector<Value> mlir::memopt::createPointwise(ImplicitLocOpBuilder &b, ArrayRef<int64_t> domain,
                                                 ArrayRef<Read> reads, ArrayRef<Type> elementTypes,
                                                 ScalarBody body) {
  AffineMap identity = b.getMultiDimIdentityMap(domain.size());
  SmallVector<Result> results;
  for (Type type : elementTypes)
    results.push_back({type, identity});
  return createPointwise(b, domain, reads, results, body);
}

/// The reads through their views, unless a dimension of the domain would then be read by nobody: a
/// generic gets the sizes of its dimensions from its operands.
static SmallVector<Read> resolveForReduction(ArrayRef<Read> reads,
                                             ArrayRef<int64_t> reductionDims) {
  SmallVector<Read> resolved =
      llvm::map_to_vector(reads, [](const Read &read) { return resolveViews(read); });
  for (int64_t dim : reductionDims)
    if (llvm::none_of(resolved, [&](const Read &read) {
          return read.map.isFunctionOfDim(dim) && !getSplatConstant(read.value);
        }))
      return SmallVector<Read>(reads);
  return resolved;
}

/// Whether every reduced dimension is read by a value that is not a known constant.
static bool mayDropConstants(ArrayRef<Read> reads, ArrayRef<int64_t> reductionDims) {
  return llvm::all_of(reductionDims, [&](int64_t dim) {
    return llvm::any_of(reads, [&](const Read &read) {
      return read.map.isFunctionOfDim(dim) && !getSplatConstant(read.value);
    });
  });
}

SmallVector<Value>
mlir::memopt::createPlainReduction(ImplicitLocOpBuilder &b, ArrayRef<int64_t> domain,
                                   ArrayRef<int64_t> reductionDims, ArrayRef<Read> reads,
                                   ArrayRef<Accumulator> accumulators, ScalarBody body) {
  SmallVector<utils::IteratorType> iterators(domain.size(), utils::IteratorType::parallel);
  SmallVector<int64_t> kept, shape;
  for (int64_t dim = 0, rank = domain.size(); dim < rank; ++dim) {
    if (llvm::is_contained(reductionDims, dim)) {
      iterators[dim] = utils::IteratorType::reduction;
    } else {
      kept.push_back(dim);
      shape.push_back(domain[dim]);
    }
  }
  SmallVector<Value> inputs, inits;
  SmallVector<AffineMap> maps;
  SmallVector<Read> resolved = resolveForReduction(reads, reductionDims);
  bool dropConstants = mayDropConstants(resolved, reductionDims);
  SmallVector<TypedAttr> splats;
  for (const Read &read : resolved) {
    splats.push_back(dropConstants ? getSplatConstant(read.value) : TypedAttr());
    if (splats.back())
      continue;
    inputs.push_back(read.value);
    maps.push_back(read.map);
  }
  SmallVector<Type> types;
  for (const Accumulator &accumulator : accumulators) {
    Value empty = tensor::EmptyOp::create(b, shape, accumulator.type);
    Value neutral =
        arith::ConstantOp::create(b, getNeutralElement(b, accumulator.kind, accumulator.type));
    inits.push_back(linalg::FillOp::create(b, neutral, empty).getResult(0));
    types.push_back(empty.getType());
    maps.push_back(selectDims(b.getContext(), domain.size(), kept));
  }
  auto generic = linalg::GenericOp::create(
      b, types, inputs, inits, maps, iterators,
      [&](OpBuilder &builder, Location loc, ValueRange args) {
        ImplicitLocOpBuilder inner(loc, builder);
        SmallVector<Value> values = body(inner, getScalars(inner, splats, args));
        for (auto [value, accumulator, old] :
             llvm::zip_equal(values, accumulators, args.drop_front(inputs.size())))
          value = combine(inner, accumulator.kind, old, value);
        linalg::YieldOp::create(inner, values);
      });
  return llvm::to_vector_of<Value>(generic.getResults());
}

//===----------------------------------------------------------------------===//
// Reductions in two stages
//===----------------------------------------------------------------------===//

/// The largest divisor of `size` that is at most `limit`.
static int64_t getDivisorUpTo(int64_t size, int64_t limit) {
  for (int64_t divisor = std::min(size, limit); divisor > 1; --divisor)
    if (size % divisor == 0)
      return divisor;
  return 1;
}

static int64_t getElementsAtOnce(ImplicitLocOpBuilder &b) {
  return getTarget(b.getInsertionBlock()->getParentOp()).getElementsAtOnce();
}

/// At least `wanted` chunks of a column, which a thread of a device adds up, by leading dimensions
/// as a whole: what is computed for the same points can then share the kernel. None where a thread
/// would have too little to do.
static Chunks chooseWholeChunks(ArrayRef<int64_t> domain, ArrayRef<int64_t> reductionDims,
                                int64_t wanted, int64_t reduced) {
  constexpr int64_t leastOfThread = 16;
  Chunks chunks;
  int64_t count = 1;
  for (int64_t dim : reductionDims) {
    if (count >= wanted)
      break;
    chunks.dims.push_back(dim);
    chunks.counts.push_back(domain[dim]);
    count *= domain[dim];
  }
  return count * leastOfThread <= reduced ? chunks : Chunks();
}

Chunks mlir::memopt::chooseChunks(ImplicitLocOpBuilder &b, ArrayRef<int64_t> domain,
                                  ArrayRef<int64_t> reductionDims) {
  // Enough chunks for many threads, and small enough that a chunk stays in a second-level cache.
  constexpr int64_t minimumChunks = 16, maximumChunks = 256;
  constexpr int64_t elementsPerChunk = 1 << 16, smallReduction = 1 << 12;
  int64_t total = ShapedType::getNumElements(domain), reduced = 1;
  for (int64_t dim : reductionDims)
    reduced *= domain[dim];
  if (reductionDims.empty() || total < smallReduction || reduced < 32)
    return {};
  // Rows that end in the reduction are independent: no stages when there are enough of them.
  SmallVector<int64_t> sorted(reductionDims);
  llvm::sort(sorted);
  int64_t rank = domain.size(), trailing = 0;
  while (trailing < static_cast<int64_t>(sorted.size()) &&
         sorted[sorted.size() - 1 - trailing] == rank - 1 - trailing)
    ++trailing;
  bool isRows = trailing == static_cast<int64_t>(sorted.size());
  int64_t rows = total / reduced;
  if (isRows && (rows >= minimumChunks || reduced < smallReduction))
    return {};
  int64_t parallelRows = isRows ? rows : 1;
  int64_t wanted = std::clamp(total / elementsPerChunk, minimumChunks, maximumChunks);
  wanted = std::min<int64_t>(llvm::divideCeil(wanted, parallelRows), reduced / 8);
  if (int64_t fill = isRows ? 0 : getElementsAtOnce(b) / rows; fill > wanted) {
    if (Chunks whole = chooseWholeChunks(domain, sorted, fill, reduced); !whole.empty())
      return whole;
    constexpr int64_t leastOfThread = 64;
    wanted = std::max(wanted, std::min(fill, reduced / leastOfThread));
  }
  Chunks chunks;
  int64_t count = 1;
  for (int64_t dim : sorted) {
    if (count * 2 > wanted)
      break;
    int64_t part = getDivisorUpTo(domain[dim], std::max<int64_t>(wanted / count, 1));
    if (domain[dim] <= 2 * wanted / count)
      part = domain[dim];
    if (part == 1)
      continue;
    chunks.dims.push_back(dim);
    chunks.counts.push_back(part);
    count *= part;
    if (part != domain[dim])
      break;
  }
  return chunks;
}

Chunks mlir::memopt::chooseLaterChunks(ImplicitLocOpBuilder &b, ArrayRef<int64_t> domain,
                                       ArrayRef<int64_t> reductionDims) {
  constexpr int64_t most = 256;
  int64_t reduced = 1;
  for (int64_t dim : reductionDims)
    reduced *= domain[dim];
  bool isMany = getElementsAtOnce(b) && reduced > most;
  return isMany ? chooseChunks(b, domain, reductionDims) : Chunks();
}

SmallVector<int64_t> mlir::memopt::withoutDims(ArrayRef<int64_t> dims, ArrayRef<int64_t> gone) {
  return llvm::map_to_vector(dims, [&](int64_t dim) {
    return dim - llvm::count_if(gone, [dim](int64_t other) { return other < dim; });
  });
}

/// Expands dimension `dim` of the read value, wherever the map reads it, into [count, rest].
static Read splitRead(ImplicitLocOpBuilder &b, Read read, int64_t dim, int64_t count) {
  unsigned rank = read.map.getNumDims();
  RankedTensorType type = tensorType(read.value);
  SmallVector<AffineExpr> exprs;
  SmallVector<int64_t> shape;
  SmallVector<ReassociationIndices> groups;
  bool isRead = false;
  for (auto [position, expr] : llvm::enumerate(read.map.getResults())) {
    groups.emplace_back();
    auto add = [&](AffineExpr piece, int64_t size) {
      groups.back().push_back(exprs.size());
      exprs.push_back(piece);
      shape.push_back(size);
    };
    auto dimExpr = dyn_cast<AffineDimExpr>(expr);
    int64_t size = type.getDimSize(position);
    if (!dimExpr) {
      add(expr, size);
    } else if (static_cast<int64_t>(dimExpr.getPosition()) != dim) {
      unsigned shifted = dimExpr.getPosition() + (dimExpr.getPosition() > dim ? 1 : 0);
      add(b.getAffineDimExpr(shifted), size);
    } else {
      isRead = true;
      add(b.getAffineDimExpr(dim), count);
      add(b.getAffineDimExpr(dim + 1), size / count);
    }
  }
  Value value = read.value;
  if (isRead)
    value = tensor::ExpandShapeOp::create(b, RankedTensorType::get(shape, type.getElementType()),
                                          value, groups);
  return {value, AffineMap::get(rank + 1, 0, exprs, b.getContext())};
}

SmallVector<int64_t> mlir::memopt::splitDomain(ImplicitLocOpBuilder &b, ArrayRef<int64_t> domain,
                                               const Chunks &chunks, MutableArrayRef<Read> reads,
                                               SmallVectorImpl<int64_t> &reductionDims,
                                               SmallVectorImpl<int64_t> &chunkDims) {
  SmallVector<int64_t> shape(domain);
  SmallVector<Read> resolved = resolveForReduction(reads, reductionDims);
  llvm::copy(resolved, reads.begin());
  // Only the last chunk dimension may be split, so earlier positions never move.
  for (auto [dim, count] : llvm::zip_equal(chunks.dims, chunks.counts)) {
    chunkDims.push_back(dim);
    if (count == shape[dim]) {
      llvm::erase(reductionDims, dim);
      continue;
    }
    for (Read &read : reads)
      read = splitRead(b, read, dim, count);
    for (int64_t &other : reductionDims)
      other += other >= dim ? 1 : 0;
    shape[dim] /= count;
    shape.insert(shape.begin() + dim, count);
  }
  return shape;
}

SmallVector<Value> mlir::memopt::createReduction(ImplicitLocOpBuilder &b, ArrayRef<int64_t> domain,
                                                 ArrayRef<int64_t> reductionDims,
                                                 ArrayRef<Read> reads,
                                                 ArrayRef<Accumulator> accumulators,
                                                 ScalarBody body) {
  Chunks chunks = chooseChunks(b, domain, reductionDims);
  if (chunks.empty())
    return createPlainReduction(b, domain, reductionDims, reads, accumulators, body);
  SmallVector<Read> split(reads);
  SmallVector<int64_t> inner(reductionDims), chunkDims;
  SmallVector<int64_t> shape = splitDomain(b, domain, chunks, split, inner, chunkDims);
  SmallVector<Value> partial = createPlainReduction(b, shape, inner, split, accumulators, body);
  SmallVector<int64_t> outer = withoutDims(chunkDims, inner);
  ArrayRef<int64_t> partialShape = tensorType(partial.front()).getShape();
  AffineMap identity = b.getMultiDimIdentityMap(partialShape.size());
  SmallVector<Read> partialReads =
      llvm::map_to_vector(partial, [&](Value value) { return Read{value, identity}; });
  auto take = [](ImplicitLocOpBuilder &, ValueRange args) {
    return llvm::to_vector_of<Value>(args);
  };
  if (!chooseLaterChunks(b, partialShape, outer).empty())
    return createReduction(b, partialShape, outer, partialReads, accumulators, take);
  return createPlainReduction(b, partialShape, outer, partialReads, accumulators, take);
}
