//===- OpRoles.cpp - what passes ask of ops that they do not know ---------===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Precision, roles of parameters, and draws. Iteration spaces, views, gradients and layouts have
// files of their own.
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Memopt.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// Precision
//===----------------------------------------------------------------------===//

// What a norm scales and shifts by stays f32, as its statistics do.
SmallVector<unsigned> ReluOp::getFollowedOperands() { return {0}; }
SmallVector<unsigned> MaxPoolOp::getFollowedOperands() { return {0}; }
SmallVector<unsigned> AvgPoolOp::getFollowedOperands() { return {0}; }
SmallVector<unsigned> InterpolateOp::getFollowedOperands() { return {0}; }
SmallVector<unsigned> BatchNormOp::getFollowedOperands() { return {0}; }
SmallVector<unsigned> SoftmaxOp::getFollowedOperands() { return {0}; }

bool ReluOp::isElementwise() { return true; }
bool SigmoidOp::isElementwise() { return true; }
bool SoftplusOp::isElementwise() { return true; }

/// Query, key and value; a mask that is added stays f32.
SmallVector<unsigned> AttentionOp::getNarrowOperands() { return {0, 1, 2}; }

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

/// All operands of a norm but its input scale or shift.
static ParameterRole getNormRole(unsigned operand) {
  return operand == 0 ? ParameterRole::None : ParameterRole::Norm;
}
ParameterRole BatchNormOp::getParameterRole(unsigned operand) { return getNormRole(operand); }
ParameterRole LayerNormOp::getParameterRole(unsigned operand) { return getNormRole(operand); }
ParameterRole GroupNormOp::getParameterRole(unsigned operand) { return getNormRole(operand); }
ParameterRole RmsNormOp::getParameterRole(unsigned operand) { return getNormRole(operand); }

ParameterRole EmbeddingOp::getParameterRole(unsigned operand) {
  return getOperand(operand) == getTable() ? ParameterRole::Table : ParameterRole::None;
}
/// Indices that the importer knew make an embedding a gather.
ParameterRole GatherOp::getParameterRole(unsigned operand) {
  return getOperand(operand) == getSource() ? ParameterRole::Table : ParameterRole::None;
}

//===----------------------------------------------------------------------===//
// Draws
//===----------------------------------------------------------------------===//

SmallVector<int64_t> DropoutMaskOp::getDrawShape() {
  return SmallVector<int64_t>(tensorType(getResult()).getShape());
}
std::optional<unsigned> DropoutMaskOp::getDrawDimension(unsigned dim) { return dim; }
void DropoutMaskOp::setFirst(Value first, ArrayRef<int64_t> strides) {
  getFirstMutable().assign(first);
  setStrides(strides);
}

SmallVector<int64_t> RandomOp::getDrawShape() {
  return SmallVector<int64_t>(tensorType(getResult()).getShape());
}
std::optional<unsigned> RandomOp::getDrawDimension(unsigned dim) { return dim; }
void RandomOp::setFirst(Value first, ArrayRef<int64_t> strides) {
  getFirstMutable().assign(first);
  setStrides(strides);
}

/// Scores: batch, heads, queries, keys.
template <typename OpType> static SmallVector<int64_t> getScoreShape(OpType op) {
  ArrayRef<int64_t> query = tensorType(op.getQuery()).getShape();
  return {query[0], query[1], query[2], tensorType(op.getKey()).getDimSize(2)};
}
/// Scores are numbered from one first number, so a part of them is whole along all dimensions but
/// the outermost.
static std::optional<unsigned> getScoreDimension(unsigned dim) {
  return dim == 0 ? std::optional<unsigned>(0) : std::nullopt;
}

bool AttentionOp::drawsNumbers() { return bool(getSeed()); }
SmallVector<int64_t> AttentionOp::getDrawShape() { return getScoreShape(*this); }
std::optional<unsigned> AttentionOp::getDrawDimension(unsigned dim) {
  return getScoreDimension(dim);
}
void AttentionOp::setFirst(Value first, ArrayRef<int64_t>) { getFirstMutable().assign(first); }

bool AttentionBackwardOp::drawsNumbers() { return bool(getSeed()); }
SmallVector<int64_t> AttentionBackwardOp::getDrawShape() { return getScoreShape(*this); }
std::optional<unsigned> AttentionBackwardOp::getDrawDimension(unsigned dim) {
  return getScoreDimension(dim);
}
void AttentionBackwardOp::setFirst(Value first, ArrayRef<int64_t>) {
  getFirstMutable().assign(first);
}
