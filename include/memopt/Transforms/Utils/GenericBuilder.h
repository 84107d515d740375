//===- GenericBuilder.h - short ways to write linalg.generic ------*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All of lower-to-linalg builds its ops here. A generic is a domain, reads with their indexing
// maps, results with theirs, and a scalar body. Reads look through broadcasts, transposes and unit
// reshapes, whose effect becomes part of the indexing map.
//
//===----------------------------------------------------------------------===//

#ifndef MEMOPT_TRANSFORMS_UTILS_GENERICBUILDER_H
#define MEMOPT_TRANSFORMS_UTILS_GENERICBUILDER_H

#include "memopt/Dialect/Formula.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::memopt {

//===----------------------------------------------------------------------===//
// Scalars
//===----------------------------------------------------------------------===//

/// Combines two scalars of one type as a reduction of `kind` does; NaN wins in max and min.
Value combine(ImplicitLocOpBuilder &b, ReduceKind kind, Value lhs, Value rhs);
/// The value that `kind` leaves other values alone.
TypedAttr getNeutralElement(OpBuilder &b, ReduceKind kind, Type type);

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

/// An operand and where the domain reads it.
struct Read {
  Value value;
  AffineMap map;
};

/// Looks through broadcasts, transposes and reshapes that only add or drop unit dimensions.
Read resolveViews(Read read, llvm::function_ref<bool(Value)> isEnd = nullptr);

/// The scalar attribute when every element of `value` is the same known constant, else null.
TypedAttr getSplatConstant(Value value);

/// Selects dimensions `dims` of a domain of `rank`.
AffineMap selectDims(MLIRContext *context, unsigned rank, ArrayRef<int64_t> dims);

/// Builds the scalars that a generic yields from one scalar per read.
using ScalarBody =
    llvm::function_ref<SmallVector<Value>(ImplicitLocOpBuilder &b, ValueRange scalars)>;

/// A pointwise result: its element type and where the domain writes it.
struct Result {
  Type elementType;
  AffineMap map;
};

/// A generic without reduction: each point of `domain` writes one element of each result.
SmallVector<Value> createPointwise(ImplicitLocOpBuilder &b, ArrayRef<int64_t> domain,
                                   ArrayRef<Read> reads, ArrayRef<Result> results, ScalarBody body);
/// The same with results of the domain's shape.
SmallVector<Value> createPointwise(ImplicitLocOpBuilder &b, ArrayRef<int64_t> domain,
                                   ArrayRef<Read> reads, ArrayRef<Type> elementTypes,
                                   ScalarBody body);

/// On a generic that adds two values: parts of one product, which may be added where the sum lies.
inline constexpr llvm::StringLiteral kSumOfPartsAttr = "memopt.sum_of_parts";

/// One result of a reduction.
struct Accumulator {
  ReduceKind kind;
  Type type;
};

/// How a reduction is cut into chunks that run in parallel: dimension `dims[i]` contributes
/// `counts[i]` chunks. Empty when one stage is best. Follows from the domain and from how much the
/// machine of the builder's module does at once.
struct Chunks {
  SmallVector<int64_t> dims, counts;
  bool empty() const { return dims.empty(); }
};
Chunks chooseChunks(ImplicitLocOpBuilder &b, ArrayRef<int64_t> domain,
                    ArrayRef<int64_t> reductionDims);

/// The same for the results of chunks: empty where they are few enough for one stage, as they are
/// on a processor.
Chunks chooseLaterChunks(ImplicitLocOpBuilder &b, ArrayRef<int64_t> domain,
                         ArrayRef<int64_t> reductionDims);

/// Dimensions as they are numbered when those that are `gone` have been reduced.
SmallVector<int64_t> withoutDims(ArrayRef<int64_t> dims, ArrayRef<int64_t> gone);

/// Splits dimensions of a domain so that each dimension of `chunks` counts chunks as a whole.
/// `reads` are rewritten to the new domain through expand_shape. Returns the new domain;
/// `chunkDims` receives the chunk dimensions and `reductionDims` is rewritten to what remains to
/// be reduced within a chunk.
SmallVector<int64_t> splitDomain(ImplicitLocOpBuilder &b, ArrayRef<int64_t> domain,
                                 const Chunks &chunks, MutableArrayRef<Read> reads,
                                 SmallVectorImpl<int64_t> &reductionDims,
                                 SmallVectorImpl<int64_t> &chunkDims);

/// Reduces `body`'s scalars over `reductionDims`; results have the other dimensions, in order. One
/// generic, no chunks.
SmallVector<Value> createPlainReduction(ImplicitLocOpBuilder &b, ArrayRef<int64_t> domain,
                                        ArrayRef<int64_t> reductionDims, ArrayRef<Read> reads,
                                        ArrayRef<Accumulator> accumulators, ScalarBody body);
/// The same in stages where shape and machine ask for it.
SmallVector<Value> createReduction(ImplicitLocOpBuilder &b, ArrayRef<int64_t> domain,
                                   ArrayRef<int64_t> reductionDims, ArrayRef<Read> reads,
                                   ArrayRef<Accumulator> accumulators, ScalarBody body);

} // namespace mlir::memopt

#endif // MEMOPT_TRANSFORMS_UTILS_GENERICBUILDER_H
