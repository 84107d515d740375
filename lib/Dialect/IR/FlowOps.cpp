//===- FlowOps.cpp - loops, borders, transfers and collectives -*- C++ -*-===//
//
// Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BoundRegion.h"
#include "LoopCosts.h"
#include "memopt/Dialect/DiskBlocks.h"
#include "memopt/Dialect/Memopt.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace mlir::memopt;

//===----------------------------------------------------------------------===//
// RepeatOp
//===----------------------------------------------------------------------===//

void RepeatOp::build(OpBuilder &builder, OperationState &state, ValueRange inputs, int64_t count,
                     bool nextBatch) {
  state.addOperands(inputs);
  Properties &properties = state.getOrAddProperties<Properties>();
  properties.count = builder.getI64IntegerAttr(count);
  if (nextBatch)
    properties.next_batch = builder.getUnitAttr();
  Region *body = state.addRegion();
  Block &block = body->emplaceBlock();
  for (Value input : inputs)
    block.addArgument(input.getType(), input.getLoc());
  ensureTerminator(*body, builder, state.location);
}

LogicalResult RepeatOp::verify() {
  if (getBody().getArgumentTypes() != getInputs().getTypes())
    return emitOpError("expects one block argument for each operand, of its type");
  auto yield = cast<YieldOp>(getBody().front().getTerminator());
  if (!yield.getValues().empty())
    return emitOpError("gives no values; state passes through variables");
  return success();
}

int64_t RepeatOp::getFlops() {
  return sumOverBody(*this, [](CostOpInterface op) { return op.getFlops(); });
}
int64_t RepeatOp::getBytesMoved() {
  return sumOverBody(*this, [](CostOpInterface op) { return op.getBytesMoved(); });
}
std::string RepeatOp::getKindName() { return "repeat"; }
Work RepeatOp::getWork() { return Work(); }
int64_t RepeatOp::getRepeatCount() { return getCountAttr().getInt(); }
SmallVector<Block *> RepeatOp::getBodies() { return {&getBody().front()}; }

//===----------------------------------------------------------------------===//
// CommitOp
//===----------------------------------------------------------------------===//

void CommitOp::build(OpBuilder &, OperationState &state, Value loss) { state.addOperands(loss); }

LogicalResult CommitOp::verify() {
  if (cast<RankedTensorType>(getLoss().getType()).getNumElements() != 1)
    return emitOpError() << "expects a loss of one element, found " << getLoss().getType();
  return success();
}

/// Nothing moves over it: it may end the step.
void CommitOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  effects.emplace_back(MemoryEffects::Write::get());
}

int64_t CommitOp::getFlops() { return 0; }
std::string CommitOp::getKindName() { return "commit"; }
Work CommitOp::getWork() { return Work(); }

//===----------------------------------------------------------------------===//
// Transfers
//===----------------------------------------------------------------------===//

void TransferStartOp::build(OpBuilder &builder, OperationState &state, Value source, Space to) {
  state.addOperands(source);
  state.addTypes(TokenType::get(builder.getContext()));
  state.getOrAddProperties<Properties>().to = SpaceAttr::get(builder.getContext(), to);
}

LogicalResult TransferStartOp::verify() {
  if (getSpace(getSource().getType()) == getTo())
    return emitOpError() << "goes to the space that it comes from, " << stringifySpace(getTo());
  if (getResource() == Resource::Disk && getSpace(getSource().getType()) != Space::Host &&
      getTo() != Space::Host)
    return emitOpError("goes past the host: between the device and the disk lies a window there");
  return success();
}

/// The device's engines copy from and to the host; whatever touches the disk waits for the disk.
Resource TransferStartOp::getResource() {
  Space from = getSpace(getSource().getType());
  if (from == Space::Disk || getTo() == Space::Disk)
    return Resource::Disk;
  return from == Space::Device ? Resource::CopyOut : Resource::CopyIn;
}

int64_t TransferStartOp::getFlops() { return 0; }
int64_t TransferStartOp::getBytesMoved() {
  int64_t bytes = getTensorBytes(getSource().getType());
  return getResource() == Resource::Disk ? roundUpToDiskBlocks(bytes) : bytes;
}
std::string TransferStartOp::getKindName() { return "transfer_start"; }
StringRef TransferStartOp::getListName() { return "transfers"; }

/// Machines are described without their disks: one takes as long as memory does for this many times
/// the bytes, which is 1.5 GB/s beside 24 GB/s.
static constexpr double kDiskSlowness = 16;

Work TransferStartOp::getWork() {
  Work work;
  work.workClass = WorkClass::Transfer;
  double factor = getResource() == Resource::Disk ? kDiskSlowness : 2; // read and written
  work.bytes = factor * static_cast<double>(getBytesMoved());
  return work;
}

static llvm::json::Object describeEnd(Value value) {
  FailureOr<int64_t> offset = getPlannedOffset(value);
  return llvm::json::Object{{"space", stringifySpace(getSpace(value.getType()))},
                            {"offset", offset.value_or(-1)}};
}

llvm::json::Object TransferStartOp::describe(TargetAttrInterface) {
  auto wait = cast<TransferWaitOp>(*getToken().user_begin());
  return llvm::json::Object{{"from", describeEnd(getSource())},
                            {"to", describeEnd(wait.getResult())},
                            {"bytes", getBytesMoved()},
                            {"resource", stringifyResource(getResource())}};
}

