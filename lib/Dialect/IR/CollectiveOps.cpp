//===- CollectiveOps.cpp - operations of all ranks together -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "memopt/Dialect/Memopt.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// CollectiveOp
//===----------------------------------------------------------------------===//

void CollectiveOp::build(OpBuilder &builder, OperationState &state, RankedTensorType result,
                         CollectiveKind kind, Value input, int64_t ranks) {
  state.addOperands(input);
  state.addTypes(result);
  Properties &properties = state.getOrAddProperties<Properties>();
  properties.kind = CollectiveKindAttr::get(builder.getContext(), kind);
  properties.ranks = builder.getI64IntegerAttr(ranks);
}

static bool isReduction(CollectiveKind kind) {
  return kind == CollectiveKind::AllReduce || kind == CollectiveKind::ReduceScatter;
}

static bool isSummable(Type type) {
  return type.isF32() || type.isF64() || type.isSignlessInteger(32) || type.isSignlessInteger(64);
}

/// Whether `op` may make `result` of `input`, at once or from its start to its wait.
static LogicalResult verifyCollective(Operation *op, CollectiveKind kind, int64_t ranks,
                                      RankedTensorType input, RankedTensorType result) {
  if (getSpace(input) != Space::Device || getSpace(result) != Space::Device)
    return op->emitOpError("works on the device alone");
  if (input.getElementType() != result.getElementType())
    return op->emitOpError() << "gives elements of " << result.getElementType() << " for such of "
                             << input.getElementType();
  if (isReduction(kind) && !isSummable(input.getElementType()))
    return op->emitOpError() << "adds up f32, f64, i32 or i64, found " << input.getElementType();
  if (kind == CollectiveKind::AllReduce)
    return input == result ? success()
                           : op->emitOpError() << "gives " << result << ", expected " << input;
  bool isGather = kind == CollectiveKind::AllGather;
  int64_t whole = (isGather ? result : input).getNumElements(),
          shard = (isGather ? input : result).getNumElements();
  if (kind == CollectiveKind::AllToAll) {
    if (shard % ranks)
      return op->emitOpError() << "gives " << shard << " elements, which are no " << ranks
                               << " shards of one size";
    shard /= ranks;
  }
  if (shard < static_cast<int64_t>(llvm::divideCeil(whole, ranks)))
    return op->emitOpError() << "has shards of " << shard << " elements, but " << ranks
                             << " of them do not hold " << whole;
  return success();
}

LogicalResult CollectiveOp::verify() {
  return verifyCollective(*this, getKind(), getRanksAttr().getInt(),
                          cast<RankedTensorType>(getInput().getType()),
                          cast<RankedTensorType>(getResult().getType()));
}

static bool isOnlySum(CollectiveOp sum) {
  return sum && sum.getKind() == CollectiveKind::AllReduce && sum->hasOneUse();
}

/// own_shard(pack(all_reduce(x), all_reduce(y))) -> reduce_scatter(pack(x, y)): one sum of all.
static LogicalResult scatterPack(CollectiveOp op, PackOp pack, PatternRewriter &rewriter) {
  if (!pack->hasOneUse())
    return rewriter.notifyMatchFailure(op, "is no shard of a vector that has no other use");
  SmallVector<Value> terms;
  for (Value input : pack.getInputs()) {
    auto sum = input.getDefiningOp<CollectiveOp>();
    if (!isOnlySum(sum))
      return rewriter.notifyMatchFailure(op, "is a shard of something else than sums");
    terms.push_back(sum.getInput());
  }
  Phase phase = getPhase(pack.getInputs().front().getDefiningOp());
  rewriter.modifyOpInPlace(pack, [&] {
    pack.getInputsMutable().assign(terms);
    setPhase(pack, phase);
  });
  auto scattered = rewriter.replaceOpWithNewOp<CollectiveOp>(
      op, cast<RankedTensorType>(op.getResult().getType()), CollectiveKind::ReduceScatter,
      pack.getResult(), op.getRanksAttr().getInt());
  scattered.setPhase(phase);
  return success();
}

/// own_shard(all_reduce(x)) -> reduce_scatter(x), where nobody else wants the whole sum.
LogicalResult CollectiveOp::canonicalize(CollectiveOp op, PatternRewriter &rewriter) {
  if (auto pack = op.getInput().getDefiningOp<PackOp>();
      pack && op.getKind() == CollectiveKind::OwnShard)
    return scatterPack(op, pack, rewriter);
  auto sum = op.getInput().getDefiningOp<CollectiveOp>();
  if (op.getKind() != CollectiveKind::OwnShard || !isOnlySum(sum))
    return rewriter.notifyMatchFailure(op, "is no shard of a sum that has no other use");
  auto scattered = rewriter.replaceOpWithNewOp<CollectiveOp>(
      op, cast<RankedTensorType>(op.getResult().getType()), CollectiveKind::ReduceScatter,
      sum.getInput(), op.getRanksAttr().getInt());
  scattered.setPhase(sum.getPhase());
  rewriter.eraseOp(sum);
  return success();
}

/// What goes into sums is seldom there any more.
static bool isRepeatable(CollectiveKind kind) {
  return kind == CollectiveKind::AllGather || kind == CollectiveKind::OwnShard;
}

static int64_t countFlops(CollectiveKind kind, int64_t ranks, Type result) {
  int64_t elements = cast<RankedTensorType>(result).getNumElements();
  return isReduction(kind) ? multiplyCounts({elements, ranks}) : 0;
}

/// By one rank: what it reads of all of them, and what it writes.
static int64_t countBytesMoved(CollectiveKind kind, int64_t ranks, Type type) {
  int64_t result = getTensorBytes(type);
  if (kind == CollectiveKind::AllReduce) // a part of the sum, and those of the others
    return multiplyCounts({result, 4});
  bool readsOnce = kind != CollectiveKind::ReduceScatter;
  return addCounts(result, readsOnce ? result : multiplyCounts({result, ranks}));
}

static Work getWorkOf(int64_t bytes) {
  Work work;
  work.workClass = WorkClass::Copy;
  work.bytes = static_cast<double>(bytes);
  return work;
}

static llvm::json::Object describeCollective(CollectiveKind kind, Value input, Value result) {
  auto from = cast<RankedTensorType>(input.getType()),
       to = cast<RankedTensorType>(result.getType());
  return llvm::json::Object{{"kind", stringifyCollectiveKind(kind)},
                            {"dtype", getDtypeName(from.getElementType())},
                            {"elements", from.getNumElements()},
                            {"result_elements", to.getNumElements()}};
}

bool CollectiveOp::isRecomputable() { return isRepeatable(getKind()); }
int64_t CollectiveOp::getFlops() {
  return countFlops(getKind(), getRanksAttr().getInt(), getResult().getType());
}
int64_t CollectiveOp::getBytesMoved() {
  return countBytesMoved(getKind(), getRanksAttr().getInt(), getResult().getType());
}

std::string CollectiveOp::getKindName() { return stringifyCollectiveKind(getKind()).str(); }
StringRef CollectiveOp::getListName() { return "collectives"; }

Work CollectiveOp::getWork() { return getWorkOf(getBytesMoved()); }

/// Each rank adds up a piece of its own and fetches the others when all are done.
SmallVector<InPlaceOperand> CollectiveOp::getInPlaceOperands(unsigned) {
  if (getKind() == CollectiveKind::AllReduce)
    return {{0, /*byRow=*/false}};
  return {};
}

llvm::json::Object CollectiveOp::describe(TargetAttrInterface) {
  return describeCollective(getKind(), getInput(), getResult());
}

//===----------------------------------------------------------------------===//
// PackOp, UnpackOp
//===----------------------------------------------------------------------===//

LogicalResult PackOp::verify() {
  auto whole = cast<RankedTensorType>(getResult().getType());
  if (getInputs().empty() || getInputs().size() != getFirsts().size())
    return emitOpError() << "has " << getInputs().size() << " tensors and " << getFirsts().size()
                         << " places for them";
  int64_t end = 0;
  for (auto [input, first] : llvm::zip_equal(getInputs(), getFirsts())) {
    auto type = cast<RankedTensorType>(input.getType());
    if (type.getElementType() != whole.getElementType() || first < end)
      return emitOpError() << "puts " << type << " at element " << first << " of " << whole
                           << ", where elements before it end at " << end;
    end = first + type.getNumElements();
  }
  if (whole.getRank() != 1 || end > whole.getNumElements())
    return emitOpError() << "gives " << whole << " for " << end << " elements";
  return success();
}