void TransferWaitOp::build(OpBuilder &, OperationState &state, Value token) {
  auto start = token.getDefiningOp<TransferStartOp>();
  state.addOperands(token);
  state.addTypes(inSpace(cast<RankedTensorType>(start.getSource().getType()), start.getTo()));
}

LogicalResult TransferWaitOp::verify() {
  auto start = getToken().getDefiningOp<TransferStartOp>();
  if (!start)
    return emitOpError("expects the token of a transfer_start");
  RankedTensorType expected =
      inSpace(cast<RankedTensorType>(start.getSource().getType()), start.getTo());
  if (getResult().getType() != expected)
    return emitOpError() << "has type " << getResult().getType() << ", expected " << expected;
  return success();
}

int64_t TransferWaitOp::getFlops() { return 0; }
int64_t TransferWaitOp::getBytesMoved() { return 0; }
std::string TransferWaitOp::getKindName() { return "transfer_wait"; }
Work TransferWaitOp::getWork() { return Work(); }

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

LogicalResult CollectiveOp::verify() {
  auto input = cast<RankedTensorType>(getInput().getType()),
       result = cast<RankedTensorType>(getResult().getType());
  if (getSpace(input) != Space::Device || getSpace(result) != Space::Device)
    return emitOpError("works on the device alone");
  if (input.getElementType() != result.getElementType())
    return emitOpError() << "gives elements of " << result.getElementType() << " for such of "
                         << input.getElementType();
  if (isReduction(getKind()) && !isSummable(input.getElementType()))
    return emitOpError() << "adds up f32, f64, i32 or i64, found " << input.getElementType();
  if (getKind() == CollectiveKind::AllReduce)
    return input == result ? success()
                           : emitOpError() << "gives " << result << ", expected " << input;
  bool isGather = getKind() == CollectiveKind::AllGather;
  int64_t whole = (isGather ? result : input).getNumElements(),
          shard = (isGather ? input : result).getNumElements(), ranks = getRanksAttr().getInt();
  if (getKind() == CollectiveKind::AllToAll) {
    if (shard % ranks)
      return emitOpError() << "gives " << shard << " elements, which are no " << ranks
                           << " shards of one size";
    shard /= ranks;
  }
  if (shard < static_cast<int64_t>(llvm::divideCeil(whole, ranks)))
    return emitOpError() << "has shards of " << shard << " elements, but " << ranks
                         << " of them do not hold " << whole;
  return success();
}

/// own_shard(all_reduce(x)) -> reduce_scatter(x), where nobody else wants the whole sum.
LogicalResult CollectiveOp::canonicalize(CollectiveOp op, PatternRewriter &rewriter) {
  auto sum = op.getInput().getDefiningOp<CollectiveOp>();
  if (op.getKind() != CollectiveKind::OwnShard || !sum ||
      sum.getKind() != CollectiveKind::AllReduce || !sum->hasOneUse())
    return rewriter.notifyMatchFailure(op, "is no shard of a sum that has no other use");
  auto scattered = rewriter.replaceOpWithNewOp<CollectiveOp>(
      op, cast<RankedTensorType>(op.getResult().getType()), CollectiveKind::ReduceScatter,
      sum.getInput(), op.getRanksAttr().getInt());
  scattered.setPhase(sum.getPhase());
  rewriter.eraseOp(sum);
  return success();
}

/// What goes into sums is seldom there any more.
bool CollectiveOp::isRecomputable() {
  return getKind() == CollectiveKind::AllGather || getKind() == CollectiveKind::OwnShard;
}
int64_t CollectiveOp::getFlops() {
  int64_t elements = cast<RankedTensorType>(getResult().getType()).getNumElements();
  return isReduction(getKind()) ? multiplyCounts({elements, getRanksAttr().getInt()}) : 0;
}

/// By one rank: what it reads of all of them, and what it writes.
int64_t CollectiveOp::getBytesMoved() {
  int64_t result = getTensorBytes(getResult().getType());
  bool readsOnce = getKind() != CollectiveKind::ReduceScatter;
  if (getKind() == CollectiveKind::AllReduce) // a part of the sum, and those of the others
    return multiplyCounts({result, 4});
  return addCounts(result, readsOnce ? result : multiplyCounts({result, getRanksAttr().getInt()}));
}

std::string CollectiveOp::getKindName() { return stringifyCollectiveKind(getKind()).str(); }
StringRef CollectiveOp::getListName() { return "collectives"; }

Work CollectiveOp::getWork() {
  Work work;
  work.workClass = WorkClass::Transfer;
  work.bytes = static_cast<double>(getBytesMoved());
  return work;
}

/// Each rank adds up a piece of its own and fetches the others when all are done.
SmallVector<InPlaceOperand> CollectiveOp::getInPlaceOperands(unsigned) {
  if (getKind() == CollectiveKind::AllReduce)
    return {{0, /*byRow=*/false}};
  return {};
}

llvm::json::Object CollectiveOp::describe(TargetAttrInterface) {
  auto input = cast<RankedTensorType>(getInput().getType()),
       result = cast<RankedTensorType>(getResult().getType());
  return llvm::json::Object{{"kind", stringifyCollectiveKind(getKind())},
                            {"dtype", getDtypeName(input.getElementType())},
                            {"from", describeEnd(getInput())},
                            {"to", describeEnd(getResult())},
                            {"elements", input.getNumElements()},
                            {"result_elements", result.getNumElements()}};
}