LogicalResult UnpackOp::verify() {
  auto whole = cast<RankedTensorType>(getInput().getType()),
       type = cast<RankedTensorType>(getResult().getType());
  auto first = static_cast<int64_t>(getFirst());
  if (whole.getRank() != 1 || type.getElementType() != whole.getElementType() || first < 0 ||
      first + type.getNumElements() > whole.getNumElements())
    return emitOpError() << "gives " << type << " from element " << first << " of " << whole;
  return success();
}

//===----------------------------------------------------------------------===//
// Collectives in flight
//===----------------------------------------------------------------------===//

void CollectiveStartOp::build(OpBuilder &builder, OperationState &state, CollectiveKind kind,
                              Value input, int64_t ranks, bool inPlace) {
  state.addOperands(input);
  state.addTypes(TokenType::get(builder.getContext()));
  Properties &properties = state.getOrAddProperties<Properties>();
  properties.kind = CollectiveKindAttr::get(builder.getContext(), kind);
  properties.ranks = builder.getI64IntegerAttr(ranks);
  if (inPlace)
    properties.in_place = builder.getUnitAttr();
}

CollectiveWaitOp CollectiveStartOp::getWait() {
  return getToken().use_empty() ? CollectiveWaitOp()
                                : dyn_cast<CollectiveWaitOp>(*getToken().user_begin());
}

LogicalResult CollectiveStartOp::verify() {
  if (getKind() == CollectiveKind::OwnShard)
    return emitOpError("sends nothing that could be in flight");
  if (!getInPlace())
    return success();
  if (getKind() != CollectiveKind::AllReduce)
    return emitOpError("makes its result in the bytes of its operand, as all_reduce alone can");
  Value root = getBufferRoot(getInput());
  if (!isInstruction(root.getDefiningOp()) || root.getParentBlock() != (*this)->getBlock())
    return emitOpError("writes over an operand that no instruction of its block makes");
  if (!llvm::hasSingleElement(getUsesOfBuffer(root)))
    return emitOpError("writes over an operand that something else reads");
  return success();
}

bool CollectiveStartOp::isRecomputable() { return isRepeatable(getKind()); }
int64_t CollectiveStartOp::getFlops() {
  CollectiveWaitOp wait = getWait();
  return wait ? countFlops(getKind(), getRanksAttr().getInt(), wait.getResult().getType()) : 0;
}
int64_t CollectiveStartOp::getBytesMoved() {
  CollectiveWaitOp wait = getWait();
  return wait ? countBytesMoved(getKind(), getRanksAttr().getInt(), wait.getResult().getType()) : 0;
}
std::string CollectiveStartOp::getKindName() {
  return (stringifyCollectiveKind(getKind()) + "_start").str();
}
StringRef CollectiveStartOp::getListName() { return "collectives"; }
Resource CollectiveStartOp::getResource() { return Resource::Network; }
Work CollectiveStartOp::getWork() { return getWorkOf(getBytesMoved()); }

llvm::json::Object CollectiveStartOp::describe(TargetAttrInterface) {
  llvm::json::Object entry = describeCollective(getKind(), getInput(), getWait().getResult());
  entry["in_flight"] = true;
  return entry;
}

void CollectiveWaitOp::build(OpBuilder &, OperationState &state, RankedTensorType result,
                             Value token) {
  state.addOperands(token);
  state.addTypes(result);
}

CollectiveStartOp CollectiveWaitOp::getStartOp() {
  return getToken().getDefiningOp<CollectiveStartOp>();
}

Value CollectiveWaitOp::getTakenOperand() {
  CollectiveStartOp start = getStartOp();
  return start && start.getInPlace() ? start.getInput() : Value();
}

LogicalResult CollectiveWaitOp::verify() {
  CollectiveStartOp start = getStartOp();
  if (!start)
    return emitOpError("expects the token of a collective_start");
  return verifyCollective(*this, start.getKind(), start.getRanksAttr().getInt(),
                          cast<RankedTensorType>(start.getInput().getType()),
                          cast<RankedTensorType>(getResult().getType()));
}

bool CollectiveWaitOp::isRecomputable() {
  CollectiveStartOp start = getStartOp();
  return start && start.isRecomputable();
}
int64_t CollectiveWaitOp::getFlops() { return 0; }
int64_t CollectiveWaitOp::getBytesMoved() { return 0; }
std::string CollectiveWaitOp::getKindName() { return "collective_wait"; }
Work CollectiveWaitOp::getWork() { return Work(); }
